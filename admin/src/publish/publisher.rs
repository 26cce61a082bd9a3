//! The one way to change the policy: a change list is published whole, and so is the way back to an older version.
//!
//! Validation by the engine's own compiler, then one transaction (version, revisions, audit, the answer to a repeat),
//! then the swap. What the transaction acknowledged is what the next start loads, so a process that dies in between
//! loses nothing and has nothing half done.

mod replication;
mod rollback;
mod rollout_stages;

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use sqlx::AnyConnection;
use tidegate::{Engine, Problems, Publish, Snapshot, algorithm::Carry, import::Note, policy::Policy};
use tokio::{
    sync::{Mutex, Notify, OwnedMutexGuard, watch},
    task::spawn_blocking,
    time::{Instant, timeout, timeout_at},
};

pub(crate) use self::rollback::{RollBack, TriedBack};
use crate::{
    base::{
        sha256::sha256,
        user_turns::{UserTurn, UserTurns},
    },
    capacity::shared_work::SharedWork,
    domain::{
        change_list::{ChangeList, check_carry, check_message, edit, invalid},
        edited_policy::Edited,
        error::Problem,
        import_report::Report,
        objects::{Kind, ObjectKey},
        overrides,
        published::{Published, Revised, Shared, columns, document, names, parse},
        rollout::{Goes, Staged, Targets},
        version::{Carries, Rollout, Version},
    },
    fleet::registry::Fleet,
    metrics::telemetry,
    store::{
        audit::Audit,
        database::Store,
        versions::{Answered, KeptVersion, NewVersion},
    },
};

/// By which a repeat is known.
pub(crate) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The longest answer that is kept whole for a repeat.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// How long a publish may take. A database whose machine went away without a word says nothing ever after, and others wait
/// for their turn.
const PUBLISH_IN: Duration = Duration::from_mins(1);
/// How long a publish waits for those that came before.
const TURN_IN: Duration = Duration::from_secs(20);

/// The answer to a caller whose turn did not come.
const WAITED: Problem = Problem::Busy("Others are publishing. Nothing was changed.");

/// What the audit log calls a publish, where it is none of those that have a name of their own.
const PUBLISH: &str = "policy.publish";
/// Of how many objects a publish has lines of their own there.
const OBJECT_LINES_MAX: usize = 100;

/// Who publishes, from where, and how a repeat is known.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) name: String,
    /// The user, also where it is a token that they made: all of theirs have one turn.
    pub(crate) user: String,
    pub(crate) address: String,
    /// Of the objects that this one may change; `None`: all.
    pub(crate) kinds: Option<Vec<Kind>>,
    /// He may give short overrides, and change nothing else.
    pub(crate) only_overrides: bool,
    pub(crate) idempotency_key: Option<String>,
    /// Of what makes the request this one: method, path, conditions and body.
    pub(crate) request_sha256: String,
    /// As its answer says.
    pub(crate) request_id: String,
}

impl Author {
    /// A line of the audit log on what he did.
    fn did<'a>(&'a self, action: &'a str, object: &'a str, result: &'a str) -> Audit<'a> {
        Audit { actor: &self.name, address: &self.address, action, object, result, request_id: &self.request_id }
    }

    /// Refuses a change of the present policy that this one may not make.
    fn check(&self, present: &Policy, edited: &Edited) -> Result<(), Problem> {
        may_change(self.kinds.as_deref(), edited.touched.iter().chain(&edited.removed))?;
        if self.only_overrides { overrides::check_only(present, edited) } else { Ok(()) }
    }
}

/// What is said of a version beside its policy.
pub(crate) struct Words {
    message: String,
    /// The version that the change was made on.
    base_version: u64,
    /// By full name of the limit.
    carry: BTreeMap<String, Carry>,
    /// What an import did not carry over as it was.
    notes: Vec<Note>,
    /// What the audit log calls it.
    action: &'static str,
    /// Whatever nodes can read.
    force: bool,
    goes: Goes,
}

impl Words {
    /// With used quota kept.
    pub(crate) fn new(message: &str, base_version: u64) -> Result<Self, Problem> {
        check_message(message)?;
        Ok(Self {
            message: message.trim().to_owned(),
            base_version,
            carry: BTreeMap::new(),
            notes: Vec::new(),
            action: PUBLISH,
            force: false,
            goes: Goes::ToAll,
        })
    }

    /// Those of a change list.
    fn of_list(list: &ChangeList) -> Self {
        Self {
            message: list.message.trim().to_owned(),
            base_version: list.base_version,
            carry: list.carry.clone(),
            notes: Vec::new(),
            action: PUBLISH,
            force: list.force,
            goes: Goes::to(list.nodes.clone()),
        }
    }

    pub(crate) fn going(self, goes: Goes) -> Self {
        Self { goes, ..self }
    }

    /// The same by another name in the audit log.
    pub(crate) fn doing(self, action: &'static str) -> Self {
        Self { action, ..self }
    }

    /// The same, where the message is a parameter of the address.
    pub(crate) fn of_query(message: &str, base_version: u64) -> Result<Self, Problem> {
        Self::new(message, base_version).map_err(|problem| problem.of_parameter("message"))
    }

    pub(crate) fn with_notes(self, notes: Vec<Note>) -> Self {
        Self { notes, ..self }
    }
}

/// The answer to a publish.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Publication")]
pub(crate) struct Answer {
    version: u64,
    /// Of the document, hex.
    sha256: String,
    /// The version that the list was applied on, where that is not the one that it was made on.
    on_top_of: Option<u64>,
    /// The nodes that it went to, if not to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<BTreeSet<String>>,
    /// Where a rollout is open: the version by which all other nodes get the same change.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_version: Option<u64>,
    /// The objects that changed; an import says what it did line by line.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<ChangedObject>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
    /// Of an import: what is not carried over as it was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Note>,
    /// Clients whose override had ended, and was taken away with this version.
    ended: Vec<String>,
}

impl Answer {
    /// As JSON, and as it is kept for a repeat: a long one without what it says object by object and line by line.
    fn written(mut self) -> serde_json::Result<(String, String)> {
        let whole = serde_json::to_string(&self)?;
        let kept = if whole.len() > KEPT_BYTES_MAX {
            self.changes = None;
            if let Some(report) = &mut self.report {
                report.lines.clear();
            }
            serde_json::to_string(&self)?
        } else {
            whole.clone()
        };
        Ok((whole, kept))
    }
}

/// An object that a version changed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChangedObject {
    #[serde(flatten)]
    key: ObjectKey,
    /// `null`: it is gone.
    etag: Option<String>,
}

/// A publish that is ready to be written and put in force.
struct PreparedPublish {
    newest: NextVersion,
    /// The same change for the nodes that keep the version before, where it goes to all while a rollout is open.
    kept: Option<NextVersion>,
    answer: String,
    /// What a repeat is answered.
    repeat: String,
}

/// A version that is ready to be written and put in force.
struct NextVersion {
    published: Shared,
    snapshot: Snapshot,
    /// What the audit log calls it.
    name: String,
    touched: Vec<ObjectKey>,
    removed: Vec<ObjectKey>,
    /// Names of both, those that it removes last.
    objects: Vec<String>,
    /// Clients whose override had ended.
    ended: Vec<String>,
}

impl NextVersion {
    /// The lines of the audit log on it.
    fn lines<'a>(&'a self, author: &'a Author, action: &'a str) -> impl Iterator<Item = Audit<'a>> {
        let of_objects = self.objects.iter().enumerate().take(OBJECT_LINES_MAX).map(move |(number, name)| {
            let is_there = number < self.touched.len();
            author.did(if is_there { "object.change" } else { "object.remove" }, name, &self.name)
        });
        iter::once(author.did(action, &self.name, "done")).chain(of_objects)
    }
}

/// A version that was published, and that this server's engine does not decide by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NotApplied {
    pub(crate) version: u64,
    pub(crate) why: String,
}

#[derive(Debug)]
pub(crate) struct Publisher {
    store: Store,
    engine: Arc<Engine>,
    targets: watch::Sender<Arc<Targets>>,
    /// Name of this process as a node, if it is one.
    here: Option<String>,
    not_applied: watch::Sender<Option<NotApplied>>,
    telemetry: telemetry::Shared,
    fleet: Arc<Fleet>,
    /// One publish at a time.
    turn: Arc<Mutex<()>>,
    /// The turns of users: one publish of each is being made, or waits for `turn`.
    authors: UserTurns,
    /// The look of all callers that wait for one.
    look: SharedWork<(), ()>,
    /// There may be a version that is not in force here yet.
    news: Notify,
}

impl Publisher {
    pub(crate) fn new(
        store: Store,
        engine: Arc<Engine>,
        (targets, here): (Targets, Option<String>),
        telemetry: telemetry::Shared,
        fleet: Arc<Fleet>,
    ) -> Self {
        Self {
            store,
            engine,
            targets: watch::Sender::new(Arc::new(targets)),
            here,
            not_applied: watch::Sender::default(),
            telemetry,
            fleet,
            turn: Arc::default(),
            authors: UserTurns::default(),
            look: SharedWork::default(),
            news: Notify::new(),
        }
    }

    /// The newest policy: what edits are made on.
    pub(crate) fn published(&self) -> Shared {
        Arc::clone(&self.targets.borrow().newest)
    }

    /// What each node should have.
    pub(crate) fn targets(&self) -> Arc<Targets> {
        Arc::clone(&self.targets.borrow())
    }

    /// The policy that the engine of this process decides by, if all is well.
    pub(crate) fn in_force(&self) -> Shared {
        Arc::clone(self.targets.borrow().of(self.here.as_deref()))
    }

    pub(crate) fn here(&self) -> Option<&str> {
        self.here.as_deref()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Targets>> {
        self.targets.subscribe()
    }

    /// Changes with each version that cannot be put in force here.
    pub(crate) fn not_applied(&self) -> watch::Receiver<Option<NotApplied>> {
        self.not_applied.subscribe()
    }

    /// Tells that a version is not in force, once: it is tried again and again.
    fn is_not_applied(&self, version: u64, why: &impl ToString) {
        let new = Some(NotApplied { version, why: why.to_string() });
        self.not_applied.send_if_modified(|told| {
            let is_new = *told != new;
            *told = new;
            is_new
        });
    }

    /// Publishes `list`, and answers what the caller is told, as JSON.
    ///
    /// Run it where a caller that goes away does not stop it: between the transaction and the swap there is no way back.
    pub(crate) async fn publish(&self, list: ChangeList, author: Author) -> Result<String, Problem> {
        let (words, edit, refused) = of_list(list);
        self.publish_edited(author, words, edit, refused).await
    }

    pub(crate) fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// What this very request was answered before, for calls that would answer something else by now.
    pub(crate) async fn answered(&self, author: &Author) -> Result<Option<String>, Problem> {
        let mut reading = self.store.reading().await?;
        repeated(&mut reading, author).await
    }

    /// The policy in force, and what `list` would make of it; refuses what [`publish`](Self::publish) would refuse.
    pub(crate) async fn try_list(&self, list: ChangeList) -> Result<(Shared, Policy), Problem> {
        if let Some(nodes) = &list.nodes {
            self.fleet.check_names(&mut *self.store.reading().await?, nodes, "/nodes").await?;
        }
        let (words, edit, refused) = of_list(list);
        self.try_edited(words, edit, refused).await
    }

    /// The policy in force, and what `edit` would make of it; refuses what [`publish_edited`](Self::publish_edited) would.
    pub(crate) async fn try_edited(
        &self,
        words: Words,
        edit: impl FnOnce(&Published) -> Result<Edited, Problem> + Send + 'static,
        refused: impl Fn(&Problems, &Policy) -> Problem + Send + 'static,
    ) -> Result<(Shared, Policy), Problem> {
        let (present, engine) = (self.published(), Arc::clone(&self.engine));
        let made = spawn_blocking(move || {
            let edited = edit(&present)?;
            let made = try_next(&present, &words, edited, &engine, &refused)?;
            Ok((present, Arc::unwrap_or_clone(made.published).policy))
        });
        let made = made.await.map_err(|error| Problem::Internal(error.to_string()))?;
        self.with_removers(made).await
    }

    /// Publishes the policy that `edit` makes of the present one; `refused` says what the compiler has against it in the
    /// caller's terms. To be run as [`publish`](Self::publish).
    pub(crate) async fn publish_edited(
        &self,
        author: Author,
        words: Words,
        edit: impl FnOnce(&Published) -> Result<Edited, Problem> + Send + 'static,
        refused: impl Fn(&Problems, &Policy) -> Problem + Send + 'static,
    ) -> Result<String, Problem> {
        self.publish_planned(author, |_| Ok((words, edit)), refused).await
    }

    /// The same, where `plan` says how and what is published, by what nodes should have when its turn has come.
    async fn publish_planned<E>(
        &self,
        author: Author,
        plan: impl FnOnce(&Targets) -> Result<(Words, E), Problem>,
        refused: impl Fn(&Problems, &Policy) -> Problem + Send + 'static,
    ) -> Result<String, Problem>
    where
        E: FnOnce(&Published) -> Result<Edited, Problem> + Send + 'static,
    {
        let outcome = match self.turn_of(&author).await {
            Ok(_turn) => {
                // Dropped while it commits, the next to look finds it in the database, or does not.
                let publish = timeout(PUBLISH_IN, self.publish_in_turn(author, plan, refused));
                publish.await.unwrap_or(Err(Problem::Unknown))
            }
            Err(busy) => Err(busy),
        };
        if let Err(Problem::Unknown) = &outcome {
            // It may be there.
            self.news.notify_one();
        }
        let outcome = self.with_removers(outcome).await;
        self.telemetry.published(&outcome);
        outcome
    }

    async fn publish_in_turn<E>(
        &self,
        author: Author,
        plan: impl FnOnce(&Targets) -> Result<(Words, E), Problem>,
        refused: impl Fn(&Problems, &Policy) -> Problem + Send + 'static,
    ) -> Result<String, Problem>
    where
        E: FnOnce(&Published) -> Result<Edited, Problem> + Send + 'static,
    {
        // Nobody else publishes until it ends, on any server.
        let mut change = self.store.change_in_turn().await?;
        self.take_over(&mut change).await?;
        if let Some(answer) = repeated(&mut change, &author).await? {
            return Ok(answer);
        }
        let before = self.targets();
        let (words, edit) = plan(&before)?;
        if let Goes::To(nodes) = &words.goes {
            self.fleet.check_names(&mut change, nodes, "/nodes").await?;
        }
        let (action, force, nodes) = (words.action, words.force, words.goes.nodes());
        let (on, engine, by) = (Arc::clone(&before), Arc::clone(&self.engine), author.clone());
        // With a hundred thousand clients this takes long enough for others to notice.
        let prepared = spawn_blocking(move || prepare(&on, &engine, &by, words, edit, refused)).await;
        let prepared = prepared.map_err(|error| Problem::Internal(error.to_string()))??;
        let newest = Arc::clone(&prepared.newest.published);
        let version = &newest.version;
        let to = to_nodes(nodes.iter().flatten());
        let staged = match (&before.staged, &prepared.kept, nodes) {
            (Some(open), Some(kept), _) => Some(open.with(&newest, &kept.published)),
            (_, _, Some(nodes)) => {
                let (keeps, author, since) =
                    (before.newest.version.version, author.name.clone(), version.published_at.clone());
                let rollout = Rollout { version: version.version, keeps, nodes, author, since };
                Some(Staged { rollout, kept: Arc::clone(&before.newest) })
            }
            _ => None,
        };
        let targets = Targets { newest: Arc::clone(&newest), staged };
        if !force {
            match (&before.staged, &prepared.kept) {
                // A node that cannot read what it should have by now gets no worse by it.
                (Some(open), Some(kept)) => {
                    for (was, made) in [(&before.newest, &newest), (&open.kept, &kept.published)] {
                        if made.policy.schema() > was.policy.schema() {
                            self.check_readers(&mut change, &targets, made).await?;
                        }
                    }
                }
                _ => self.check_readers(&mut change, &targets, &newest).await?,
            }
        }
        let answered = Answered { request_sha256: author.request_sha256.clone(), answer: prepared.repeat };
        let made = prepared.kept.iter().chain([&prepared.newest]);
        let mut lines: Vec<Audit<'_>> = made.flat_map(|made| made.lines(&author, action)).collect();
        lines.extend(to.iter().map(|node| author.did("rollout.node", node, &prepared.newest.name)));
        let NextVersion { touched, removed, objects, .. } = &prepared.newest;
        let kept = prepared.kept.as_ref().map(|kept| KeptVersion {
            version: &kept.published.version,
            document: &kept.published.document,
            objects: &kept.objects,
            touched: kept.touched.len(),
        });
        let new = NewVersion {
            version,
            document: &newest.document,
            kept,
            touched: &columns(touched),
            removed: &columns(removed),
            objects,
            answered: author.idempotency_key.as_deref().map(|key| (key, &answered)),
            file: None,
            rollout: targets.rollout(),
            audit: &lines,
        };
        self.store.add_version(change, new).await?;
        let here = if targets.keeps(self.here()) { prepared.kept } else { Some(prepared.newest) };
        if let Some(NextVersion { published, snapshot, .. }) = here {
            self.enforce(snapshot, published.version.version, &published.version.carry)?;
        }
        tracing::info!(version = version.version, author = author.name, note = ?version.message, "policy published");
        self.aim(targets).await;
        Ok(prepared.answer)
    }

    /// From here on nodes should have these. Should this be cut off, the next look at the database comes here again.
    async fn aim(&self, targets: Targets) {
        self.fleet.has_changed(&self.targets(), &targets).await;
        self.targets.send_replace(Arc::new(targets));
    }

    /// Swaps the policy of checks.
    fn enforce(&self, snapshot: Snapshot, version: u64, carry: &Carries) -> Result<(), Problem> {
        let publish = Publish::of(snapshot).under_version(version);
        let publish = carry.0.iter().fold(publish, |publish, (limit, carry)| publish.carrying_limit(limit, *carry));
        self.engine.publish(publish).map(drop).map_err(|error| {
            self.is_not_applied(version, &error);
            Problem::Internal(format!("version {version} is stored but not in force: {error}; restart"))
        })
    }

    /// Names in a conflict who removed what is gone, and when.
    async fn with_removers<T>(&self, outcome: Result<T, Problem>) -> Result<T, Problem> {
        let Err(Problem::Conflict(mut objects)) = outcome else { return outcome };
        let gone = objects.iter_mut().filter(|object| object.present.is_none());
        let mut gone: Vec<_> = gone
            .filter_map(|object| Some(((object.domain.clone()?, object.kind, object.id.clone()?), object)))
            .collect();
        let keys: Vec<(&str, &str, &str)> =
            gone.iter().map(|((domain, kind, id), _)| (domain.as_str(), *kind, id.as_str())).collect();
        // Where the database has trouble, the conflict is told without.
        for removal in self.store.removals(&keys).await.unwrap_or_default() {
            let is_it = |(domain, kind, id): &(String, &str, String)| {
                *domain == removal.domain && *kind == removal.kind && *id == removal.id
            };
            if let Some((_, object)) = gone.iter_mut().find(|(key, _)| is_it(key)) {
                object.version = Some(removal.version);
                object.changed_by = Some(removal.author);
                object.changed_at = Some(removal.published_at);
            }
        }
        Err(Problem::Conflict(objects))
    }

    /// Waits until the publishes before have ended.
    async fn turn(&self, end: Instant) -> Result<OwnedMutexGuard<()>, Problem> {
        let waited = timeout_at(end, Arc::clone(&self.turn).lock_owned()).await;
        waited.map_err(|_| WAITED)
    }

    /// Waits until the publishes of the author's user before have ended, and then for one of each other user at most.
    async fn turn_of(&self, author: &Author) -> Result<(UserTurn, OwnedMutexGuard<()>), Problem> {
        let end = Instant::now() + TURN_IN;
        let own = self.authors.turn(&author.user, end).await;
        let own = own.ok_or(Problem::Busy("Other changes of yours are being published. Nothing was changed."))?;
        Ok((own, self.turn(end).await?))
    }
}

/// How a list is published: its words, what it makes of a policy, and what is said of one that does not compile.
#[expect(clippy::type_complexity, reason = "closures have no names")]
fn of_list(
    list: ChangeList,
) -> (Words, impl FnOnce(&Published) -> Result<Edited, Problem>, impl Fn(&Problems, &Policy) -> Problem) {
    let words = Words::of_list(&list);
    let list = Arc::new(list);
    let same = Arc::clone(&list);
    (
        words,
        move |present: &Published| edit(present, &list),
        move |problems: &Problems, policy: &Policy| invalid(problems, policy, &same),
    )
}

/// The nodes that a version went to, as the audit log names them.
fn to_nodes(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    nodes.into_iter().take(OBJECT_LINES_MAX).map(|node| format!("node:{}", node.as_ref())).collect()
}

/// The answer to this very request, if it was answered before.
async fn repeated(connection: &mut AnyConnection, author: &Author) -> Result<Option<String>, Problem> {
    let Some(key) = &author.idempotency_key else { return Ok(None) };
    match Answered::read(connection, &author.name, key).await? {
        Some(answered) if answered.request_sha256 == author.request_sha256 => Ok(Some(answered.answer)),
        Some(_) => Err(Problem::header(IDEMPOTENCY_KEY, "another request has used this key; use a new one")),
        None => Ok(None),
    }
}

/// Refuses a change of objects of other kinds than these.
fn may_change<'k>(kinds: Option<&[Kind]>, mut changed: impl Iterator<Item = &'k ObjectKey>) -> Result<(), Problem> {
    let Some(kinds) = kinds else { return Ok(()) };
    match changed.find(|key| !kinds.contains(&key.kind)) {
        None => Ok(()),
        Some(key) => {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            let kinds = kinds.join(", ");
            Err(Problem::Forbidden(format!(
                "This would change {key}, and the token may only change objects of the kinds {kinds}."
            )))
        }
    }
}

/// Prepares a publish on what nodes should have now, if it can be one: a version on top of the newest. What goes to all while a
/// rollout is open changes overrides alone, and is a version on top of each of the rollout's two.
fn prepare(
    targets: &Targets,
    engine: &Engine,
    author: &Author,
    words: Words,
    edit: impl FnOnce(&Published) -> Result<Edited, Problem>,
    refused: impl Fn(&Problems, &Policy) -> Problem,
) -> Result<PreparedPublish, Problem> {
    let present = &*targets.newest;
    let mut edited = edit(present)?;
    author.check(&present.policy, &edited)?;
    let report = edited.report.take();
    let open = targets.staged.as_ref().filter(|_| !matches!(words.goes, Goes::Back));
    let same = match open {
        None => None,
        // One rollout is open at a time.
        Some(Staged { rollout, .. })
            if matches!(words.goes, Goes::To(_)) || !overrides::are_all(&present.policy, &edited) =>
        {
            return Err(Problem::RolloutOpen(Box::new(rollout.clone())));
        }
        Some(Staged { kept, .. }) => {
            let same = overrides::same_in(&kept.policy, &edited);
            if author.only_overrides {
                overrides::check_replaced(&kept.policy, &same)?;
            }
            Some((kept, same))
        }
    };
    let (last, now) = (present.version.version, Timestamp::now());
    // Nodes that get the newest version later have not been told what it chose before.
    let mut carry = if open.is_some() { present.version.carry.clone() } else { Carries::default() };
    carry.0.extend(words.carry.clone());
    let by = (author.name.as_str(), &words);
    let number = last + if same.is_some() { 2 } else { 1 };
    let newest = next_version(present, (number, now, carry), by, edited, engine, &refused)?;
    check_carry(&words.carry, &newest.snapshot)?;
    let kept = same.map(|(kept, same)| {
        let label = (last + 1, now, Carries(words.carry.clone()));
        next_version(kept, label, by, same, engine, &refused)
    });
    let kept = kept.transpose()?;
    let version = &newest.published.version;
    let answer = Answer {
        version: version.version,
        sha256: version.sha256.clone(),
        on_top_of: Some(last).filter(|last| *last != words.base_version),
        nodes: open.map(|open| open.rollout.nodes.clone()).or_else(|| words.goes.nodes()),
        others_version: kept.as_ref().map(|kept| kept.published.version.version),
        changes: report.is_none().then(|| answers(version.version, &newest.touched, &newest.removed)),
        report,
        notes: words.notes,
        ended: newest.ended.clone(),
    };
    let (answer, repeat) = answer.written().map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(PreparedPublish { newest, kept, answer, repeat })
}

/// Makes the version that would be next, without a look at rollouts and nodes.
fn try_next(
    present: &Published,
    words: &Words,
    edited: Edited,
    engine: &Engine,
    refused: &impl Fn(&Problems, &Policy) -> Problem,
) -> Result<NextVersion, Problem> {
    let label = (present.version.version + 1, Timestamp::now(), Carries(words.carry.clone()));
    let next = next_version(present, label, ("", words), edited, engine, refused)?;
    check_carry(&words.carry, &next.snapshot)?;
    Ok(next)
}

/// Makes a version on top of `on`, if it can be one: with this number, of this instant, and with these choices for used quota.
fn next_version(
    on: &Published,
    (number, now, carry): (u64, Timestamp, Carries),
    (author, words): (&str, &Words),
    edited: Edited,
    engine: &Engine,
    refused: &impl Fn(&Problems, &Policy) -> Problem,
) -> Result<NextVersion, Problem> {
    let Edited { mut policy, mut touched, mut removed, report: _ } = edited;
    let ended = overrides::end(&mut policy, now);
    let snapshot = Snapshot::compile(&policy).map_err(|problems| refused(&problems, &policy))?;
    let full = |error: tidegate::PublishError| Problem::field("", error.to_string());
    engine.has_room_for(&snapshot).map_err(full)?;
    let document = document(&policy).map_err(|error| Problem::Internal(error.to_string()))?;
    let version = Version {
        version: number,
        sha256: sha256(&document),
        author: author.to_owned(),
        message: words.message.clone(),
        published_at: now.to_string(),
        carry,
        follows: on.version.version,
    };
    let names_of_ended = ended.names();
    touched.retain(|key| !ended.removed.contains(key) && !ended.touched.contains(key));
    touched.extend(ended.touched);
    removed.extend(ended.removed);
    let revised = Revised { version: number, by: version.author.clone(), at: version.published_at.clone() };
    let mut revisions = on.revisions.clone();
    for key in &removed {
        revisions.remove(key);
    }
    let revised = Arc::new(revised);
    for key in &touched {
        revisions.insert(Arc::new(key.clone()), Arc::clone(&revised));
    }
    Ok(NextVersion {
        name: format!("version:{number}"),
        objects: names(touched.iter().chain(&removed)),
        published: Arc::new(Published { version, document: document.into(), policy, revisions }),
        snapshot,
        touched,
        removed,
        ended: names_of_ended,
    })
}

/// A document that was published.
pub(crate) fn parse_stored(document: &str) -> Result<Policy, Problem> {
    parse(document).map_err(|problems| Problem::Internal(format!("a stored policy: {problems}")))
}

/// What became of each object.
fn answers(version: u64, touched: &[ObjectKey], removed: &[ObjectKey]) -> Vec<ChangedObject> {
    let change = |key: &ObjectKey, etag: Option<String>| ChangedObject { key: key.clone(), etag };
    let touched = touched.iter().map(|key| change(key, Some(key.etag(version))));
    touched.chain(removed.iter().map(|key| change(key, None))).collect()
}
