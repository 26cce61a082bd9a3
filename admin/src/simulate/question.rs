//! What somebody wants to know: two policies and some traffic, named in one of several ways, made ready here.

use std::{collections::BTreeMap, fs::File, sync::Arc};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::{Identity, NamedValues, Problems, Snapshot, policy::Policy, time::Nanos};
use tidegate_replay::{
    LogOptions, Utc,
    compare::{as_one_node, room_for},
    traffic::{RowProblem, TrafficPlan, TrafficRow},
};

use crate::{
    capacity::work_queue::Place,
    domain::{
        change_list::{TriedList, default_domain, edit_at, invalid},
        error::{FieldError, Problem},
        json::pointer_of,
        privacy::{Keys, Privacy},
        published::{Published, Shared},
    },
    publish::publisher::{Publisher, parse_stored},
    simulate::{
        about_traffic::About,
        recorder::{Recorder, Sampler},
        time::now,
        uploads::Uploads,
    },
    store::database::Store,
};

/// A question that is longer is not kept with its answer.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// What is said of a value that the policy in force does not have.
const NEW_VALUE: &str = "recorded identities are not shown as they are (--keys), so a run over them takes no value that the \
                         policy in force does not have; publish it first, or try it on made-up traffic";

/// What a run is asked for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    /// The policy that is compared with; the one in force unless given.
    #[serde(default)]
    a: Chosen,
    /// The policy in question.
    b: Chosen,
    /// What both are asked with.
    traffic: Asked,
}

/// A policy.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Chosen {
    /// The one in force.
    #[default]
    Live,
    /// No limits at all.
    None,
    /// One that was published.
    Version(u64),
    /// The one in force, with these changes.
    Changes(TriedList),
    /// The one in force, with the changes of this draft.
    Draft(String),
    /// This one.
    Document(Policy),
}

/// Some traffic.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "AskedTraffic")]
enum Asked {
    /// Made up from rows.
    Made(MadeAsk),
    /// An uploaded log.
    Log(LogAsk),
    /// What the recorder has kept.
    Recorded,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MadeAsk {
    /// Clients that do the same.
    rows: Vec<TrafficRow>,
    /// Another one makes other chances.
    #[serde(default = "first_seed")]
    seed: u32,
    /// Now unless given; an instant from 1970 to 2554.
    #[schemars(with = "Option<Utc>")]
    start: Option<String>,
    /// Where their requests go.
    #[serde(default = "default_domain")]
    domain: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogAsk {
    /// Id of an upload.
    upload: String,
    /// Where its requests go.
    #[serde(default = "default_domain")]
    domain: String,
    /// By kind of identity, the tier of all of that kind, as far as a policy has it; of other kinds each is looked up in the
    /// policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tiers: BTreeMap<String, String>,
}

pub(super) fn first_seed() -> u32 {
    1
}

/// What a question is made ready from.
#[derive(Clone, Debug)]
pub(crate) struct QuestionContext {
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) store: Store,
    pub(crate) privacy: Privacy,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) recorder: Option<Arc<Recorder>>,
}

/// A question, ready to be answered.
pub(crate) struct Prepared {
    pub(crate) policies: [Option<Snapshot>; 2],
    pub(crate) traffic: Prepare,
    /// About how many requests there are.
    pub(crate) of: u64,
    /// Room for counters.
    pub(crate) room: usize,
    /// The question as it can be asked again, if it is not too long.
    pub(crate) asked: Option<Arc<Value>>,
    /// The version that was in force.
    pub(crate) policy_version: u64,
    /// What is known of the traffic beside.
    pub(crate) about: About,
}

/// Traffic that is there.
pub(crate) enum Prepare {
    Made {
        made: TrafficPlan,
        seed: u64,
        start: Nanos,
    },
    Log {
        file: File,
        reading: LogOptions,
        domain: String,
        /// By kind of identity, the tier of all of that kind.
        tiers: BTreeMap<String, String>,
        upload: String,
    },
    Recorded {
        records: Vec<Arc<[u8]>>,
        sample: Option<Sampler>,
        /// Where identities are hidden: whom the policies name.
        hidden: Option<NamedValues>,
    },
}

/// Makes a question ready: what the database knows is asked here, the work is done in the question's place for such work.
pub(crate) async fn prepare(context: QuestionContext, place: Place, mut ask: Ask) -> Result<Prepared, Problem> {
    let present = context.publisher.published();
    if let Asked::Made(made) = &mut ask.traffic {
        made.start.get_or_insert_with(|| now().to_string());
    }
    // Asked again, it is the same policy that is meant.
    for chosen in [&mut ask.a, &mut ask.b] {
        if matches!(chosen, Chosen::Live) {
            *chosen = Chosen::Version(context.publisher.in_force().version.version);
        }
    }
    let stored = [stored(&context, &present, &ask.a, "/a").await?, stored(&context, &present, &ask.b, "/b").await?];
    place.work(move || ready(&context, &present, ask, stored)).await?
}

/// What the database keeps of a policy that was chosen: a version that is not in force, or a draft.
async fn stored(
    context: &QuestionContext,
    present: &Published,
    chosen: &Chosen,
    pointer: &str,
) -> Result<Option<String>, Problem> {
    Ok(match chosen {
        Chosen::Version(version) if *version != present.version.version => {
            let absent = || Problem::field(format!("{pointer}/version"), format!("there is no version {version}"));
            Some(context.store.version(*version).await?.ok_or_else(absent)?.1)
        }
        Chosen::Draft(id) => {
            let found = context.store.draft(id, &Timestamp::now().to_string()).await?;
            let absent = || Problem::field(format!("{pointer}/draft"), format!("there is no draft `{id}`"));
            Some(found.ok_or_else(absent)?.1)
        }
        _ => None,
    })
}

/// Rows of made-up traffic are wrong, each at `pointer`.
pub(super) fn wrong_rows(problems: Vec<RowProblem>, pointer: impl Fn(&RowProblem) -> String) -> Problem {
    let field = |problem: RowProblem| FieldError::invalid(pointer(&problem), problem.message);
    Problem::Invalid(problems.into_iter().map(field).collect())
}

fn ready(
    context: &QuestionContext,
    present: &Shared,
    ask: Ask,
    stored: [Option<String>; 2],
) -> Result<Prepared, Problem> {
    let asked = serde_json::to_string(&ask).ok().filter(|asked| asked.len() <= KEPT_BYTES_MAX);
    let asked = asked.and_then(|asked| serde_json::from_str(&asked).ok()).map(Arc::new);
    let Gathered { mut traffic, of, about, start, domain } = gather(context, ask.traffic)?;
    let [stored_a, stored_b] = stored;
    let mut policies =
        [document(present, ask.a, stored_a, "/a", start)?, document(present, ask.b, stored_b, "/b", start)?];
    if let Some((domain, pointer)) = domain {
        check_domain(&policies, &domain, pointer)?;
    }
    match &mut traffic {
        Prepare::Made { made, .. } => {
            check_tiers(&policies, made)?;
            policies.iter_mut().flatten().for_each(|(policy, _)| made.assign(policy));
        }
        Prepare::Recorded { hidden, .. } if context.privacy.keys != Keys::Clear => {
            *hidden = Some(only_live_values(present, &policies)?);
        }
        Prepare::Log { domain, tiers, .. } => {
            check_tiers_of_log(&policies, domain, tiers)?;
            policies.iter_mut().flatten().for_each(|(policy, _)| give_tiers(policy, domain, tiers));
        }
        Prepare::Recorded { .. } => {}
    }
    let identities = match &traffic {
        Prepare::Made { made, .. } => made.clients(),
        // Each request may come from somebody else; the limits that it can meet are those of all its identities.
        Prepare::Log { .. } | Prepare::Recorded { .. } => of,
    };
    let policies = compile(&policies)?;
    let room = room_for(identities, policies.each_ref().map(Option::as_ref));
    Ok(Prepared { policies, traffic, of, room, asked, policy_version: present.version.version, about })
}

/// Traffic as it was asked for.
struct Gathered {
    traffic: Prepare,
    /// About how many requests there are.
    of: u64,
    about: About,
    /// When it begins: changes are made then, so that the same question has the same answer whenever it is asked.
    start: Utc,
    /// Where it goes, if that was said, and where it was said.
    domain: Option<(String, &'static str)>,
}

fn gather(context: &QuestionContext, asked: Asked) -> Result<Gathered, Problem> {
    Ok(match asked {
        Asked::Made(MadeAsk { rows, seed, start, domain }) => {
            let start = start.map_or_else(|| Ok(now()), |text| text.parse());
            let start = start.map_err(|why| Problem::field("/traffic/made/start", why))?;
            let made = TrafficPlan::new(rows, &domain).map_err(|problems| {
                wrong_rows(problems, |problem| match problem.field {
                    "" => "/traffic/made/rows".to_owned(),
                    field => format!("/traffic/made/rows/{}/{field}", problem.row),
                })
            })?;
            let of = made.expected();
            let traffic = Prepare::Made { made, seed: seed.into(), start: start.0 };
            let domain = Some((domain, "/traffic/made/domain"));
            Gathered { traffic, of, about: About::default(), start, domain }
        }
        Asked::Log(LogAsk { upload, domain, tiers }) => {
            let pointer = "/traffic/log/upload";
            let found = context.uploads.open_file(&upload).map_err(|error| {
                Problem::field(pointer, format!("the upload cannot be read: {error}; send it again"))
            })?;
            let absent = || Problem::field(pointer, "there is no such upload; it may have expired");
            let (found, file) = found.ok_or_else(absent)?;
            let (of, about) = (found.look.requests, About { refused: Some(found.look.refused), ..About::default() });
            let traffic = Prepare::Log { file, reading: found.reading, domain: domain.clone(), tiers, upload };
            let start = found.look.from.unwrap_or_else(now);
            Gathered { traffic, of, about, start, domain: Some((domain, "/traffic/log/domain")) }
        }
        Asked::Recorded => {
            let recorder = context.recorder.as_ref().ok_or_else(|| {
                Problem::field("/traffic", "nothing is recorded; start the server with --record, such as --record 1/10")
            })?;
            let (records, about) = recorder.recorded();
            let Some(start) = about.from else {
                return Err(Problem::field("/traffic", "nothing was recorded yet"));
            };
            let sample = (!recorder.is_whole()).then(|| recorder.sampler());
            let of = records.len() as u64;
            let about = About { recorded: Some(about), ..About::default() };
            Gathered { traffic: Prepare::Recorded { records, sample, hidden: None }, of, about, start, domain: None }
        }
    })
}

/// One of the policies has the tier of each row.
fn check_tiers(policies: &[Option<Ready>; 2], made: &TrafficPlan) -> Result<(), Problem> {
    let lacking: Vec<Vec<usize>> =
        policies.iter().flatten().map(|(policy, _)| made.without_tier(policy).collect()).collect();
    if let [first, rest @ ..] = &lacking[..]
        && let Some(row) = first.iter().find(|row| rest.iter().all(|other| other.contains(row)))
    {
        let pointer = format!("/traffic/made/rows/{row}/tier");
        return Err(Problem::field(pointer, "none of the policies has this tier"));
    }
    Ok(())
}

/// One of the policies has the tier of each kind.
fn check_tiers_of_log(
    policies: &[Option<Ready>; 2],
    domain: &str,
    tiers: &BTreeMap<String, String>,
) -> Result<(), Problem> {
    for (kind, tier) in tiers {
        Identity::new(kind, "x").map_err(|error| Problem::field("/traffic/log/tiers", error.to_string()))?;
        let mut policies = policies.iter().flatten().peekable();
        if policies.peek().is_some() && policies.all(|(policy, _)| !has_tier(policy, domain, tier)) {
            let pointer = format!("/traffic/log/tiers/{kind}");
            return Err(Problem::field(pointer, "none of the policies has this tier"));
        }
    }
    Ok(())
}

fn has_tier(policy: &Policy, domain: &str, tier: &str) -> bool {
    policy.domains.get(domain).is_some_and(|domain| domain.tiers.iter().any(|it| it.id == tier))
}

/// Gives all of a kind its tier, as far as the policy has it; overrides stay.
fn give_tiers(policy: &mut Policy, name: &str, tiers: &BTreeMap<String, String>) {
    for (kind, tier) in tiers {
        if !has_tier(policy, name, tier) {
            continue;
        }
        let Some(domain) = policy.domains.get_mut(name) else { continue };
        domain.defaults.insert(kind.clone(), tier.clone());
        let of_kind = domain.clients.iter_mut().filter(|client| client.kind == *kind);
        of_kind.filter(|client| client.tier.is_some()).for_each(|client| client.tier = Some(tier.clone()));
    }
}

/// The values that tell one identity from another in the policy in force. Refuses policies with others: whoever may choose
/// values could ask after the beginnings of one that is hidden, until he has it; and who is named by an older version alone
/// is shown by a hash elsewhere, of which the instants of his requests would tell whose it is.
fn only_live_values(present: &Published, policies: &[Option<Ready>; 2]) -> Result<NamedValues, Problem> {
    let named = NamedValues::of([&present.policy]);
    for (policy, refused) in policies.iter().flatten() {
        named.check(policy, NEW_VALUE).map_err(|problems| refused(&problems, policy))?;
    }
    Ok(named)
}

/// A policy, and what becomes of its problems.
type Ready = (Policy, Box<dyn Fn(&Problems, &Policy) -> Problem>);

fn document(
    present: &Published,
    chosen: Chosen,
    stored: Option<String>,
    pointer: &'static str,
    start: Utc,
) -> Result<Option<Ready>, Problem> {
    let start = Timestamp::from_nanosecond(start.0.into()).unwrap_or(Timestamp::MAX);
    // What this build does not take of an older version.
    let as_a_whole = move |problems: &Problems, _: &Policy| Problem::field(pointer, problems.to_string());
    let with_changes = |list: TriedList, below: &'static str| {
        let list = list.on(present);
        let at = format!("{pointer}{below}");
        let edited = edit_at(start, present, &list).map_err(|problem| problem.below(&at))?;
        let refused = move |problems: &Problems, policy: &Policy| invalid(problems, policy, &list).below(&at);
        Ok::<Ready, Problem>((edited.policy, Box::new(refused)))
    };
    Ok(Some(match chosen {
        Chosen::None => return Ok(None),
        Chosen::Live | Chosen::Version(_) => {
            let older = stored.map(|text| parse_stored(&text)).transpose()?;
            (older.unwrap_or_else(|| present.policy.clone()), Box::new(as_a_whole))
        }
        Chosen::Changes(list) => with_changes(list, "/changes")?,
        Chosen::Draft(_) => {
            let list = serde_json::from_str(&stored.unwrap_or_default());
            with_changes(list.map_err(|error| Problem::Internal(error.to_string()))?, "/draft")?
        }
        Chosen::Document(policy) => {
            let refused = move |problems: &Problems, _: &Policy| {
                let at = |path: &str| format!("{pointer}/document{}", pointer_of(path));
                Problem::Invalid(
                    problems.iter().map(|it| FieldError::invalid(at(&it.path), it.message.clone())).collect(),
                )
            };
            (policy, Box::new(refused))
        }
    }))
}

fn compile(policies: &[Option<Ready>; 2]) -> Result<[Option<Snapshot>; 2], Problem> {
    let one = |ready: &Option<Ready>| {
        let Some((policy, refused)) = ready else { return Ok(None) };
        as_one_node(policy).map(Some).map_err(|problems| refused(&problems, policy))
    };
    let [a, b] = policies;
    Ok([one(a)?, one(b)?])
}

fn check_domain(policies: &[Option<Ready>; 2], domain: &str, pointer: &str) -> Result<(), Problem> {
    let mut policies = policies.iter().flatten().peekable();
    if policies.peek().is_some() && policies.all(|(policy, _)| !policy.domains.contains_key(domain)) {
        return Err(Problem::field(pointer, format!("none of the policies has a domain `{domain}`")));
    }
    Ok(())
}
