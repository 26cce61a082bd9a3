//! Made-up traffic: a few rows of so many clients that come in some pattern. The same rows and seed make the same requests.

use std::{cmp::Reverse, collections::BinaryHeap, fmt::Write, io, net::Ipv6Addr};

use serde::{Deserialize, Serialize};
use tidegate::{
    Identity, Request, Retry,
    policy::{Client, Policy},
    time::{Nanos, parse_period},
};

use super::{
    Ask, Traffic,
    pattern::{Arrivals, Pattern, Schedule, Shape},
};

/// The most rows.
pub const ROWS_MAX: usize = 50;
/// The most clients of all rows.
pub const CLIENTS_MAX: u32 = 100_000;
/// The most requests.
pub const MADE_REQUESTS_MAX: u64 = 2_000_000;
/// The highest rate.
const RATE_MAX: u64 = 1_000_000;

/// Some clients that do the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// How many.
    #[serde(default = "one_client")]
    pub clients: u32,
    /// Kind of their identities.
    #[serde(default = "user")]
    pub kind: String,
    /// Value of the identity, for a single client; made up unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Their tier; the default of their kind unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// How their requests lie in time.
    #[serde(default)]
    pub pattern: Pattern,
    /// Requests of each client in `per`.
    pub rate: u64,
    /// The time that the rate is meant for, such as `1s`.
    #[serde(default = "one_second")]
    pub per: String,
    /// How long they come, such as `10m`.
    #[serde(rename = "for")]
    pub length: String,
    /// Where to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// With which method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Cost of each request.
    #[serde(default = "one")]
    pub cost: u64,
}

fn one_client() -> u32 {
    1
}

fn user() -> String {
    "user".to_owned()
}

fn one_second() -> String {
    "1s".to_owned()
}

fn one() -> u64 {
    1
}

/// What is wrong with a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowProblem {
    /// Its place, from 0.
    pub row: usize,
    /// The field.
    pub field: &'static str,
    /// What to do about it.
    pub message: String,
}

/// Rows that are right.
#[derive(Clone, Debug)]
pub struct Made {
    rows: Vec<(Row, Schedule)>,
    domain: String,
}

impl Made {
    /// Traffic of these rows in this domain, if all of them are right and not too many.
    pub fn new(rows: Vec<Row>, domain: &str) -> Result<Self, Vec<RowProblem>> {
        let mut problems = Vec::new();
        let mut whole = |row, field, message: String| problems.push(RowProblem { row, field, message });
        if rows.is_empty() || rows.len() > ROWS_MAX {
            whole(0, "", format!("give from 1 to {ROWS_MAX} rows"));
            return Err(problems);
        }
        let mut ready = Vec::with_capacity(rows.len());
        let (mut clients, mut requests) = (0_u64, 0.0);
        for (number, row) in rows.into_iter().enumerate() {
            match schedule(&row, number, &mut whole) {
                Some(schedule) => {
                    clients += u64::from(row.clients);
                    requests += schedule.expected() * f64::from(row.clients);
                    if clients > u64::from(CLIENTS_MAX) {
                        whole(number, "clients", format!("at most {CLIENTS_MAX} clients fit, in all rows"));
                    } else if requests > MADE_REQUESTS_MAX as f64 {
                        let message = format!(
                            "with this row there would be about {requests:.0} requests; at most {MADE_REQUESTS_MAX} fit"
                        );
                        whole(number, "rate", message);
                    }
                    ready.push((row, schedule));
                }
                None => ready.clear(),
            }
        }
        if problems.is_empty() { Ok(Self { rows: ready, domain: domain.to_owned() }) } else { Err(problems) }
    }

    /// Traffic of one row, of which somebody takes as much as he wants: its requests may be more than else fit.
    pub fn few(row: Row, domain: &str) -> Result<Self, Vec<RowProblem>> {
        let mut problems = Vec::new();
        let schedule = schedule(&row, 0, &mut |row, field, message| problems.push(RowProblem { row, field, message }));
        let domain = domain.to_owned();
        schedule.map(|schedule| Self { rows: vec![(row, schedule)], domain }).ok_or(problems)
    }

    /// How many clients there are.
    #[must_use]
    pub fn clients(&self) -> u64 {
        self.rows.iter().map(|(row, _)| u64::from(row.clients)).sum()
    }

    /// About how many requests there will be, without those that are tried again.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "rates and times are not below zero")]
    pub fn expected(&self) -> u64 {
        self.rows.iter().map(|(row, schedule)| schedule.expected() * f64::from(row.clients)).sum::<f64>() as u64
    }

    /// Rows whose tier the policy does not have.
    pub fn without_tier(&self, policy: &Policy) -> impl Iterator<Item = usize> {
        let has =
            |tier: &str| policy.domains.get(&self.domain).is_some_and(|it| it.tiers.iter().any(|it| it.id == tier));
        let rows = self.rows.iter().enumerate();
        rows.filter(move |(_, (row, _))| row.tier.as_deref().is_some_and(|tier| !has(tier))).map(|(row, _)| row)
    }

    /// Gives the rows' clients their tiers in a policy, as far as it has them.
    pub fn assign(&self, policy: &mut Policy) {
        let Some(domain) = policy.domains.get_mut(&self.domain) else { return };
        for (number, (row, _)) in self.rows.iter().enumerate() {
            let Some(tier) = row.tier.as_ref().filter(|tier| domain.tiers.iter().any(|it| it.id == **tier)) else {
                continue;
            };
            let value = match &row.value {
                Some(value) => value.clone(),
                None if row.kind == "ip" => format!("2001:db8:{number:x}::/48"),
                None => format!("made-{}-*", number + 1),
            };
            let tier = Some(tier.clone());
            // What else the policy says of a client stays.
            let is_it = |client: &&mut Client| client.kind == row.kind && client.value == value;
            if let Some(client) = domain.clients.iter_mut().find(is_it) {
                client.tier = tier;
            } else {
                let (kind, tags) = (row.kind.clone(), Vec::new());
                domain.clients.push(Client { kind, value, tier, label: None, tags, note: None, exception: None });
            }
        }
    }

    /// The requests; the first ones come at `start`. Another seed makes others, where there is chance.
    #[must_use]
    pub fn traffic(self, start: Nanos, seed: u64) -> MadeTraffic {
        let mut sources = Vec::new();
        let mut turns = BinaryHeap::new();
        for (number, (row, schedule)) in self.rows.iter().enumerate() {
            for client in 0..row.clients {
                let mut arrivals = Arrivals::new(seed, number, client);
                if let Some(after) = arrivals.next(schedule) {
                    turns.push(Reverse(Turn { after, source: sources.len() as u32, tries: 0 }));
                    sources.push(Source { row: number as u32, client, arrivals });
                }
            }
        }
        MadeTraffic { made: self, start, sources, turns, asked: 0, value: String::new() }
    }
}

fn schedule(row: &Row, number: usize, wrong: &mut impl FnMut(usize, &'static str, String)) -> Option<Schedule> {
    let mut is_right = true;
    let mut wrong = |field, message: String| {
        wrong(number, field, message);
        is_right = false;
    };
    if row.clients == 0 {
        wrong("clients", "write a number from 1".to_owned());
    }
    if row.value.is_some() && row.clients != 1 {
        wrong("value", "a value is one client; leave it out, or set clients to 1".to_owned());
    }
    let value = row.value.as_deref().unwrap_or("made");
    match Identity::new(&row.kind, value).map_err(|error| error.to_string()) {
        Ok(who) => {
            let who = [who];
            let path = row.path.as_deref().unwrap_or_default();
            let request = Request::new(&who).and_then(|request| request.endpoint(path));
            if let Err(error) = request {
                wrong("path", error.to_string());
            } else if let Err(error) = request.and_then(|request| request.cost(row.cost)) {
                wrong("cost", error.to_string());
            }
        }
        Err(why) if why.starts_with("value") => wrong("value", why),
        Err(why) => wrong("kind", why),
    }
    if row.rate == 0 || row.rate > RATE_MAX {
        wrong("rate", format!("write a number from 1 to {RATE_MAX}"));
    }
    let shape = row.pattern.shape().map_err(|why| wrong("pattern", why));
    if let Ok(Shape::Ramp { to }) = shape
        && to > RATE_MAX as f64
    {
        wrong("pattern", format!("to: write a number up to {RATE_MAX}"));
    }
    let mut period = |field, text: &str| parse_period(text).map_err(|why| wrong(field, why)).ok();
    let (per, length) = (period("per", &row.per), period("for", &row.length));
    let schedule = Schedule { shape: shape.ok()?, rate: row.rate, per: per?, length: length?, clients: row.clients };
    is_right.then_some(schedule)
}

/// One client, and where it is.
#[derive(Debug)]
struct Source {
    row: u32,
    client: u32,
    arrivals: Arrivals,
}

/// Whose request comes when; at one instant in the order of the rows and their clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn {
    after: Nanos,
    source: u32,
    /// How often it was tried before.
    tries: u8,
}

/// Requests of [`Made`].
#[derive(Debug)]
pub struct MadeTraffic {
    made: Made,
    start: Nanos,
    sources: Vec<Source>,
    turns: BinaryHeap<Reverse<Turn>>,
    asked: u64,
    /// Of the client who asks; kept for its memory.
    value: String,
}

impl MadeTraffic {
    /// How many clients there are.
    #[must_use]
    pub fn clients(&self) -> u64 {
        self.made.clients()
    }

    /// Did it end before its time, because there are too many requests?
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.asked >= MADE_REQUESTS_MAX && !self.turns.is_empty()
    }
}

impl Traffic for MadeTraffic {
    fn step(&mut self, ask: &mut Ask<'_>) -> io::Result<bool> {
        if self.asked >= MADE_REQUESTS_MAX {
            return Ok(false);
        }
        let Some(Reverse(Turn { after, source, tries })) = self.turns.pop() else { return Ok(false) };
        let Source { row: number, client, arrivals } = &mut self.sources[source as usize];
        let (row, schedule) = &self.made.rows[*number as usize];
        self.value.clear();
        // Writing to a text never fails.
        let _ = match &row.value {
            Some(value) => self.value.write_str(value),
            None if row.kind == "ip" => write!(self.value, "{}", address(*number, *client)),
            None => write!(self.value, "made-{}-{}", *number + 1, *client + 1),
        };
        if tries == 0
            && let Some(after) = arrivals.next(schedule)
        {
            self.turns.push(Reverse(Turn { after, source, tries: 0 }));
        }
        let now = self.start.saturating_add(after);
        // Each part was asked for when the row was read.
        let retry = with_request(row, &self.value, &self.made.domain, |request| ask(now, request));
        self.asked += 1;
        if let (Some(Retry::After(_) | Retry::Never), Shape::Retry { back_off, tries: tries_max }) =
            (retry, schedule.shape)
            && tries < tries_max
        {
            let after = after.saturating_add(back_off.saturating_mul(1 << tries));
            if after < schedule.length {
                self.turns.push(Reverse(Turn { after, source, tries: tries + 1 }));
            }
        }
        Ok(true)
    }
}

/// Of the addresses that are for examples (RFC 3849): a row has a network of 48 bits.
fn address(row: u32, client: u32) -> Ipv6Addr {
    let number = client + 1;
    Ipv6Addr::new(0x2001, 0xdb8, row as u16, 0, 0, 0, (number >> 16) as u16, number as u16)
}

fn with_request<T>(row: &Row, value: &str, domain: &str, run: impl FnOnce(&Request<'_>) -> T) -> Option<T> {
    let who = [Identity::new(&row.kind, value).ok()?];
    let mut request = Request::new(&who).ok()?.domain(domain).cost(row.cost).ok()?;
    if let Some(method) = &row.method {
        request = request.method(method);
    }
    if let Some(path) = &row.path {
        request = request.endpoint(path).ok()?;
    }
    Some(run(&request))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate::time::SECOND_NS;

    use super::*;

    fn made(rows: serde_json::Value) -> Result<Made, Vec<RowProblem>> {
        Made::new(serde_json::from_value(rows).expect("rows"), "default")
    }

    /// Milliseconds after the start and the request, answered by `answer`.
    fn asked(rows: serde_json::Value, seed: u64, answer: impl Fn(u64) -> Retry) -> Vec<(u64, String)> {
        let start = 1_790_035_200 * SECOND_NS;
        let mut traffic = made(rows).expect("right rows").traffic(start, seed);
        let mut asked = Vec::new();
        let mut ask = |now: Nanos, request: &Request<'_>| {
            let parts = request.parts();
            let (method, path) = (parts.method.unwrap_or("-"), parts.endpoint.unwrap_or("-"));
            let who = parts.identities[0];
            asked.push((
                (now - start) / 1_000_000,
                format!("{}={} {method} {path} {}", who.kind(), who.value(), parts.cost),
            ));
            answer(asked.len() as u64)
        };
        while traffic.step(&mut ask).expect("nothing is read") {}
        asked
    }

    #[test]
    fn rows_are_merged_in_order_of_time() {
        let rows = json!([
            { "clients": 2, "kind": "ip", "rate": 2, "for": "1s", "path": "/a", "method": "GET" },
            { "rate": 1, "for": "1s", "cost": 3 },
        ]);
        let all = asked(rows, 1, |_| Retry::Now);
        let all: Vec<_> = all.iter().map(|(ms, who)| (*ms, who.as_str())).collect();
        assert_eq!(
            all,
            [
                (0, "ip=2001:db8::1 GET /a 1"),
                (0, "user=made-2-1 - - 3"),
                (250, "ip=2001:db8::2 GET /a 1"),
                (500, "ip=2001:db8::1 GET /a 1"),
                (750, "ip=2001:db8::2 GET /a 1"),
            ]
        );
    }

    #[test]
    fn a_seed_makes_the_same_requests_again() {
        let rows = || json!([{ "clients": 3, "rate": 20, "for": "5s", "pattern": "poisson" }]);
        assert_eq!(asked(rows(), 5, |_| Retry::Now), asked(rows(), 5, |_| Retry::Now));
        assert_ne!(asked(rows(), 5, |_| Retry::Now), asked(rows(), 6, |_| Retry::Now));
    }

    #[test]
    fn what_was_denied_is_tried_again_later_and_later() {
        let rows =
            json!([{ "rate": 1, "for": "60s", "per": "1m", "pattern": { "retry": { "back_off": "1s", "tries": 3 } } }]);
        let denied = |_| Retry::After(std::time::Duration::from_millis(1));
        let ms: Vec<_> = asked(rows.clone(), 1, denied).iter().map(|(ms, _)| *ms).collect();
        assert_eq!(ms, [0, 1_000, 3_000, 7_000]);
        let third_is_allowed = |asked| if asked == 3 { Retry::Now } else { Retry::Never };
        assert_eq!(asked(rows, 1, third_is_allowed).len(), 3);
    }

    #[test]
    fn wrong_rows_are_named() {
        let row = |field: &str, value: serde_json::Value| {
            let mut row = json!({ "rate": 1, "for": "1s" });
            row[field] = value;
            row
        };
        for (field, value) in [
            ("clients", json!(0)),
            ("clients", json!(100_001)),
            ("kind", json!("User")),
            ("value", json!("")),
            ("rate", json!(0)),
            ("rate", json!(1_000_001)),
            ("per", json!("1")),
            ("for", json!("0s")),
            ("cost", json!(0)),
            ("path", json!("/".repeat(8_193))),
            ("pattern", json!({ "waves": { "period": "x" } })),
            ("pattern", json!({ "ramp": { "to": 1_000_001 } })),
        ] {
            let problems = made(json!([{ "rate": 1, "for": "1s" }, row(field, value)])).expect_err(field);
            let named: Vec<_> = problems.iter().map(|problem| (problem.row, problem.field)).collect();
            assert_eq!(named, [(1, field)], "{problems:?}");
        }
        let several =
            made(json!([{ "clients": 2, "value": "a", "rate": 1, "for": "1s" }])).expect_err("two of one value");
        assert_eq!(several[0].field, "value");
        let many = made(json!([{ "rate": 1_000, "for": "1h" }])).expect_err("too many");
        assert!(many[0].field == "rate" && many[0].message.contains("3600000"), "{many:?}");
        assert!(made(json!([])).is_err() && made(json!(vec![row("cost", json!(1)); ROWS_MAX + 1])).is_err());
    }

    #[test]
    fn tiers_are_given_to_the_rows_clients_alone() {
        let rows = json!([
            { "clients": 2, "tier": "pro", "rate": 1, "for": "1s" },
            { "clients": 2, "tier": "pro", "kind": "ip", "rate": 1, "for": "1s" },
            { "value": "ada", "tier": "pro", "rate": 1, "for": "1s" },
            { "tier": "none", "rate": 1, "for": "1s" },
        ]);
        let made = made(rows).expect("right rows");
        let mut policy: Policy = serde_json::from_value(json!({ "domains": { "default": {
            "tiers": [{ "id": "pro", "unlimited": true }],
            "clients": [{ "kind": "user", "value": "ada", "override": { "blocked": true } }],
        } } }))
        .expect("a policy");
        assert_eq!(made.without_tier(&policy).collect::<Vec<_>>(), [3]);
        made.assign(&mut policy);
        let clients = &policy.domains["default"].clients;
        let given: Vec<_> = clients.iter().map(|client| (client.kind.as_str(), client.value.as_str())).collect();
        assert_eq!(given, [("user", "ada"), ("user", "made-1-*"), ("ip", "2001:db8:1::/48")]);
        assert!(tidegate::Snapshot::compile(&policy).is_ok());
        // He is blocked as before.
        let ada = &clients[0];
        assert!(ada.tier.as_deref() == Some("pro") && ada.exception.as_ref().is_some_and(|own| own.blocked), "{ada:?}");
    }

    #[test]
    fn a_hundred_thousand_addresses_are_addresses_of_their_row() {
        let rows = json!([
            { "kind": "ip", "rate": 1, "for": "1s" },
            { "clients": 99_999, "kind": "ip", "rate": 1, "for": "1s" },
        ]);
        let mut seen = std::collections::HashSet::new();
        let mut traffic = made(rows).expect("right rows").traffic(0, 1);
        let mut ask = |_: Nanos, request: &Request<'_>| {
            let address: Ipv6Addr = request.parts().identities[0].value().parse().expect("an address");
            assert!(matches!(address.segments(), [0x2001, 0xdb8, 0 | 1, 0, 0, 0, ..]), "{address}");
            seen.insert(address);
            Retry::Now
        };
        while traffic.step(&mut ask).expect("nothing is read") {}
        assert_eq!(seen.len(), 100_000);
    }
}
