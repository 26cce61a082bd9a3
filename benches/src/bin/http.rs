//! Checks over HTTP, beside a bare actix-web handler that answers a constant, and throttlecrab's server: requests a second at
//! full speed, and the time to an answer at a fixed rate, also while the metrics of many rules are scraped. Servers have one
//! processor, the client has the other.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin http

#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::{fs, path::Path, process::Command, time::Duration};

use actix_web::{App, HttpResponse, HttpServer, rt, web};
use clap::Parser;
use serde_json::json;
use tempfile::TempDir;
use tidegate_benches::{
    histogram::Histogram,
    scraper::Scraper,
    servers::{
        Arguments, CLIENT_CPU, CONNECTIONS, Outcome, Server, free_port, is_whole_over_http, log_errors, pin_client,
        pinned, spread, turns,
    },
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rules of the server whose metrics are scraped, and how often they are.
const RULES: usize = 10_000;
const SCRAPE_PERIOD: Duration = Duration::from_millis(500);
/// Clients that are counted, one after the other.
const USERS: usize = 1_000;
/// What the bare handler answers: as long as a decision.
const CONSTANT: &str = r#"{"allowed":true,"limit":1000000,"remaining":999999,"reset_after_ms":1,"retry_after_ms":0,"delay_ms":0,"limit_id":"default/tier:free/second","policy_version":1}"#;

/// Measures checks over HTTP. Takes `wrk` (a package of Debian) and two processors.
#[derive(Debug, Parser)]
struct Call {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> Outcome<()> {
    let Call { arguments } = Call::parse();
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
    let length = Duration::from_secs(arguments.seconds);
    let (mut alone, mut beside, mut pages) = (Figures::default(), Figures::default(), Vec::new());
    for round in 0..arguments.rounds {
        // The order alternates.
        for turn in 0..2 {
            let mut scraper = Scraper::new(many_rules.server.port, SCRAPE_PERIOD);
            let is_scraped = (round + turn) % 2 == 1;
            let scrape = || if is_scraped { scraper.go_on() } else { Ok(()) };
            let Side { server, requests } = &many_rules;
            let took = server.timed_beside(requests, is_whole_over_http, arguments.rate, length, scrape)?;
            (if is_scraped { &mut beside } else { &mut alone }).record(&took);
            // It would burden the next turn.
            pages.extend(scraper.finish()?);
        }
    }
    drop(many_rules);
    let mut figures: Vec<Figures> = sides.iter().map(|_| Figures::default()).collect();
    for place in turns(arguments.rounds, sides.len()) {
        figures[place].per_second.push(sides[place].wrk(folder.path(), arguments.seconds)?);
        let Side { server, requests } = &sides[place];
        figures[place].record(&server.timed(requests, is_whole_over_http, arguments.rate, length)?);
    }
    for (side, of) in sides.iter().zip(&figures) {
        println!(
            "{:13} {} requests/s; at {}/s: p50 {} us, p99 {} us",
            side.server.name,
            spread(&of.per_second, 0),
            arguments.rate,
            spread(&of.p50_us, 0),
            spread(&of.p99_us, 0)
        );
    }
    let ratio = |other: usize| -> Vec<f64> {
        figures[1].per_second.iter().zip(&figures[other].per_second).map(|(ours, theirs)| ours / theirs).collect()
    };
    let added = |of: fn(&Figures) -> &Vec<f64>| -> Vec<f64> {
        of(&figures[1]).iter().zip(of(&figures[0])).map(|(ours, bare)| ours - bare).collect()
    };
    println!("of the bare server's requests/s: {} (goal: 0.92)", spread(&ratio(0), 2));
    if sides.len() > 2 {
        println!("of throttlecrab's requests/s: {} (goal: 1.2)", spread(&ratio(2), 2));
    }
    println!("added to the bare server's p50: {} us (goal: under 200)", spread(&added(|of| &of.p50_us), 0));
    println!("added to the bare server's p99: {} us (goal: under 1000)", spread(&added(|of| &of.p99_us), 0));
    for (name, of) in [("alone", &alone), ("scraped", &beside)] {
        println!("{RULES} rules, {name}: p50 {} us, p99 {} us", spread(&of.p50_us, 0), spread(&of.p99_us, 0));
    }
    let more = beside.p99_us.iter().zip(&alone.p99_us).map(|(beside, alone)| beside - alone);
    println!("added to p99 by scrapes: {} us (goal: none)", spread(&more.collect::<Vec<_>>(), 0));
    let longest = pages.iter().max().ok_or("no scrape came to its end")?;
    println!("{} scrapes of {longest} bytes at most, one in {SCRAPE_PERIOD:?}", pages.len());
    Ok(())
}

/// One figure for each round.
#[derive(Default)]
struct Figures {
    per_second: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
}

impl Figures {
    /// Adds how long answers took in a round.
    fn record(&mut self, took: &Histogram) {
        self.p50_us.push(took.quantile(0.5) as f64 / 1e3);
        self.p99_us.push(took.quantile(0.99) as f64 / 1e3);
    }
}

/// A handler that reads the body, and answers a constant.
fn bare(port: u16) -> Outcome<()> {
    let constant = || async { HttpResponse::Ok().content_type("application/json").body(CONSTANT) };
    let app = move || App::new().route("/v1/check", web::post().to(move |_: web::Bytes| constant()));
    let server = HttpServer::new(app).workers(1).tcp_nodelay(true).bind(("127.0.0.1", port))?;
    Ok(rt::System::new().block_on(server.run())?)
}

/// A server that is asked.
struct Side {
    server: Server,
    /// Requests as they go over the wire, one for each user.
    requests: Vec<String>,
}

impl Side {
    fn bare() -> Outcome<Self> {
        let port = free_port()?;
        let mut command = pinned(&std::env::current_exe()?);
        command.args(["--bare", &port.to_string()]);
        Self::start("bare", command, port, "/v1/check", check)
    }

    /// Starts a server whose policy has this many rules, none of which is about the requests.
    fn tidegate(binary: &Path, folder: &Path, rules: usize) -> Outcome<Self> {
        let port = free_port()?;
        let limit = json!({ "id": "second", "algorithm": "token_bucket", "limit": 1_000_000, "period": "1s" });
        let tiers = json!([{ "id": "free", "limits": [limit] }]);
        let rule = |place| json!({ "id": format!("r{place}"), "endpoint": format!("/r{place}"), "per": "user", "limits": [limit] });
        let rules: Vec<_> = (0..rules).map(rule).collect();
        let policy =
            json!({ "domains": { "default": { "defaults": { "user": "free" }, "tiers": tiers, "rules": rules } } });
        fs::create_dir(folder)?;
        let file = folder.join("policy.json");
        fs::write(&file, policy.to_string())?;
        let mut command = pinned(binary);
        command.args([
            "serve",
            "--admin",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--workers",
            "1",
            "--log",
            "error",
            "--http",
        ]);
        command.arg(format!("127.0.0.1:{port}")).arg("--policy").arg(file).arg("--data").arg(folder.join("data"));
        Self::start("tidegate", command, port, "/v1/check", check)
    }

    fn throttlecrab(binary: &Path) -> Outcome<Self> {
        let port = free_port()?;
        let mut command = pinned(binary);
        command.args(["--http", "--http-port", &port.to_string(), "--log-level", "error"]);
        let body = |user: usize| json!({ "key": format!("u{user}"), "max_burst": 1_000_000, "count_per_period": 1_000_000, "period": 1 });
        Self::start("throttlecrab", command, port, "/throttle", |user| body(user).to_string())
    }

    fn start(
        name: &'static str,
        command: Command,
        port: u16,
        path: &str,
        body: impl Fn(usize) -> String,
    ) -> Outcome<Self> {
        let request = |user| {
            let body = body(user);
            format!(
                "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let requests = (0..USERS).map(request).collect();
        Ok(Self { server: Server::start(name, command, port)?, requests })
    }

    /// Requests a second, as many as there can be.
    fn wrk(&self, folder: &Path, seconds: u64) -> Outcome<f64> {
        let script = folder.join(format!("{}.lua", self.server.name));
        let requests: Vec<String> = self.requests.iter().map(|request| format!("[==[{request}]==]")).collect();
        // A long string of Lua begins after its first line end, and may hold others.
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
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("Non-2xx") || said.contains("Socket errors") {
            return Err(format!("{}: not all were answered: {said}", self.server.name).into());
        }
        let line = said.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        Ok(line.ok_or_else(|| format!("wrk: {said}{}", String::from_utf8_lossy(&output.stderr)))?.trim().parse()?)
    }
}

fn check(user: usize) -> String {
    json!({ "identities": [{ "kind": "user", "value": format!("u{user}") }] }).to_string()
}
