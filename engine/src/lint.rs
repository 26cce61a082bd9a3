//! What is allowed in a policy and hardly meant: rules that never match, limits that can never bind beside a tighter one,
//! patterns that take requests away from a tighter rule. Nothing is said that is not so for every traffic.

use std::{collections::BTreeSet, fmt};

use crate::{
    clients::Matcher,
    closeness::Closeness,
    explain::kinds,
    pattern::{Part, Pattern},
    policy::{Algorithm, Domain, Limit, Mode, Policy, Rule, Sharing},
    time::{SECOND_NS, parse_period},
    zone::Unit,
};

/// Something that is hardly meant.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Warning {
    /// What is the matter.
    pub code: WarningCode,
    /// The domain that it is in.
    pub domain: String,
    /// `tier`, `rule` or `client`.
    pub kind: &'static str,
    /// Of the tier or rule; `KIND:VALUE` of a client.
    pub id: String,
    /// Where it is about one limit.
    pub limit: Option<String>,
    /// What is the matter, in words.
    pub message: String,
}

/// What is the matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WarningCode {
    /// No request can ever meet the rule.
    NeverMatches,
    /// The limit never denies what another one lets through.
    NeverBinds,
    /// The rule takes requests out of a tighter one, which no longer counts them.
    Shadows,
    /// Nobody can be in the tier.
    UnusedTier,
    /// The override has no end.
    NoEnd,
}

impl WarningCode {
    /// As documents name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NeverMatches => "never_matches",
            Self::NeverBinds => "never_binds",
            Self::Shadows => "shadows",
            Self::UnusedTier => "unused_tier",
            Self::NoEnd => "no_end",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.domain, self.kind, self.id)?;
        if let Some(limit) = &self.limit {
            write!(f, "/{limit}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Policy {
    /// Looks for what is hardly meant. The policy is taken as valid.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    ///
    /// let policy: Policy = serde_json::from_str(r#"{"domains": {"default": {"defaults": {"user": "free"}, "tiers": [{"id": "free", "limits": [
    ///     {"id": "minute", "algorithm": "sliding_window_log", "limit": 60, "period": "1m"},
    ///     {"id": "hour", "algorithm": "fixed_window", "limit": 5000, "period": "1h"}
    /// ]}]}}}"#).unwrap();
    /// assert_eq!(policy.lint()[0].limit.as_deref(), Some("hour"), "60 a minute are at most 3,660 in an hour");
    /// ```
    #[must_use]
    pub fn lint(&self) -> Vec<Warning> {
        let mut found = Vec::new();
        for (name, domain) in &self.domains {
            Lint { name, domain, found: &mut found }.run();
        }
        found
    }
}

struct Lint<'p> {
    name: &'p str,
    domain: &'p Domain,
    found: &'p mut Vec<Warning>,
}

impl Lint<'_> {
    fn run(mut self) {
        let domain = self.domain;
        let in_use: BTreeSet<&str> = domain
            .defaults
            .values()
            .map(String::as_str)
            .chain(domain.clients.iter().filter_map(|client| client.tier.as_deref()))
            .collect();
        let may_be_in = |tier: &str| domain.tier_hint || in_use.contains(tier);
        for tier in &domain.tiers {
            if !may_be_in(&tier.id) {
                let message = "no kind has it as its default, and no client is in it";
                self.warn(WarningCode::UnusedTier, "tier", &tier.id, None, message.to_owned());
            }
            self.bound_by_neighbours("tier", &tier.id, &tier.limits);
        }
        for rule in &domain.rules {
            self.bound_by_neighbours("rule", &rule.id, &rule.limits);
            if rule.tiers.as_ref().is_some_and(|tiers| !tiers.iter().any(|tier| may_be_in(tier))) {
                let message = "it is for tiers that nobody can be in";
                self.warn(WarningCode::NeverMatches, "rule", &rule.id, None, message.to_owned());
            }
            self.bound_by_tiers(rule);
        }
        self.rules_beside_each_other();
        for client in &domain.clients {
            let Some(made) = &client.exception else { continue };
            let id = format!("{}:{}", client.kind, client.value);
            self.bound_by_neighbours("client", &id, &made.limits);
            if made.until.is_none() {
                let message = "its override has no end";
                self.warn(WarningCode::NoEnd, "client", &id, None, message.to_owned());
            }
        }
    }

    fn warn(&mut self, code: WarningCode, kind: &'static str, id: &str, limit: Option<&Limit>, message: String) {
        self.found.push(Warning {
            code,
            domain: self.name.to_owned(),
            kind,
            id: id.to_owned(),
            limit: limit.map(|limit| limit.id.clone()),
            message,
        });
    }

    /// Limits of one list count the same requests. Of two that bound each other the later is told.
    fn bound_by_neighbours(&mut self, kind: &'static str, id: &str, limits: &[Limit]) {
        for (place, limit) in limits.iter().enumerate() {
            let bounds = |&(other, by): &(usize, &Limit)| {
                other != place && bounds(by, limit, 1) && (other < place || !bounds(limit, by, 1))
            };
            if let Some((_, by)) = limits.iter().enumerate().find(bounds) {
                let message = format!("it never denies what `{}` lets through", by.id);
                self.warn(WarningCode::NeverBinds, kind, id, Some(limit), message);
            }
        }
    }

    /// A rule that counts one kind sees a part of what the tiers of that kind let through.
    fn bound_by_tiers(&mut self, rule: &Rule) {
        let (domain, kinds) = (self.domain, kinds(rule));
        let &[kind] = kinds.as_slice() else { return };
        let mut clients = domain.clients.iter().filter(|client| client.kind == kind);
        let has_other = clients.clone().any(|client| client.exception.is_some());
        let Some(default) = domain.defaults.get(kind).filter(|_| !has_other && !domain.tier_hint) else { return };
        let tiers: BTreeSet<&str> =
            clients.by_ref().filter_map(|client| client.tier.as_deref()).chain([default.as_str()]).collect();
        for limit in &rule.limits {
            let bound = |id: &str| {
                let tier = domain.tiers.iter().find(|tier| tier.id == id);
                tier.is_some_and(|tier| tier.limits.iter().any(|by| bounds(by, limit, rule.cost)))
            };
            if tiers.iter().all(|tier| bound(tier)) {
                let message = format!("it never denies what the tiers of `{kind}` let through");
                self.warn(WarningCode::NeverBinds, "rule", &rule.id, Some(limit), message);
            }
        }
    }

    /// Of the rules that count the same kinds only the closest applies.
    fn rules_beside_each_other(&mut self) {
        let rules: Vec<(&Rule, Vec<&str>, Closeness<'_>)> = self
            .domain
            .rules
            .iter()
            .filter(|rule| rule.enabled)
            .filter_map(|rule| Some((rule, kinds(rule), Closeness::new(Pattern::parse(&rule.endpoint).ok()?, rule))))
            .collect();
        for (wide, kinds, closeness) in &rules {
            let closer = || rules.iter().filter(|(_, others, other)| others == kinds && other < closeness);
            let all =
                closer().find(|(rule, _, other)| covers(&other.pattern, &closeness.pattern) && accepts_all(rule, wide));
            if let Some((rule, ..)) = all {
                let message = format!("rule `{}` is closer to every request that it is for", rule.id);
                self.warn(WarningCode::NeverMatches, "rule", &wide.id, None, message);
                continue;
            }
            for (rule, ..) in closer()
                .filter(|(rule, _, other)| covers(&closeness.pattern, &other.pattern) && accepts_all(wide, rule))
            {
                let escaped = wide
                    .limits
                    .iter()
                    .filter(|limit| limit.mode == Mode::Enforce)
                    .find(|limit| !rule.limits.iter().any(|by| bounds(by, limit, 1) && rule.cost >= wide.cost));
                if let Some(limit) = escaped {
                    let message = format!(
                        "its requests are no longer counted by rule `{}`, and it allows more than `{}` there",
                        wide.id, limit.id
                    );
                    self.warn(WarningCode::Shadows, "rule", &rule.id, None, message);
                }
            }
        }
    }
}

/// Does every path of `narrow` match `wide`?
fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    let (wide, narrow) = match (wide, narrow) {
        (Pattern::Any, _) => return true,
        (_, Pattern::Any) => return false,
        (Pattern::Path(wide), Pattern::Path(narrow)) => (wide, narrow),
    };
    let mut narrow = narrow.iter();
    for part in wide {
        match (part, narrow.next()) {
            (Part::Rest, Some(_)) => return true,
            (Part::Parameter, Some(Part::Literal(literal))) if !literal.is_empty() => {}
            (part, Some(other)) if part == other && *part != Part::Rest => {}
            _ => return false,
        }
    }
    narrow.next().is_none()
}

/// Beside the path: does `wide` take every request that `narrow` takes?
fn accepts_all(wide: &Rule, narrow: &Rule) -> bool {
    let method = match (&wide.method, &narrow.method) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => wide.eq_ignore_ascii_case(narrow),
        (Some(_), None) => false,
    };
    let tiers = match (&wide.tiers, &narrow.tiers) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => narrow.iter().all(|tier| wide.contains(tier)),
        (Some(_), None) => false,
    };
    let holds = |(kind, value): (&String, &String)| {
        let narrow = narrow.condition.get(kind).and_then(|narrow| Matcher::parse(kind, narrow).ok());
        narrow.is_some_and(|narrow| Matcher::parse(kind, value).is_ok_and(|wide| wide.covers(&narrow)))
    };
    method && tiers && wide.condition.iter().all(holds)
}

/// What a limit admits in any stretch of `t` ns: at most `at_once + rate * t`, and of whole periods at most `in_periods`.
struct Admits {
    at_once: u128,
    tokens: u128,
    /// In which `tokens` come, at the least.
    period_ns: u128,
    /// Times that a stretch can meet the limit anew beyond its periods; none: no bound but the rate.
    windows: Option<(u128, u128)>,
}

impl Admits {
    /// `None`: it does not deny.
    fn of(limit: &Limit) -> Option<Self> {
        let (period_ns, _) = period_ns(limit)?;
        let tokens = u128::from(limit.limit);
        // By each stretch of a period that is begun, and so many more.
        let (at_once, tokens, windows) = match limit.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                // A limit of 0 admits nothing, whatever its burst.
                let burst = limit.burst.map_or(tokens, u128::from);
                (if tokens == 0 { 0 } else { burst }, tokens, None)
            }
            Algorithm::FixedWindow => (2 * tokens, tokens, Some((1, tokens))),
            Algorithm::SlidingWindowLog => (tokens, tokens, Some((0, tokens))),
            Algorithm::SlidingWindowCounter => (2 * tokens, 2 * tokens, Some((0, 2 * tokens))),
        };
        Some(Self { at_once, tokens, period_ns, windows })
    }

    fn most_in(&self, t_ns: u128) -> u128 {
        let steady = self.at_once + self.tokens * t_ns / self.period_ns;
        let by_windows = |(more, tokens): (u128, u128)| tokens * (t_ns.div_ceil(self.period_ns) + more);
        self.windows.map_or(steady, |windows| steady.min(by_windows(windows)))
    }
}

/// The least and the most that a period lasts.
fn period_ns(limit: &Limit) -> Option<(u128, u128)> {
    const DAY_NS: u128 = 86_400 * SECOND_NS as u128;
    const HOUR_NS: u128 = 3_600 * SECOND_NS as u128;
    // Days with a change of the clock.
    Some(match Unit::named(&limit.period) {
        Some(Unit::Day) => (DAY_NS - 2 * HOUR_NS, DAY_NS + 2 * HOUR_NS),
        Some(Unit::Week) => (7 * DAY_NS - 2 * HOUR_NS, 7 * DAY_NS + 2 * HOUR_NS),
        Some(Unit::Month) => (28 * DAY_NS - 2 * HOUR_NS, 31 * DAY_NS + 2 * HOUR_NS),
        None => {
            let ns = u128::from(parse_period(&limit.period).ok()?);
            (ns, ns)
        }
    })
}

/// Does `limit` admit all that `by` admits, at whatever times, where each token of `by` is `cost` of `limit`?
fn bounds(by: &Limit, limit: &Limit, cost: u64) -> bool {
    let counts_alike = by.sharing == limit.sharing || by.sharing == Sharing::Strict;
    if by.mode == Mode::Shadow || !counts_alike || limit.limit == 0 {
        return false;
    }
    let (Some(most), Some((least_ns, longest_ns))) = (Admits::of(by), period_ns(limit)) else { return false };
    let (cost, tokens) = (u128::from(cost), u128::from(limit.limit));
    match limit.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let burst = limit.burst.map_or(tokens, u128::from);
            most.at_once * cost <= burst && most.tokens * cost * longest_ns <= tokens * most.period_ns
        }
        Algorithm::FixedWindow => {
            let windows_of = |limit: &Limit| {
                let is_of_clock = limit.algorithm == Algorithm::FixedWindow && Unit::named(&limit.period).is_none();
                is_of_clock.then(|| period_ns(limit)).flatten()
            };
            // Windows that begin and end together.
            let together =
                windows_of(by).filter(|_| windows_of(limit).is_some() && least_ns.is_multiple_of(most.period_ns));
            let in_window = match together {
                Some((by_ns, _)) => most.tokens * (least_ns / by_ns),
                None => most.most_in(longest_ns),
            };
            in_window * cost <= tokens
        }
        Algorithm::SlidingWindowLog => most.most_in(longest_ns) * cost <= tokens,
        // Two windows weighted are at most both.
        Algorithm::SlidingWindowCounter => most.most_in(2 * longest_ns) * cost <= tokens,
    }
}
