//! The one way to change the policy: a change list, published whole.
//!
//! Validation by the engine's own compiler, then one transaction (version, revisions, audit, the answer to a repeat),
//! then the swap. What the transaction acknowledged is what the next start loads, so a process that dies in between
//! loses nothing and has nothing half done.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tidegate::{DEFAULT_DOMAIN, Engine, Problems, Publish, Snapshot, policy::Policy};
use tokio::sync::{Mutex, watch};

use crate::{
    body::{field_error, pointer_of},
    objects::{self, Kind, Object, ObjectKey},
    problem::{FieldError, Problem},
    published::{Published, Revised, Shared, columns, document},
    store::{Answered, Audit, NewVersion, Store, Version, sha256},
};

/// The longest message of a version, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 200;
/// The longest `Idempotency-Key`, in bytes.
const KEY_BYTES_MAX: usize = 100;

/// What a person is about to publish.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeList {
    /// The version that the list was made on.
    base_version: u64,
    message: String,
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

/// Who publishes, from where, and how a repeat is known.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) idempotency_key: Option<String>,
    /// Of the request's body.
    pub(crate) request_sha256: String,
}

/// The answer to a publish.
#[derive(Serialize)]
struct Answer<'a> {
    version: u64,
    sha256: &'a str,
    /// The version that the list was applied on, where that is not the one that it was made on.
    on_top_of: Option<u64>,
    changes: Vec<Value>,
}

#[derive(Debug)]
pub(crate) struct Publisher {
    store: Store,
    engine: Arc<Engine>,
    published: watch::Sender<Shared>,
    /// One publish at a time.
    turn: Mutex<()>,
}

impl Publisher {
    pub(crate) fn new(store: Store, engine: Arc<Engine>, published: Published) -> Self {
        Self { store, engine, published: watch::Sender::new(Arc::new(published)), turn: Mutex::default() }
    }

    /// The policy in force.
    pub(crate) fn published(&self) -> Shared {
        self.published.borrow().clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Shared> {
        self.published.subscribe()
    }

    /// Publishes `list`, and answers what the caller is told, as JSON.
    ///
    /// Run it where a caller that goes away does not stop it: between the transaction and the swap there is no way back.
    pub(crate) async fn publish(&self, list: ChangeList, author: Author) -> Result<String, Problem> {
        let _turn = self.turn.lock().await;
        if let Some(answer) = self.repeated(&author).await? {
            return Ok(answer);
        }
        let present = self.published();
        let Edited { policy, touched } = edit(&present, &list)?;
        let snapshot = Snapshot::compile(&policy).map_err(|problems| invalid(&problems, &policy, &list))?;
        let refused = |error: tidegate::PublishError| Problem::field("/changes", error.to_string());
        self.engine.has_room_for(&snapshot).map_err(refused)?;
        let document = document(&policy).map_err(|error| Problem::Internal(error.to_string()))?;
        let version = Version {
            version: present.version.version + 1,
            sha256: sha256(&document),
            author: author.name.clone(),
            message: list.message.trim().to_owned(),
            published_at: jiff::Timestamp::now().to_string(),
        };
        let answer = answer(&version, &list, &present, &touched)?;
        let answered = Answered { request_sha256: author.request_sha256.clone(), answer: answer.clone() };
        self.store
            .add_version(NewVersion {
                version: &version,
                document: &document,
                touched: &columns(&touched),
                answered: author.idempotency_key.as_deref().map(|key| (key, &answered)),
                file: None,
                audit: Audit {
                    actor: &author.name,
                    address: &author.address,
                    action: "policy.publish",
                    object: &format!("version:{}", version.version),
                    result: "done",
                },
            })
            .await?;
        self.engine.publish(Publish::of(snapshot).under_version(version.version)).map_err(|error| {
            Problem::Internal(format!("version {} is stored but not in force: {error}; restart", version.version))
        })?;
        tracing::info!(version = version.version, author = author.name, note = ?version.message, "policy published");
        let revised =
            Revised { version: version.version, by: version.author.clone(), at: version.published_at.clone() };
        let mut revisions = present.revisions.clone();
        revisions.extend(touched.iter().map(|key| (key.clone(), revised.clone())));
        self.published.send_replace(Arc::new(Published { version, policy, revisions }));
        Ok(answer)
    }

    /// The answer to this very request, if it was answered before.
    async fn repeated(&self, author: &Author) -> Result<Option<String>, Problem> {
        let Some(key) = &author.idempotency_key else { return Ok(None) };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Problem::field("", format!("Idempotency-Key: from 1 to {KEY_BYTES_MAX} bytes fit")));
        }
        match self.store.answered(&author.name, key).await? {
            Some(answered) if answered.request_sha256 == author.request_sha256 => Ok(Some(answered.answer)),
            Some(_) => Err(Problem::field("", "Idempotency-Key: another request has used this key; use a new one")),
            None => Ok(None),
        }
    }
}

/// A policy with the changes made.
struct Edited {
    policy: Policy,
    touched: Vec<ObjectKey>,
}

/// Makes the changes on the present policy, if no object that they touch has changed since it was read.
fn edit(present: &Published, list: &ChangeList) -> Result<Edited, Problem> {
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
fn invalid(problems: &Problems, policy: &Policy, list: &ChangeList) -> Problem {
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

fn answer(version: &Version, list: &ChangeList, present: &Published, touched: &[ObjectKey]) -> Result<String, Problem> {
    let before = present.version.version;
    let change = |key: &ObjectKey| json!({ "kind": key.kind, "domain": key.domain, "id": key.id, "etag": key.etag(version.version) });
    let answer = Answer {
        version: version.version,
        sha256: &version.sha256,
        on_top_of: Some(before).filter(|before| *before != list.base_version),
        changes: touched.iter().map(change).collect(),
    };
    serde_json::to_string(&answer).map_err(|error| Problem::Internal(error.to_string()))
}
