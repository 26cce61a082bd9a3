//! The importer for configurations of envoyproxy/ratelimit, which have one domain a file and a tree of descriptors.
//!
//! For each entry of a request's descriptor, envoyproxy/ratelimit takes the child with the exact value, then one whose value ends
//! in `*` in the order of the file, then the key without value. It never leaves a branch again, and a limit counts only descriptors
//! of exactly its depth.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, de::IgnoredAny};
use serde_saphyr::Spanned;

use super::{
    ImportError, ImportedPolicy, Notes, Source, SourcePosition,
    descriptors::{DescriptorTree, NamedLimit, NodeLimit},
    document::YamlDocument,
    finish,
    names::{domain_ids, id_of},
    window,
};
use crate::policy::document::{Mode, Policy};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Root {
    pub(super) domain: Spanned<String>,
    #[serde(rename = "name")]
    _name: Option<IgnoredAny>,
    pub(super) descriptors: Option<Vec<Spanned<Descriptor>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "they are the file's")]
pub(super) struct Descriptor {
    pub(super) key: String,
    #[serde(rename = "name")]
    _name: Option<IgnoredAny>,
    pub(super) value: Option<String>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) descriptors: Option<Vec<Spanned<Descriptor>>>,
    #[serde(default)]
    pub(super) shadow_mode: bool,
    #[serde(default)]
    quota_mode: bool,
    #[serde(default)]
    detailed_metric: bool,
    #[serde(default)]
    value_to_metric: bool,
    #[serde(default)]
    share_threshold: bool,
    metadata: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimit {
    name: Option<String>,
    unit: Option<String>,
    #[serde(default)]
    pub(super) requests_per_unit: u32,
    #[serde(default)]
    pub(super) unlimited: bool,
    replaces: Option<Vec<Replaces>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaces {
    name: String,
}

/// The description of a document in errors.
pub(super) const EACH_DOCUMENT: &str = "a mapping with the fields `domain` and `descriptors`";

/// Imports configurations of envoyproxy/ratelimit. Files of the same domain are merged, as with its `MERGE_DOMAIN_CONFIG`.
///
/// ```
/// use tidegate::import::{Source, envoy};
///
/// let text = "
/// domain: shop
/// descriptors:
///   - key: api_key
///     rate_limit: { unit: minute, requests_per_unit: 60 }
/// ";
/// let imported = envoy(&[Source { name: "shop.yaml", text }])?;
/// assert_eq!(imported.policy.domains["shop"].rules[0].id, "api_key");
/// assert!(imported.notes.iter().all(|note| !note.changes_decisions));
/// # Ok::<(), tidegate::import::ImportError>(())
/// ```
pub fn envoy(sources: &[Source<'_>]) -> Result<ImportedPolicy, ImportError> {
    let mut notes = Notes::default();
    let documents = YamlDocument::each_of(sources, EACH_DOCUMENT);
    let roots = documents.iter().map(YamlDocument::read).collect::<Result<Vec<Root>, _>>()?;
    let domains = domain_ids(roots.iter().map(|root| &root.domain.value));
    let mut trees: BTreeMap<String, DescriptorTree> =
        domains.values().map(|id| (id.clone(), DescriptorTree::new())).collect();
    let mut met = BTreeSet::new();
    for (document, root) in documents.into_iter().zip(roots) {
        let line = document.line(root.domain.referenced.line());
        let at = SourcePosition { file: document.file, line, path: String::new() };
        if root.domain.value.is_empty() {
            return Err(document.wrong(Some(at.line), "domain", "a domain has a name"));
        }
        note_file(document.file, &root, &mut notes);
        let id = &domains[&root.domain.value];
        if !met.insert(id.clone()) {
            let what = format!("another document is of the domain `{}` too", root.domain.value);
            notes.note(&at, "domain", what, "they are one, as with MERGE_DOMAIN_CONFIG=true");
        }
        notes.warn_of_domain(&at, "domain", &root.domain.value, id);
        let tree = trees.entry(id.clone()).or_insert_with(DescriptorTree::new);
        let descriptors = root.descriptors.unwrap_or_default();
        add_descriptors(document, tree, &mut notes, DescriptorTree::ROOT, "descriptors", descriptors)?;
    }
    let domains = trees.into_iter().map(|(id, tree)| (id, tree.into_domain(&mut notes)));
    let policy = Policy { domains: domains.collect() };
    finish(sources, policy, notes)
}

impl Descriptor {
    /// Returns the name of a descriptor in its list: the key, with the value if it has one.
    pub(super) fn composite(&self) -> String {
        match self.value.as_deref() {
            None | Some("") => self.key.clone(),
            Some(value) => format!("{}_{value}", self.key),
        }
    }
}

impl Root {
    /// Returns the descriptors of all levels of the document.
    fn all_descriptors(&self) -> Vec<&Descriptor> {
        let mut all: Vec<&Descriptor> = self.descriptors.iter().flatten().map(|it| &it.value).collect();
        let mut next = 0;
        while let Some(descriptor) = all.get(next) {
            let below = descriptor.descriptors.iter().flatten().map(|it| &it.value);
            all.extend(below.collect::<Vec<_>>());
            next += 1;
        }
        all
    }
}

/// Finds a descriptor that entries of another key also match, because envoyproxy/ratelimit joins key and value to one text. Returns
/// the name of the descriptor and that key.
fn find_joined<'d>(descriptors: &[&'d Descriptor]) -> Option<(String, &'d str)> {
    let keys: BTreeMap<String, &str> = descriptors.iter().map(|it| (format!("{}_", it.key), &*it.key)).collect();
    descriptors.iter().find_map(|descriptor| {
        let name = descriptor.composite();
        let prefix = name.strip_suffix('*').unwrap_or(&name);
        let beginnings = prefix.match_indices('_').filter_map(|(place, _)| keys.get(&prefix[..=place]));
        let is_wild = prefix.len() < name.len();
        let longer = keys.range(prefix.to_owned()..).take_while(|(key, _)| is_wild && key.starts_with(prefix));
        let mut joined = beginnings.chain(longer.map(|(_, key)| key));
        let other = joined.find(|key| **key != descriptor.key)?;
        Some((name, *other))
    })
}

/// Reports the differences that concern a whole file with limits.
fn note_file(file: usize, root: &Root, notes: &mut Notes) {
    let descriptors = root.all_descriptors();
    if descriptors.is_empty() {
        return;
    }
    let is_composed =
        descriptors.iter().any(|it| it.composite().matches(['_', '*']).count() > usize::from(it.value.is_some()));
    let is_nested = descriptors.iter().any(|it| it.descriptors.as_ref().is_some_and(|it| !it.is_empty()));
    notes.note_counters(file);
    let what =
        "requests that are denied count too, which matters where they cost more than 1 or have several descriptors";
    notes.note_file(file, what, "what is denied charges nothing, for none of its descriptors", false);
    let what = "keys, which are compared letter by letter";
    let instead =
        "their case, and characters other than letters, digits and `_`, make no difference: `User-Id` is `user_id`";
    notes.note_file(file, what, instead, false);
    let instead = "a key is a key, and a value is a value";
    if let Some((name, key)) = find_joined(&descriptors) {
        let what =
            format!("`{name}`, a key joined with its value by `_`, which matches entries of the key `{key}` too");
        notes.note_file(file, &what, instead, true);
    } else if is_composed {
        let what = "keys and values with `_` or `*`, which match an entry that is divided at another `_` too";
        notes.note_file(file, what, instead, false);
    }
    if is_nested {
        let what = "descriptors of several entries, whose order counts there";
        notes.note_file(file, what, "in any other order they are the same here", false);
    }
}

/// Adds a list of descriptors to the tree, below the node `parent`.
fn add_descriptors(
    document: YamlDocument<'_>,
    tree: &mut DescriptorTree,
    notes: &mut Notes,
    parent: usize,
    path: &str,
    descriptors: Vec<Spanned<Descriptor>>,
) -> Result<(), ImportError> {
    for (place, spanned) in descriptors.into_iter().enumerate() {
        let line = document.line(spanned.referenced.line());
        let at = SourcePosition { file: document.file, line, path: format!("{path}[{place}]") };
        let wrong = |field: &str, why: String| document.wrong(Some(at.line), format!("{}.{field}", at.path), why);
        let mut descriptor = spanned.value;
        let composite = descriptor.composite();
        let value = descriptor.value.take().unwrap_or_default();
        if descriptor.key.is_empty() {
            return Err(wrong("key", "a descriptor has a key".to_owned()));
        }
        if !tree.nodes[parent].composites.insert(composite.clone()) {
            return Err(wrong("key", format!("`{composite}` stands in this list twice")));
        }
        if descriptor.share_threshold && !value.contains('*') {
            return Err(wrong("share_threshold", "it is for values with a `*` only".to_owned()));
        }
        let mode = if descriptor.shadow_mode { Mode::Shadow } else { Mode::Enforce };
        let limit =
            node_limit(&at, descriptor.rate_limit.as_ref(), mode, notes).map_err(|(field, why)| wrong(field, why))?;
        note_dropped_settings(&at, &descriptor, notes);
        let below = descriptor.descriptors.take().unwrap_or_default();
        let below_path = format!("{}.descriptors", at.path);
        match tree.add(parent, &at, notes, &descriptor.key, &value, descriptor.share_threshold) {
            Ok(node) => {
                tree.nodes[node].limit = limit;
                add_descriptors(document, tree, notes, node, &below_path, below)?;
            }
            Err((field, why)) => {
                let what = if below.is_empty() { "it is left out" } else { "it is left out, with what is below it" };
                notes.warn(&at, field, why, what);
            }
        }
    }
    Ok(())
}

/// Returns the limit of a descriptor, or the wrong field and the reason.
fn node_limit(
    at: &SourcePosition,
    rate_limit: Option<&RateLimit>,
    mode: Mode,
    notes: &mut Notes,
) -> Result<NodeLimit, (&'static str, String)> {
    const UNITS: [(&str, u64); 7] = [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 86_400),
        ("week", 7 * 86_400),
        ("month", 30 * 86_400),
        ("year", 365 * 86_400),
    ];
    let Some(RateLimit { name, unit, requests_per_unit, unlimited, replaces }) = rate_limit else {
        return Ok(NodeLimit::None);
    };
    for Replaces { name: replaced } in replaces.iter().flatten() {
        if replaced.is_empty() || Some(replaced) == name.as_ref() {
            return Err(("rate_limit.replaces", "it names another limit".to_owned()));
        }
    }
    if replaces.as_ref().is_some_and(|replaces| !replaces.is_empty()) {
        let instead = "the limits that it would replace hold beside it";
        notes.warn(at, "rate_limit.replaces", "a limit that replaces others in the same request", instead);
    }
    if *unlimited {
        return match unit.as_deref() {
            None | Some("") => Ok(NodeLimit::Unlimited),
            Some(_) => Err(("rate_limit.unit", "what is unlimited has no unit".to_owned())),
        };
    }
    let unit = unit.as_deref().unwrap_or_default();
    let Some((unit, seconds)) = UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
        let units = UNITS.map(|(name, _)| name).join(", ");
        return Err(("rate_limit.unit", format!("`{unit}` is not a unit; {units} are")));
    };
    let name = name.as_deref().filter(|name| !name.is_empty());
    if let Some(name) = name.filter(|name| id_of(name) != **name) {
        notes.note(at, "rate_limit.name", format!("`{name}` is not an id"), format!("it is `{}`", id_of(name)));
    }
    let limit = (unit.to_owned(), u64::from(*requests_per_unit), seconds);
    let limit = window(at, notes, "rate_limit", limit, mode);
    Ok(limit.map_or(NodeLimit::None, |limit| NodeLimit::Limit(NamedLimit { limit, name: name.map(str::to_owned) })))
}

fn note_dropped_settings(at: &SourcePosition, descriptor: &Descriptor, notes: &mut Notes) {
    if descriptor.quota_mode {
        let what = "a quota, which denies only when all quotas of a request are used up";
        notes.warn(at, "quota_mode", what, "it denies by itself");
    }
    for (field, is_there) in
        [("detailed_metric", descriptor.detailed_metric), ("value_to_metric", descriptor.value_to_metric)]
    {
        if is_there {
            notes.note(at, field, "a setting of its metrics", "limits are counted by their names here");
        }
    }
    if descriptor.metadata.is_some() {
        notes.note(at, "metadata", "metadata of answers", "answers have none");
    }
}
