//! Arrival patterns of synthetic traffic: the times of one client's requests.
//!
//! Each pattern is a rate over time. The n-th request arrives when the integral of the rate reaches n. So a pattern needs no
//! clock and no steps, and errors do not accumulate.

use serde::{Deserialize, Serialize};
use tidegate::time::{Nanos, parse_period};

use crate::random::Random;

/// Most retries of a denied request.
pub const TRIES_MAX: u8 = 10;

/// Pattern of a client's requests over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Pattern"))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ArrivalPattern {
    /// Evenly spaced requests.
    #[default]
    Steady,
    /// Requests at random, independent of each other.
    Poisson,
    /// Several requests at once, then evenly spaced ones.
    Burst {
        /// Requests of the burst.
        requests: u64,
    },
    /// A rate that grows or falls.
    Ramp {
        /// The rate at the end; `rate` is the one at the start.
        to: u64,
    },
    /// Evenly spaced requests, with pauses.
    OnOff {
        /// Length of the time with requests.
        on: String,
        /// Length of a pause.
        off: String,
    },
    /// A rate that oscillates between zero and twice the given one.
    Waves {
        /// Time from crest to crest.
        period: String,
    },
    /// Evenly spaced requests that are retried when they are denied, with a wait that doubles each time.
    Retry {
        /// Wait before the first retry.
        back_off: String,
        /// Most retries of a request.
        tries: u8,
    },
}

/// A pattern with parsed numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ParsedPattern {
    Steady,
    Poisson,
    Burst(u64),
    Ramp { to: f64 },
    OnOff { on: Nanos, off: Nanos },
    Waves { period: f64 },
    Retry { back_off: Nanos, tries: u8 },
}

/// Schedule of the requests of a row's clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) shape: ParsedPattern,
    /// Requests per `per`.
    pub(crate) rate: u64,
    pub(crate) per: Nanos,
    pub(crate) length: Nanos,
    /// Number of clients, whose phases are spread evenly.
    pub(crate) clients: u32,
}

/// Arrivals of one client: its position in the schedule.
#[derive(Clone, Debug)]
pub(crate) struct ClientArrivals {
    /// Index among the clients of the row.
    client: u32,
    /// Requests so far.
    count: u64,
    last: Nanos,
    random: Random,
}

impl ArrivalPattern {
    /// Parses the numbers of the pattern.
    pub(crate) fn shape(&self) -> Result<ParsedPattern, String> {
        let period = |name: &str, text: &str| match parse_period(text) {
            Ok(period) => Ok(period.as_nanos() as Nanos),
            Err(why) => Err(format!("{name}: {why}")),
        };
        Ok(match self {
            Self::Steady => ParsedPattern::Steady,
            Self::Poisson => ParsedPattern::Poisson,
            Self::Burst { requests } => ParsedPattern::Burst(*requests),
            Self::Ramp { to } => ParsedPattern::Ramp { to: *to as f64 },
            Self::OnOff { on, off } => ParsedPattern::OnOff { on: period("on", on)?, off: period("off", off)? },
            Self::Waves { period: text } => ParsedPattern::Waves { period: period("period", text)? as f64 },
            Self::Retry { back_off, tries } if (1..=TRIES_MAX).contains(tries) => {
                ParsedPattern::Retry { back_off: period("back_off", back_off)?, tries: *tries }
            }
            Self::Retry { .. } => return Err(format!("tries: write a number from 1 to {TRIES_MAX}")),
        })
    }
}

impl Schedule {
    /// Returns the expected number of requests of one client.
    pub(crate) fn expected(&self) -> f64 {
        let steady = self.length as f64 * self.rate as f64 / self.per as f64;
        match self.shape {
            ParsedPattern::Steady
            | ParsedPattern::Poisson
            | ParsedPattern::Waves { .. }
            | ParsedPattern::Retry { .. } => steady,
            ParsedPattern::Burst(requests) => steady + requests as f64,
            ParsedPattern::Ramp { to } => steady * f64::midpoint(1.0, to / self.rate as f64),
            ParsedPattern::OnOff { on, off } => {
                steady * (on as f64 / (on as f64 + off as f64)).max(on as f64 / self.length as f64).min(1.0)
            }
        }
    }

    /// Returns the time of the n-th request, counted from 0, after the start.
    fn instant(&self, client: u32, count: u64) -> Nanos {
        let even = |count: u64| {
            // A client's phase is a fraction of the gap between requests, so that clients are not synchronized.
            let (clients, client) = (u128::from(self.clients.max(1)), u128::from(client));
            let phased = (u128::from(count) * clients + client) * u128::from(self.per);
            (phased / (u128::from(self.rate) * clients)) as Nanos
        };
        let phased = count as f64 + f64::from(client) / f64::from(self.clients.max(1));
        // Requests per nanosecond.
        let rate = self.rate as f64 / self.per as f64;
        match self.shape {
            ParsedPattern::Steady | ParsedPattern::Poisson | ParsedPattern::Retry { .. } => even(count),
            ParsedPattern::Burst(requests) if count < requests => 0,
            // The burst includes the first one.
            ParsedPattern::Burst(requests) => even(count - requests + u64::from(requests > 0)),
            ParsedPattern::Ramp { to } => {
                // The integral of a rate that grows linearly is rate x t + slope x t^2 / 2.
                let slope = (to / self.per as f64 - rate) / self.length as f64;
                let root = (rate * rate + 2.0 * slope * phased).max(0.0).sqrt();
                nanos(2.0 * phased / (rate + root))
            }
            ParsedPattern::OnOff { on, off } => {
                let busy = even(count);
                (busy / on).saturating_mul(on.saturating_add(off)).saturating_add(busy % on)
            }
            ParsedPattern::Waves { period } => {
                let of_wave = rate * period;
                let (waves, within) = ((phased / of_wave).floor(), phased % of_wave);
                // From zero to twice the rate in half a wave, and back symmetrically.
                let climb = |requests: f64| (requests * period / 2.0 / rate).sqrt();
                let within = if within < of_wave / 2.0 { climb(within) } else { period - climb(of_wave - within) };
                nanos(waves * period + within)
            }
        }
    }
}

impl ClientArrivals {
    pub(crate) fn new(seed: u64, row: usize, client: u32) -> Self {
        // Any mix that gives each client its own numbers.
        let mut random = Random(seed ^ Random((row as u64) << 32 | u64::from(client)).next());
        random.next();
        Self { client, count: 0, last: 0, random }
    }

    /// Returns the time of the next request after the start; `None` at the end.
    pub(crate) fn next(&mut self, schedule: &Schedule) -> Option<Nanos> {
        let instant = if let ParsedPattern::Poisson = schedule.shape {
            // The gaps of a Poisson process are exponential.
            let gap = -(1.0 - self.random.fraction()).ln() * schedule.per as f64 / schedule.rate as f64;
            self.last.saturating_add(nanos(gap))
        } else {
            schedule.instant(self.client, self.count).max(self.last)
        };
        self.count += 1;
        self.last = instant;
        (instant < schedule.length).then_some(instant)
    }
}

/// Converts to nanoseconds; NaN and values that are too large become the last instant.
#[expect(clippy::cast_sign_loss, reason = "it is not below zero, and the conversion stops at the ends")]
fn nanos(instant: f64) -> Nanos {
    if instant.is_nan() { Nanos::MAX } else { instant as Nanos }
}

#[cfg(test)]
mod tests {
    use tidegate::time::SECOND_NS;

    use super::*;

    fn schedule(pattern: &ArrivalPattern, rate: u64, seconds: u64, clients: u32) -> Schedule {
        let shape = pattern.shape().expect("a good pattern");
        Schedule { shape, rate, per: SECOND_NS, length: seconds * SECOND_NS, clients }
    }

    /// Returns the requests of each second.
    fn seconds(schedule: &Schedule, client: u32) -> Vec<u64> {
        let mut arrivals = ClientArrivals::new(7, 0, client);
        let mut counts = vec![0; (schedule.length / SECOND_NS) as usize];
        let mut last = 0;
        while let Some(at) = arrivals.next(schedule) {
            assert!(at >= last, "{at} after {last}");
            counts[(at / SECOND_NS) as usize] += 1;
            last = at;
        }
        counts
    }

    #[test]
    fn shapes_are_as_their_names_say() {
        let text = |text: &str| text.to_owned();
        let of = |pattern: &ArrivalPattern, rate, length| seconds(&schedule(pattern, rate, length, 1), 0);
        assert_eq!(of(&ArrivalPattern::Steady, 3, 4), [3, 3, 3, 3]);
        assert_eq!(of(&ArrivalPattern::Burst { requests: 10 }, 2, 3), [11, 2, 2]);
        assert_eq!(of(&ArrivalPattern::OnOff { on: text("1s"), off: text("2s") }, 5, 6), [5, 0, 0, 5, 0, 0]);
        // The mean rates of the seconds of a ramp from 0.. to 10 in ten of them.
        let ramp = of(&ArrivalPattern::Ramp { to: 101 }, 1, 10);
        assert_eq!(ramp.iter().sum::<u64>(), 510);
        assert!(ramp.windows(2).all(|pair| (8..=12).contains(&(pair[1] - pair[0]))), "{ramp:?}");
        let down = of(&ArrivalPattern::Ramp { to: 0 }, 100, 10);
        assert!(down.is_sorted_by(|a, b| a > b) && down.iter().sum::<u64>().abs_diff(500) <= 1, "{down:?}");
        let waves = of(&ArrivalPattern::Waves { period: text("4s") }, 10, 8);
        assert_eq!(waves, [5, 15, 15, 5, 5, 15, 15, 5]);
    }

    #[test]
    fn poisson_requests_come_at_their_rate_and_by_chance() {
        let schedule = schedule(&ArrivalPattern::Poisson, 50, 1_000, 2);
        let counts = seconds(&schedule, 0);
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let variance = counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        // Its variance is its mean; both within four deviations.
        assert!((mean - 50.0).abs() < 0.9 && (variance - 50.0).abs() < 9.0, "{mean} {variance}");
        assert_ne!(counts, seconds(&schedule, 1), "each client has chances of its own");
    }

    #[test]
    fn clients_do_not_come_in_step() {
        let schedule = schedule(&ArrivalPattern::Steady, 1, 10, 4);
        let first: Vec<_> = (0..4).map(|client| ClientArrivals::new(1, 0, client).next(&schedule)).collect();
        assert_eq!(first, [0, 250, 500, 750].map(|ms| Some(ms * 1_000_000)));
    }

    #[test]
    fn what_is_expected_is_about_what_comes() {
        let text = |text: &str| text.to_owned();
        for pattern in [
            ArrivalPattern::Steady,
            ArrivalPattern::Poisson,
            ArrivalPattern::Burst { requests: 500 },
            ArrivalPattern::Ramp { to: 90 },
            ArrivalPattern::Ramp { to: 0 },
            ArrivalPattern::OnOff { on: text("10s"), off: text("5s") },
            ArrivalPattern::OnOff { on: text("200s"), off: text("5s") },
            ArrivalPattern::Waves { period: text("7s") },
        ] {
            let schedule = schedule(&pattern, 40, 100, 1);
            let came = seconds(&schedule, 0).iter().sum::<u64>() as f64;
            assert!((came / schedule.expected() - 1.0).abs() < 0.06, "{pattern:?}: {came} of {}", schedule.expected());
        }
    }

    #[test]
    fn wrong_numbers_are_named() {
        let text = |text: &str| text.to_owned();
        for (pattern, named) in [
            (ArrivalPattern::OnOff { on: text("0s"), off: text("1s") }, "on: "),
            (ArrivalPattern::OnOff { on: text("1s"), off: text("x") }, "off: "),
            (ArrivalPattern::Waves { period: text("1") }, "period: "),
            (ArrivalPattern::Retry { back_off: text("1y"), tries: 3 }, "back_off: "),
            (ArrivalPattern::Retry { back_off: text("1s"), tries: 0 }, "tries: "),
            (ArrivalPattern::Retry { back_off: text("1s"), tries: TRIES_MAX + 1 }, "tries: "),
        ] {
            let why = pattern.shape().expect_err("wrong");
            assert!(why.starts_with(named), "{why}");
        }
    }
}
