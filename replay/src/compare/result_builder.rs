//! Builds the result of a comparison from its counts.

use std::cmp::Reverse;

use tidegate::time::Nanos;

use super::{
    Comparison, SIDES,
    clients::{ComparedClient, ComparedClients, LongestDenialRun},
    limits,
    result::{ComparisonResult, MS_NS, buckets},
    series::CountSeries,
    side::PolicySide,
    summary::{
        ChangeCounts, ClientChangeCounts, ClientComparison, DecisionsKept, FirstDenial, KeptCounts, LongestRun,
        SideSummary, Summary,
    },
};
use crate::Utc;

/// Most clients that the summary lists.
pub const TOP: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct TotalCounts {
    pub(crate) requests: u64,
    denied: [u64; SIDES],
    newly_denied: u64,
    newly_allowed: u64,
    from: Option<Nanos>,
    to: Option<Nanos>,
    /// Time and client of the first denial; the client is `None` if there was no room for it.
    first_denied: [Option<(Nanos, Option<u32>)>; SIDES],
}

impl TotalCounts {
    /// Counts a request and returns its number.
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

    /// Remembers the first denials; `client` is the first listed identity of the request.
    pub(crate) fn note_first_denial(&mut self, client: Option<u32>, now: Nanos, is_denied: [bool; SIDES]) {
        for (first, is_denied) in self.first_denied.iter_mut().zip(is_denied) {
            if is_denied {
                first.get_or_insert((now, client));
            }
        }
    }
}

/// Builds the result of a comparison, with identities formatted by `show`.
pub(crate) fn build(comparison: Comparison, show: impl Fn(&str, &str, usize) -> String) -> ComparisonResult {
    let Comparison { sides, totals, clients, series, decisions, sample, .. } = comparison;
    let key = |(number, client): (usize, &ComparedClient)| {
        let (kind, value) = client.name.split_once(':').unwrap_or(("", &client.name));
        show(kind, value, number)
    };
    let keys: Vec<String> = clients.all.iter().enumerate().map(key).collect();
    let decisions_kept = |sort: usize| DecisionsKept { kept: decisions.kept()[sort], of: decisions.counts[sort] };
    let side = |side: usize| sides[side].is_some().then(|| side_summary(side, &totals, &clients, &keys));
    let rows: Vec<(ClientComparison, &CountSeries)> = clients
        .listed()
        .map(|(number, client)| (client_comparison(client, keys[number].clone()), &client.series))
        .collect();
    let names = limits::names(&sides, &clients, &keys, show);
    let (limits, limits_left_out) = limits::rows(&sides, &names, sample.is_some());
    let summary = Summary {
        requests: totals.requests,
        from: totals.from.map(Utc),
        to: totals.to.map(Utc),
        a: side(0),
        b: side(1),
        newly_denied: ChangeCounts {
            requests: totals.newly_denied,
            clients: clients.count_listed(|client| client.denied[0] == 0 && client.denied[1] > 0),
        },
        newly_allowed: ChangeCounts {
            requests: totals.newly_allowed,
            clients: clients.count_listed(|client| client.denied[0] > 0 && client.denied[1] == 0),
        },
        clients: Some(ClientChangeCounts {
            gaining: clients.count_listed(|client| client.denied[1] < client.denied[0]),
            losing: clients.count_listed(|client| client.denied[1] > client.denied[0]),
        }),
        limits,
        limits_left_out,
        top: most_changed(&rows),
        bucket_ms: series.all_bucket_ms(),
        timeline: buckets(&series.all, series.all_bucket_ms()),
        kept: KeptCounts {
            clients: rows.len() as u64,
            clients_left_out: clients.left_out,
            bucket_ms: series.bucket_ms(),
            changed: decisions_kept(0),
            denied: decisions_kept(1),
            allowed: decisions_kept(2),
        },
        charges_without_room: sides.iter().map(PolicySide::without_room).sum(),
    };
    ComparisonResult {
        summary,
        bucket_ms: series.bucket_ms(),
        clients: rows.into_iter().map(|(row, series)| (row, series.clone())).collect(),
        keys,
        limits: names,
        decisions: decisions.into_kept(),
    }
}

fn side_summary(side: usize, totals: &TotalCounts, clients: &ComparedClients, keys: &[String]) -> SideSummary {
    SideSummary {
        allowed: totals.requests - totals.denied[side],
        denied: totals.denied[side],
        clients_denied: clients.count_listed(|client| client.denied[side] > 0),
        first_denial: totals.first_denied[side]
            .map(|(at, client)| FirstDenial { at: Utc(at), key: client.map(|client| keys[client as usize].clone()) }),
        longest_run: clients.longest[side].map(|LongestDenialRun { client, from, ns, denials }| LongestRun {
            key: keys[client as usize].clone(),
            from: Utc(from),
            length_ms: ns / MS_NS,
            denials,
        }),
    }
}

/// Returns the clients with the most changed decisions.
fn most_changed(rows: &[(ClientComparison, &CountSeries)]) -> Vec<ClientComparison> {
    let changed = |row: &ClientComparison| row.newly_denied + row.newly_allowed;
    let mut top: Vec<&ClientComparison> = rows.iter().map(|(row, _)| row).filter(|row| changed(row) > 0).collect();
    top.sort_by_key(|row| Reverse(changed(row)));
    top.into_iter().take(TOP).cloned().collect()
}

fn client_comparison(client: &ComparedClient, key: String) -> ClientComparison {
    ClientComparison {
        key,
        requests: client.requests,
        denied_a: client.denied[0],
        denied_b: client.denied[1],
        newly_denied: client.newly_denied,
        newly_allowed: client.newly_allowed,
        first_denied_a: client.first_denied[0].map(Utc),
        first_denied_b: client.first_denied[1].map(Utc),
        first_newly_denied: client.first_newly_denied.map(Utc),
    }
}
