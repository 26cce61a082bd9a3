//! Result of a comparison: the summary, and the clients and decisions for display. It can be serialized.

use serde::{Deserialize, Serialize};

use super::{
    SIDES,
    decisions::{DecisionDetails, DecisionFilter, DecisionRow, StoredDecisions, StoredVerdict},
    series::{BUCKETS_MS, BucketCounts, CountSeries},
    summary::{ClientComparison, ClientOrder, ClientTimeline, Summary, TimelineBucket},
};
use crate::Utc;

/// Most buckets of a client's timeline by default.
const ROW_BUCKETS: u64 = 300;
/// Most buckets of a page with several timelines.
const PAGE_BUCKETS: usize = 50_000;

pub(super) const MS_NS: u64 = 1_000_000;

/// A page of decisions, in order of time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DecisionPage {
    /// The decisions.
    pub items: Vec<DecisionRow>,
    /// Number of the request after which the next page begins; `None` on the last page.
    pub next: Option<u64>,
}

/// The whole result of a comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ComparisonResult {
    /// The summary.
    pub summary: Summary,
    pub(super) bucket_ms: u64,
    pub(super) clients: Vec<(ClientComparison, CountSeries)>,
    /// Keys of all clients, in order of their first request.
    pub(super) keys: Vec<String>,
    pub(super) limits: [Option<Vec<String>>; SIDES],
    pub(super) decisions: StoredDecisions,
}

impl ComparisonResult {
    /// Returns the shortest bucket with which a client's timeline has at most a few hundred buckets.
    #[must_use]
    pub fn bucket_ms(&self) -> u64 {
        let span_ms = self.summary.to.zip(self.summary.from).map_or(0, |(to, from)| (to.0 - from.0) / MS_NS);
        let mut longer = BUCKETS_MS.into_iter().filter(|bucket| *bucket >= self.bucket_ms);
        longer.find(|bucket| span_ms / bucket < ROW_BUCKETS).unwrap_or(BUCKETS_MS[BUCKETS_MS.len() - 1])
    }

    /// Returns a page of sorted clients over time: from index `from` on, at most `limit`, and fewer if they have too many buckets
    /// for a page. Buckets are `bucket_ms` long, a multiple of [`bucket_ms`](super::KeptCounts::bucket_ms) of the summary. Also
    /// returns the number of clients.
    #[must_use]
    pub fn timeline(
        &self,
        which: DecisionFilter,
        sort: ClientOrder,
        is_descending: bool,
        from: usize,
        limit: usize,
        bucket_ms: u64,
    ) -> (Vec<ClientTimeline>, usize) {
        let times = (bucket_ms / self.bucket_ms).max(1);
        let has = |row: &ClientComparison| match which {
            DecisionFilter::All => true,
            DecisionFilter::Denied => row.denied_a + row.denied_b > 0,
            DecisionFilter::Changed => row.newly_denied + row.newly_allowed > 0,
            DecisionFilter::NewlyDenied => row.newly_denied > 0,
            DecisionFilter::NewlyAllowed => row.newly_allowed > 0,
        };
        let mut rows: Vec<&(ClientComparison, CountSeries)> = self.clients.iter().filter(|(row, _)| has(row)).collect();
        rows.sort_by(|(one, _), (other, _)| {
            let by_number = |number: fn(&ClientComparison) -> u64| number(one).cmp(&number(other));
            let order = match sort {
                ClientOrder::Changed => by_number(|row| row.newly_denied + row.newly_allowed),
                ClientOrder::DeniedA => by_number(|row| row.denied_a),
                ClientOrder::DeniedB => by_number(|row| row.denied_b),
                ClientOrder::Requests => by_number(|row| row.requests),
                ClientOrder::Key => one.key.cmp(&other.key),
            };
            let order = if is_descending { order.reverse() } else { order };
            order.then_with(|| one.key.cmp(&other.key))
        });
        let page = rows.iter().skip(from).take(limit);
        let row = |(client, series): &(ClientComparison, CountSeries)| ClientTimeline {
            client: client.clone(),
            buckets: buckets(&series.merged(times), self.bucket_ms * times),
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

    /// Returns decisions about one client or about all, from an instant on, or after a request.
    #[must_use]
    pub fn decisions(
        &self,
        key: Option<&str>,
        which: DecisionFilter,
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

    /// Returns whether this is the key of a client in the traffic.
    #[must_use]
    pub fn knows(&self, key: &str) -> bool {
        self.keys.iter().any(|it| it == key)
    }

    fn decided_by(&self, side: usize, verdict: StoredVerdict) -> Option<DecisionDetails> {
        let limits = self.limits[side].as_ref()?;
        Some(DecisionDetails {
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

pub(super) fn buckets(series: &CountSeries, bucket_ms: u64) -> Vec<TimelineBucket> {
    let bucket =
        |(bucket, BucketCounts { requests, denied: [denied_a, denied_b] }): &(u64, BucketCounts)| TimelineBucket {
            at: Utc(bucket.saturating_mul(bucket_ms).saturating_mul(MS_NS)),
            requests: *requests,
            denied_a: *denied_a,
            denied_b: *denied_b,
        };
    series.0.iter().map(bucket).collect()
}
