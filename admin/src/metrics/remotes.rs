//! What other nodes told of themselves: taken in as it comes, and counted with the second in which it came.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tidegate::{Engine, LimitIndex};
use tidegate_fleet::{
    CountedLimit, Counters, DecisionTotals, IntervalCounts, LimitTotals,
    wire::{HeavyKey, Report, ReportedCounts},
};
use tokio::time::Instant;

use crate::{
    domain::metric_types::Minute,
    metrics::{
        ring::{Ring, Running},
        sums::Sums,
        top::Hit,
    },
};

/// The heaviest keys of a node that was not heard for so long are not shown any more.
const GONE: Duration = Duration::from_secs(10);

/// One that was not heard for so long is forgotten, but for what it counted.
const REMEMBERED: Duration = Duration::from_hours(24);

/// Every node that told something since the process started.
#[derive(Debug, Default)]
pub(super) struct Remotes {
    nodes: HashMap<Arc<str>, Remote>,
    /// New keys of those that are forgotten, which found no slot.
    gone_overflow_charges: u64,
    /// All that they told, together.
    sums: Sums,
    /// The newest version of the policy whose limits are known.
    version: u64,
    /// Limits that the engine has or had, by name.
    limits: HashMap<String, LimitIndex>,
}

#[derive(Debug)]
struct Remote {
    /// Not counted yet.
    new: Sums,
    running: Running,
    denied: Vec<Hit>,
    all: Vec<Hit>,
    overflow_charges: u64,
    heard: Instant,
}

/// What was told in a second, by all together.
#[derive(Debug, Default)]
pub(super) struct Told {
    sums: Sums,
    /// Minutes that are over, with their nodes.
    pub(super) minutes: Vec<(String, Minute)>,
}

impl Remotes {
    /// Takes a report in. Limits that `engine` never had, or does not have yet, are in the whole alone.
    pub(super) fn take_in(&mut self, report: &Report, engine: &Engine, counters: &mut Counters) {
        let version = engine.version();
        if self.version != version {
            self.version = version;
            let limits = engine.limit_counts().into_iter();
            self.limits.extend(limits.map(|(limit, _)| (engine.limit_name(limit).to_owned(), limit)));
            counters.meet(engine);
        }
        let remote = self.nodes.entry(report.name.as_str().into()).or_insert_with(|| Remote {
            new: Sums::default(),
            running: Running::default(),
            denied: Vec::new(),
            all: Vec::new(),
            overflow_charges: 0,
            heard: Instant::now(),
        });
        remote.new.add(&Sums {
            whole: report.totals(),
            limits: parts(&report.limits, |id| self.limits.get(id).copied()),
            owners: parts(&report.owners, |id| counters.owner(id)),
        });
        remote.denied = report.denied.iter().map(hit).collect();
        remote.all = report.hot.iter().map(hit).collect();
        remote.overflow_charges = report.overflow_charges;
        remote.heard = Instant::now();
    }

    /// Counts what was told for the second that began at `at`.
    pub(super) fn count<'n>(&mut self, at: i64, ring: &mut Ring, name: impl Fn(LimitIndex) -> &'n str) -> Told {
        let mut told = Told::default();
        for (node, remote) in &mut self.nodes {
            let new = std::mem::take(&mut remote.new);
            let over = remote.running.add(at, &new, &name);
            // An idle minute is no row: there may be a thousand nodes without traffic.
            let minutes = over.filter(is_busy);
            told.minutes.extend(minutes.map(|minute| (node.to_string(), minute)));
            if !new.is_nothing() {
                told.sums.add(&new);
                ring.add_of(Arc::clone(node), at, new);
            }
        }
        self.sums.add(&told.sums);
        self.forget(REMEMBERED);
        told
    }

    fn forget(&mut self, after: Duration) {
        let gone = self.nodes.extract_if(|_, remote| remote.heard.elapsed() >= after);
        let gone: u64 = gone.map(|(_, remote)| remote.overflow_charges).fold(0, u64::saturating_add);
        self.gone_overflow_charges = self.gone_overflow_charges.saturating_add(gone);
    }

    /// Adds what they told to what the engine of this process counted.
    pub(super) fn add_to(&self, counted: &mut IntervalCounts, told: Told) {
        let Sums { whole, limits, owners } = told.sums;
        counted.whole.add(&whole);
        add_parts(&mut counted.present, &mut counted.gone, &self.sums.limits, limits);
        add_parts(&mut counted.owners, &mut counted.gone_owners, &self.sums.owners, owners);
    }

    /// Ends the minutes that run before their time.
    pub(super) fn finish<'n>(
        &mut self,
        minutes: &mut VecDeque<(String, Minute)>,
        name: impl Fn(LimitIndex) -> &'n str,
    ) {
        for (node, remote) in &mut self.nodes {
            let running = remote.running.finish(&name).filter(is_busy);
            minutes.extend(running.map(|minute| (node.to_string(), minute)));
        }
    }

    /// The heaviest keys of those that are there: by denials, and by all decisions.
    pub(super) fn heaviest(&self) -> (Vec<Hit>, Vec<Hit>) {
        let here = || self.nodes.values().filter(|remote| remote.heard.elapsed() < GONE);
        (
            here().flat_map(|remote| remote.denied.iter().cloned()).collect(),
            here().flat_map(|remote| remote.all.iter().cloned()).collect(),
        )
    }

    /// New keys of all that found no slot.
    pub(super) fn overflow_charges(&self) -> u64 {
        let charges = self.nodes.values().map(|remote| remote.overflow_charges);
        charges.fold(self.gone_overflow_charges, u64::saturating_add)
    }
}

fn is_busy(minute: &Minute) -> bool {
    minute.span.whole != DecisionTotals::default()
}

/// What a report says of those that are known here.
fn parts(counts: &[ReportedCounts], find: impl Fn(&str) -> Option<LimitIndex>) -> HashMap<LimitIndex, LimitTotals> {
    counts.iter().filter_map(|counts| Some((find(&counts.id)?, counts.totals()))).collect()
}

/// Adds what others counted, `new` since the time before, and `sums` altogether.
fn add_parts(
    present: &mut [CountedLimit],
    gone: &mut Vec<CountedLimit>,
    sums: &HashMap<LimitIndex, LimitTotals>,
    mut new: HashMap<LimitIndex, LimitTotals>,
) {
    let all = |limit| sums.get(&limit).copied().unwrap_or_default();
    for figure in present.iter_mut().chain(&mut *gone) {
        figure.all.add(all(figure.limit));
        figure.new.add(new.remove(&figure.limit).unwrap_or_default());
    }
    gone.extend(new.into_iter().map(|(limit, new)| CountedLimit { limit, all: all(limit), new }));
}

fn hit(key: &HeavyKey) -> Hit {
    Hit {
        limit: key.limit_id.clone(),
        identities: key.identities.iter().map(|who| (who.kind.clone(), who.value.clone())).collect(),
        count: key.count,
        error: key.error,
    }
}
