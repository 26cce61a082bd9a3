//! A load of checks that do not wait for each other, and the counts of their outcomes.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};

use crate::nodes::Node;

/// A check of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedCheck {
    /// The time at which it began, since the load began.
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    pub(crate) is_allowed: bool,
    pub(crate) is_degraded: bool,
}

/// Counts of the outcomes of checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) offered: usize,
    pub(crate) admitted: usize,
    pub(crate) degraded: usize,
    pub(crate) slowest: Duration,
    /// The time at which the last check was answered, since the load began.
    pub(crate) lasted: Duration,
}

impl Load {
    pub(crate) fn of<'s>(seen: impl IntoIterator<Item = &'s TimedCheck>) -> Self {
        let nothing = Self { offered: 0, admitted: 0, degraded: 0, slowest: Duration::ZERO, lasted: Duration::ZERO };
        seen.into_iter().fold(nothing, |sum, seen| Self {
            offered: sum.offered + 1,
            admitted: sum.admitted + usize::from(seen.is_allowed),
            degraded: sum.degraded + usize::from(seen.is_degraded),
            slowest: sum.slowest.max(seen.took),
            lasted: sum.lasted.max(seen.at + seen.took),
        })
    }

    /// Returns the most tokens that a bucket of 1,000 with 1,000 more a second can admit since the load began. A busy
    /// machine takes longer for a load than planned.
    pub(crate) fn most(&self) -> usize {
        1_000 + usize::try_from(self.lasted.as_millis()).expect("few")
    }

    /// Counts the checks that began within a time.
    pub(crate) fn between(seen: &[TimedCheck], from: Duration, until: Duration) -> Self {
        Self::of(seen.iter().filter(|seen| (from..until).contains(&seen.at)))
    }
}

/// Returns four fifths of what one bucket of 1,000 with 1,000 more a second would have admitted of these checks when
/// they were answered. Where the machine stops for longer than a second, the tokens that come back meanwhile exceed the
/// burst and are lost.
pub(crate) fn least(seen: &[TimedCheck]) -> usize {
    let mut answered: Vec<_> = seen.iter().map(|seen| (seen.at + seen.took).as_secs_f64() * 1_000.0).collect();
    answered.sort_by(f64::total_cmp);
    let (mut tokens, mut before, mut admitted) = (1_000.0_f64, 0.0, 0_usize);
    for at in answered {
        tokens = (tokens + at - before).min(1_000.0);
        before = at;
        if tokens >= 1.0 {
            tokens -= 1.0;
            admitted += 1;
        }
    }
    admitted * 4 / 5
}

/// Checks one key on each node so many times a second, from several tasks.
pub(crate) async fn load(nodes: &[Arc<Node>], each_a_second: u64, lasts: Duration) -> Vec<TimedCheck> {
    load_since(Instant::now(), nodes, each_a_second, lasts).await
}

/// Runs the same load; times are measured from `began`.
pub(crate) async fn load_since(
    began: Instant,
    nodes: &[Arc<Node>],
    each_a_second: u64,
    lasts: Duration,
) -> Vec<TimedCheck> {
    const CALLERS: u32 = 8;
    let pause = Duration::from_secs(CALLERS.into()) / u32::try_from(each_a_second).expect("few");
    let mut callers = JoinSet::new();
    for node in nodes {
        for caller in 0..CALLERS {
            let node = Arc::clone(node);
            callers.spawn(async move {
                let mut seen = Vec::new();
                for turn in 0.. {
                    let due = began + pause * turn + pause * caller / CALLERS;
                    if due >= began + lasts {
                        break;
                    }
                    tokio::time::sleep_until(due).await;
                    let asked = Instant::now();
                    let said = node.check("ada").await;
                    seen.push(TimedCheck {
                        at: asked - began,
                        took: asked.elapsed(),
                        is_allowed: said.allowed,
                        is_degraded: said.degraded.is_some(),
                    });
                }
                seen
            });
        }
    }
    callers.join_all().await.concat()
}
