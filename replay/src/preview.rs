//! What limits do to a little traffic of one client, while somebody edits them: as quick as an editor wants it, by the same engine
//! that enforces.

use serde::Serialize;
use tidegate::{PublishError, Retry, Snapshot, time::Nanos};

use crate::{
    compare::{SIDES, Said, Side, ms, retry_ms, room_for},
    traffic::Traffic,
};

/// The most requests; those that come later are left out.
pub const PREVIEW_REQUESTS_MAX: u64 = 20_000;
/// The most looks at a limit, over which the requests are fewer where there are many limits. They take some ten milliseconds,
/// and less than fifty where each limit is a sliding window log that remembers thousands.
pub const PREVIEW_LOOKS_MAX: u64 = 120_000;
/// Into how many buckets the time is cut.
pub const PREVIEW_BUCKETS: usize = 120;

/// What the limits in force and those of the draft do to the same traffic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preview {
    /// Requests that were decided.
    pub requests: u64,
    /// Where the traffic was cut off, after its beginning, because it has more requests than fit.
    pub cut_at_ms: Option<u64>,
    /// Length of a bucket.
    pub bucket_ms: u64,
    /// What is in force; `None`: nothing is.
    pub published: Option<PreviewSide>,
    /// What is edited.
    pub draft: Option<PreviewSide>,
}

/// What some limits did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PreviewSide {
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// When one was denied first, after the beginning.
    pub first_denied_ms: Option<u64>,
    /// The longest time after which a denied one was told to come again: 0 if none was denied, `None`: never.
    pub longest_wait_ms: Option<u64>,
    /// The longest time that an allowed one was told to wait before it goes on.
    pub longest_delay_ms: u64,
    /// Allowed and denied of each bucket.
    pub buckets: Vec<[u64; 2]>,
}

impl PreviewSide {
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

    fn count(&mut self, after_ms: u64, bucket_ms: u64, said: Said) {
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

/// Has `traffic` of one client, which begins at `start` and lasts for `length`, decided by the limits in force and by the draft's.
pub fn preview(
    policies: [Option<Snapshot>; SIDES],
    mut traffic: impl Traffic,
    start: Nanos,
    length: Nanos,
) -> Result<Preview, PublishError> {
    let bucket_ms = ms(length).div_ceil(PREVIEW_BUCKETS as u64).max(1);
    let buckets = ms(length).div_ceil(bucket_ms) as usize;
    let limits: u64 = policies.iter().flatten().map(|policy| policy.most_limits_per_request() as u64).sum();
    let requests_max = (PREVIEW_LOOKS_MAX / limits.max(1)).min(PREVIEW_REQUESTS_MAX);
    let room = room_for(1, policies.each_ref().map(Option::as_ref));
    let [published, draft] = policies;
    let mut sides = [Side::new(published, room)?, Side::new(draft, room)?];
    let mut found = [PreviewSide::new(buckets), PreviewSide::new(buckets)];
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
        // Made-up and recorded traffic is in memory, so it does not break off.
        go = step.unwrap_or(false);
    }
    let [published, draft] = found;
    preview.published = sides[0].is_some().then_some(published);
    preview.draft = sides[1].is_some().then_some(draft);
    Ok(preview)
}
