//! A tier or a rule in plain words, for whoever edits it: which requests it is for, and what its limits let through.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{
    policy::{Algorithm, Limit, Mode, OnFailure, Per, Rule, Sharing, Tier},
    time::parse_period,
};
use tidegate_fleet::describe::{count, length};

/// An object in plain words.
#[derive(PartialEq, Debug, Serialize, JsonSchema)]
pub(crate) struct Words {
    /// Of a rule: which requests it is for, and how many of them may come.
    sentence: Option<String>,
    /// Of each limit, in their order.
    limits: Vec<LimitWords>,
}

/// A limit in plain words.
#[derive(PartialEq, Debug, Serialize, JsonSchema)]
struct LimitWords {
    id: String,
    /// What it lets through.
    says: String,
    /// What holds on all nodes together, and what happens where they cannot share it.
    sharing: String,
}

impl Words {
    pub(super) fn of_tier(tier: &Tier, timezone: Option<&str>) -> Self {
        Self { sentence: None, limits: limits(&tier.limits, &Whom::Client, timezone) }
    }

    pub(super) fn of_rule(rule: &Rule, timezone: Option<&str>) -> Self {
        Self { sentence: Some(sentence(rule)), limits: limits(&rule.limits, &Whom::of(&rule.per), timezone) }
    }
}

fn limits(limits: &[Limit], whom: &Whom, timezone: Option<&str>) -> Vec<LimitWords> {
    let words =
        |limit: &Limit| LimitWords { id: limit.id.clone(), says: says(limit, whom, timezone), sharing: sharing(limit) };
    limits.iter().map(words).collect()
}

/// Whom a limit counts.
enum Whom {
    Client,
    /// Each of a kind, or of a combination of kinds.
    Each(String),
    Everyone,
}

impl Whom {
    fn of(per: &Per) -> Self {
        match per {
            Per::One(kind) if kind == "everyone" => Self::Everyone,
            Per::One(kind) => Self::Each(kind.clone()),
            Per::Each(kinds) => Self::Each(kinds.join(" + ")),
        }
    }

    /// At the beginning of a sentence.
    fn named(&self) -> String {
        match self {
            Self::Client => "A client".to_owned(),
            Self::Each(kinds) => format!("Each {kinds}"),
            Self::Everyone => "All requests together".to_owned(),
        }
    }

    /// Begins a sentence about whoever did not ask for a while.
    fn idle(&self) -> String {
        match self {
            Self::Client | Self::Each(_) => format!("{} that was idle may send", self.named()),
            Self::Everyone => "After a pause, all together may send".to_owned(),
        }
    }
}

fn says(limit: &Limit, whom: &Whom, timezone: Option<&str>) -> String {
    if limit.limit == 0 {
        return shadowed("It denies every request.".to_owned(), limit);
    }
    let (most, rate, period) = (count(limit.limit), rate(limit), &limit.period);
    let burst = limit.burst.unwrap_or(limit.limit);
    let refill = || {
        let period = parse_period(period).unwrap_or_default();
        length(period.as_nanos() * u128::from(burst) / u128::from(limit.limit))
    };
    let named = whom.named();
    let said = match limit.algorithm {
        Algorithm::TokenBucket => format!(
            "{} {} at once, then {rate}. From empty, a full burst is back after {}.",
            whom.idle(),
            count(burst),
            refill()
        ),
        Algorithm::LeakyBucket => format!(
            "{} {} at once; they are let go one by one, {rate}, and each is told how long to wait for its turn. A full queue \
             is empty after {}.",
            whom.idle(),
            count(burst),
            refill()
        ),
        Algorithm::FixedWindow => {
            let window = match period.as_str() {
                "day" | "week" | "month" => {
                    let zone = timezone.unwrap_or("UTC");
                    let begins = if period == "week" { ", which begins on Monday" } else { "" };
                    format!("calendar {period} in {zone}{begins}")
                }
                period => format!("window of {period}"),
            };
            format!(
                "{named} may send {most} in each {window}. Windows end together for everyone: up to {} may come around such \
                 an end.",
                count(limit.limit.saturating_mul(2))
            )
        }
        Algorithm::SlidingWindowCounter => format!(
            "{named} may send {most} in any {period} where requests come evenly, and fewer than {} however they come: the \
             window before counts by the part of it that is not over.",
            count(limit.limit.saturating_mul(2))
        ),
        Algorithm::SlidingWindowLog => {
            format!("{named} may send {most} in any {period}, wherever it begins, and never more.")
        }
        // An algorithm that is newer than this text.
        _ => format!("{named} may send {most} in a period of {period}."),
    };
    shadowed(said, limit)
}

fn shadowed(mut said: String, limit: &Limit) -> String {
    if limit.mode == Mode::Shadow {
        said.push_str(" It only counts: what it would deny passes.");
    }
    said
}

/// What holds on all nodes together.
pub(crate) fn bound(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Local => "Each node counts alone: on n nodes at most n times the limit.",
        Sharing::Strict => "Every check asks the store: never above the limit on all nodes together.",
        Sharing::Leased => {
            "A node takes tokens ahead: never above the limit on all nodes together, and a part of it may lie unused on a \
             node."
        }
        Sharing::Synced => "Each node counts alone until nodes exchange what they counted.",
        _ => "The documentation says what holds on all nodes together.",
    }
}

fn sharing(limit: &Limit) -> String {
    let bound = bound(limit.sharing);
    if matches!(limit.sharing, Sharing::Local | Sharing::Synced) {
        return bound.to_owned();
    }
    let failing = match limit.on_failure.unwrap_or(OnFailure::Local(0.5)) {
        OnFailure::Open => "it lets everything pass".to_owned(),
        OnFailure::Closed => "it denies everything".to_owned(),
        OnFailure::Local(part) => {
            #[expect(clippy::cast_sign_loss, reason = "a part of a whole number is not negative")]
            let alone = (limit.limit as f64 * part).ceil() as u64;
            format!("each node counts alone, with {} {}", count(alone), period(&limit.period))
        }
        _ => "its `on_failure` decides".to_owned(),
    };
    format!("{bound} Where the store does not answer {failing}; as no store is built in yet, that holds now.")
}

/// The whole of a rule in a sentence.
fn sentence(rule: &Rule) -> String {
    let mut said = if rule.enabled { String::new() } else { "Switched off: ".to_owned() };
    said.push_str(&Whom::of(&rule.per).named());
    if let Some(tiers) = &rule.tiers {
        let _ = write!(said, " in tier {}", tiers.join(" or "));
    }
    let what = if rule.endpoint == "*" { "anything" } else { &rule.endpoint };
    let _ = write!(said, " may {} {what} ", rule.method.as_deref().unwrap_or("ask"));
    let rates = rule.limits.iter().map(|limit| {
        let times = if limit.limit == 1 { "time" } else { "times" };
        let only = if limit.mode == Mode::Shadow { " (only counted)" } else { "" };
        format!("{} {times} {}{only}", count(limit.limit), period(&limit.period))
    });
    said.push_str(&rates.collect::<Vec<_>>().join(" and "));
    let conditions: Vec<String> = rule.condition.iter().map(|(kind, value)| format!("{kind} is {value}")).collect();
    if !conditions.is_empty() {
        let _ = write!(said, ", where {}", conditions.join(" and "));
    }
    said.push('.');
    if rule.cost > 1 {
        let _ = write!(said, " A request counts {} times.", count(rule.cost));
    }
    said
}

fn rate(limit: &Limit) -> String {
    format!("{} {}", count(limit.limit), period(&limit.period))
}

/// As it stands after a number.
fn period(period: &str) -> String {
    match period {
        "1s" => "a second".to_owned(),
        "1m" => "a minute".to_owned(),
        "1h" => "an hour".to_owned(),
        "1d" => "in 24 hours".to_owned(),
        "day" | "week" | "month" => format!("a {period}"),
        other => format!("in {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limit(algorithm: &str, most: u64, period: &str, more: Value) -> Limit {
        let mut limit = json!({ "id": "x", "algorithm": algorithm, "limit": most, "period": period });
        if let (Some(limit), Value::Object(more)) = (limit.as_object_mut(), more) {
            limit.extend(more);
        }
        serde_json::from_value(limit).expect("a limit")
    }

    #[test]
    fn every_algorithm_says_what_it_lets_through() {
        for (algorithm, most, period, more, expected) in [
            (
                "token_bucket",
                100,
                "1s",
                json!({ "burst": 300 }),
                "A client that was idle may send 300 at once, then 100 a second. From empty, a full burst is back after 3 s.",
            ),
            (
                "leaky_bucket",
                6_000,
                "1m",
                json!({ "burst": 20 }),
                "A client that was idle may send 20 at once; they are let go one by one, 6,000 a minute, and each is told how \
                 long to wait for its turn. A full queue is empty after 200 ms.",
            ),
            (
                "fixed_window",
                1_000,
                "15m",
                json!({}),
                "A client may send 1,000 in each window of 15m. Windows end together for everyone: up to 2,000 may come around \
                 such an end.",
            ),
            (
                "fixed_window",
                1_000_000,
                "week",
                json!({ "mode": "shadow" }),
                "A client may send 1,000,000 in each calendar week in Asia/Tokyo, which begins on Monday. Windows end together \
                 for everyone: up to 2,000,000 may come around such an end. It only counts: what it would deny passes.",
            ),
            (
                "sliding_window_counter",
                60,
                "1m",
                json!({}),
                "A client may send 60 in any 1m where requests come evenly, and fewer than 120 however they come: the window \
                 before counts by the part of it that is not over.",
            ),
            (
                "sliding_window_log",
                5,
                "10s",
                json!({}),
                "A client may send 5 in any 10s, wherever it begins, and never more.",
            ),
            ("token_bucket", 0, "1s", json!({}), "It denies every request."),
        ] {
            let said = says(&limit(algorithm, most, period, more), &Whom::Client, Some("Asia/Tokyo"));
            assert_eq!(said, expected);
        }
        let day = limit("fixed_window", 9, "day", json!({}));
        assert!(
            says(&day, &Whom::Everyone, None)
                .starts_with("All requests together may send 9 in each calendar day in UTC.")
        );
    }

    #[test]
    fn a_limit_says_whom_it_counts() {
        let bucket = limit("token_bucket", 5, "1m", json!({}));
        let per = |per: Value| serde_json::from_value::<Per>(per).expect("whom");
        for (whom, begins) in [
            (json!("ip"), "Each ip that was idle may send 5 at once, then 5 a minute."),
            (json!(["ip", "user"]), "Each ip + user that was idle may send 5 at once"),
            (json!("everyone"), "After a pause, all together may send 5 at once"),
        ] {
            let said = says(&bucket, &Whom::of(&per(whom)), None);
            assert!(said.starts_with(begins), "{said}");
        }
    }

    #[test]
    fn sharing_says_its_bound_and_what_holds_without_the_store() {
        let shared = |more: Value| sharing(&limit("token_bucket", 101, "1s", more));
        assert_eq!(shared(json!({})), "Each node counts alone: on n nodes at most n times the limit.");
        assert!(shared(json!({ "sharing": "synced" })).starts_with("Each node counts alone until"));
        let strict = shared(json!({ "sharing": "strict" }));
        assert!(strict.starts_with("Every check asks the store: never above the limit"), "{strict}");
        assert!(strict.contains("does not answer each node counts alone, with 51 a second;"), "{strict}");
        for (on_failure, says) in [
            (json!({ "local": 0.25 }), "counts alone, with 26 a second"),
            (json!("open"), "it lets everything pass"),
            (json!("closed"), "it denies everything"),
        ] {
            let leased = shared(json!({ "sharing": "leased", "on_failure": on_failure }));
            assert!(leased.starts_with("A node takes tokens ahead") && leased.contains(says), "{leased}");
        }
    }

    #[test]
    fn a_rule_is_a_sentence() {
        let said = |more: Value| {
            let limit = json!({ "id": "m", "algorithm": "token_bucket", "limit": 5, "period": "1m" });
            let mut rule = json!({ "id": "x", "endpoint": "/login", "per": "ip", "limits": [limit] });
            if let (Some(rule), Value::Object(more)) = (rule.as_object_mut(), more) {
                rule.extend(more);
            }
            sentence(&serde_json::from_value(rule).expect("a rule"))
        };
        assert_eq!(said(json!({ "method": "POST" })), "Each ip may POST /login 5 times a minute.");
        let one = json!({ "id": "m", "algorithm": "token_bucket", "limit": 1, "period": "90s" });
        assert_eq!(
            said(json!({ "endpoint": "*", "per": "everyone", "limits": [one] })),
            "All requests together may ask anything 1 time in 90s."
        );
        let shadow =
            json!({ "id": "d", "algorithm": "fixed_window", "limit": 50_000, "period": "day", "mode": "shadow" });
        assert_eq!(
            said(json!({
                "per": ["ip", "user"], "tiers": ["free", "pro"], "where": { "api_key": "x*", "plan": "y" }, "cost": 3,
                "enabled": false, "limits": [one, shadow],
            })),
            "Switched off: Each ip + user in tier free or pro may ask /login 1 time in 90s and 50,000 times a day (only \
             counted), where api_key is x* and plan is y. A request counts 3 times."
        );
    }
}
