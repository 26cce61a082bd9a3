//! Preview of limits in an editor: decides little traffic of one client by the published and the edited limits, with the
//! engine that enforces them, fast enough to follow each edit.

use serde::Serialize;
use tidegate::{PublishError, Retry, Snapshot, time::Nanos};

use crate::{
    compare::{PolicySide, SIDES, SideDecision, ms, retry_ms, room_for},
    traffic::Traffic,
};

/// Most requests of a preview; later ones are left out.
pub const PREVIEW_REQUESTS_MAX: u64 = 20_000;
/// Most checks of single limits in a preview: with many limits there are fewer requests. They take some ten milliseconds, and
/// less than fifty if each limit is a sliding window log with thousands of entries.
pub const PREVIEW_CHECKS_MAX: u64 = 120_000;
/// Number of buckets of the timeline.
pub const PREVIEW_BUCKETS: usize = 120;

/// Decisions of the published limits and of a draft over the same traffic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preview {
    /// Requests that were decided.
    pub requests: u64,
    /// Time after the start at which the traffic was truncated, if it has too many requests.
    pub cut_at_ms: Option<u64>,
    /// Length of a bucket.
    pub bucket_ms: u64,
    /// Results of the published limits; `None` if there are none.
    pub published: Option<PreviewResult>,
    /// Results of the draft.
    pub draft: Option<PreviewResult>,
}

/// Results of one set of limits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PreviewSide"))]
pub struct PreviewResult {
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Time of the first denial after the start.
    pub first_denied_ms: Option<u64>,
    /// Longest retry-after of a denied request: 0 if none was denied, `None` if one is denied permanently.
    pub longest_wait_ms: Option<u64>,
    /// Longest delay of an allowed request.
    pub longest_delay_ms: u64,
    /// Allowed and denied requests of each bucket.
    pub buckets: Vec<[u64; 2]>,
}

impl PreviewResult {
    fn new(buckets: usize) -> Self {
        Self {
            allowed: 0,
            denied: 0,
            first_denied_ms: None,
            longest_wait_ms: Some(0),
            longest_delay_ms: 0,
            buckets: vec![[0; 2]; buckets],
        }
    }

    fn count(&mut self, after_ms: u64, bucket_ms: u64, said: SideDecision) {
        *(if said.is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
        if let Some(bucket) = self.buckets.get_mut((after_ms / bucket_ms) as usize) {
            bucket[usize::from(!said.is_allowed)] += 1;
        }
        if !said.is_allowed {
            self.first_denied_ms.get_or_insert(after_ms);
            self.longest_wait_ms = self.longest_wait_ms.zip(retry_ms(said.retry)).map(|(one, other)| one.max(other));
        }
        self.longest_delay_ms = self.longest_delay_ms.max(ms(said.delay_ns));
    }
}

/// Decides `traffic` of one client, which begins at `start` and lasts for `length`, by the published limits and by the draft.
pub fn preview(
    policies: [Option<Snapshot>; SIDES],
    mut traffic: impl Traffic,
    start: Nanos,
    length: Nanos,
) -> Result<Preview, PublishError> {
    let bucket_ms = ms(length).div_ceil(PREVIEW_BUCKETS as u64).max(1);
    let buckets = ms(length).div_ceil(bucket_ms) as usize;
    let limits: u64 = policies.iter().flatten().map(|policy| policy.most_limits_per_request() as u64).sum();
    let requests_max = (PREVIEW_CHECKS_MAX / limits.max(1)).min(PREVIEW_REQUESTS_MAX);
    let room = room_for(1, policies.each_ref().map(Option::as_ref));
    let [published, draft] = policies;
    let mut sides = [PolicySide::new(published, room)?, PolicySide::new(draft, room)?];
    let mut found = [PreviewResult::new(buckets), PreviewResult::new(buckets)];
    let mut preview = Preview { requests: 0, cut_at_ms: None, bucket_ms, published: None, draft: None };
    let mut go = true;
    while go && preview.cut_at_ms.is_none() {
        let step = traffic.step(&mut |now, request| {
            let after_ms = (now - start) / 1_000_000;
            if preview.requests == requests_max {
                preview.cut_at_ms = Some(after_ms);
                return Retry::Now;
            }
            preview.requests += 1;
            let said = sides.each_mut().map(|side| side.decide(now, request, None, false));
            for (side, said) in found.iter_mut().zip(said) {
                side.count(after_ms, bucket_ms, said);
            }
            said[1].retry
        });
        // Synthetic and recorded traffic is in memory, so reading it does not fail.
        go = step.unwrap_or(false);
    }
    let [published, draft] = found;
    preview.published = sides[0].is_some().then_some(published);
    preview.draft = sides[1].is_some().then_some(draft);
    Ok(preview)
}
