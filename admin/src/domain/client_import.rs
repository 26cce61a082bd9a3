//! Many clients at once: a file of lines imported, and one change for all that match. Each is one version, or none.

mod csv;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    slice,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::{
    Problems, Snapshot,
    policy::{Client, Domain, Policy},
};

use crate::domain::{
    change_list::{ChangeList, MESSAGE_BYTES_MAX, MESSAGE_PATTERN, Op, default_domain, edit, no_domain},
    edited_policy::Edited,
    error::{Conflicting, ErrorLocation, FieldError, Problem},
    import_report::{LineReport, Outcome, Report},
    json::pointer_of,
    objects::{Kind, ObjectKey, client_id, client_order, client_place, sort_clients},
    published::Published,
    text::has_text,
};

/// What becomes of clients that a file does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Missing {
    #[default]
    Keep,
    Remove,
}

/// Policy and report of an import.
#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) policy: Policy,
    pub(crate) report: Report,
}

/// The clients of a domain as a CSV file.
pub(crate) fn export(domain: &Domain) -> Result<Vec<u8>, String> {
    csv::write(domain.clients.iter())
}

/// Puts the clients of a CSV file into a domain of a policy whose clients are in order. Lines that are wrong change nothing,
/// and are told.
pub(crate) fn import(
    present: &Policy,
    domain: &str,
    text: &[u8],
    missing: Missing,
    now: Timestamp,
) -> Result<Imported, Problem> {
    let mut policy = present.clone();
    let Some(into) = policy.domains.get_mut(domain) else {
        return Err(Problem::NotFound(no_domain(domain)));
    };
    let lines = csv::read(text).map_err(|error| Problem::Invalid(vec![error]))?;
    let mut report = Report::default();
    let mut new = Vec::new();
    // Which line each client comes from, by kind and value.
    let mut seen: BTreeMap<(String, String), u64> = BTreeMap::new();
    for line in lines {
        let mut told =
            LineReport { line: line.number, id: None, outcome: Outcome::Unchanged, column: None, message: None };
        let made = line.identity().and_then(|(kind, value)| {
            told.id = Some(format!("{kind}:{value}"));
            if let Some(first) = seen.insert((kind.to_owned(), value.to_owned()), line.number) {
                let message = format!("line {first} is about the same client");
                return Err(csv::Wrong { column: None, message });
            }
            let place = into.clients.binary_search_by(|client| client_order(client).cmp(&(kind, value))).ok();
            line.client(place.map(|place| &into.clients[place]), now).map(|client| (place, client))
        });
        match made {
            Err(wrong) => {
                told =
                    LineReport { outcome: Outcome::Wrong, column: wrong.column, message: Some(wrong.message), ..told };
            }
            Ok((None, client)) => {
                told.outcome = Outcome::New;
                new.push(client);
            }
            Ok((Some(place), client)) if into.clients[place] != client => {
                told.outcome = Outcome::Changed;
                into.clients[place] = client;
            }
            Ok(_) => {}
        }
        report.lines.push(told);
    }
    if missing == Missing::Remove {
        let before = into.clients.len();
        into.clients.retain(|client| line_of(&seen, client).is_some());
        report.removed = before - into.clients.len();
    }
    into.clients.extend(new);
    // Of two clients that are the same (an address and its block), the later is told: that of the file.
    into.clients.sort_by_key(|client| line_of(&seen, client).is_some());
    if let Err(problems) = Snapshot::compile(&policy) {
        tell(&problems, &policy, domain, &seen, &mut report)?;
    }
    sort_clients(&mut policy);
    let count = |outcome| report.lines.iter().filter(|line| line.outcome == outcome).count();
    let counts = [Outcome::New, Outcome::Changed, Outcome::Unchanged, Outcome::Wrong].map(count);
    [report.new, report.changed, report.unchanged, report.wrong] = counts;
    Ok(Imported { policy, report })
}

/// The line that a client comes from.
fn line_of(seen: &BTreeMap<(String, String), u64>, client: &Client) -> Option<u64> {
    seen.get(&(client.kind.clone(), client.value.clone())).copied()
}

/// Puts what the compiler says of a client to its line. What it says of anything else, no line can mend.
fn tell(
    problems: &Problems,
    policy: &Policy,
    domain: &str,
    seen: &BTreeMap<(String, String), u64>,
    report: &mut Report,
) -> Result<(), Problem> {
    let within = format!("domains.{domain}.clients[");
    for problem in problems.iter() {
        let of_client = problem.path.strip_prefix(&within).and_then(|rest| rest.split_once(']'));
        let line = of_client.and_then(|(place, field)| {
            let client = policy.domains.get(domain)?.clients.get(place.parse::<usize>().ok()?)?;
            let number = line_of(seen, client)?;
            let place = report.lines.binary_search_by_key(&number, |line| line.line).ok()?;
            Some((&mut report.lines[place], field))
        });
        let Some((line, field)) = line else {
            return Err(Problem::field("", format!("{}: {}", problem.path, problem.message)));
        };
        if line.message.is_none() {
            line.column = csv::column_of(field);
            line.message = Some(problem.message.clone());
        }
        line.outcome = Outcome::Wrong;
    }
    Ok(())
}

/// Is it one identity? Others stand for all that begin so, or for a network.
pub(crate) fn is_single(client: &Client) -> bool {
    !(client.value.ends_with('*') || client.kind == "ip" && client.value.contains('/'))
}

/// Returns the address that the client is, if it is one.
pub(crate) fn address(client: &Client) -> Option<IpAddr> {
    let is_address = matches!(&*client.kind, "ip" | "remote_address");
    is_address.then(|| client.value.parse().ok()).flatten().map(|address: IpAddr| address.to_canonical())
}

/// Which clients of a domain.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ClientFilter")]
pub(crate) struct Filter {
    pub(crate) kind: Option<String>,
    /// Of the value.
    #[serde(default)]
    pub(crate) prefix: String,
    /// A text in the value or the label; A to Z and a to z are the same.
    #[serde(default)]
    pub(crate) q: String,
    pub(crate) tier: Option<String>,
    /// Among those of the client.
    pub(crate) tag: Option<String>,
    pub(crate) has_override: Option<bool>,
    /// Only these.
    pub(crate) ids: Option<BTreeSet<String>>,
}

impl Filter {
    pub(crate) fn matches(&self, client: &Client) -> bool {
        self.kind.as_ref().is_none_or(|kind| client.kind == *kind)
            && client.value.starts_with(&self.prefix)
            && (has_text(&client.value, &self.q) || client.label.as_ref().is_some_and(|label| has_text(label, &self.q)))
            && self.tier.as_ref().is_none_or(|tier| client.tier.as_ref() == Some(tier))
            && self.tag.as_ref().is_none_or(|tag| client.tags.contains(tag))
            && self.has_override.is_none_or(|wanted| client.exception.is_some() == wanted)
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&client_id(client)))
    }

    /// The stretches of `clients`, which are in order, that have its kind and prefix, or of its ids those that there are. What is
    /// asked of a client beyond that takes a look at each in there.
    pub(crate) fn stretches<'c>(&self, clients: &'c [Client]) -> Vec<&'c [Client]> {
        if let Some(ids) = &self.ids {
            let mut places: Vec<_> = ids.iter().filter_map(|id| client_place(clients, id)).collect();
            places.sort_unstable();
            return places.into_iter().map(|place| slice::from_ref(&clients[place])).collect();
        }
        let mut stretches = Vec::new();
        let mut rest = clients;
        while let Some(first) = rest.first() {
            let (of_kind, others) = rest.split_at(rest.partition_point(|client| client.kind == first.kind));
            rest = others;
            if self.kind.as_ref().is_none_or(|kind| first.kind == *kind) {
                let begin = of_kind.partition_point(|client| *client.value < *self.prefix);
                let within = &of_kind[begin..];
                stretches.push(&within[..within.partition_point(|client| client.value.starts_with(&self.prefix))]);
            }
        }
        stretches
    }

    /// Is everything in the stretches wanted?
    pub(crate) fn is_by_name(&self) -> bool {
        let Self { kind: _, prefix: _, q, tier, tag, has_override, ids } = self;
        q.is_empty() && (tier, tag, has_override, ids) == (&None, &None, &None, &None)
    }
}

/// One change for all clients that match.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BulkChange")]
pub(crate) struct Bulk {
    #[serde(default = "default_domain")]
    domain: String,
    /// Whom it is for; everybody unless given.
    #[serde(default)]
    matching: Filter,
    /// A JSON merge patch of each.
    patch: Option<Value>,
    /// Instead of a patch: takes them out.
    #[serde(default)]
    remove: bool,
    /// So many match, as far as the caller knows.
    expected: u32,
    /// Of the version: a line that says what changes and why.
    #[schemars(length(min = 1, max = MESSAGE_BYTES_MAX), regex(pattern = MESSAGE_PATTERN))]
    pub(crate) message: String,
}

impl Bulk {
    /// Makes the change.
    pub(crate) fn edit(&self, present: &Published) -> Result<Edited, Problem> {
        let Some(domain) = present.policy.domains.get(&self.domain) else {
            return Err(Problem::field("/domain", format!("there is no domain `{}`", self.domain)));
        };
        let stretches = self.matching.stretches(&domain.clients);
        let within = stretches.into_iter().flatten().filter(|client| self.matching.matches(client));
        let ids: Vec<String> = within.map(client_id).collect();
        if ids.is_empty() {
            return Err(Problem::field("/matching", "no client matches"));
        }
        if ids.len() != self.expected as usize {
            return Err(Problem::Conflict(vec![Conflicting {
                kind: "clients",
                domain: Some(self.domain.clone()),
                expected: Some(self.expected),
                matching: Some(ids.len()),
                ..Conflicting::default()
            }]));
        }
        let op = match (&self.patch, self.remove) {
            (Some(_), false) => Op::Patch,
            (None, true) => Op::Delete,
            _ => return Err(Problem::field("/patch", "give a `patch`, or `remove`: true to take them out")),
        };
        let keys = ids.into_iter().map(|id| ObjectKey { kind: Kind::Client, domain: self.domain.clone(), id });
        let list = ChangeList::for_each(op, keys, self.patch.as_ref(), present);
        edit(present, &list).map_err(|problem| match problem {
            Problem::Invalid(fields) => Problem::Invalid(fields.into_iter().take(1).map(in_patch).collect()),
            other => other,
        })
    }
}

/// What the compiler has against the first of the changed clients, as it stands in the patch: against the others it has the
/// same.
pub(crate) fn bulk_refused(problems: &Problems) -> Problem {
    let field = problems.iter().take(1).map(|problem| {
        let below = problem.path.split_once(".clients[").and_then(|(_, rest)| rest.split_once(']'));
        let below = below.map(|(_, field)| pointer_of(field)).unwrap_or_default();
        FieldError::invalid(format!("/patch{below}"), problem.message.clone())
    });
    Problem::Invalid(field.collect())
}

/// A field of one of the changed clients, as it stands in the patch.
fn in_patch(field: FieldError) -> FieldError {
    let ErrorLocation::Pointer(pointer) = &field.at else { return field };
    let below = pointer.split_once("/value").map_or("", |(_, below)| below);
    let pointer = if below.is_empty() { String::new() } else { format!("/patch{below}") };
    FieldError { at: ErrorLocation::Pointer(pointer), ..field }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stretches_have_all_that_match_and_by_name_nothing_else() {
        let values = ["", "a", "ab", "abc", "b", "ba", "c"];
        let clients = ["ip", "tenant", "user"].into_iter().flat_map(|kind| {
            values[1..].iter().map(move |value| {
                let tier = if value.len() > 1 { "pro" } else { "free" };
                json!({ "kind": kind, "value": value, "tier": tier, "tags": if value.contains('b') { &["beta"][..] } else { &[] } })
            })
        });
        let clients: Vec<Client> = clients.map(|client| serde_json::from_value(client).expect("a client")).collect();
        for kind in [None, Some("ip"), Some("user"), Some("none"), Some("zone")] {
            for prefix in values.into_iter().chain(["d", "abcd"]) {
                let ids = || ["user:ab", "ip:c", "ip:none", "user"].map(str::to_owned).into_iter().collect();
                for (tier, tag, q, ids) in [
                    (None, None, "", None),
                    (Some("pro"), None, "", None),
                    (None, Some("beta"), "", None),
                    (None, None, "B", None),
                    (None, None, "", Some(ids())),
                ] {
                    let owned = |text: Option<&str>| text.map(str::to_owned);
                    let (prefix, q) = (prefix.to_owned(), q.to_owned());
                    let (kind, tier, tag) = (owned(kind), owned(tier), owned(tag));
                    let filter = Filter { kind, prefix, q, tier, tag, has_override: None, ids };
                    let stretches = filter.stretches(&clients);
                    let found: Vec<_> = stretches.into_iter().flatten().collect();
                    let expected: Vec<_> = clients.iter().filter(|client| filter.matches(client)).collect();
                    if filter.is_by_name() {
                        assert_eq!(found, expected, "{filter:?}");
                    } else {
                        let found: Vec<_> = found.into_iter().filter(|client| filter.matches(client)).collect();
                        assert_eq!(found, expected, "{filter:?}");
                    }
                }
            }
        }
    }
}
