//! Ours and the others: how each is made for the same limit, and asked for the key of a number.

use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use rapidhash::fast::RandomState;
use tidegate::{
    Engine, KeyedLimiter, Limiter, Rate,
    clock::{Clock, SystemClock},
};

use crate::{
    LIMIT_ID,
    comparison::{Ask, Contender},
    engine, key_of, text_of,
};

/// A limit, as all of them can have it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limit {
    /// Tokens a second.
    pub per_second: u32,
    /// Tokens at once.
    pub burst: u32,
}

impl Limit {
    /// Lets everything through that these processors can ask for: 10^9 a second, and 10^6 at once.
    pub const WIDE: Self = Self { per_second: 1_000_000_000, burst: 1_000_000 };

    /// Lets next to nothing through: one a second.
    pub const TIGHT: Self = Self { per_second: 1, burst: 1 };

    /// As governor has it.
    ///
    /// # Panics
    ///
    /// Where a number is 0.
    #[must_use]
    pub fn quota(self) -> Quota {
        let number = |number: u32| std::num::NonZeroU32::new(number).expect("not 0");
        Quota::per_second(number(self.per_second)).allow_burst(number(self.burst))
    }

    pub(crate) fn rate(self) -> Rate {
        Rate::per_second(self.per_second.into()).burst(self.burst.into())
    }
}

/// A limiter, and how it is asked.
struct By<L, F>(L, F);

impl<L: Sync, F: Fn(&L, u64) -> bool + Sync> Ask for By<L, F> {
    #[inline]
    fn asker(&self) -> impl FnMut(u64) -> bool {
        |number| (self.1)(&self.0, number)
    }
}

pub(crate) fn by<'a, L: Sync + 'a>(
    name: &'static str,
    limiter: L,
    ask: impl Fn(&L, u64) -> bool + Sync + 'a,
) -> Contender<'a> {
    Contender::new(name, By(limiter, ask))
}

/// An engine, asked by a handle of each thread, with keys of 16 bytes made on the stack.
pub struct ByHandle<C: Clock = SystemClock>(pub Engine<C>);

impl<C: Clock> Ask for ByHandle<C> {
    #[inline]
    fn asker(&self) -> impl FnMut(u64) -> bool {
        let mut handle = self.0.handle(LIMIT_ID, "k").expect("is there");
        move |number| handle.check(key_of(number), 1).expect("valid").is_allowed()
    }
}

impl<C: Clock + std::fmt::Debug> std::fmt::Debug for ByHandle<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ByHandle").field(&self.0).finish()
    }
}

/// Ours, with room for so many keys.
#[must_use]
pub fn tidegate(max_keys: usize, limit: Limit) -> Contender<'static> {
    Contender::new("tidegate", ByHandle(engine(max_keys, limit.per_second.into(), limit.burst.into())))
}

/// Ours without a policy: what stands in code where governor's keyed limiter stood.
#[must_use]
pub fn keyed_limiter(max_keys: usize, limit: Limit) -> Contender<'static> {
    let limiter = KeyedLimiter::with_max_keys(limit.rate(), max_keys);
    by("tidegate, KeyedLimiter", limiter, |limiter, number| limiter.check(key_of(number)).is_allowed())
}

/// The keyed peers; those that want a `String` find that of a key in `texts`.
#[must_use]
pub fn keyed(limit: Limit, texts: &[String]) -> [Contender<'_>; 8] {
    let quota = limit.quota();
    let aerorate = aerorate_quota(limit);
    [
        by("governor, u64", DefaultKeyedRateLimiter::<u64>::keyed(quota), |limiter, number| {
            limiter.check_key(&number).is_ok()
        }),
        by("governor, String", DefaultKeyedRateLimiter::<String>::keyed(quota), |limiter, number| {
            limiter.check_key(&texts[number as usize]).is_ok()
        }),
        by(
            "governor, u64, rapidhash",
            RateLimiter::<u64, _, _>::dashmap_with_hasher(quota, RandomState::default()),
            |limiter, number| limiter.check_key(&number).is_ok(),
        ),
        by(
            "governor, String, rapidhash",
            RateLimiter::<String, _, _>::dashmap_with_hasher(quota, RandomState::default()),
            |limiter, number| limiter.check_key(&texts[number as usize]).is_ok(),
        ),
        by("aerorate, u64", aerorate::KeyedRateLimiter::<u64>::new(aerorate), |limiter, number| {
            limiter.check(&number).is_allowed()
        }),
        by("aerorate, String", aerorate::KeyedRateLimiter::<String>::new(aerorate), |limiter, number| {
            limiter.check(texts[number as usize].as_str()).is_allowed()
        }),
        by("rate-net, u64", rate_net(limit).build(), |limiter, number| limiter.check(number).is_allow()),
        by("rate-net, 16 bytes", rate_net(limit).build(), |limiter, number| {
            limiter.check_bytes(key_of(number)).is_allow()
        }),
    ]
}

/// Keys 0 to `count` - 1 as text, for peers that want a `String`.
#[must_use]
pub fn texts(count: u64) -> Vec<String> {
    (0..count).map(text_of).collect()
}

/// Limiters of one thing: ours first.
///
/// # Panics
///
/// Never: all of them can have such a limit.
#[must_use]
pub fn direct(limit: Limit) -> [Contender<'static>; 6] {
    let subms = subms_rate_limiter::RateLimiter::new(limit.per_second.into(), limit.burst.into());
    let ratelimit = ratelimit::Ratelimiter::builder(limit.per_second.into())
        .max_tokens(limit.burst.into())
        .initial_available(limit.burst.into());
    [
        by("tidegate, Limiter", Limiter::new(limit.rate()), |limiter, _| limiter.check().is_allowed()),
        by("governor", RateLimiter::direct(limit.quota()), |limiter, _| limiter.check().is_ok()),
        by("aerorate", aerorate::RateLimiter::new(aerorate_quota(limit)), |limiter, _| limiter.check().is_allowed()),
        by("rate-net", rate_net(limit).build_direct(), |limiter, _| limiter.check().is_allow()),
        by("subms-rate-limiter", subms, |limiter, _| limiter.try_acquire()),
        by("ratelimit", ratelimit.build().expect("fits"), |limiter, _| limiter.try_wait().is_ok()),
    ]
}

fn aerorate_quota(limit: Limit) -> aerorate::Quota {
    aerorate::Quota::per_second(limit.per_second).allow_burst(limit.burst)
}

/// Without its bound on keys, which costs it time.
pub(crate) fn rate_net(limit: Limit) -> rate_net::Builder {
    rate_net::RateLimiter::builder()
        .quota(limit.per_second, Duration::from_secs(1))
        .burst(limit.burst)
        .eviction(rate_net::Eviction::default().without_capacity())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of them, with key numbers below 2.
    fn all(limit: Limit, texts: &[String]) -> Vec<Contender<'_>> {
        let ours = [tidegate(1_000, limit), keyed_limiter(1_000, limit)];
        ours.into_iter().chain(keyed(limit, texts)).chain(direct(limit)).collect()
    }

    #[test]
    fn a_row_of_denials_denies_and_a_row_of_checks_that_pass_lets_them_pass() {
        let texts = texts(2);
        for contender in all(Limit::TIGHT, &texts) {
            assert!(contender.allows(0), "{}", contender.name);
            assert!(!contender.allows(0), "{}", contender.name);
        }
        for contender in all(Limit::WIDE, &texts) {
            assert!((0..10_000).all(|_| contender.allows(0)), "{}", contender.name);
        }
    }

    #[test]
    fn keyed_ones_count_each_key_by_itself() {
        let texts = texts(2);
        for contender in keyed(Limit::TIGHT, &texts).into_iter().chain([tidegate(1_000, Limit::TIGHT)]) {
            assert!(contender.allows(0) && contender.allows(1), "{}", contender.name);
            assert!(!contender.allows(0) && !contender.allows(1), "{}", contender.name);
        }
    }
}
