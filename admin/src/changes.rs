//! A change list, and the policy that it makes of the present one.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tidegate::{DEFAULT_DOMAIN, Problems, policy::Policy};

use crate::{
    body::{field_error, pointer_of},
    objects::{self, Kind, Object, ObjectKey},
    problem::{FieldError, Problem},
    published::Published,
};

/// The longest message of a version, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 200;
/// What a person is about to publish.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeList {
    /// The version that the list was made on.
    pub(crate) base_version: u64,
    pub(crate) message: String,
    changes: Vec<Change>,
    /// Entity tags of the objects that the list changes, by key.
    #[serde(default)]
    if_match: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    op: Op,
    kind: Kind,
    #[serde(default = "default_domain")]
    domain: String,
    id: String,
    value: Value,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    /// Replaces an object that exists.
    Put,
}

fn default_domain() -> String {
    DEFAULT_DOMAIN.to_owned()
}

/// A policy with the changes made.
pub(crate) struct Edited {
    pub(crate) policy: Policy,
    pub(crate) touched: Vec<ObjectKey>,
}

/// Makes the changes on the present policy, if no object that they touch has changed since it was read.
pub(crate) fn edit(present: &Published, list: &ChangeList) -> Result<Edited, Problem> {
    check_form(list, present.version.version)?;
    let keys: Vec<ObjectKey> = list.changes.iter().map(Change::key).collect();
    let missing: Vec<String> =
        keys.iter().map(ObjectKey::to_string).filter(|key| !list.if_match.contains_key(key)).collect();
    if !missing.is_empty() {
        return Err(Problem::PreconditionRequired(missing));
    }
    let mut policy = present.policy.clone();
    let (mut conflicts, mut wrong, mut touched) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (change, key)) in list.changes.iter().zip(keys).enumerate() {
        let pointer = format!("/changes/{number}");
        let domain = policy.domains.get_mut(&key.domain);
        let found = domain.and_then(|domain| objects::place(domain, key.kind, &key.id).map(|place| (domain, place)));
        let is_current = list.if_match.get(&key.to_string()).is_some_and(|tag| *tag == present.etag(&key));
        let Some((domain, place)) = found.filter(|_| is_current) else {
            conflicts.push(conflict(present, &key));
            continue;
        };
        match change.object(&pointer) {
            Ok(object) if object.id() != key.id => {
                let message = format!("the id is `{}` and cannot be changed", key.id);
                wrong.push(FieldError::invalid(format!("{pointer}/value/id"), message));
            }
            Ok(object) => {
                if objects::replace(domain, place, object.clone()) != object {
                    touched.push(key);
                }
            }
            Err(error) => wrong.push(error),
        }
    }
    if !conflicts.is_empty() {
        return Err(Problem::Conflict(conflicts));
    }
    if !wrong.is_empty() {
        return Err(Problem::Invalid(wrong));
    }
    if touched.is_empty() {
        return Err(Problem::field("/changes", "everything is like this already; nothing to publish"));
    }
    Ok(Edited { policy, touched })
}

/// What can be said of a list without looking at the objects.
fn check_form(list: &ChangeList, present: u64) -> Result<(), Problem> {
    let message = list.message.trim();
    if message.is_empty() {
        return Err(Problem::field("/message", "say in a line what changes and why"));
    }
    if message.len() > MESSAGE_BYTES_MAX || message.contains(char::is_control) {
        return Err(Problem::field("/message", format!("one line of at most {MESSAGE_BYTES_MAX} bytes fits")));
    }
    if list.base_version == 0 || list.base_version > present {
        let message = format!("no version {} was published; the newest is {present}", list.base_version);
        return Err(Problem::field("/base_version", message));
    }
    if list.changes.is_empty() {
        return Err(Problem::field("/changes", "give at least one change"));
    }
    for (number, change) in list.changes.iter().enumerate() {
        let key = change.key();
        if list.changes[..number].iter().any(|earlier| earlier.key() == key) {
            return Err(Problem::field(format!("/changes/{number}"), format!("{key} is changed twice in this list")));
        }
    }
    Ok(())
}

impl Change {
    fn key(&self) -> ObjectKey {
        ObjectKey { kind: self.kind, domain: self.domain.clone(), id: self.id.clone() }
    }

    fn object(&self, pointer: &str) -> Result<Object, FieldError> {
        let Op::Put = self.op;
        let pointer = format!("{pointer}/value");
        match self.kind {
            Kind::Tier => parse(&self.value, &pointer).map(Object::Tier),
            Kind::Rule => parse(&self.value, &pointer).map(Object::Rule),
        }
    }
}

fn parse<T: DeserializeOwned>(value: &Value, pointer: &str) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value).map_err(|error| field_error(pointer, &error))
}

/// The object as it is now, and who changed it.
fn conflict(present: &Published, key: &ObjectKey) -> Value {
    let object = objects::find(&present.policy, key);
    let object = object.map(|object| json!({ "etag": present.etag(key), "value": object }));
    let revised = present.revisions.get(key);
    json!({
        "kind": key.kind, "domain": key.domain, "id": key.id, "present": object,
        "version": revised.map(|revised| revised.version),
        "changed_by": revised.map(|revised| &revised.by),
        "changed_at": revised.map(|revised| &revised.at),
    })
}

/// What the compiler says, at the fields of the request.
pub(crate) fn invalid(problems: &Problems, policy: &Policy, list: &ChangeList) -> Problem {
    let paths: Vec<(String, String)> = list
        .changes
        .iter()
        .enumerate()
        .filter_map(|(number, change)| {
            let key = change.key();
            let place = objects::place(policy.domains.get(&key.domain)?, key.kind, &key.id)?;
            Some((objects::path(&key, place), format!("/changes/{number}/value")))
        })
        .collect();
    let field = |problem: &tidegate::Problem| {
        let below = |(path, pointer): &(String, String)| {
            let rest = problem.path.strip_prefix(path.as_str())?;
            (rest.is_empty() || rest.starts_with(['.', '['])).then(|| format!("{pointer}{}", pointer_of(rest)))
        };
        match paths.iter().find_map(below) {
            Some(pointer) => FieldError::invalid(pointer, problem.message.clone()),
            None => FieldError::invalid("/changes", format!("{}: {}", problem.path, problem.message)),
        }
    };
    Problem::Invalid(problems.iter().map(field).collect())
}
