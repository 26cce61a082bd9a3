//! Compares checks over HTTP with a bare actix-web handler that answers a constant, and with throttlecrab's server.
//!
//! It measures requests a second at full speed and the time to an answer at a fixed rate, also while the metrics of many rules
//! are scraped. Servers have one processor, the client has the other.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin http

#![expect(clippy::print_stdout, reason = "the program prints its figures")]

use std::{fs, path::Path, process::Command, time::Duration};

use actix_web::{App, HttpResponse, HttpServer, rt, web};
use clap::Parser;
use serde_json::json;
use tempfile::TempDir;
use tidegate_benches::{
    BenchResult,
    latency::Latencies,
    scraper::Scraper,
    servers::{
        CLIENT_CPU, CONNECTIONS, ServerArguments, ServerProcess, free_port, is_whole_over_http, log_errors, pin_client,
        tidegate_command, turns, wide_limit, write_policy,
    },
    spread::Spread,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of rules of the server whose metrics are scraped.
const RULES: usize = 10_000;
/// The time from one scrape to the next.
const SCRAPE_PERIOD: Duration = Duration::from_millis(500);
/// The number of users whose checks take turns.
const USERS: usize = 1_000;
/// The response of the bare handler, which is as long as a decision.
const CONSTANT: &str = r#"{"allowed":true,"limit":1000000,"remaining":999999,"reset_after_ms":1,"retry_after_ms":0,"delay_ms":0,"limit_id":"default/tier:free/second","policy_version":1}"#;

/// Measures checks over HTTP. Takes `wrk` (a package of Debian) and two processors.
#[derive(Debug, Parser)]
struct CommandLine {
    #[command(flatten)]
    arguments: ServerArguments,
}

fn main() -> BenchResult<()> {
    let CommandLine { arguments } = CommandLine::parse();
    if let Some(port) = arguments.bare {
        log_errors();
        return bare(port);
    }
    let folder = TempDir::new()?;
    let mut sides = vec![Side::bare()?, Side::tidegate(&arguments.binary, &folder.path().join("plain"), 0)?];
    if let Some(binary) = &arguments.throttlecrab {
        sides.push(Side::throttlecrab(binary)?);
    }
    let many_rules = Side::tidegate(&arguments.binary, &folder.path().join("rules"), RULES)?;
    pin_client()?;
    for side in &sides {
        side.wrk(folder.path(), 1)?;
    }
    let scrapes = Scrapes::measure(&many_rules, &arguments)?;
    drop(many_rules);
    let length = Duration::from_secs(arguments.seconds);
    let mut figures: Vec<Figures> = sides.iter().map(|_| Figures::default()).collect();
    for place in turns(arguments.rounds, sides.len()) {
        let (side, of) = (&sides[place], &mut figures[place]);
        of.per_second.push(side.wrk(folder.path(), arguments.seconds)?);
        of.latency.record(&side.server.timed(&side.requests, is_whole_over_http, arguments.rate, length)?);
    }
    for (side, of) in sides.iter().zip(&figures) {
        let (name, per_second) = (side.server.name, Spread::of(&of.per_second));
        println!("{name:13} {per_second:.0} requests/s; at {}/s: {}", arguments.rate, of.latency.text());
    }
    let ratio =
        |other: &Figures| Spread::by_round(&figures[1].per_second, &other.per_second, |ours, theirs| ours / theirs);
    println!("of the bare server's requests/s: {:.2} (goal: 0.92)", ratio(&figures[0]));
    if let Some(throttlecrab) = figures.get(2) {
        println!("of throttlecrab's requests/s: {:.2} (goal: 1.2)", ratio(throttlecrab));
    }
    println!("{}", figures[1].latency.added_to_bare(&figures[0].latency));
    scrapes.print()
}

/// The figures of one server, with one value for each round.
#[derive(Default)]
struct Figures {
    per_second: Vec<f64>,
    latency: Latencies,
}

/// The time to an answer of a server with many rules, alone and while its metrics are scraped.
#[derive(Default)]
struct Scrapes {
    alone: Latencies,
    scraped: Latencies,
    /// The number of bytes of each page of metrics.
    pages: Vec<usize>,
}

impl Scrapes {
    fn measure(side: &Side, arguments: &ServerArguments) -> BenchResult<Self> {
        let length = Duration::from_secs(arguments.seconds);
        let mut all = Self::default();
        for round in 0..arguments.rounds {
            // The order alternates.
            for turn in 0..2 {
                let mut scraper = Scraper::new(side.server.port, SCRAPE_PERIOD);
                let is_scraped = (round + turn) % 2 == 1;
                let scrape = || if is_scraped { scraper.poll() } else { Ok(()) };
                let Side { server, requests } = side;
                let took = server.timed_beside(requests, is_whole_over_http, arguments.rate, length, scrape)?;
                (if is_scraped { &mut all.scraped } else { &mut all.alone }).record(&took);
                // A scrape that goes on would burden the next turn.
                all.pages.extend(scraper.finish()?);
            }
        }
        Ok(all)
    }

    fn print(&self) -> BenchResult<()> {
        for (name, latency) in [("alone", &self.alone), ("scraped", &self.scraped)] {
            println!("{RULES} rules, {name}: {}", latency.text());
        }
        let added = Spread::by_round(&self.scraped.p99_us, &self.alone.p99_us, |scraped, alone| scraped - alone);
        println!("added to p99 by scrapes: {added:.0} us (goal: none)");
        let longest = self.pages.iter().max().ok_or("no scrape ended")?;
        println!("{} scrapes of {longest} bytes at most, one in {SCRAPE_PERIOD:?}", self.pages.len());
        Ok(())
    }
}

/// Runs the bare server, whose handler reads the body and answers a constant.
fn bare(port: u16) -> BenchResult<()> {
    let constant = || async { HttpResponse::Ok().content_type("application/json").body(CONSTANT) };
    let app = move || App::new().route("/v1/check", web::post().to(move |_: web::Bytes| constant()));
    let server = HttpServer::new(app).workers(1).tcp_nodelay(true).bind(("127.0.0.1", port))?;
    Ok(rt::System::new().block_on(server.run())?)
}

/// A server under load, with the requests that it gets.
struct Side {
    server: ServerProcess,
    /// The encoded requests, one for each user.
    requests: Vec<String>,
}

impl Side {
    fn bare() -> BenchResult<Self> {
        Ok(Self::new(ServerProcess::start_bare()?, "/v1/check", check))
    }

    /// Starts our server with a policy that has this many rules, none of which applies to the requests.
    fn tidegate(binary: &Path, folder: &Path, rules: usize) -> BenchResult<Self> {
        let rule = |place| json!({ "id": format!("r{place}"), "endpoint": format!("/r{place}"), "per": "user", "limits": [wide_limit()] });
        let rules: Vec<_> = (0..rules).map(rule).collect();
        fs::create_dir(folder)?;
        let (policy, port) = (write_policy(folder, &rules)?, free_port()?);
        let mut command = tidegate_command(binary, &[("--http", port)], &folder.join("data"));
        command.arg("--policy").arg(policy);
        Ok(Self::new(ServerProcess::start("tidegate", command, port)?, "/v1/check", check))
    }

    fn throttlecrab(binary: &Path) -> BenchResult<Self> {
        let body = |user: usize| json!({ "key": format!("u{user}"), "max_burst": 1_000_000, "count_per_period": 1_000_000, "period": 1 });
        Ok(Self::new(ServerProcess::start_throttlecrab(binary, "http")?, "/throttle", |user| body(user).to_string()))
    }

    fn new(server: ServerProcess, path: &str, body: impl Fn(usize) -> String) -> Self {
        let request = |user| {
            let body = body(user);
            format!(
                "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        Self { server, requests: (0..USERS).map(request).collect() }
    }

    /// Returns the requests a second that the server answers to `wrk` at full speed.
    fn wrk(&self, folder: &Path, seconds: u64) -> BenchResult<f64> {
        let script = folder.join(format!("{}.lua", self.server.name));
        let requests: Vec<String> = self.requests.iter().map(|request| format!("[==[{request}]==]")).collect();
        // A long string of Lua drops a line end at its beginning and rewrites those inside, so these are quoted separately.
        let requests = requests.join(",\n").replace("\r\n", "]==]..\"\\r\\n\"..[==[");
        fs::write(
            &script,
            format!(
                "local requests = {{\n{requests}\n}}\nlocal next = 0\nrequest = function()\n  next = next % {USERS} + 1\n  return requests[next]\nend\n"
            ),
        )?;
        let output = Command::new("taskset")
            .args([
                "-c",
                &CLIENT_CPU.to_string(),
                "wrk",
                "-t1",
                &format!("-c{CONNECTIONS}"),
                &format!("-d{seconds}s"),
                "-s",
            ])
            .arg(script)
            .arg(format!("http://127.0.0.1:{}/", self.server.port))
            .output()?;
        let report = String::from_utf8_lossy(&output.stdout);
        if report.contains("Non-2xx") || report.contains("Socket errors") {
            return Err(format!("{}: not all requests were answered: {report}", self.server.name).into());
        }
        let line = report.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        Ok(line.ok_or_else(|| format!("wrk: {report}{}", String::from_utf8_lossy(&output.stderr)))?.trim().parse()?)
    }
}

fn check(user: usize) -> String {
    json!({ "identities": [{ "kind": "user", "value": format!("u{user}") }] }).to_string()
}
