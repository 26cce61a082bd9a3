//! Ours and the peers by coarse clocks: those that show the time of their last tick, a millisecond old at most.

use std::time::Duration;

use governor::{RateLimiter, clock::QuantaUpkeepClock};
use rapidhash::fast::RandomState;
use tidegate::{KeyedLimiter, Limiter, clock::CoarseClock};

use crate::{
    comparison::Contender,
    engine_with, key_of,
    peers::{ByHandle, Limit, by, rate_net},
};

/// The tick of every coarse clock.
const TICK: Duration = Duration::from_millis(1);

/// A running coarse clock of each project that has one. Only one of governor's runs in a process at a time.
#[derive(Clone)]
pub struct CoarseClocks {
    ours: CoarseClock,
    governor: QuantaUpkeepClock,
    rate_net: rate_net::CoarseClock,
}

impl std::fmt::Debug for CoarseClocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoarseClocks").finish_non_exhaustive()
    }
}

impl CoarseClocks {
    /// Lets everything through, even where a clock stands still for a second: 10^9 a second, and as many at once.
    pub const WIDE: Limit = Limit { per_second: 1_000_000_000, burst: 1_000_000_000 };

    /// Starts the clocks, which run until they and all limiters by them are dropped.
    ///
    /// # Panics
    ///
    /// Where the system gives no thread, or governor's clock runs already.
    #[must_use]
    pub fn start() -> Self {
        Self {
            ours: CoarseClock::start(TICK).expect("a thread"),
            governor: QuantaUpkeepClock::from_interval(TICK).expect("a thread, and no other one"),
            rate_net: rate_net::CoarseClock::spawn(TICK).expect("a thread"),
        }
    }

    /// Ours by handles, with room for so many keys.
    #[must_use]
    pub fn tidegate(&self, max_keys: usize, limit: Limit) -> Contender<'static> {
        let Limit { per_second, burst } = limit;
        let limit = format!(r#"algorithm = "token_bucket", limit = {per_second}, period = "1s", burst = {burst}"#);
        Contender::new("tidegate", ByHandle(engine_with(max_keys, self.ours.clone(), &limit)))
    }

    /// Ours without a policy.
    #[must_use]
    pub fn keyed_limiter(&self, max_keys: usize, limit: Limit) -> Contender<'static> {
        let limiter = KeyedLimiter::with_clock(limit.rate(), max_keys, self.ours.clone());
        by("tidegate, KeyedLimiter", limiter, |limiter, number| limiter.check(key_of(number)).is_allowed())
    }

    /// The keyed peers that have a coarse clock; those that want a `String` find that of a key in `texts`.
    #[must_use]
    pub fn keyed<'t>(&self, limit: Limit, texts: &'t [String]) -> [Contender<'t>; 5] {
        let (quota, clock) = (limit.quota(), || self.governor.clone());
        [
            by("governor, u64", RateLimiter::<u64, _, _>::dashmap_with_clock(quota, clock()), |limiter, number| {
                limiter.check_key(&number).is_ok()
            }),
            by(
                "governor, String",
                RateLimiter::<String, _, _>::dashmap_with_clock(quota, clock()),
                |limiter, number| limiter.check_key(&texts[number as usize]).is_ok(),
            ),
            by(
                "governor, u64, rapidhash",
                RateLimiter::<u64, _, _>::dashmap_with_clock_and_hasher(quota, clock(), RandomState::default()),
                |limiter, number| limiter.check_key(&number).is_ok(),
            ),
            by(
                "governor, String, rapidhash",
                RateLimiter::<String, _, _>::dashmap_with_clock_and_hasher(quota, clock(), RandomState::default()),
                |limiter, number| limiter.check_key(&texts[number as usize]).is_ok(),
            ),
            by("rate-net, u64", rate_net(limit).clock(self.rate_net.clone()).build(), |limiter, number| {
                limiter.check(number).is_allow()
            }),
        ]
    }

    /// Limiters of one thing: ours first.
    #[must_use]
    pub fn direct(&self, limit: Limit) -> [Contender<'static>; 3] {
        let ours = Limiter::with_clock(limit.rate(), self.ours.clone());
        let governor = RateLimiter::direct_with_clock(limit.quota(), self.governor.clone());
        let rate_net = rate_net(limit).clock(self.rate_net.clone()).build_direct();
        [
            by("tidegate, Limiter", ours, |limiter, _| limiter.check().is_allowed()),
            by("governor", governor, |limiter, _| limiter.check().is_ok()),
            by("rate-net", rate_net, |limiter, _| limiter.check().is_allow()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::texts;

    // One test, since only one of governor's clocks runs at a time.
    #[test]
    fn sides_by_coarse_clocks_let_pass_deny_and_count_each_key_by_itself() {
        let (clocks, texts) = (CoarseClocks::start(), texts(2));
        let keyed = |limit| {
            let ours = [clocks.tidegate(1_000, limit), clocks.keyed_limiter(1_000, limit)];
            ours.into_iter().chain(clocks.keyed(limit, &texts))
        };
        for contender in keyed(CoarseClocks::WIDE).chain(clocks.direct(CoarseClocks::WIDE)) {
            assert!((0..10_000).all(|_| contender.allows(0)), "{}", contender.name);
        }
        for contender in keyed(Limit::TIGHT) {
            assert!(contender.allows(0) && contender.allows(1), "{}", contender.name);
            assert!(!contender.allows(0) && !contender.allows(1), "{}", contender.name);
        }
        for contender in clocks.direct(Limit::TIGHT) {
            assert!(contender.allows(0) && !contender.allows(0), "{}", contender.name);
        }
    }
}
