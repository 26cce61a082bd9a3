//! Our limiters and those of other projects, made for the same limit.

use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use rapidhash::fast::RandomState;
use tidegate::{
    Engine, KeyedLimiter, Limiter, Rate,
    clock::{Clock, SystemClock},
};

use crate::{
    LIMIT_ID,
    contender::{Contender, TestedLimiter},
    engine, key_of, string_key,
};

/// A limit that all limiters support.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TestLimit {
    /// Tokens a second.
    pub per_second: u32,
    /// The most tokens at once.
    pub burst: u32,
}

impl TestLimit {
    /// A limit that admits all checks that these processors can make: 10^9 a second, and 10^6 at once.
    pub const WIDE: Self = Self { per_second: 1_000_000_000, burst: 1_000_000 };

    /// A limit that denies nearly everything: one a second.
    pub const TIGHT: Self = Self { per_second: 1, burst: 1 };

    /// Returns the limit as governor's quota.
    ///
    /// # Panics
    ///
    /// If a number is 0.
    #[must_use]
    pub fn quota(self) -> Quota {
        let number = |number: u32| std::num::NonZeroU32::new(number).expect("not 0");
        Quota::per_second(number(self.per_second)).allow_burst(number(self.burst))
    }

    /// Returns the limit as our rate.
    pub(crate) fn rate(self) -> Rate {
        Rate::per_second(self.per_second.into()).burst(self.burst.into())
    }
}

/// A limiter with the function that checks a key.
struct CheckedBy<L, F>(L, F);

impl<L: Sync, F: Fn(&L, u64) -> bool + Sync> TestedLimiter for CheckedBy<L, F> {
    #[inline]
    fn checker(&self) -> impl FnMut(u64) -> bool {
        |number| (self.1)(&self.0, number)
    }
}

/// Returns a contender that checks keys by `check`.
pub(crate) fn contender<'a, L: Sync + 'a>(
    name: &'static str,
    limiter: L,
    check: impl Fn(&L, u64) -> bool + Sync + 'a,
) -> Contender<'a> {
    Contender::new(name, CheckedBy(limiter, check))
}

/// An engine that each thread checks by a handle of its own, with keys of 16 bytes on the stack.
#[derive(Debug)]
pub struct HandleChecks<C: Clock = SystemClock>(pub Engine<C>);

impl<C: Clock> TestedLimiter for HandleChecks<C> {
    #[inline]
    fn checker(&self) -> impl FnMut(u64) -> bool {
        let mut handle = self.0.handle(LIMIT_ID, "k").expect("is there");
        move |number| handle.check(key_of(number)).is_allowed()
    }
}

/// Returns our engine, checked by handles, with room for `max_keys` keys.
#[must_use]
pub fn tidegate(max_keys: usize, limit: TestLimit) -> Contender<'static> {
    Contender::new("tidegate", HandleChecks(engine(max_keys, limit.per_second.into(), limit.burst.into())))
}

/// Returns our keyed limiter, which has no policy: the replacement for governor's keyed limiter.
#[must_use]
pub fn keyed_limiter(max_keys: usize, limit: TestLimit) -> Contender<'static> {
    let limiter = KeyedLimiter::with_max_keys(limit.rate(), max_keys);
    contender("tidegate, KeyedLimiter", limiter, |limiter, number| limiter.check(key_of(number)).is_allowed())
}

/// Returns the keyed peers. Those that take a `String` look it up in `texts`.
#[must_use]
pub fn keyed(limit: TestLimit, texts: &[String]) -> [Contender<'_>; 8] {
    let quota = limit.quota();
    let aerorate = aerorate_quota(limit);
    [
        contender("governor, u64", DefaultKeyedRateLimiter::<u64>::keyed(quota), |limiter, number| {
            limiter.check_key(&number).is_ok()
        }),
        contender("governor, String", DefaultKeyedRateLimiter::<String>::keyed(quota), |limiter, number| {
            limiter.check_key(&texts[number as usize]).is_ok()
        }),
        contender(
            "governor, u64, rapidhash",
            RateLimiter::<u64, _, _>::dashmap_with_hasher(quota, RandomState::default()),
            |limiter, number| limiter.check_key(&number).is_ok(),
        ),
        contender(
            "governor, String, rapidhash",
            RateLimiter::<String, _, _>::dashmap_with_hasher(quota, RandomState::default()),
            |limiter, number| limiter.check_key(&texts[number as usize]).is_ok(),
        ),
        contender("aerorate, u64", aerorate::KeyedRateLimiter::<u64>::new(aerorate), |limiter, number| {
            limiter.check(&number).is_allowed()
        }),
        contender("aerorate, String", aerorate::KeyedRateLimiter::<String>::new(aerorate), |limiter, number| {
            limiter.check(texts[number as usize].as_str()).is_allowed()
        }),
        contender("rate-net, u64", rate_net(limit).build(), |limiter, number| limiter.check(number).is_allow()),
        contender("rate-net, 16 bytes", rate_net(limit).build(), |limiter, number| {
            limiter.check_bytes(key_of(number)).is_allow()
        }),
    ]
}

/// Returns the keys 0 to `count` - 1 as text, for peers that take a `String`.
#[must_use]
pub fn string_keys(count: u64) -> Vec<String> {
    (0..count).map(string_key).collect()
}

/// Returns the limiters without keys, ours first.
///
/// # Panics
///
/// Never: all limiters support the limit.
#[must_use]
pub fn direct(limit: TestLimit) -> [Contender<'static>; 6] {
    let subms = subms_rate_limiter::RateLimiter::new(limit.per_second.into(), limit.burst.into());
    let ratelimit = ratelimit::Ratelimiter::builder(limit.per_second.into())
        .max_tokens(limit.burst.into())
        .initial_available(limit.burst.into());
    [
        contender("tidegate, Limiter", Limiter::new(limit.rate()), |limiter, _| limiter.check().is_allowed()),
        contender("governor", RateLimiter::direct(limit.quota()), |limiter, _| limiter.check().is_ok()),
        contender("aerorate", aerorate::RateLimiter::new(aerorate_quota(limit)), |limiter, _| {
            limiter.check().is_allowed()
        }),
        contender("rate-net", rate_net(limit).build_direct(), |limiter, _| limiter.check().is_allow()),
        contender("subms-rate-limiter", subms, |limiter, _| limiter.try_acquire()),
        contender("ratelimit", ratelimit.build().expect("fits"), |limiter, _| limiter.try_wait().is_ok()),
    ]
}

fn aerorate_quota(limit: TestLimit) -> aerorate::Quota {
    aerorate::Quota::per_second(limit.per_second).allow_burst(limit.burst)
}

/// Returns rate-net's builder without its bound on keys, which costs time.
pub(crate) fn rate_net(limit: TestLimit) -> rate_net::Builder {
    rate_net::RateLimiter::builder()
        .quota(limit.per_second, Duration::from_secs(1))
        .burst(limit.burst)
        .eviction(rate_net::Eviction::default().without_capacity())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all limiters, for key numbers below 2.
    fn all(limit: TestLimit, texts: &[String]) -> Vec<Contender<'_>> {
        let ours = [tidegate(1_000, limit), keyed_limiter(1_000, limit)];
        ours.into_iter().chain(keyed(limit, texts)).chain(direct(limit)).collect()
    }

    #[test]
    fn all_limiters_deny_by_the_tight_limit_and_admit_by_the_wide_one() {
        let texts = string_keys(2);
        for contender in all(TestLimit::TIGHT, &texts) {
            assert!(contender.allows(0), "{}", contender.name);
            assert!(!contender.allows(0), "{}", contender.name);
        }
        for contender in all(TestLimit::WIDE, &texts) {
            assert!((0..10_000).all(|_| contender.allows(0)), "{}", contender.name);
        }
    }

    #[test]
    fn keyed_limiters_count_each_key_separately() {
        let texts = string_keys(2);
        for contender in keyed(TestLimit::TIGHT, &texts).into_iter().chain([tidegate(1_000, TestLimit::TIGHT)]) {
            assert!(contender.allows(0) && contender.allows(1), "{}", contender.name);
            assert!(!contender.allows(0) && !contender.allows(1), "{}", contender.name);
        }
    }
}
