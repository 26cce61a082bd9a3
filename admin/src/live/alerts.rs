//! What needs a look: found in the policy, its history, the figures and the nodes, again and again, and told to the streams when it
//! comes and when it goes.

mod tokens;

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    convert::Infallible,
    fmt, mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{
    DEFAULT_DOMAIN, Finding, KNOWN_LIMITS_MAX, WarningCode,
    clock::{Clock, WallStep, WallSteps},
    policy::{Client, Limit, Mode, Override},
    time::Timestamp as ClockTime,
};
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    base::event_log::{Events, Topic},
    domain::{
        error::Problem,
        metric_types::HOUR,
        objects::{Kind, ObjectKey, client_id},
        published::{Published, Shared},
    },
    fleet::registry::{Fleet, RefusedForRoom, Trouble},
    metrics::{
        collector::{Counts, Figures, OwnerKind},
        sample::Sample,
        telemetry::Telemetry,
    },
    publish::publisher::Publisher,
    store::{database::Store, metrics::FigureRow, tokens::Token},
};

/// How often is looked, beside after every publish.
const EVERY: Duration = Duration::from_secs(10);
/// Alerts of one code that are listed.
const OF_CODE_MAX: usize = 100;
/// A publish reaches a node sooner.
const BEHIND: SignedDuration = SignedDuration::from_secs(10);
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// A shadow that stays longer was forgotten, perhaps.
const SHADOW: SignedDuration = SignedDuration::from_hours(24 * 14);
/// So was a rule that nothing meets for longer.
const UNMATCHED: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Per cent of the limits that an engine can know.
const KNOWN_LIMITS_PERCENT: usize = 80;
/// How long a step of wall time is shown.
const CLOCK_SHOWN: Duration = Duration::from_hours(1);

/// Something that needs a look.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Alert {
    /// Stable: `override_ends`, `long_shadow`, `rule_unmatched`, `token_ends`, `table_full`, `reservations_refused`,
    /// `request_ids_forgotten`, `unknown_domain`, `without_store`, `figures_not_kept`, `sign_ins_limited`,
    /// `certificate_unusable`, `clock_set`, `limits_full`, `node_silent`, `node_gone`, `node_behind`, `node_refused`,
    /// `node_store_away`, `node_store_refuses`, `node_store_evicts`, `node_store_lost_keys`, `node_clock_apart`, or the code of a
    /// warning of the policy.
    code: &'static str,
    /// RFC 3339: since when it is so, as far as that is known.
    #[schemars(extend("format" = "date-time"))]
    since: String,
    /// For people: what is the matter, and with what.
    message: String,
    /// What of the policy it is about; `null`: a node, a token, or this server.
    object: Option<About>,
    /// The node that it is about, if it is about one that follows this server.
    node: Option<String>,
    /// Name of the token that it is about, if it is about one.
    token: Option<String>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AlertObject")]
struct About {
    kind: Kind,
    domain: String,
    id: String,
    /// Where it is about one limit.
    limit: Option<String>,
}

/// An alert is the same as long as it is about the same: its code, and the object, node or token.
type Key = (&'static str, Option<About>, Option<String>);

/// Those that are open.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    open: Mutex<BTreeMap<Key, Open>>,
    /// One look at a time.
    turn: Arc<tokio::sync::Mutex<Memory>>,
}

/// An alert, and the number of the event that told of it.
type Open = (Alert, u64);

/// What a look needs of those before it.
#[derive(Debug, Default)]
struct Memory {
    /// Warnings of a version.
    warnings: Option<(u64, Vec<Finding<WarningCode>>)>,
    /// The hour, Unix seconds, and as of it when each rule was met last.
    matched: Option<(i64, Matched)>,
    /// When something was counted last that should not be, Unix milliseconds, and how often it was.
    grown: HashMap<&'static str, Grown>,
    /// Since when the engine knows nearly as many limits as it can.
    limits_full: Option<Timestamp>,
    /// What was the matter with nodes of which it is not known since when, by code and node, and since when it was seen so.
    seen: HashMap<(&'static str, String), Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Grown {
    count: u64,
    since: i64,
    last: i64,
}

#[derive(Debug, Default)]
struct Matched {
    /// Since when there are figures, Unix seconds.
    since: Option<i64>,
    /// End of the last hour, Unix seconds, by full name of the rule.
    last: HashMap<String, i64>,
    /// Some rules were left out of the figures.
    is_partial: bool,
}

/// What was found in a look.
#[derive(Debug, Default)]
struct Found {
    listed: BTreeMap<Key, Alert>,
    left_out: usize,
}

/// What a look goes by.
struct Seen {
    now: Timestamp,
    published: Shared,
    sample: Arc<Sample>,
    kept: Counts,
    certificate: Option<(Timestamp, String)>,
    limited_by_name: u64,
    /// The engine's clock, as of this look.
    clock: (WallSteps, ClockTime),
    known_limits: usize,
    troubles: Vec<Trouble>,
    refused_for_room: RefusedForRoom,
    tokens: Vec<Token>,
}

/// Told when an alert comes or goes.
#[derive(Serialize)]
struct AlertEvent<'a> {
    /// `opened` or `closed`.
    state: &'static str,
    #[serde(flatten)]
    alert: &'a Alert,
}

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) publisher: &'a Publisher,
    pub(crate) figures: &'a Figures,
    pub(crate) fleet: &'a Fleet,
    pub(crate) store: &'a Store,
    pub(crate) events: &'a Events,
    pub(crate) certificate: &'a tidegate_net::tls::CertificateFault,
    pub(crate) telemetry: &'a Telemetry,
}

impl Alerts {
    /// Looks again and again, for ever.
    pub(crate) async fn run(&self, sight: Sight<'_>) -> Infallible {
        let mut published = sight.publisher.subscribe();
        loop {
            if let Err(problem) = self.look(sight).await {
                tracing::debug!(%problem, "what needs a look is not known");
            }
            // After a publish at once.
            let _ = timeout(EVERY, published.changed()).await;
        }
    }

    /// How many are open, as of the last look.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Looks now, and answers what is open, by code: the ones that are listed, and how many are not. With a hundred thousand
    /// clients, or ninety days of figures, this takes long enough for others to notice: it is done beside the threads that
    /// answer.
    pub(crate) async fn look(
        &self,
        Sight { publisher, figures, fleet, store, events, certificate, telemetry }: Sight<'_>,
    ) -> Result<(Vec<Alert>, usize), Problem> {
        let mut memory = Arc::clone(&self.turn).lock_owned().await;
        let now = figures.time();
        let hour = now.as_second() - now.as_second().rem_euclid(HOUR);
        if memory.matched.as_ref().is_none_or(|(of, _)| *of != hour) {
            memory.matched = Some((hour, matched(store, hour).await?));
        }
        let kept = figures.kept().counts();
        let tokens = store.tokens(now.as_second()).await?;
        let clock = figures.engine().clock();
        // The clock meets a step when it is read.
        let clock_now = clock.now();
        let seen = Seen {
            now,
            published: publisher.published(),
            sample: figures.newest(),
            kept,
            certificate: certificate.now(),
            limited_by_name: telemetry.limited_by_name.get(),
            clock: (clock.wall_steps(), clock_now),
            known_limits: figures.engine().known_limits(),
            troubles: fleet.troubles(store, &publisher.targets()).await?,
            refused_for_room: fleet.refused_for_room(),
            tokens,
        };
        let find = move || {
            let found = memory.find(&seen);
            (memory, found)
        };
        let found = spawn_blocking(find).await.map_err(|error| Problem::Internal(error.to_string()))?;
        // Nobody else looks before this was told.
        let (_turn, Found { listed, left_out }) = found;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        tell(events, &mut open, listed);
        Ok((open.values().map(|(alert, _)| alert.clone()).collect(), left_out))
    }
}

/// Tells of those that came and went, and makes `open` the ones that are `listed`.
fn tell(events: &Events, open: &mut BTreeMap<Key, Open>, listed: BTreeMap<Key, Alert>) {
    open.retain(|key, (alert, opened)| {
        let stays = listed.contains_key(key);
        if !stays {
            let data = AlertEvent { state: "closed", alert };
            events.put(Topic::Alerts, "alert", &data, |open, _| open.retain(|event| event.sequence != *opened));
        }
        stays
    });
    for (key, alert) in listed {
        match open.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().0 = alert,
            Entry::Vacant(new) => {
                let data = AlertEvent { state: "opened", alert: &alert };
                let opened = events.put(Topic::Alerts, "alert", &data, Vec::push);
                new.insert((alert, opened));
            }
        }
    }
}

impl Memory {
    fn find(&mut self, seen: &Seen) -> Found {
        let mut found = self.of_policy(&seen.published, seen.now);
        found.extend(self.of_rules(&seen.published, seen.now));
        found.extend(self.of_nodes(&seen.troubles, seen.now));
        found.extend(seen.tokens.iter().filter_map(|token| tokens::ending(token, seen.now)));
        found.extend(self.of_node(seen));
        let (mut listed, mut by_code) = (Found::default(), HashMap::<&str, usize>::new());
        for alert in found {
            let count = by_code.entry(alert.code).or_default();
            *count += 1;
            if *count > OF_CODE_MAX {
                listed.left_out += 1;
            } else {
                let of = alert.node.clone().or_else(|| alert.token.clone());
                listed.listed.insert((alert.code, alert.object.clone(), of), alert);
            }
        }
        listed
    }

    fn of_policy(&mut self, published: &Published, now: Timestamp) -> Vec<Alert> {
        let version = published.version.version;
        if self.warnings.as_ref().is_none_or(|(of, _)| *of != version) {
            self.warnings = Some((version, published.policy.lint()));
        }
        let warnings = self.warnings.iter().flat_map(|(_, warnings)| warnings).filter_map(|warning| {
            let kind = warning.kind.parse().ok()?;
            let about =
                About { kind, domain: warning.domain.clone(), id: warning.id.clone(), limit: warning.limit.clone() };
            let message = format!("{about}: {}", warning.message);
            Some(about.alert(warning.code.name(), changed_at(published, &about), message))
        });
        let mut alerts: Vec<Alert> = warnings.collect();
        for (name, domain) in &published.policy.domains {
            let about = |kind, id: &str, limit: Option<&str>| About {
                kind,
                domain: name.clone(),
                id: id.to_owned(),
                limit: limit.map(str::to_owned),
            };
            alerts.extend(domain.clients.iter().filter_map(|client| {
                let ends = ends_soon(client, now)?;
                let about = about(Kind::Client, &client_id(client), None);
                let soon = ends.checked_sub(DAY).unwrap_or(ends);
                let since = changed_at(published, &about).max(soon);
                let message = format!("{about}: the override ends within a day, at {ends}");
                Some(about.alert("override_ends", since, message))
            }));
            let of_tiers = domain.tiers.iter().map(|tier| (Kind::Tier, &tier.id, &tier.limits));
            let of_rules = domain.rules.iter().filter(|rule| rule.enabled);
            let of_rules = of_rules.map(|rule| (Kind::Rule, &rule.id, &rule.limits));
            for (kind, id, limits) in of_tiers.chain(of_rules) {
                let is_shadow = |limit: &&Limit| limit.mode == Mode::Shadow;
                for limit in limits.iter().filter(is_shadow) {
                    let about = about(kind, id, Some(&limit.id));
                    let since = changed_at(published, &about);
                    if now.duration_since(since) > SHADOW {
                        let days = now.duration_since(since).as_hours() / 24;
                        let words =
                            format!("{about} only counts, as a shadow, for {days} days: let it deny, or remove it");
                        alerts.push(about.alert("long_shadow", since, words));
                    }
                }
            }
        }
        alerts
    }

    /// Rules that nothing meets.
    fn of_rules(&self, published: &Published, now: Timestamp) -> Vec<Alert> {
        let mut alerts = Vec::new();
        if let Some((_, Matched { since: Some(kept_since), last, is_partial: false })) = &self.matched {
            for (domain, of_domain) in &published.policy.domains {
                for rule in of_domain.rules.iter().filter(|rule| rule.enabled) {
                    let about = About { kind: Kind::Rule, domain: domain.clone(), id: rule.id.clone(), limit: None };
                    let met = last.get(&format!("{domain}/rule:{}", rule.id)).copied().unwrap_or(*kept_since);
                    let met = Timestamp::from_second(met).unwrap_or(now);
                    let since = changed_at(published, &about).max(met);
                    if now.duration_since(since) > UNMATCHED {
                        let days = now.duration_since(since).as_hours() / 24;
                        let words = format!("{about} was met by no request for {days} days");
                        alerts.push(about.alert("rule_unmatched", since, words));
                    }
                }
            }
        }
        alerts
    }

    /// Nodes that follow this server, and this one.
    fn of_nodes(&mut self, troubles: &[Trouble], now: Timestamp) -> Vec<Alert> {
        let before = mem::take(&mut self.seen);
        let mut alerts = Vec::new();
        for Trouble { code, node, since, message } in troubles {
            let since = since.clone().or_else(|| {
                let key = (*code, node.clone());
                let since = before.get(&key).copied().unwrap_or(now);
                self.seen.insert(key, since);
                (now.duration_since(since) >= BEHIND).then(|| since.to_string())
            });
            let Some(since) = since else { continue };
            alerts.push(Alert { node: Some(node.clone()), ..Alert::here(code, since, message.clone()) });
        }
        alerts
    }

    /// What this server has trouble with.
    fn of_node(
        &mut self,
        Seen { now, sample, kept, certificate, limited_by_name, clock, known_limits, refused_for_room, .. }: &Seen,
    ) -> Vec<Alert> {
        let certificate = certificate.iter().map(|(since, why)| {
            let message =
                format!("The files of the dashboard's certificate cannot be used, so the one before stays: {why}");
            Alert::here("certificate_unusable", since.to_string(), message)
        });
        let mut alerts: Vec<Alert> = certificate.collect();
        alerts.extend(clock_set(clock, *now));
        alerts.extend(self.limits_full(*known_limits, *now));
        let of_node = [
            (
                "table_full",
                sample.overflow_charges,
                "New keys find no room in the engine's table and may be denied: give it more with max_keys",
            ),
            (
                "reservations_refused",
                refused_for_room.reservations,
                "A caller has its share of the open reservations and is refused more: it should settle or refund each; otherwise \
                 raise caller_share. The log of the process that refused names its address",
            ),
            (
                "request_ids_forgotten",
                refused_for_room.request_ids,
                "Request ids are forgotten within their minute, so a repeat is charged again: a caller sends more than its share, or all \
                 send more than there is room for. See tidegate_forgotten_requests_total of each node, and caller_share",
            ),
            ("unknown_domain", sample.unknown_domain(), "Requests name a domain that the policy does not have"),
            ("without_store", sample.degraded(), "Limits that nodes share are decided by each node alone"),
            ("figures_not_kept", kept.failed, "Figures are not written into the database"),
            (
                "sign_ins_limited",
                *limited_by_name,
                "Tries to sign in under one name come too often: browsers in which its user never signed in have to wait. The \
                 audit log has the name, under session.limited",
            ),
        ];
        for (code, count, message) in of_node {
            if let Some(since) = self.grows(code, count, now.as_millisecond()) {
                let message = match &kept.trouble {
                    Some(trouble) if code == "figures_not_kept" => format!("{message}: {trouble}"),
                    _ => message.to_owned(),
                };
                let since = Timestamp::from_millisecond(since).unwrap_or(*now).to_string();
                alerts.push(Alert::here(code, since, message));
            }
        }
        alerts
    }

    /// An engine that knows nearly as many limits as it can.
    fn limits_full(&mut self, known: usize, now: Timestamp) -> Option<Alert> {
        let is_full = known * 100 > KNOWN_LIMITS_MAX * KNOWN_LIMITS_PERCENT;
        self.limits_full = is_full.then(|| self.limits_full.unwrap_or(now));
        self.limits_full.map(|since| {
            let message = format!(
                "The engine knows {known} limits, those of earlier policies included, of {KNOWN_LIMITS_MAX} that it can: have \
                 fewer limits of single clients"
            );
            Alert::here("limits_full", since.to_string(), message)
        })
    }

    /// Since when a count has grown every ten minutes, if it has.
    fn grows(&mut self, code: &'static str, count: u64, now_ms: i64) -> Option<i64> {
        const STILL_MS: i64 = 600_000;
        let grown = self.grown.entry(code).or_insert(Grown { count: 0, since: now_ms, last: i64::MIN });
        let was_open = grown.last > now_ms.saturating_sub(STILL_MS);
        if count > grown.count {
            grown.count = count;
            if !was_open {
                grown.since = now_ms;
            }
            grown.last = now_ms;
            return Some(grown.since);
        }
        was_open.then_some(grown.since)
    }
}

/// Wall time that was set within an hour, or for which the clock stands still.
fn clock_set((steps, clock): &(WallSteps, ClockTime), now: Timestamp) -> Option<Alert> {
    let WallStep { at, size: by, is_back } = steps.last?;
    let ago = clock.duration_since(at);
    if ago >= CLOCK_SHOWN && !steps.is_standing {
        return None;
    }
    let since = now.checked_sub(ago).unwrap_or(now).to_string();
    let way = if is_back { "back" } else { "forward" };
    let message = if steps.is_standing {
        format!("The clock of this machine was set {way} by {by:.1?}: quota comes back again once it has caught up")
    } else {
        format!("The clock of this machine was set {way} by {by:.1?}: check its time service")
    };
    Some(Alert::here("clock_set", since, message))
}

impl Alert {
    /// About this server, unless it is made to be about something else.
    fn here(code: &'static str, since: String, message: String) -> Self {
        Self { code, since, message, object: None, node: None, token: None }
    }
}

impl About {
    fn alert(&self, code: &'static str, since: Timestamp, message: String) -> Alert {
        Alert { object: Some(self.clone()), ..Alert::here(code, since.to_string(), message) }
    }
}

/// As a sentence begins with it.
impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, domain, id, limit } = self;
        let kind = kind.name();
        match limit {
            Some(limit) => write!(f, "Limit {limit} of {kind} {id}")?,
            None => write!(f, "{}{} {id}", kind[..1].to_uppercase(), &kind[1..])?,
        }
        if domain == DEFAULT_DOMAIN { Ok(()) } else { write!(f, " of domain {domain}") }
    }
}

/// When the object that it is about changed last; the beginning of time where that is not known.
fn changed_at(published: &Published, about: &About) -> Timestamp {
    let key = ObjectKey { kind: about.kind, domain: about.domain.clone(), id: about.id.clone() };
    let revised = published.revisions.get(&key).and_then(|revised| revised.at.parse().ok());
    revised.unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The end of a client's override, if that is within a day.
fn ends_soon(client: &Client, now: Timestamp) -> Option<Timestamp> {
    let Override { until, .. } = client.exception.as_ref()?;
    let until: Timestamp = until.as_ref()?.parse().ok()?;
    (until > now && until.duration_since(now) <= DAY).then_some(until)
}

/// When each rule was met last, by all hours that are kept.
async fn matched(store: &Store, now: i64) -> Result<Matched, Problem> {
    let names = store.figure_names().await?;
    let matched = Matched { since: store.figures_since().await?, ..Matched::default() };
    let add = move |matched: &mut Matched, FigureRow { at, span, .. }: FigureRow| {
        matched.is_partial |= span.owners.left_out > 0;
        let names = span.owners.parts.keys().filter_map(|number| names.get(number));
        for rule in names.filter(|name| OwnerKind::Rule.is(name)) {
            // They come in order.
            match matched.last.get_mut(rule) {
                Some(last) => *last = at + HOUR,
                None => drop(matched.last.insert(rule.clone(), at + HOUR)),
            }
        }
    };
    Ok(store.fold_figures(HOUR, 0..now + HOUR, matched, add).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn limits_above_four_fifths_are_an_alert_since_the_first_look() {
        let (mut memory, most) = (Memory::default(), KNOWN_LIMITS_MAX / 5 * 4);
        let later = NOW + SignedDuration::from_hours(1);
        assert_eq!(memory.limits_full(most, NOW), None);
        for now in [NOW, later] {
            let alert = memory.limits_full(most + 1, now).expect("too many");
            assert_eq!((alert.code, alert.since), ("limits_full", NOW.to_string()));
        }
        assert_eq!(memory.limits_full(most, later), None);
    }

    #[test]
    fn a_step_of_wall_time_is_an_alert_for_an_hour_and_while_the_clock_stands() {
        let at = ClockTime::from_nanos(1_790_000_000_000_000_000);
        let after = |steps, ago: Duration| clock_set(&(steps, at + ago), NOW);
        let mut steps = WallSteps::default();
        assert_eq!(after(steps, Duration::ZERO), None);
        steps.last = Some(WallStep { at, size: Duration::from_hours(1), is_back: true });
        let alert = after(steps, Duration::from_secs(7)).expect("it is shown");
        assert_eq!((alert.code, alert.since), ("clock_set", "1969-12-31T23:59:53Z".to_owned()));
        assert_eq!(alert.message, "The clock of this machine was set back by 3600.0s: check its time service");
        assert_eq!(after(steps, CLOCK_SHOWN), None);
        steps.is_standing = true;
        assert!(after(steps, CLOCK_SHOWN).is_some());
    }
}
