//! The order of the files of this crate: a file uses only files before it in the list of its folder.

use std::{collections::BTreeSet, fs, path::Path};

/// The entries of each folder, files and folders, from the ground up. The head of `src/lib.rs` has the same list.
const LAYERS: &[(&str, &[&str])] = &[
    ("src", &["lock", "counts", "store", "wire", "agent"]),
    ("counts", &["latency", "totals", "limit_owner", "sampler", "counters"]),
    (
        "store",
        &["error", "config", "key", "address", "fault", "stats", "script", "client", "local", "shared", "simulation"],
    ),
    ("store/script", &["record", "grant", "op", "plan", "encode", "decode", "argument", "script_model", "comparison"]),
    (
        "store/client",
        &[
            "clock_reading",
            "redis_client",
            "fault_log",
            "sentinel",
            "server_connection",
            "cluster_connection",
            "store_connection",
            "epoch",
            "queue",
            "batcher",
            "health",
        ],
    ),
    ("store/local", &["lease", "synced", "quota", "local_quotas", "renewal", "exchange"]),
    (
        "store/simulation",
        &[
            "random",
            "mutation",
            "network",
            "node",
            "judge",
            "scenario",
            "history",
            "check",
            "run",
            "plan",
            "late_answer",
        ],
    ),
    ("wire", &["payload", "event_reader", "stream", "report", "query", "truncate"]),
    (
        "agent",
        &[
            "process",
            "status",
            "describe",
            "http_client",
            "live_tail",
            "query_handler",
            "compiled_policy",
            "last_good",
            "node",
            "apply",
            "report",
            "admin_stream",
            "start",
        ],
    ),
];

/// Returns the Rust files below a folder, other than modules of unit tests, as module paths (`["store", "key"]`; for a
/// `mod.rs` that of its folder) with their texts.
fn sources(folder: &Path, module: &[String]) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_stem().expect("a name").to_string_lossy().into_owned();
        if name == "tests" {
            continue;
        }
        let mut path = module.to_vec();
        if entry.is_dir() {
            path.push(name);
            found.extend(sources(&entry, &path));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            if !["lib", "mod"].contains(&&*name) {
                path.push(name);
            }
            found.push((path, fs::read_to_string(&entry).expect("text")));
        }
    }
    found
}

/// Returns the code of a file without comments, without the tests at its end, and without other items, arms and
/// statements that are compiled for tests only.
fn code(text: &str) -> String {
    let text = text.find("\nmod tests {").map_or(text, |tests| &text[..tests]);
    let (mut code, mut is_test, mut depth) = (String::new(), false, 0);
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if depth == 0 && line == "#[cfg(test)]" {
            is_test = true;
        } else if is_test {
            depth += line.matches('{').count();
            depth -= line.matches('}').count();
            is_test = depth > 0 || !line.ends_with(['}', ';', ',']);
        } else {
            code.push_str(line);
            code.push(' ');
        }
    }
    code
}

/// Adds the paths of `a::{b, c::d}`, each with the prefix. Returns the text after the last of them.
fn paths<'t>(prefix: &[String], text: &'t str, found: &mut Vec<Vec<String>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            rest = paths(prefix, rest, found);
            // A name may be followed by another one, as in `a as b`.
            rest = &rest[rest.find([',', '}']).expect("a list ends")..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let path: Vec<_> = prefix.iter().cloned().chain([text[..end].to_owned()]).collect();
    if let Some(rest) = text[end..].strip_prefix("::") {
        return paths(&path, rest, found);
    }
    found.push(path);
    &text[end..]
}

/// Returns the paths that the code of a module names, from the root of the crate.
fn uses(module: &[String], is_mod: bool, code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (root, base) in
        [("crate::", &[][..]), ("self::", module), ("super::", &module[..module.len().saturating_sub(1)])]
    {
        for (place, _) in code.match_indices(root) {
            let is_whole = !code[..place].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            assert!(!is_whole || root != "self::" || is_mod, "{module:?} names itself");
            if is_whole {
                paths(base, &code[place + root.len()..], &mut found);
            }
        }
    }
    found
}

fn rank(folder: &[String], entry: &str) -> Option<usize> {
    let name = if folder.is_empty() { "src".to_owned() } else { folder.join("/") };
    let (_, entries) = LAYERS.iter().find(|(folder, _)| *folder == name)?;
    entries.iter().position(|known| *known == entry)
}

#[test]
fn a_file_uses_only_what_stands_before_it() {
    let all = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[]);
    let mut seen = 0;
    for (module, text) in all.iter().filter(|(module, _)| !module.is_empty()) {
        let place = |entry: usize| rank(&module[..entry], &module[entry]);
        assert!((0..module.len()).all(|entry| place(entry).is_some()), "{module:?} has no place among the layers");
        let is_mod = all.iter().any(|(other, _)| other.len() > module.len() && other.starts_with(module));
        for used in uses(module, is_mod, &code(text)) {
            let common = used.iter().zip(module).take_while(|(a, b)| a == b).count();
            if common == module.len() && is_mod {
                // The `mod.rs` of a folder names the files of the folder.
                continue;
            }
            let Some(entry) = used.get(common) else { panic!("{module:?} uses the folder {used:?} that it is in") };
            let used_place = rank(&used[..common], entry);
            let used_place = used_place.unwrap_or_else(|| panic!("{module:?} uses {used:?}, not by the file it is in"));
            assert!(used_place < place(common).expect("a place"), "{module:?} uses {used:?}, which stands above it");
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} uses were found: the test reads the files wrongly");
    let files: BTreeSet<_> = all.iter().map(|(module, _)| module.join("/")).collect();
    for (folder, entries) in LAYERS {
        for entry in *entries {
            let path = if *folder == "src" { (*entry).to_owned() } else { format!("{folder}/{entry}") };
            assert!(files.contains(&path), "there is no {path}");
        }
    }
}

/// The list at the head of `src/lib.rs` is the tested one.
#[test]
fn the_documented_order_is_the_tested_one() {
    let lines = include_str!("../../src/lib.rs").lines().filter_map(|line| line.strip_prefix("//! * "));
    let listed: Vec<Vec<&str>> = lines.map(|line| line.split('`').skip(1).step_by(2).collect()).collect();
    let tested: Vec<Vec<&str>> =
        LAYERS.iter().map(|(folder, entries)| [folder].into_iter().chain(*entries).copied().collect()).collect();
    assert_eq!(listed, tested);
}
