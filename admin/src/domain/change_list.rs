//! A change list, and the policy that it makes of the present one.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tidegate::{
    DEFAULT_DOMAIN, Problems, Snapshot,
    algorithm::Carry,
    formats::from_json_value,
    policy::{Client, Domain, Policy},
};

use crate::domain::{
    edited_policy::Edited,
    editor::Editing,
    error::{Conflicting, FieldError, Present, Problem},
    json::{json_error, pointer_of},
    objects::{self, Kind, Object, ObjectKey, Usage},
    overrides,
    published::Published,
};

/// The longest message of a version, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 200;

/// One line, as a pattern: something besides blanks, and no control characters.
pub(crate) const MESSAGE_PATTERN: &str = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$";

/// What a person is about to publish.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeList {
    /// The version that the list was made on.
    pub(crate) base_version: u64,
    /// A line that says what changes and why. A draft may be without.
    pub(crate) message: String,
    /// At least one, to be published.
    changes: Vec<Change>,
    /// Entity tags of the objects that the list changes, by key.
    #[serde(default)]
    if_match: BTreeMap<String, String>,
    /// What becomes of used quota where a limit's numbers change, by full name of the limit; kept unless said.
    #[serde(default)]
    pub(crate) carry: BTreeMap<String, Carry>,
    /// Publish what a node that is connected cannot read: it keeps the policy that it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) force: bool,
    /// The nodes that it goes to first, by their names; all unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<Vec<String>>,
}

/// A change list that is only tried: what it leaves out is as it is now.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TriedList {
    /// The newest one unless given.
    base_version: Option<u64>,
    message: Option<String>,
    changes: Vec<Change>,
    /// Entity tags of the objects that the list changes, by key; as they are now unless given.
    #[serde(default)]
    if_match: BTreeMap<String, String>,
    /// Not looked at: what is tried begins with nothing used.
    #[serde(default)]
    carry: BTreeMap<String, Carry>,
    /// Not looked at: what is tried is sent to nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    force: bool,
    /// Not looked at either.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<String>>,
}

impl TriedList {
    /// As it would be published now.
    pub(crate) fn on(self, present: &Published) -> ChangeList {
        let Self { base_version, message, changes, mut if_match, carry, force, nodes } = self;
        for key in changes.iter().filter(|change| change.op != Op::Create).map(Change::key) {
            if_match.entry(key.to_string()).or_insert_with(|| present.etag(&key));
        }
        let base_version = base_version.unwrap_or(present.version.version);
        let message = message.filter(|message| !message.is_empty()).unwrap_or_else(|| "tried".to_owned());
        ChangeList { base_version, message, changes, if_match, carry, force, nodes }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Change {
    op: Op,
    kind: Kind,
    #[serde(default = "default_domain")]
    domain: String,
    id: String,
    /// The whole object, or what of it is to be otherwise; none for a deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    /// The new name of a tier or a rule that is replaced; `value` has the old one. What names the tier names it by the new
    /// one then, in the same version. Counters belong to full names of limits, so those of its limits begin anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rename: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// Adds an object.
    Create,
    /// Replaces an object that exists.
    Put,
    /// Replaces an object that exists by itself with a JSON merge patch (RFC 7396): fields that are named replace those of the
    /// object, `null` takes them away.
    Patch,
    /// Removes an object that exists.
    Delete,
}

/// What is said of a name that no domain has.
pub(crate) fn no_domain(name: &str) -> String {
    format!("There is no domain `{name}`.")
}

pub(crate) fn default_domain() -> String {
    DEFAULT_DOMAIN.to_owned()
}

fn taken(key: &ObjectKey) -> String {
    let ObjectKey { kind, id, .. } = key;
    format!("there is a {} `{id}` already; choose another name", kind.name())
}

/// Makes the changes on the present policy, if no object that they touch has changed since it was read.
pub(crate) fn edit(present: &Published, list: &ChangeList) -> Result<Edited, Problem> {
    edit_at(Timestamp::now(), present, list)
}

/// As [`edit`], at this instant: overrides that are made then last from then on.
pub(crate) fn edit_at(now: Timestamp, present: &Published, list: &ChangeList) -> Result<Edited, Problem> {
    check_form(list, present.version.version)?;
    let changes = || list.changes.iter().map(|change| (change, change.key()));
    // What is to be new has no tag yet.
    let matched = changes().filter(|(change, _)| change.op != Op::Create).map(|(_, key)| key.to_string());
    let missing: Vec<String> = matched.filter(|key| !list.if_match.contains_key(key)).collect();
    if !missing.is_empty() {
        return Err(Problem::PreconditionRequired(missing));
    }
    let mut editing = Editing::of(present.policy.clone());
    let (mut conflicts, mut wrong, mut touched, mut removed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut renamed = Vec::new();
    for (number, (change, key)) in changes().enumerate() {
        let pointer = format!("/changes/{number}");
        let (place, found) = editing.find(&key).unzip();
        // An object that is to be new must not be there, any other as it was read.
        let is_current = match change.op {
            Op::Create => found.is_none(),
            Op::Delete if key.kind == Kind::Domain && is_newer_within(present, &key, list.base_version) => false,
            Op::Put | Op::Patch | Op::Delete => {
                found.is_some() && list.if_match.get(&key.to_string()).is_some_and(|tag| *tag == present.etag(&key))
            }
        };
        if key.kind != Kind::Domain && !editing.has_domain(&key.domain) {
            wrong.push(FieldError::invalid(format!("{pointer}/domain"), no_domain(&key.domain)));
            continue;
        }
        if !is_current {
            conflicts.push(conflict(present, &key));
            continue;
        }
        match (change.object(&pointer, found.as_ref(), now), place) {
            (Ok(None), Some(place)) => removed.extend(editing.remove(&key, place)),
            (Ok(Some(object)), _) if object.id().is_some_and(|id| id != key.id) => {
                let message = format!("the id is `{}`; a tier or a rule is given another one by `rename`", key.id);
                wrong.push(FieldError::invalid(format!("{pointer}/value{}", object.id_pointer()), message));
            }
            (Ok(Some(object)), Some(place)) if let Some(new) = change.new_key() => {
                if editing.find(&new).is_some() {
                    wrong.push(FieldError::invalid(format!("{pointer}/rename"), taken(&new)));
                    continue;
                }
                editing.put(&key, Some(place), object.named(&new.id));
                touched.push(new.clone());
                removed.push(key.clone());
                renamed.push((key, new.id));
            }
            (Ok(Some(object)), _) if found.as_ref() == Some(&object) => {}
            (Ok(Some(object)), place) => {
                editing.put(&key, place, object);
                touched.push(key);
            }
            // A deletion of what is not there is a conflict.
            (Ok(None), None) => {}
            (Err(error), _) => wrong.push(error),
        }
    }
    if !conflicts.is_empty() {
        return Err(Problem::Conflict(conflicts));
    }
    if !wrong.is_empty() {
        return Err(Problem::Invalid(wrong));
    }
    if touched.is_empty() && removed.is_empty() {
        return Err(Problem::field("/changes", "everything is like this already; nothing to publish"));
    }
    let mut policy = editing.done();
    if !renamed.is_empty() {
        let moved = renamed.iter().flat_map(|(old, new)| objects::rename_tier(&mut policy, old, new));
        touched = touched.into_iter().chain(moved).collect::<BTreeSet<_>>().into_iter().collect();
    }
    still_wanted(&policy, &removed)?;
    one_stays(&policy, &removed)?;
    Ok(Edited { policy, touched, removed, report: None })
}

/// Did anything in a domain change after `base_version`? Its tag is that of its settings.
fn is_newer_within(present: &Published, domain: &ObjectKey, base_version: u64) -> bool {
    let within = present.revisions.iter().filter(|(key, _)| key.domain == domain.domain);
    within.map(|(_, revised)| revised.version).any(|version| version > base_version)
}

/// A domain keeps one tier, and a policy one domain.
pub(crate) fn one_stays(policy: &Policy, removed: &[ObjectKey]) -> Result<(), Problem> {
    let is_last = |key: &&ObjectKey| match key.kind {
        Kind::Domain => policy.domains.is_empty(),
        Kind::Tier => policy.domains.get(&key.domain).is_some_and(|domain| domain.tiers.is_empty()),
        Kind::Rule | Kind::Client => false,
    };
    removed.iter().find(is_last).map_or(Ok(()), |last| Err(Problem::LastOfItsKind(last.to_string())))
}

/// May these go? The policy is as it will be, so a list may move all users of a tier and delete it.
pub(crate) fn still_wanted(policy: &Policy, removed: &[ObjectKey]) -> Result<(), Problem> {
    for key in removed.iter().filter(|key| key.kind == Kind::Tier) {
        let Some(domain) = policy.domains.get(&key.domain) else { continue };
        let usage = Usage::of(domain, &key.id);
        if !usage.is_none() {
            return Err(Problem::InUse { what: key.to_string(), used_by: usage });
        }
    }
    Ok(())
}

/// Has the policy each limit that `carry` names?
pub(crate) fn check_carry(carry: &BTreeMap<String, Carry>, snapshot: &Snapshot) -> Result<(), Problem> {
    let names: BTreeSet<&str> = if carry.is_empty() { BTreeSet::new() } else { snapshot.limit_names().collect() };
    let unknown = carry.keys().filter(|name| !names.contains(name.as_str()));
    let fields: Vec<FieldError> = unknown
        .map(|name| {
            // As a part of a JSON pointer.
            let pointer = format!("/carry/{}", name.replace('~', "~0").replace('/', "~1"));
            FieldError::invalid(pointer, format!("the policy has no limit `{name}`; names are DOMAIN/tier:ID/LIMIT, DOMAIN/rule:ID/LIMIT or DOMAIN/client:KIND:VALUE/LIMIT"))
        })
        .collect();
    if fields.is_empty() { Ok(()) } else { Err(Problem::Invalid(fields)) }
}

/// The message of a version.
pub(crate) fn check_message(message: &str) -> Result<(), Problem> {
    let message = message.trim();
    if message.is_empty() {
        return Err(Problem::field("/message", "say in a line what changes and why"));
    }
    check_line("/message", message)
}

/// A message or reason that may be empty.
pub(crate) fn check_line(pointer: &str, text: &str) -> Result<(), Problem> {
    if text.len() > MESSAGE_BYTES_MAX || text.contains(char::is_control) {
        return Err(Problem::field(pointer, format!("one line of at most {MESSAGE_BYTES_MAX} bytes fits")));
    }
    Ok(())
}

/// What can be said of a list without looking at the objects.
fn check_form(list: &ChangeList, present: u64) -> Result<(), Problem> {
    check_message(&list.message)?;
    if list.base_version == 0 || list.base_version > present {
        let message = format!("no version {} was published; the newest is {present}", list.base_version);
        return Err(Problem::field("/base_version", message));
    }
    if list.changes.is_empty() {
        return Err(Problem::field("/changes", "give at least one change"));
    }
    let is_gone = |change: &&Change| change.op == Op::Delete && change.kind == Kind::Domain;
    let gone: BTreeSet<&str> = list.changes.iter().filter(is_gone).map(|change| change.id.as_str()).collect();
    let mut seen = BTreeSet::new();
    for (number, change) in list.changes.iter().enumerate() {
        let (key, pointer) = (change.key(), format!("/changes/{number}"));
        if key.kind != Kind::Domain && gone.contains(key.domain.as_str()) {
            let message = format!("the list removes the domain `{}` with all that is in it", key.domain);
            return Err(Problem::field(pointer, message));
        }
        if let Some(twice) = seen.replace(key) {
            return Err(Problem::field(pointer, format!("{twice} is changed twice in this list")));
        }
        if change.rename.is_none() {
            continue;
        }
        let pointer = format!("{pointer}/rename");
        match change.new_key() {
            None => return Err(Problem::field(pointer, "only a tier or a rule that is replaced can be renamed")),
            Some(new) if new.id == change.id => return Err(Problem::field(pointer, "that is its name already")),
            Some(new) => {
                if let Some(taken) = seen.replace(new) {
                    return Err(Problem::field(pointer, format!("{taken} is changed in this list as well")));
                }
            }
        }
    }
    Ok(())
}

impl ChangeList {
    /// The same change of objects as they are now.
    pub(crate) fn for_each(
        op: Op,
        keys: impl Iterator<Item = ObjectKey>,
        value: Option<&Value>,
        present: &Published,
    ) -> Self {
        let mut if_match = BTreeMap::new();
        let changes = keys.map(|key| {
            if_match.insert(key.to_string(), present.etag(&key));
            let ObjectKey { kind, domain, id } = key;
            Change { op, kind, domain, id, value: value.cloned(), rename: None }
        });
        let (changes, base_version) = (changes.collect(), present.version.version);
        let message = format!("{} many", op.name());
        Self { base_version, message, changes, if_match, carry: BTreeMap::new(), force: false, nodes: None }
    }

    /// Of one change, on top of whatever is in force.
    pub(crate) fn of_one(
        op: Op,
        key: ObjectKey,
        value: Option<Value>,
        etag: Option<String>,
        present: &Published,
        message: Option<String>,
    ) -> Self {
        let message = message.unwrap_or_else(|| {
            let mut message = format!("{} {}", op.name(), key.in_ascii());
            message.truncate(MESSAGE_BYTES_MAX);
            message
        });
        let if_match = etag.into_iter().map(|etag| (key.to_string(), etag)).collect();
        let ObjectKey { kind, domain, id } = key;
        let changes = vec![Change { op, kind, domain, id, value, rename: None }];
        let base_version = present.version.version;
        Self { base_version, message, changes, if_match, carry: BTreeMap::new(), force: false, nodes: None }
    }
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

impl Change {
    fn key(&self) -> ObjectKey {
        // A domain is in none but itself.
        let domain = if self.kind == Kind::Domain { &self.id } else { &self.domain };
        ObjectKey { kind: self.kind, domain: domain.clone(), id: self.id.clone() }
    }

    /// What the object is called afterwards, if that is something else; `None` also where nothing can be renamed.
    fn new_key(&self) -> Option<ObjectKey> {
        let can_be = matches!(self.op, Op::Put | Op::Patch) && matches!(self.kind, Kind::Tier | Kind::Rule);
        let id = self.rename.clone().filter(|_| can_be)?;
        Some(ObjectKey { id, ..self.key() })
    }

    /// What the object, that was `found` so, is to be; `None`: it is to go.
    fn object(&self, pointer: &str, found: Option<&Object>, now: Timestamp) -> Result<Option<Object>, FieldError> {
        let pointer = format!("{pointer}/value");
        let value = match (self.op, &self.value) {
            (Op::Delete, None) => return Ok(None),
            (Op::Delete, Some(_)) => return Err(FieldError::invalid(pointer, "a deletion has no value")),
            (Op::Create | Op::Put, None) => return Err(FieldError::invalid(pointer, "give the whole object")),
            (Op::Patch, None) => return Err(FieldError::invalid(pointer, "give the fields that change")),
            (Op::Create | Op::Put, Some(value)) => Cow::Borrowed(value),
            (Op::Patch, Some(patch)) => {
                let mut value = json!(found);
                merge(&mut value, patch);
                Cow::Owned(value)
            }
        };
        Ok(Some(match self.kind {
            Kind::Tier => Object::Tier(parse(&value, &pointer)?),
            Kind::Rule => Object::Rule(parse(&value, &pointer)?),
            Kind::Client => {
                let mut client: Client = parse(&value, &pointer)?;
                let before = match found {
                    Some(Object::Client(client)) => client.exception.as_ref(),
                    _ => None,
                };
                let given = self.value.as_ref().unwrap_or(&Value::Null);
                overrides::complete(&mut client, given, before, now).map_err(|error| error.below(&pointer))?;
                Object::Client(client)
            }
            Kind::Domain => {
                let settings: Domain = parse(&value, &pointer)?;
                if !(settings.tiers.is_empty() && settings.rules.is_empty() && settings.clients.is_empty()) {
                    let message = "tiers, rules and clients are changes of their own";
                    return Err(FieldError::invalid(pointer, message));
                }
                Object::Domain(Box::new(settings))
            }
        }))
    }
}

/// A JSON merge patch.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return value.clone_from(patch) };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, change) in patch {
        if change.is_null() {
            value.as_object_mut().map(|object| object.remove(name));
        } else {
            merge(&mut value[name], change);
        }
    }
}

pub(crate) fn parse<T: DeserializeOwned>(value: &Value, pointer: &str) -> Result<T, FieldError> {
    // Its numbers have been read already.
    from_json_value(value, "").map_err(|error| json_error(error).below(pointer))
}

/// The object as it is now, and who changed it.
pub(crate) fn conflict(present: &Published, key: &ObjectKey) -> Conflicting {
    let object = objects::find(&present.policy, key);
    let revised = present.revisions.get(key);
    Conflicting {
        kind: key.kind.name(),
        domain: Some(key.domain.clone()),
        id: Some(key.id.clone()),
        present: object.map(|(_, object)| Present { etag: present.etag(key), value: Some(object) }),
        version: revised.map(|revised| revised.version),
        changed_by: revised.map(|revised| revised.by.clone()),
        changed_at: revised.map(|revised| revised.at.clone()),
        ..Conflicting::default()
    }
}

/// What the compiler says, at the fields of the request.
pub(crate) fn invalid(problems: &Problems, policy: &Policy, list: &ChangeList) -> Problem {
    let paths: Vec<(String, String)> = list
        .changes
        .iter()
        .enumerate()
        .filter_map(|(number, change)| {
            let new = change.new_key();
            let is_renamed = new.is_some();
            let key = new.unwrap_or_else(|| change.key());
            let (place, _) = objects::find(policy, &key)?;
            let (path, pointer) = (objects::path(&key, place), format!("/changes/{number}"));
            let name = is_renamed.then(|| (format!("{path}.id"), format!("{pointer}/rename")));
            Some([Some((path, format!("{pointer}/value"))), name])
        })
        .flatten()
        .flatten()
        .collect();
    let field = |problem: &tidegate::Problem| {
        let below = |(path, pointer): &(String, String)| {
            let rest = problem.path.strip_prefix(path.as_str())?;
            (rest.is_empty() || rest.starts_with(['.', '[']))
                .then(|| (path.len(), format!("{pointer}{}", pointer_of(rest))))
        };
        // What is in a domain is nearer than the domain.
        match paths.iter().filter_map(below).max().map(|(_, pointer)| pointer) {
            Some(pointer) => FieldError::invalid(pointer, problem.message.clone()),
            None => FieldError::invalid("/changes", format!("{}: {}", problem.path, problem.message)),
        }
    };
    Problem::Invalid(problems.iter().map(field).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_keeps_one_tier() {
        let key = ObjectKey { kind: Kind::Tier, domain: "web".to_owned(), id: "only".to_owned() };
        let policy = |tiers: Value| -> Policy {
            serde_json::from_value(json!({ "domains": { "web": { "tiers": tiers } } })).expect("a policy")
        };
        let left = policy(json!([{ "id": "other", "unlimited": true }]));
        assert!(one_stays(&left, std::slice::from_ref(&key)).is_ok());
        let refused = one_stays(&policy(json!([])), &[key]);
        assert!(matches!(&refused, Err(Problem::LastOfItsKind(what)) if what == "web/tier:only"), "{refused:?}");
    }

    #[test]
    fn a_merge_patch_does_what_the_rfc_says() {
        // RFC 7396, appendix A.
        for (mut value, patch, merged) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            merge(&mut value, &patch);
            assert_eq!(value, merged);
        }
    }
}
