//! Our limiters and the peers with coarse clocks, which show the time of their last tick, at most a millisecond ago.

use std::time::Duration;

use governor::{RateLimiter, clock::QuantaUpkeepClock};
use rapidhash::fast::RandomState;
use tidegate::{KeyedLimiter, Limiter, clock::CoarseClock};

use crate::{
    contender::Contender,
    engine_with, key_of,
    peers::{HandleChecks, TestLimit, contender, rate_net},
};

/// The tick of every coarse clock.
const TICK: Duration = Duration::from_millis(1);

/// The running coarse clocks of all projects that have one. Only one of governor's can run in a process at a time.
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
    /// A limit that admits everything, even if a clock stands still for a second: 10^9 a second, and as many at once.
    pub const WIDE: TestLimit = TestLimit { per_second: 1_000_000_000, burst: 1_000_000_000 };

    /// Starts the clocks, which run until they and all limiters that use them are dropped.
    ///
    /// # Panics
    ///
    /// If the system starts no thread, or if governor's clock is running already.
    #[must_use]
    pub fn start() -> Self {
        Self {
            ours: CoarseClock::start(TICK).expect("a thread"),
            governor: QuantaUpkeepClock::from_interval(TICK).expect("a thread, and no other one"),
            rate_net: rate_net::CoarseClock::spawn(TICK).expect("a thread"),
        }
    }

    /// Returns our engine, checked by handles, with room for `max_keys` keys.
    #[must_use]
    pub fn tidegate(&self, max_keys: usize, limit: TestLimit) -> Contender<'static> {
        let TestLimit { per_second, burst } = limit;
        let limit = format!(r#"algorithm = "token_bucket", limit = {per_second}, period = "1s", burst = {burst}"#);
        Contender::new("tidegate", HandleChecks(engine_with(max_keys, self.ours.clone(), &limit)))
    }

    /// Returns our keyed limiter, which has no policy.
    #[must_use]
    pub fn keyed_limiter(&self, max_keys: usize, limit: TestLimit) -> Contender<'static> {
        let limiter = KeyedLimiter::with_clock(limit.rate(), max_keys, self.ours.clone());
        contender("tidegate, KeyedLimiter", limiter, |limiter, number| limiter.check(key_of(number)).is_allowed())
    }

    /// Returns the keyed peers that have a coarse clock. Those that take a `String` look it up in `texts`.
    #[must_use]
    pub fn keyed<'t>(&self, limit: TestLimit, texts: &'t [String]) -> [Contender<'t>; 5] {
        let (quota, clock) = (limit.quota(), || self.governor.clone());
        [
            contender(
                "governor, u64",
                RateLimiter::<u64, _, _>::dashmap_with_clock(quota, clock()),
                |limiter, number| limiter.check_key(&number).is_ok(),
            ),
            contender(
                "governor, String",
                RateLimiter::<String, _, _>::dashmap_with_clock(quota, clock()),
                |limiter, number| limiter.check_key(&texts[number as usize]).is_ok(),
            ),
            contender(
                "governor, u64, rapidhash",
                RateLimiter::<u64, _, _>::dashmap_with_clock_and_hasher(quota, clock(), RandomState::default()),
                |limiter, number| limiter.check_key(&number).is_ok(),
            ),
            contender(
                "governor, String, rapidhash",
                RateLimiter::<String, _, _>::dashmap_with_clock_and_hasher(quota, clock(), RandomState::default()),
                |limiter, number| limiter.check_key(&texts[number as usize]).is_ok(),
            ),
            contender("rate-net, u64", rate_net(limit).clock(self.rate_net.clone()).build(), |limiter, number| {
                limiter.check(number).is_allow()
            }),
        ]
    }

    /// Returns the limiters without keys, ours first.
    #[must_use]
    pub fn direct(&self, limit: TestLimit) -> [Contender<'static>; 3] {
        let ours = Limiter::with_clock(limit.rate(), self.ours.clone());
        let governor = RateLimiter::direct_with_clock(limit.quota(), self.governor.clone());
        let rate_net = rate_net(limit).clock(self.rate_net.clone()).build_direct();
        [
            contender("tidegate, Limiter", ours, |limiter, _| limiter.check().is_allowed()),
            contender("governor", governor, |limiter, _| limiter.check().is_ok()),
            contender("rate-net", rate_net, |limiter, _| limiter.check().is_allow()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::string_keys;

    // A single test, because only one of governor's clocks can run at a time.
    #[test]
    fn limiters_with_coarse_clocks_admit_deny_and_count_each_key_separately() {
        let (clocks, texts) = (CoarseClocks::start(), string_keys(2));
        let keyed = |limit| {
            let ours = [clocks.tidegate(1_000, limit), clocks.keyed_limiter(1_000, limit)];
            ours.into_iter().chain(clocks.keyed(limit, &texts))
        };
        for contender in keyed(CoarseClocks::WIDE).chain(clocks.direct(CoarseClocks::WIDE)) {
            assert!((0..10_000).all(|_| contender.allows(0)), "{}", contender.name);
        }
        for contender in keyed(TestLimit::TIGHT) {
            assert!(contender.allows(0) && contender.allows(1), "{}", contender.name);
            assert!(!contender.allows(0) && !contender.allows(1), "{}", contender.name);
        }
        for contender in clocks.direct(TestLimit::TIGHT) {
            assert!(contender.allows(0) && !contender.allows(0), "{}", contender.name);
        }
    }
}
