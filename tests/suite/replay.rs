//! `tidegate replay` and plain `tidegate`, as a script or a person runs them.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::Stdio,
};

use flate2::{Compression, write::GzEncoder};
use tempfile::TempDir;

use crate::support::{Run, command, tidegate, tidegate_reading};

const POLICY: &str = r#"
[domains.default]
defaults = { ip = "free" }
[[domains.default.tiers]]
id = "free"
limits = [{ id = "minute", algorithm = "token_bucket", limit = 2, period = "1m" }]
"#;

/// A folder with a policy and files of the test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        folder.put("policy.toml", POLICY);
        folder
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("room for a file");
        path
    }

    fn replay(&self, log: &Path, more: &[&str]) -> Run {
        let policy = self.0.path().join("policy.toml").display().to_string();
        let log = log.display().to_string();
        tidegate(["replay", &log, "--policy", &policy].iter().chain(more))
    }
}

/// Lines of two clients, a second apart.
fn log(lines: u64) -> String {
    let line = |n: u64| {
        let (minute, second, client) = (n / 60, n % 60, n % 2);
        format!("192.0.2.{client} - - [05/Jan/2026:09:{minute:02}:{second:02} +0000] \"GET /{n} HTTP/1.1\" 200 5\n")
    };
    (0..lines).map(line).collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes()).and_then(|()| gzip.finish()).expect("in memory")
}

fn json(run: &Run) -> serde_json::Value {
    serde_json::from_str(&run.stdout).expect(&run.stderr)
}

/// Asserts that the run failed without a result, and that a line of standard error names the file and the reason.
fn assert_refused(run: &Run, named: &str, why: &str) {
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stdout.is_empty(), "{run:?}");
    assert!(run.stderr.contains(named) && run.stderr.contains(why), "{named}, {why}: {run:?}");
    assert!(!run.stderr.contains("panicked"), "{run:?}");
}

#[test]
fn help_has_examples_and_the_field_names() {
    assert!(tidegate(["--help"]).stdout.contains("replay"));
    let help = tidegate(["replay", "--help"]);
    assert_eq!(help.status, Some(0));
    for text in ["Examples:", "time_iso8601", "--demo", "TIDEGATE_POLICY", "[default: 1h]"] {
        assert!(help.stdout.contains(text), "{text}");
    }
    // Clap breaks lines that are longer than a screen, and with them the tables.
    let examples = help.stdout.lines().skip_while(|line| *line != "Examples:");
    assert!(examples.clone().count() > 50);
    assert_eq!(examples.filter(|line| line.chars().count() > 80).collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(tidegate(["policy", "check", "--help"]).stdout.contains("Exit status"));
}

#[test]
fn the_demo_is_the_same_every_time_and_another_with_another_seed() {
    let demo = || tidegate(["replay", "--demo", "--output", "json"]);
    let first = demo();
    assert_eq!(first.status, Some(0), "{first:?}");
    assert!(json(&first)["denied"].as_u64() > Some(100));
    assert_eq!(first.stdout, demo().stdout);
    assert_ne!(first.stdout, tidegate(["replay", "--demo", "--output", "json", "--seed", "8"]).stdout);
    assert!(tidegate(["replay", "--demo"]).stdout.contains("Timeline"));
}

#[test]
fn the_json_report_has_exactly_its_keys_in_order() {
    let folder = Folder::new();
    let run = folder.replay(&folder.put("access.log", log(8)), &["--output", "json", "--top", "1"]);
    let expected = concat!(
        r#"{"lines":8,"requests":8,"unreadable":0,"late":0,"allowed":4,"denied":4,"#,
        r#""from":"2026-01-05T09:00:00Z","to":"2026-01-05T09:00:07Z","#,
        r#""limits":[{"id":"minute","limit_id":"default/tier:free/minute","checked":8,"denied":4}],"#,
        r#""clients":[{"kind":"ip","value":"192.0.2.0","allowed":2,"denied":2,"first_denied_at":"2026-01-05T09:00:04Z"}],"#,
        r#""bucket_seconds":1,"timeline":["#,
        r#"{"at":"2026-01-05T09:00:00Z","allowed":1,"denied":0},{"at":"2026-01-05T09:00:01Z","allowed":1,"denied":0},"#,
        r#"{"at":"2026-01-05T09:00:02Z","allowed":1,"denied":0},{"at":"2026-01-05T09:00:03Z","allowed":1,"denied":0},"#,
        r#"{"at":"2026-01-05T09:00:04Z","allowed":0,"denied":1},{"at":"2026-01-05T09:00:05Z","allowed":0,"denied":1},"#,
        r#"{"at":"2026-01-05T09:00:06Z","allowed":0,"denied":1},{"at":"2026-01-05T09:00:07Z","allowed":0,"denied":1}]}"#,
        "\n",
    );
    assert_eq!((run.stdout.as_str(), run.status), (expected, Some(0)), "{}", run.stderr);
}

#[test]
fn files_gzip_parts_and_standard_input_give_the_same_bytes() {
    let folder = Folder::new();
    let text = log(300);
    let whole = folder.replay(&folder.put("access.log", &text), &["--output", "json"]);
    assert_eq!(json(&whole)["requests"], 300);
    let (front, back) = text.split_at(text.len() / 2);
    let cut = front.rfind('\n').expect("lines") + 1;
    let (front, back) = (&text[..cut], &[&front[cut..], back].concat());
    let second = folder.put("access.log.b", back).display().to_string();
    let policy = folder.0.path().join("policy.toml").display().to_string();
    let from_stdin =
        |input: &[u8]| tidegate_reading(input, ["replay", "-", "--policy", &policy, "--output", "json"]).stdout;
    assert_eq!(whole.stdout, folder.replay(&folder.put("access.log.gz", gzip(&text)), &["--output", "json"]).stdout);
    assert_eq!(whole.stdout, folder.replay(&folder.put("access.log.a", front), &["--output", "json", &second]).stdout);
    assert_eq!(whole.stdout, from_stdin(text.as_bytes()));
    assert_eq!(whole.stdout, from_stdin(&gzip(&text)));
}

#[test]
fn settings_may_come_from_the_environment() {
    let folder = Folder::new();
    let log = folder.put("access.log", log(8));
    let output = command()
        .arg("replay")
        .arg(&log)
        .env("TIDEGATE_POLICY", folder.0.path().join("policy.toml"))
        .env("TIDEGATE_OUTPUT", "json")
        .output()
        .expect("the binary runs");
    assert!(output.status.success() && output.stdout.starts_with(b"{\"lines\":8,"), "{output:?}");
}

#[test]
fn lines_that_cannot_be_read_are_shown_and_counted() {
    let folder = Folder::new();
    let text = format!("noise\n\n{}{}", log(3), "{}\n".repeat(14));
    let run = folder.replay(&folder.put("access.log", text), &["--output", "json"]);
    assert_eq!((run.status, &json(&run)["lines"], &json(&run)["unreadable"]), (Some(2), &18.into(), &15.into()));
    let told: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(told.len(), 11, "{run:?}");
    assert!(told[0].contains("access.log:1: ") && told[1].contains("access.log:6: no time"), "{run:?}");
    assert_eq!(told[10], "tidegate: and 5 more lines");
}

#[test]
fn half_of_the_lines_may_be_unreadable_and_no_more() {
    let folder = Folder::new();
    let half = folder.replay(&folder.put("half.log", log(5) + &"noise\n".repeat(5)), &[]);
    assert_eq!(half.status, Some(0), "{half:?}");
    assert!(half.stdout.starts_with("Warning: lines that cannot be read: 5 (50.0 %)"), "{}", half.stdout);
    let more = folder.replay(&folder.put("more.log", log(5) + &"noise\n".repeat(6)), &[]);
    assert_eq!(more.status, Some(2), "{more:?}");
    assert!(more.stdout.contains("11 lines, 5 requests, 6 unreadable"), "{}", more.stdout);
}

#[test]
fn late_lines_are_reported_first_and_have_their_own_exit_status() {
    let folder = Folder::new();
    let line = |clock: &str| format!("192.0.2.1 - - [05/Jan/2026:{clock} +0000] \"GET / HTTP/1.1\" 200 5\n");
    let path = folder.put("access.log", line("12:00:00") + &line("09:00:00") + &line("09:00:01"));
    let late = folder.replay(&path, &[]);
    assert_eq!(late.status, Some(3), "{late:?}");
    assert!(late.stdout.starts_with("Warning: lines later than the window: 2."), "{}", late.stdout);
    assert!(late.stderr.contains("2 lines are later than the window"), "{}", late.stderr);
    let allowed = folder.replay(&path, &["--allow-late"]);
    assert_eq!((allowed.status, allowed.stderr.as_str()), (Some(0), ""));
    assert!(allowed.stdout.starts_with("Warning: lines later than the window: 2."), "{}", allowed.stdout);
    assert!(!allowed.stdout.contains("--allow-late"), "{}", allowed.stdout);
    assert_eq!(folder.replay(&path, &["--window", "4h"]).status, Some(0));
}

#[test]
fn logs_are_merged_by_time_in_any_order_of_arguments() {
    let folder = Folder::new();
    let part = |hour: u32| log(2).replace("05/Jan/2026:09", &format!("05/Jan/2026:{hour:02}"));
    let newest = folder.put("access.log", part(18));
    let [second, oldest] = [("access.log.1", part(12).into_bytes()), ("access.log.2.gz", gzip(&part(6)))]
        .map(|(name, content)| folder.put(name, content).display().to_string());
    let run = folder.replay(&newest, &["--output", "json", &second, &oldest]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
    assert_eq!((&json(&run)["requests"], &json(&run)["late"]), (&6.into(), &0.into()));
    let text = folder.replay(&newest, &[&second, &oldest]).stdout;
    let order = ["access.log.2.gz", "access.log.1", "access.log\n"].map(|name| text.find(name).expect("told"));
    assert!(order.is_sorted(), "{text}");
}

#[test]
fn invalid_options_are_reported_in_plain_words() {
    let folder = Folder::new();
    let path = folder.put("access.log", log(2));
    for (option, value, way_out) in [
        ("--ipv6-prefix", "0", "1 to 128"),
        ("--ipv6-prefix", "x", "1 to 128"),
        ("--trusted-proxy", "proxy", "10.0.0.0/8"),
        ("--time-zone", "Nowhere", "Europe/Berlin"),
        ("--map", "peer=x", "client, method, path, time, user and status"),
        ("--map", "client", "client=FIELD"),
        ("--seed", "-x", "whole number"),
        ("--top", "many", "whole number"),
    ] {
        let run = folder.replay(&path, &[&format!("{option}={value}")]);
        assert_refused(&run, option, way_out);
        assert!(!run.stderr.contains("digit") && !run.stderr.contains("u64"), "{}", run.stderr);
    }
    // What a log lacks is named with the option that gives it.
    let json = "{\"at\":1,\"peer\":{\"addr\":\"192.0.2.1\"}}\n".repeat(2);
    let path = folder.put("app.json", json);
    assert_refused(&folder.replay(&path, &[]), "app.json", "its fields are `at`, `peer.addr`");
    assert_eq!(folder.replay(&path, &["--map", "time=at,client=peer.addr"]).status, Some(0));
    let run = folder.replay(&path, &["--map", "time=at,client=peer.addr,path=url"]);
    assert!(run.status == Some(2) && run.stdout.starts_with("Warning: no line has the field `url`"), "{run:?}");
    let packed = folder.put("access.log.zst", [0x28, 0xb5, 0x2f, 0xfd, 0, 0]);
    assert_refused(&folder.replay(&packed, &[]), "access.log.zst", "zstd -dc");
}

#[test]
fn a_log_without_a_line_that_can_be_read_is_an_error() {
    let folder = Folder::new();
    let binary: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    assert_refused(&folder.replay(&folder.put("binary.log", binary), &[]), "binary.log", "can be read");
    assert_refused(&folder.replay(&folder.put("empty.log", ""), &[]), "empty.log", "no line");
    assert_refused(&folder.replay(&folder.put("blank.log", "\n \n"), &[]), "blank.log", "no line");
    assert_refused(&folder.replay(&folder.put("long.log", vec![b'x'; 1 << 20]), &[]), "long.log:1", "64 KiB");
    assert_refused(&folder.replay(&folder.put("cut.gz", &gzip(&log(9))[..12]), &[]), "cut.gz", "cannot be read");
    assert_refused(&folder.replay(folder.0.path(), &[]), &folder.0.path().display().to_string(), "cannot be read");
    // One such log among others is told first in their report.
    let good = folder.put("good.log", log(9)).display().to_string();
    let bad = folder.put("bad.log", "noise\n");
    let run = folder.replay(&bad, &[&good]);
    let first = format!("Warning: {}:1: it does not begin with an address", bad.display());
    assert!(run.status == Some(2) && run.stdout.starts_with(&first) && run.stdout.contains("9 requests"), "{run:?}");
    let run = folder.replay(&bad, &["--output", "json", &good]);
    assert_eq!((run.status, json(&run)["failed_logs"].as_array().map(Vec::len)), (Some(2), Some(1)), "{run:?}");
}

#[test]
fn a_truncated_gzip_is_reported_as_far_as_it_goes() {
    let folder = Folder::new();
    let whole = gzip(&log(3_000));
    let run = folder.replay(&folder.put("cut.gz", &whole[..whole.len() / 2]), &["--output", "json"]);
    let requests = json(&run)["requests"].as_u64().expect("a number");
    assert!(requests > 100 && requests < 3_000, "{requests}");
    assert_eq!((run.status, &json(&run)["unreadable"]), (Some(2), &0.into()), "{}", run.stderr);
    assert!(run.stderr.contains("warning") && run.stderr.contains("cut.gz"), "{}", run.stderr);
}

#[test]
fn errors_name_what_is_missing_or_wrong() {
    let folder = Folder::new();
    let good = folder.put("access.log", log(9));
    let missing = folder.0.path().join("missing.log");
    assert_refused(&folder.replay(&missing, &[]), "missing.log", "cannot read the log");
    assert_refused(&folder.replay(&good, &[&missing.display().to_string()]), "missing.log", "cannot read the log");
    let good = good.display().to_string();
    let with_policy = |policy: &Path| tidegate(["replay", &good, "--policy", &policy.display().to_string()]);
    assert_refused(&with_policy(&folder.0.path().join("missing.toml")), "missing.toml", "cannot read the policy");
    assert_refused(&with_policy(&folder.put("p.conf", POLICY)), "p.conf", ".toml");
    assert_refused(&with_policy(&folder.put("p.toml", [0xff, 0xfe])), "p.toml", "UTF-8");
    let wrong = POLICY.replace("limit = 2", "limit = -2");
    assert_refused(&with_policy(&folder.put("p.toml", wrong)), "p.toml:6: ", "limit");
    for usage in [&["replay"] as &[&str], &["replay", "--demo", "a.log"], &["nonsense"]] {
        assert_refused(&tidegate(usage), "Usage", "");
    }
    assert_refused(&tidegate(["replay", "a.log"]), "--policy", "--demo");
    assert_refused(&tidegate(["replay", "--demo", "--window", "0s"]), "--window", "zero");
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    for arguments in [&["replay", "--demo", "--output", "json"] as &[&str], &["replay", "--demo"], &["--help"]] {
        let mut child =
            command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut first = BufReader::with_capacity(16, child.stdout.take().expect("piped"));
        let _ = first.fill_buf();
        drop(first);
        let output = child.wait_with_output().expect("the binary ends");
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

/// A log in which every short line is of another client, under three limits: there is room for all of them, whichever way
/// the log comes. Where there is not, it is said, and the exit status says so too.
#[test]
fn a_log_of_many_clients_fits_or_reports_that_it_does_not() {
    let folder = Folder::new();
    let limit = |id: &str| format!("{{ id = \"{id}\", algorithm = \"token_bucket\", limit = 2, period = \"1d\" }}");
    let limits = [limit("a"), limit("b"), limit("c")].join(", ");
    folder.put(
        "policy.toml",
        format!("[domains.default]\ndefaults = {{ ip = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\nlimits = [{limits}]\n"),
    );
    let line = |n: u32| {
        format!(
            "10.{}.{}.{} - - [05/Jan/2026:09:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n",
            n >> 16,
            n >> 8 & 255,
            n & 255
        )
    };
    let text: String = (0..100_000).map(line).collect();
    let path = folder.put("many.log", &text);
    let from_file = folder.replay(&path, &["--output", "json"]);
    assert!(from_file.stdout.contains("\"allowed\":100000,\"denied\":0"), "{}", from_file.stderr);
    assert_eq!(from_file.status, Some(0));
    let policy = folder.0.path().join("policy.toml").display().to_string();
    let from_input = tidegate_reading(text.as_bytes(), ["replay", "-", "--policy", &policy, "--output", "json"]);
    assert_eq!(from_input.stdout, from_file.stdout);
    let cramped = folder.replay(&path, &["--output", "json", "--max-keys", "1000"]);
    assert!(cramped.stderr.contains("--max-keys"), "{}", cramped.stderr);
    assert_eq!(cramped.status, Some(2));
    assert_eq!(folder.replay(&path, &["--max-keys", "0"]).status, Some(2));
}
