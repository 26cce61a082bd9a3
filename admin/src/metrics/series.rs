//! Rows of figures put into series: those of limits, tiers, rules, nodes, or one of all.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_fleet::OwnerKind;

use crate::domain::metric_types::{DecisionTotals, LimitTotals};

/// Points in an answer, over all its series.
const POINTS_MAX: usize = 20_000;

/// What figures are told apart by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum By {
    #[default]
    Total,
    Limit,
    Tier,
    Rule,
    Node,
}

impl By {
    /// The tiers or the rules, if they are it.
    pub(super) fn owner(self) -> Option<OwnerKind> {
        match self {
            Self::Tier => Some(OwnerKind::Tier),
            Self::Rule => Some(OwnerKind::Rule),
            Self::Total | Self::Limit | Self::Node => None,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FiguresSeries")]
pub(crate) struct Series {
    /// `total`, name of the node, or full name of the limit, tier or rule.
    id: String,
    /// Oldest first. There is none for a time when no node counted.
    points: Vec<Point>,
}

/// What was counted in one step.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "FiguresPoint")]
struct Point {
    /// Unix milliseconds when it began.
    t: i64,
    allowed: u64,
    denied: u64,
    /// What shadow limits would have denied.
    shadow_denied: u64,
    #[serde(flatten)]
    whole: Option<WholePoint>,
}

/// What is known of all decisions of a node together.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct WholePoint {
    no_limit: u64,
    unknown_domain: u64,
    /// Decided without the store that a limit is shared over; estimated from one decision in 16.
    degraded: u64,
    /// Half of the decisions took so long at most, and 99 in 100, of those that were measured: whole microseconds, rounded up.
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    /// Decisions that were measured: one in 16.
    measured: u64,
}

/// What is counted of one series in one step.
#[derive(Clone, Debug, Default)]
struct Cell {
    part: LimitTotals,
    whole: Option<DecisionTotals>,
}

/// Puts rows into series.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) by: By,
    id: Option<String>,
    /// Those that are answered; all, while it is found out which those are.
    chosen: Option<HashSet<String>>,
    /// Requests of each series.
    requests: HashMap<String, u64>,
    times: BTreeSet<i64>,
    /// Limits, or tiers and rules, of one step at most that are in the total alone.
    pub(super) not_counted: u64,
    cells: BTreeMap<String, BTreeMap<i64, Cell>>,
}

impl Gathering {
    /// `id`: of the only series that is wanted.
    pub(super) fn new(by: By, id: Option<String>) -> Self {
        Self {
            by,
            id,
            chosen: None,
            requests: HashMap::new(),
            times: BTreeSet::new(),
            not_counted: 0,
            cells: BTreeMap::new(),
        }
    }

    /// A row of `node`: what was counted in the step that began at `at`, by limits, or where tiers or rules are asked for by
    /// those; and how many of them are in the whole alone.
    pub(super) fn add<'n>(
        &mut self,
        at: i64,
        node: &str,
        whole: &DecisionTotals,
        parts: impl Iterator<Item = (&'n str, LimitTotals)>,
        left_out: u64,
    ) {
        self.times.insert(at);
        self.not_counted = self.not_counted.max(left_out);
        match self.by {
            By::Total | By::Node => {
                let shadow_denied = parts.map(|(_, part)| part.shadow_denied).sum();
                let part = LimitTotals { allowed: whole.allowed, denied: whole.denied, shadow_denied };
                let name = if self.by == By::Total { "total" } else { node };
                self.put(name, at, Cell { part, whole: Some(whole.clone()) });
            }
            By::Limit | By::Tier | By::Rule => {
                let is_it = |name: &str| self.by.owner().is_none_or(|owner| owner.is(name));
                for (name, part) in parts.filter(|(name, _)| is_it(name)).collect::<Vec<_>>() {
                    self.put(name, at, Cell { part, whole: None });
                }
            }
        }
    }

    fn put(&mut self, name: &str, at: i64, cell: Cell) {
        if self.id.as_ref().is_some_and(|id| id != name) {
            return;
        }
        match &self.chosen {
            None => *self.requests.entry(name.to_owned()).or_default() += cell.part.requests(),
            Some(chosen) if !chosen.contains(name) => {}
            Some(_) => {
                let sum = self.cells.entry(name.to_owned()).or_default().entry(at).or_default();
                sum.part.add(cell.part);
                match (&mut sum.whole, cell.whole) {
                    (Some(sum), Some(whole)) => sum.add(&whole),
                    (sum, whole) => *sum = whole,
                }
            }
        }
    }

    /// Of what was added, chooses the busiest series that fit; answers how many do not.
    pub(super) fn choose(&mut self) -> usize {
        let fit = (POINTS_MAX / self.times.len().max(1)).max(1);
        let mut busiest: Vec<_> = mem::take(&mut self.requests).into_iter().collect();
        busiest.sort_by(|(one, a), (other, b)| b.cmp(a).then_with(|| one.cmp(other)));
        let left_out = busiest.len().saturating_sub(fit);
        self.chosen = Some(busiest.into_iter().take(fit).map(|(name, _)| name).collect());
        left_out
    }

    /// What was added since they were chosen, the busiest first.
    pub(super) fn series(mut self) -> Vec<Series> {
        let mut series: Vec<_> = mem::take(&mut self.cells).into_iter().collect();
        let requests = |cells: &BTreeMap<i64, Cell>| -> u64 { cells.values().map(|cell| cell.part.requests()).sum() };
        series.sort_by_cached_key(|(name, cells)| (Reverse(requests(cells)), name.clone()));
        let is_whole = matches!(self.by, By::Total | By::Node);
        let series = series.into_iter().map(|(id, cells)| {
            // Where a node counted, and not this limit, it decided nothing; a node that did not count has no point.
            let times = self.times.iter().filter(|at| !is_whole || cells.contains_key(at));
            let points = times.map(|&at| Point::new(at, cells.get(&at).cloned().unwrap_or_default()));
            Series { points: points.collect(), id }
        });
        series.collect()
    }
}

impl Point {
    fn new(at: i64, Cell { part, whole }: Cell) -> Self {
        let LimitTotals { allowed, denied, shadow_denied } = part;
        let whole = whole.map(|whole| WholePoint {
            no_limit: whole.no_limit,
            unknown_domain: whole.unknown_domain,
            degraded: whole.degraded,
            p50_us: whole.latency.at_most_us(500),
            p99_us: whole.latency.at_most_us(990),
            measured: whole.latency.samples(),
        });
        Self { t: at * 1_000, allowed, denied, shadow_denied, whole }
    }
}
