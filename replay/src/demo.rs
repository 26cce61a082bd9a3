//! Generator of a demo log: one hour of traffic to replay where there is no log.
//!
//! The same seed gives the same bytes. Most clients are well behaved, some busier than others. Three crawlers never pause,
//! one script searches in bursts, one client copies the blog, and one guesses passwords for five minutes.

use crate::random::Random;

/// A policy that denies some of the demo's traffic.
pub const POLICY: &str = include_str!("demo.toml");

/// Default seed of the log.
pub const DEFAULT_SEED: u64 = 7;

/// Length of the log in seconds.
const HOUR: u64 = 3_600;

/// Longest duration of a request in milliseconds. A server writes a line when a request ends, so lines of slow requests are
/// late.
const SLOWEST_MS: u64 = 3_000;

const VISITORS: u64 = 400;
const VISITS: u64 = 11_500;

/// Date and hour of the log.
const START: &str = "05/Jan/2026:09";

const PAGES: [&str; 8] =
    ["/", "/docs", "/docs/quickstart", "/pricing", "/blog", "/blog/tides", "/assets/app.css", "/assets/app.js"];
const USERS: [&str; 5] = ["ada", "grace", "edsger", "barbara", "donald"];
const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const CRAWLER: &str = "ExampleBot/2.1 (+https://bot.example/about)";
const SCRIPT: &str = "python-requests/2.32";

/// Generates about 20,000 lines in the combined format.
#[must_use]
pub fn log(seed: u64) -> String {
    let mut traffic = Traffic { random: Random(seed), lines: Vec::new() };
    traffic.visitors();
    for crawler in 0..3 {
        traffic.crawler(crawler);
    }
    traffic.searches();
    traffic.copies();
    traffic.guesses();
    traffic.lines.sort();
    let lines: Vec<String> = traffic.lines.into_iter().map(|(_ended_ms, line)| line).collect();
    lines.concat()
}

struct Traffic {
    random: Random,
    /// The time at which each request ended, in milliseconds of the hour, and its line.
    lines: Vec<(u64, String)>,
}

impl Traffic {
    fn visitors(&mut self) {
        // Zipf's law: the n-th visitor sends 1/n as many requests as the first.
        let mut reach = 0;
        let up_to: Vec<u64> = (1..=VISITORS)
            .map(|rank| {
                reach += 1_000_000 / (rank + 4);
                reach
            })
            .collect();
        for _ in 0..VISITS {
            let drawn = self.random.below(reach);
            let visitor = up_to.partition_point(|end| *end <= drawn);
            let address = format!("203.0.113.{}", visitor % 250 + 1);
            let address = if visitor < 250 { address } else { format!("2001:db8:0:{visitor:x}::1") };
            let user = if visitor < USERS.len() * 2 && visitor.is_multiple_of(2) { USERS[visitor / 2] } else { "-" };
            let page = PAGES[self.random.below(PAGES.len() as u64) as usize];
            let second = self.random.below(HOUR);
            self.line(second, &address, user, "GET", page, 200, BROWSER);
        }
    }

    fn crawler(&mut self, number: u64) {
        for page in 0..1_000 {
            let path = format!("/catalog/{}", page * 3 + number);
            self.line(page * HOUR / 1_000, &format!("198.51.100.{}", number + 10), "-", "GET", &path, 200, CRAWLER);
        }
    }

    /// Adds bursts of eight requests in a second, every fifteen seconds.
    fn searches(&mut self) {
        for burst in 0..HOUR / 15 {
            for query in 0..8 {
                let path = format!("/api/search?q=tide+{burst}-{query}");
                self.line(burst * 15, "198.51.100.77", "reporter", "GET", &path, 200, SCRIPT);
            }
        }
    }

    /// Adds three pages a second, for eight minutes.
    fn copies(&mut self) {
        for page in 0..8 * 60 * 3 {
            let second = 41 * 60 + page / 3;
            self.line(second, "198.51.100.200", "-", "GET", &format!("/blog/{page}"), 200, SCRIPT);
        }
    }

    fn guesses(&mut self) {
        for _ in 0..2_100 {
            let second = 25 * 60 + self.random.below(5 * 60);
            self.line(second, "192.0.2.66", "-", "POST", "/login", 401, SCRIPT);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a line")]
    fn line(&mut self, second: u64, address: &str, user: &str, method: &str, path: &str, status: u16, agent: &str) {
        let (minutes, seconds) = (second / 60, second % 60);
        let bytes = 200 + self.random.below(40_000);
        let line = format!(
            "{address} - {user} [{START}:{minutes:02}:{seconds:02} +0000] \"{method} {path} HTTP/1.1\" {status} {bytes} \"-\" \"{agent}\"\n"
        );
        // Most requests are quick.
        let took_ms = self.random.below(SLOWEST_MS).min(self.random.below(SLOWEST_MS)) / 4;
        let took_ms = if self.random.below(50) == 0 { SLOWEST_MS } else { took_ms };
        let ended_ms = second * 1_000 + self.random.below(1_000) + took_ms;
        self.lines.push((ended_ms, line));
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Snapshot, formats::Format};

    use super::*;
    use crate::{Replay, ReplayOptions};

    #[test]
    fn the_demo_has_something_to_show() {
        assert_eq!(log(1), log(1));
        assert_ne!(log(1), log(2));
        for seed in [0, DEFAULT_SEED, u64::MAX] {
            let policy = Snapshot::parse(POLICY, Format::Toml).expect("the demo's policy is right");
            let mut replay = Replay::new(policy, &ReplayOptions::default()).expect("few limits");
            replay.read(log(seed).as_bytes(), "demo", |_| ()).expect("every line can be read");
            let report = replay.finish(0);
            assert!((18_000..22_000).contains(&report.requests), "{} requests", report.requests);
            assert_eq!((report.unreadable, report.late), (0, 0));
            assert!(report.denied > report.requests / 50 && report.denied < report.requests / 4, "{}", report.denied);
            assert!(report.clients.iter().filter(|client| client.denied > 0).count() >= 3);
            assert!(report.limits.iter().all(|limit| limit.checked > 0));
        }
    }
}
