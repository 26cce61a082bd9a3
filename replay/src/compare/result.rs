//! What a comparison found: a summary, and the clients and decisions to be looked at. It can be written down and read back.

use serde::{Deserialize, Serialize};
use tidegate::time::Nanos;

use super::{
    Compare, SIDES,
    clients::{Longest, Person},
    decisions::{DecidedBy, DecisionRow, KeptDecisions, Verdict, Which},
    limits::{self, LimitRow},
    series::{BUCKETS_MS, Counts, Strip},
    side::Side,
    utc,
};
use crate::Utc;

/// Clients that the summary names.
pub const TOP: usize = 20;

/// Buckets that a client's timeline has at most, unless somebody asks for shorter ones.
const ROW_BUCKETS: u64 = 300;
/// Buckets that a page of timelines has at most, if it has more than one.
const PAGE_BUCKETS: usize = 50_000;

const MS_NS: u64 = 1_000_000;

/// What was counted of all requests together.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    denied: [u64; SIDES],
    newly_denied: u64,
    newly_allowed: u64,
    from: Option<Nanos>,
    to: Option<Nanos>,
    /// When, and which client, if there was room for it.
    first_denied: [Option<(Nanos, Option<u32>)>; SIDES],
}

impl Totals {
    /// Answers the request's number.
    pub(crate) fn count(&mut self, now: Nanos, is_denied: [bool; SIDES]) -> u64 {
        self.requests += 1;
        for (denied, is_denied) in self.denied.iter_mut().zip(is_denied) {
            *denied += u64::from(is_denied);
        }
        self.newly_denied += u64::from(is_denied == [false, true]);
        self.newly_allowed += u64::from(is_denied == [true, false]);
        self.from.get_or_insert(now);
        self.to = Some(now);
        self.requests
    }

    /// These clients asked; the first of them stands for the request.
    pub(crate) fn asked_by(&mut self, client: Option<u32>, now: Nanos, is_denied: [bool; SIDES]) {
        for (first, is_denied) in self.first_denied.iter_mut().zip(is_denied) {
            if is_denied {
                first.get_or_insert((now, client));
            }
        }
    }
}

/// Two policies over the same traffic, in short. Of a policy that is not there all is allowed, and its part is `null`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Requests that both decided.
    pub requests: u64,
    /// Time of the first of them.
    pub from: Option<Utc>,
    /// Time of the last.
    pub to: Option<Utc>,
    /// What A did.
    pub a: Option<SideSummary>,
    /// What B did.
    pub b: Option<SideSummary>,
    /// Requests that B denies and A allows; of the clients that are listed, those that B denies something and A nothing.
    pub newly_denied: Changed,
    /// Requests that A denies and B allows; of the clients that are listed, those that A denies something and B nothing.
    pub newly_allowed: Changed,
    /// Whom B denies more or less than A; `null` in runs of earlier versions.
    #[serde(default)]
    pub clients: Option<ClientsChanged>,
    /// Limits of A, then those that only B has, then of single clients' own the ones that denied most, of those that were
    /// looked at.
    pub limits: Vec<LimitRow>,
    /// Single clients' own limits that were looked at and are not listed.
    pub limits_left_out: u64,
    /// The clients for whom most changes.
    pub top: Vec<ClientRow>,
    /// Length of a bucket of `timeline`.
    pub bucket_ms: u64,
    /// All requests over time; buckets without any are left out.
    pub timeline: Vec<Bucket>,
    /// What is kept to be looked at.
    pub kept: Kept,
    /// Charges for which the engines had no room of their own; above 0, some clients fared worse than they should.
    pub charges_without_room: u64,
}

/// What one policy did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideSummary {
    /// Requests that it allowed.
    pub allowed: u64,
    /// Requests that it denied.
    pub denied: u64,
    /// Clients that it denied something, of those that are listed.
    pub clients_denied: u64,
    /// The first request that it denied.
    pub first_denial: Option<FirstDenial>,
    /// The longest time for which it denied one of the clients that are listed everything.
    pub longest_run: Option<LongestRun>,
}

/// Whom a policy denied first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FirstDenial {
    /// When.
    pub at: Utc,
    /// The client, as `KIND:VALUE`; `None`: it is not listed, for want of room.
    pub key: Option<String>,
}

/// Denials of one client in a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LongestRun {
    /// The client, as `KIND:VALUE`.
    pub key: String,
    /// The first of them.
    pub from: Utc,
    /// From the first to the last.
    pub length_ms: u64,
    /// How many.
    pub denials: u64,
}

/// How much changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Changed {
    /// Requests.
    pub requests: u64,
    /// Clients.
    pub clients: u64,
}

/// Clients of which more or fewer requests are denied, of those that are listed. A client that is denied as many, though others,
/// is neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientsChanged {
    /// Those of which B denies fewer requests than A.
    pub gaining: u64,
    /// Those of which B denies more requests than A.
    pub losing: u64,
}

/// How one client fared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientRow {
    /// `KIND:VALUE`, as it may be shown.
    pub key: String,
    /// Its requests.
    pub requests: u64,
    /// Its requests that A denied.
    pub denied_a: u64,
    /// Its requests that B denied.
    pub denied_b: u64,
    /// Its requests that B denied and A allowed.
    pub newly_denied: u64,
    /// Its requests that A denied and B allowed.
    pub newly_allowed: u64,
    /// When A denied it first.
    pub first_denied_a: Option<Utc>,
    /// When B denied it first.
    pub first_denied_b: Option<Utc>,
    /// When B first denied it what A allowed.
    pub first_newly_denied: Option<Utc>,
}

/// What happened in a stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bucket {
    /// Its beginning.
    pub at: Utc,
    /// Requests.
    pub requests: u64,
    /// Those that A denied.
    pub denied_a: u64,
    /// Those that B denied.
    pub denied_b: u64,
}

/// What is kept to be looked at, of how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kept {
    /// Clients that are listed.
    pub clients: u64,
    /// Times that a client came who is not, for want of room.
    pub clients_left_out: u64,
    /// The shortest bucket of a client's timeline.
    pub bucket_ms: u64,
    /// Decisions in which the policies differ.
    pub changed: DecisionsKept,
    /// Decisions that both denied.
    pub denied: DecisionsKept,
    /// Decisions that both allowed.
    pub allowed: DecisionsKept,
}

/// The first ones are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionsKept {
    /// So many.
    pub kept: u64,
    /// Of so many.
    pub of: u64,
}

/// A client over time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimelineRow {
    /// How it fared.
    #[serde(flatten)]
    pub client: ClientRow,
    /// Its requests over time; buckets without any are left out.
    pub buckets: Vec<Bucket>,
}

/// By what clients are sorted; those that are equal by their key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Requests in which the policies differ.
    #[default]
    Changed,
    /// Requests that A denied.
    DeniedA,
    /// Requests that B denied.
    DeniedB,
    /// Requests.
    Requests,
    /// The key.
    Key,
}

/// Some decisions, in order of time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DecisionPage {
    /// The decisions.
    pub items: Vec<DecisionRow>,
    /// Number of the request to go on after; `None`: there are no more.
    pub next: Option<u64>,
}

/// All that a comparison found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// In short.
    pub summary: Summary,
    bucket_ms: u64,
    clients: Vec<(ClientRow, Strip)>,
    /// By the order in which they came: their keys.
    keys: Vec<String>,
    limits: [Option<Vec<String>>; SIDES],
    decisions: KeptDecisions,
}

impl Outcome {
    /// The shortest bucket by which a client's timeline has a few hundred of them at most.
    #[must_use]
    pub fn bucket_ms(&self) -> u64 {
        let span_ms = self.summary.to.zip(self.summary.from).map_or(0, |(to, from)| (to.0 - from.0) / MS_NS);
        let mut longer = BUCKETS_MS.into_iter().filter(|bucket| *bucket >= self.bucket_ms);
        longer.find(|bucket| span_ms / bucket < ROW_BUCKETS).unwrap_or(BUCKETS_MS[BUCKETS_MS.len() - 1])
    }

    /// Clients over time, sorted, from the `from`-th on: at most `limit`, and fewer where they have too many buckets for a
    /// page. Buckets are `bucket_ms` long, a multiple of [`Kept::bucket_ms`]. Also answers how many clients there are.
    #[must_use]
    pub fn timeline(
        &self,
        which: Which,
        sort: Sort,
        is_descending: bool,
        from: usize,
        limit: usize,
        bucket_ms: u64,
    ) -> (Vec<TimelineRow>, usize) {
        let times = (bucket_ms / self.bucket_ms).max(1);
        let has = |row: &ClientRow| match which {
            Which::All => true,
            Which::Denied => row.denied_a + row.denied_b > 0,
            Which::Changed => row.newly_denied + row.newly_allowed > 0,
            Which::NewlyDenied => row.newly_denied > 0,
            Which::NewlyAllowed => row.newly_allowed > 0,
        };
        let mut rows: Vec<&(ClientRow, Strip)> = self.clients.iter().filter(|(row, _)| has(row)).collect();
        rows.sort_by(|(one, _), (other, _)| {
            let by_number = |number: fn(&ClientRow) -> u64| number(one).cmp(&number(other));
            let order = match sort {
                Sort::Changed => by_number(|row| row.newly_denied + row.newly_allowed),
                Sort::DeniedA => by_number(|row| row.denied_a),
                Sort::DeniedB => by_number(|row| row.denied_b),
                Sort::Requests => by_number(|row| row.requests),
                Sort::Key => one.key.cmp(&other.key),
            };
            let order = if is_descending { order.reverse() } else { order };
            order.then_with(|| one.key.cmp(&other.key))
        });
        let page = rows.iter().skip(from).take(limit);
        let row = |(client, strip): &(ClientRow, Strip)| TimelineRow {
            client: client.clone(),
            buckets: buckets(&strip.merged(times), self.bucket_ms * times),
        };
        let (mut shown, mut cells) = (Vec::new(), 0);
        for row in page.map(|it| row(it)) {
            cells += row.buckets.len();
            if cells > PAGE_BUCKETS && !shown.is_empty() {
                break;
            }
            shown.push(row);
        }
        (shown, rows.len())
    }

    /// Decisions about a client, or about all; from an instant on, or after a request.
    #[must_use]
    pub fn decisions(
        &self,
        key: Option<&str>,
        which: Which,
        from: Option<Utc>,
        after: Option<u64>,
        limit: usize,
    ) -> DecisionPage {
        let is_of = |who: &[u32]| key.is_none_or(|key| who.iter().any(|who| self.keys[*who as usize] == key));
        let all = self.decisions.all.iter().filter(|kept| {
            which.has(kept.sides.map(|side| side.is_allowed))
                && from.is_none_or(|from| kept.at >= from.0)
                && after.is_none_or(|after| kept.number > after)
                && is_of(&kept.who)
        });
        let text = |names: &[Box<str>], place: Option<u32>| place.map(|place| names[place as usize].to_string());
        let mut items: Vec<DecisionRow> = all
            .take(limit.saturating_add(1))
            .map(|kept| DecisionRow {
                number: kept.number,
                at: Utc(kept.at),
                identities: kept.who.iter().map(|who| self.keys[*who as usize].clone()).collect(),
                method: text(&self.decisions.methods, kept.method),
                endpoint: text(&self.decisions.endpoints, kept.endpoint),
                cost: kept.cost,
                a: self.decided_by(0, kept.sides[0]),
                b: self.decided_by(1, kept.sides[1]),
            })
            .collect();
        let next =
            (items.len() > limit).then(|| items.truncate(limit)).and_then(|()| items.last().map(|last| last.number));
        DecisionPage { items, next }
    }

    /// Is this the key of somebody who came?
    #[must_use]
    pub fn knows(&self, key: &str) -> bool {
        self.keys.iter().any(|it| it == key)
    }

    fn decided_by(&self, side: usize, verdict: Verdict) -> Option<DecidedBy> {
        let limits = self.limits[side].as_ref()?;
        Some(DecidedBy {
            allowed: verdict.is_allowed,
            limit_id: verdict.limit.and_then(|limit| limits.get(limit as usize).cloned()),
            limit: verdict.most,
            used_before: verdict.used_before,
            used: verdict.most.zip(verdict.remaining).map(|(most, left)| most.saturating_sub(left)),
            remaining: verdict.remaining,
            retry_after_ms: verdict.retry_ms,
            reset_after_ms: verdict.reset_ms,
            delay_ms: verdict.delay_ms,
        })
    }
}

fn buckets(strip: &Strip, bucket_ms: u64) -> Vec<Bucket> {
    let bucket = |(bucket, Counts { requests, denied: [denied_a, denied_b] }): &(u64, Counts)| Bucket {
        at: Utc(bucket.saturating_mul(bucket_ms).saturating_mul(MS_NS)),
        requests: *requests,
        denied_a: *denied_a,
        denied_b: *denied_b,
    };
    strip.0.iter().map(bucket).collect()
}

/// Counts what there is to count, and names everybody by `show`.
pub(crate) fn put_together(compare: Compare, show: impl Fn(&str, &str, usize) -> String) -> Outcome {
    let Compare { sides, totals, people, strips, decisions, sample, .. } = compare;
    let key = |(number, person): (usize, &Person)| {
        let (kind, value) = person.name.split_once(':').unwrap_or(("", &person.name));
        show(kind, value, number)
    };
    let keys: Vec<String> = people.all.iter().enumerate().map(key).collect();
    let decisions_kept = |sort: usize| DecisionsKept { kept: decisions.kept()[sort], of: decisions.counts[sort] };
    let listed = || people.all.iter().enumerate().filter(|(_, person)| person.is_listed && person.requests > 0);
    let clients_with = |has: &dyn Fn(&Person) -> bool| listed().filter(|(_, person)| has(person)).count() as u64;
    let side = |side: usize| {
        sides[side].is_some().then(|| SideSummary {
            allowed: totals.requests - totals.denied[side],
            denied: totals.denied[side],
            clients_denied: clients_with(&|person| person.denied[side] > 0),
            first_denial: totals.first_denied[side].map(|(at, client)| FirstDenial {
                at: Utc(at),
                key: client.map(|client| keys[client as usize].clone()),
            }),
            longest_run: people.longest[side].map(|Longest { who, from, ns, denials }| LongestRun {
                key: keys[who as usize].clone(),
                from: Utc(from),
                length_ms: ns / MS_NS,
                denials,
            }),
        })
    };
    let rows: Vec<(ClientRow, &Strip)> =
        listed().map(|(number, person)| (client_row(person, keys[number].clone()), &person.strip)).collect();
    let mut top: Vec<&ClientRow> =
        rows.iter().map(|(row, _)| row).filter(|row| row.newly_denied + row.newly_allowed > 0).collect();
    top.sort_by_key(|row| std::cmp::Reverse(row.newly_denied + row.newly_allowed));
    let names = limits::names(&sides, &people, &keys, show);
    let (limits, limits_left_out) = limits::rows(&sides, &names, sample.is_some());
    let summary = Summary {
        requests: totals.requests,
        from: utc(totals.from),
        to: utc(totals.to),
        a: side(0),
        b: side(1),
        newly_denied: Changed {
            requests: totals.newly_denied,
            clients: clients_with(&|person| person.denied[0] == 0 && person.denied[1] > 0),
        },
        newly_allowed: Changed {
            requests: totals.newly_allowed,
            clients: clients_with(&|person| person.denied[0] > 0 && person.denied[1] == 0),
        },
        clients: Some(ClientsChanged {
            gaining: clients_with(&|person| person.denied[1] < person.denied[0]),
            losing: clients_with(&|person| person.denied[1] > person.denied[0]),
        }),
        limits,
        limits_left_out,
        top: top.into_iter().take(TOP).cloned().collect(),
        bucket_ms: strips.all_bucket_ms(),
        timeline: buckets(&strips.all, strips.all_bucket_ms()),
        kept: Kept {
            clients: rows.len() as u64,
            clients_left_out: people.left_out,
            bucket_ms: strips.bucket_ms(),
            changed: decisions_kept(0),
            denied: decisions_kept(1),
            allowed: decisions_kept(2),
        },
        charges_without_room: sides.iter().map(Side::without_room).sum(),
    };
    let clients = rows.into_iter().map(|(row, strip)| (row, strip.clone())).collect();
    Outcome { summary, bucket_ms: strips.bucket_ms(), clients, keys, limits: names, decisions: decisions.into_kept() }
}

fn client_row(person: &Person, key: String) -> ClientRow {
    ClientRow {
        key,
        requests: person.requests,
        denied_a: person.denied[0],
        denied_b: person.denied[1],
        newly_denied: person.newly_denied,
        newly_allowed: person.newly_allowed,
        first_denied_a: utc(person.first_denied[0]),
        first_denied_b: utc(person.first_denied[1]),
        first_newly_denied: utc(person.first_newly_denied),
    }
}
