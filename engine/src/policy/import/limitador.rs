//! The importer for limits files of limitador, which are lists of limits. All limits apply whose conditions are met and whose variables
//! the request has.
//!
//! Of our rules that count the same kinds only the closest applies. So `per` has the kinds of a limit's variables and conditions (a
//! value that a condition fixes does not change the counting), and where several limits of the same kinds meet, one rule has all of
//! them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{
    ImportError, ImportedPolicy, Notes, Source, SourcePosition,
    capacity::Capacity,
    cel::{self, Notation},
    document::YamlDocument,
    finish, in_file_order,
    names::{DomainKeys, Ids, domain_ids, id_of},
    period,
    regions::{
        CountedKinds, Decided, Region, RegionRule, RegionRules, ValueSet, check_condition, covers, kind_of, name_of,
        rule, rules_of_regions,
    },
    unlimited, window,
};
use crate::policy::{
    compiled::PLAN_MAX,
    document::{DescriptorPaths, Descriptors, Domain, EVERYONE, Limit, Mode, Policy, Rule},
    request::IDENTITIES_MAX,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    id: Option<String>,
    name: Option<String>,
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) max_value: u64,
    pub(super) seconds: u64,
    pub(super) conditions: Option<Vec<String>>,
    pub(super) variables: Option<Vec<String>>,
}

/// The description of a document in errors.
pub(super) const EACH_DOCUMENT: &str = "a list of limits";

/// Imports limits files of limitador. A namespace becomes a domain.
///
/// ```
/// use tidegate::import::{Source, limitador};
///
/// let text = "
/// - namespace: shop
///   max_value: 10
///   seconds: 60
///   conditions: [\"descriptors[0].plan == 'free'\"]
///   variables: [\"descriptors[0].user_id\"]
/// ";
/// let imported = limitador(&[Source { name: "limits.yaml", text }])?;
/// let rule = &imported.policy.domains["shop"].rules[0];
/// assert_eq!((rule.condition["plan"].as_str(), rule.limits[0].period.as_str()), ("free", "1m"));
/// # Ok::<(), tidegate::import::ImportError>(())
/// ```
pub fn limitador(sources: &[Source<'_>]) -> Result<ImportedPolicy, ImportError> {
    let mut notes = Notes::default();
    let documents = YamlDocument::each_of(sources, EACH_DOCUMENT);
    let lists = documents.iter().map(YamlDocument::read).collect::<Result<Vec<Vec<Spanned<Item>>>, _>>()?;
    let ids = domain_ids(lists.iter().flatten().map(|item| &item.value.namespace));
    let mut spaces: BTreeMap<String, Space> = ids.into_iter().map(|(name, id)| (name, Space::named(id))).collect();
    for (document, items) in documents.into_iter().zip(lists) {
        let file = document.file;
        if !items.is_empty() {
            notes.note_counters(file);
            let what = "windows that begin with the first request of a key";
            let instead = "they begin at whole multiples of their period; as many fit in each";
            notes.note_file(file, what, instead, true);
        }
        for (place, spanned) in items.into_iter().enumerate() {
            let line = document.line(spanned.referenced.line());
            let at = SourcePosition { file, line, path: format!("[{place}]") };
            let item = spanned.value;
            if item.namespace.is_empty() {
                let field = format!("[{place}].namespace");
                return Err(document.wrong(Some(line), field, "a limit has a namespace"));
            }
            let Some(space) = spaces.get_mut(&item.namespace) else { continue };
            notes.warn_of_domain(&at, "namespace", &item.namespace, &space.id);
            space.add(at, item, &mut notes);
        }
    }
    note_notations(&spaces, sources.len(), &mut notes);
    let domains = spaces.into_values().map(|space| (space.id.clone(), space.into_domain(&mut notes)));
    let policy = Policy { domains: domains.collect() };
    finish(sources, policy, notes)
}

/// Reports the notations of a file: limitador evaluates `descriptors[0].x` in RLS calls only, and `x` in HTTP calls only.
fn note_notations(spaces: &BTreeMap<String, Space>, files: usize, notes: &mut Notes) {
    for file in 0..files {
        for (notation, what, instead) in [
            (
                Notation::First,
                "values of `descriptors[0]`, which only calls by RLS have, in their first descriptor",
                "they are identities of every descriptor; where a call has several, each is counted",
            ),
            (
                Notation::First,
                "a key that one descriptor has twice, of which the last value counts",
                "the first value counts; a second `generic_key` is the kind `generic_key_2`",
            ),
            (
                Notation::Bare,
                "values without `descriptors[0]`, which only calls by HTTP have",
                "they are identities of every request, however it was asked for",
            ),
        ] {
            if spaces.values().any(|space| space.notations.contains(&(file, notation))) {
                notes.note_file(file, what, instead, true);
            }
        }
    }
}

/// The limits of a namespace.
struct Space {
    id: String,
    keys: DomainKeys,
    limits: Vec<LimitEntry>,
    /// The identities of limits: two limits of the same period, conditions and variables are the same.
    identities: BTreeSet<(u64, BTreeSet<String>, BTreeSet<String>)>,
    /// The notations of values, with the files that use them.
    notations: BTreeSet<(usize, Notation)>,
}

struct LimitEntry {
    at: SourcePosition,
    limit: Limit,
    /// The name, if the file has one.
    name: Option<String>,
    /// The values that the conditions require.
    fixed: BTreeMap<String, ValueSet>,
    /// The kinds of the variables and of the conditions.
    counted: BTreeSet<String>,
}

impl Space {
    fn named(id: String) -> Self {
        Self {
            id,
            keys: DomainKeys::default(),
            limits: Vec::new(),
            identities: BTreeSet::new(),
            notations: BTreeSet::new(),
        }
    }

    fn add(&mut self, at: SourcePosition, item: Item, notes: &mut Notes) {
        let (mut fixed, mut counted) = (BTreeMap::new(), BTreeSet::new());
        let leave_out =
            |notes: &mut Notes, field: &str, what: String| notes.warn(&at, field, what, "the limit is left out");
        let texts = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect();
        if !self.identities.insert((item.seconds, texts(&item.conditions), texts(&item.variables))) {
            let what = "a limit that stands here before, of the same period, conditions and variables";
            return notes.note(&at, "", what, "the first holds, and this one is left out");
        }
        for (place, text) in item.conditions.iter().flatten().enumerate() {
            let field = format!("conditions[{place}]");
            let equalities = match cel::equalities(text) {
                Ok(equalities) => equalities,
                Err(why) => return leave_out(notes, &field, format!("`{text}`: {why}")),
            };
            for ((key, notation), value) in equalities {
                self.notations.insert((at.file, notation));
                let kind = self.kind(&at, notes, &field, &key);
                if value.ends_with('*') || value.is_empty() {
                    return leave_out(notes, &field, format!("`{value}`, which means something else as a value here"));
                }
                let plain = match check_condition(&at, notes, &field, &kind, ValueSet::Exact(value)) {
                    Ok(plain) => plain,
                    Err(why) => return leave_out(notes, &field, why),
                };
                if fixed.insert(kind.clone(), plain.clone()).is_some_and(|other| other != plain) {
                    let instead = "it is left out";
                    return notes.note(&at, &field, "two values for one key, which no request has", instead);
                }
                counted.insert(kind);
            }
        }
        for (place, text) in item.variables.iter().flatten().enumerate() {
            let field = format!("variables[{place}]");
            let (key, notation) = match cel::variable(text) {
                Ok(key) => key,
                Err(why) => return leave_out(notes, &field, format!("`{text}`: {why}")),
            };
            self.notations.insert((at.file, notation));
            counted.insert(self.kind(&at, notes, &field, &key));
        }
        if counted.len() > IDENTITIES_MAX {
            return leave_out(notes, "variables", format!("more than {IDENTITIES_MAX} identities"));
        }
        let name = item.id.or(item.name).filter(|name| !name.is_empty());
        if let Some(name) = name.as_ref().filter(|name| id_of(name) != **name) {
            notes.note(&at, "name", format!("`{name}` is not an id"), format!("it is like `{}`", id_of(name)));
        }
        let id = name.as_deref().map_or_else(|| format!("per-{}", period(item.seconds)), id_of);
        if let Some(limit) = window(&at, notes, "max_value", (id, item.max_value, item.seconds), Mode::Enforce) {
            self.limits.push(LimitEntry { at, limit, name, fixed, counted });
        }
    }

    fn kind(&mut self, at: &SourcePosition, notes: &mut Notes, field: &str, key: &str) -> String {
        let kind = kind_of(key, &[]);
        self.keys.note(at, notes, field, key, &kind);
        kind
    }

    fn into_domain(self, notes: &mut Notes) -> Domain {
        let kinds: BTreeSet<&String> = self.limits.iter().flat_map(|limit| &limit.counted).collect();
        if let (Some(limit), true) = (self.limits.first(), kinds.len() > IDENTITIES_MAX) {
            let what = format!("a namespace with {} keys, all of which a descriptor may have at once", kinds.len());
            let instead = format!("of more than {IDENTITIES_MAX} of them only the first count");
            notes.warn(&limit.at, "", what, instead);
        }
        // Rules that count different kinds apply beside each other. The sets are in the order of the file.
        let mut sets: BTreeMap<&BTreeSet<String>, Vec<usize>> = BTreeMap::new();
        for (place, found) in self.limits.iter().enumerate() {
            sets.entry(&found.counted).or_default().push(place);
        }
        let mut sets: Vec<_> = sets.into_iter().collect();
        sets.sort_by_key(|(_, members)| members[0]);
        let mut ids = Ids::default();
        let mut capacity = Capacity::default();
        let mut rules: Vec<(usize, Rule)> = Vec::new();
        for (counted, members) in &sets {
            rules.extend(self.rules(counted, members, &mut ids, &mut capacity, notes));
        }
        let rules = in_file_order(rules);
        let (descriptors, descriptor_paths) = (Descriptors::Subset, DescriptorPaths::Identity);
        Domain { descriptors, descriptor_paths, rules, ..Domain::default() }
    }

    /// Returns the rules of the limits that count these kinds, each with the index of its first limit.
    fn rules(
        &self,
        counted: &BTreeSet<String>,
        members: &[usize],
        ids: &mut Ids,
        capacity: &mut Capacity,
        notes: &mut Notes,
    ) -> Vec<(usize, Rule)> {
        let leave_out = |notes: &mut Notes, places: &mut dyn Iterator<Item = usize>, field: &str, what: &str| {
            places.for_each(|place| notes.warn(&self.limits[place].at, field, what, "the limit is left out"));
        };
        if let Err(what) = capacity.take(counted, &counted.iter().map(String::as_str).collect()) {
            leave_out(notes, &mut members.iter().copied(), "", &what);
            return Vec::new();
        }
        let kinds: Vec<String> = counted.iter().cloned().collect();
        let values = |place: &usize| -> Region {
            let value = |kind: &String| self.limits[*place].fixed.get(kind).cloned().unwrap_or(ValueSet::Any);
            kinds.iter().map(value).collect()
        };
        let places: CountedKinds = (0..kinds.len()).collect();
        let regions: Vec<Region> = members.iter().map(values).collect();
        let decide = |region: &[ValueSet]| -> Decided {
            let all = members.iter().zip(&regions).filter(|(_, wide)| covers(wide, region)).map(|(place, _)| *place);
            BTreeMap::from([(places.clone(), all.collect())])
        };
        let carved = rules_of_regions(&kinds, &regions, &BTreeSet::from([places.clone()]), decide);
        let Some(RegionRules { mut rules, .. }) = carved else {
            leave_out(notes, &mut members.iter().copied(), "conditions", "too many values that meet each other");
            return Vec::new();
        };
        let most = capacity.widen(rules.iter().map(|rule| rule.limits.len()).max().unwrap_or_default());
        let beyond: BTreeSet<usize> =
            rules.iter_mut().flat_map(|rule| rule.limits.split_off(most.min(rule.limits.len()))).collect();
        let what = format!("more than {PLAN_MAX} limits that one request could meet");
        for place in beyond {
            notes.warn(&self.limits[place].at, "", &*what, "it does not hold where so many others do");
        }
        let named = |carved: RegionRule| {
            let first = carved.limits.first().copied();
            let name = first.and_then(|first| self.limits[first].name.clone()).unwrap_or_else(|| {
                if kinds.is_empty() { EVERYONE.to_owned() } else { name_of(&kinds, &carved.region) }
            });
            let mut limit_ids = Ids::default();
            let limits = carved.limits.iter().map(|place| {
                let limit = &self.limits[*place].limit;
                Limit { id: limit_ids.like(&limit.id), ..limit.clone() }
            });
            let mut limits: Vec<Limit> = limits.collect();
            if limits.is_empty() {
                limits.push(unlimited());
            }
            let rule = Rule { id: ids.like(&name), limits, ..rule(&kinds, &carved.region, &carved.counted) };
            (first.unwrap_or(self.limits.len()), rule)
        };
        rules.into_iter().map(named).collect()
    }
}
