//! Rules of the house that are tests: what a file may use, and where orderings and unsafe code may stand.

use std::{
    collections::{BTreeSet, HashMap},
    fs, mem,
    path::Path,
};

/// From the ground up: a file uses only what stands before it. This is the order of the engine's head comment.
const LAYERS: &[&str] =
    &["base", "algorithm", "storage", "policy", "engine", "line", "limiter", "keyed_limiter", "rated_limiter", "wait"];

/// All files of Rust below `root`, with their texts.
fn rust_below(root: &Path) -> Vec<(String, String)> {
    fn visit(folder: &Path, found: &mut Vec<(String, String)>, root: &Path) {
        for entry in fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path()) {
            let name = entry.file_name().expect("a name").to_string_lossy();
            if entry.is_dir() {
                // What tools leave behind is not ours.
                if !name.starts_with('.') && !["target", "node_modules"].contains(&&*name) {
                    visit(&entry, found, root);
                }
            } else if name.ends_with(".rs") {
                let relative = entry.strip_prefix(root).expect("below it").to_string_lossy().into_owned();
                let text = fs::read_to_string(&entry).expect("text");
                found.push((relative, text));
            }
        }
    }
    let mut found = Vec::new();
    visit(root, &mut found, root);
    found
}

/// The engine's files without their tests, models and stress tests.
fn sources() -> Vec<(String, String)> {
    let mut found = rust_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let tests: BTreeSet<Vec<String>> =
        found.iter().flat_map(|(file, text)| test_modules(&module(file), text)).collect();
    found.retain(|(file, _)| !tests.contains(&module(file)));
    assert!(found.len() > 20, "the sources were not found");
    found
}

/// Returns the path of a file's module: `clock/manual.rs` is `["clock", "manual"]`, `algorithm/mod.rs` is `["algorithm"]`.
fn module(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| ["mod", "lib"].contains(&&**last)) {
        path.pop();
    }
    path
}

/// Returns the modules that `parent` declares with `mod name;`, and whether each is compiled for tests only.
fn declared<'t>(parent: &'t [String], text: &'t str) -> impl Iterator<Item = (Vec<String>, bool)> + 't {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
            return None;
        }
        let is_test = mem::take(&mut is_test);
        let (_, name) = line.strip_suffix(';')?.split_once("mod ").filter(|(before, _)| before.len() <= 11)?;
        Some(([parent, &[name.to_owned()]].concat(), is_test))
    })
}

fn test_modules(parent: &[String], text: &str) -> Vec<Vec<String>> {
    declared(parent, text).filter_map(|(path, is_test)| is_test.then_some(path)).collect()
}

/// Lines of code without comments and without the tests at the end.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let end = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].lines().filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn a_file_uses_only_what_stands_below_it() {
    let rank: HashMap<&str, usize> = LAYERS.iter().enumerate().map(|(rank, layer)| (*layer, rank)).collect();
    let mut seen = 0;
    for (file, text) in sources() {
        let module = file.split(['/', '.']).next().expect("a name").to_owned();
        if module == "lib" {
            continue;
        }
        let own = *rank.get(module.as_str()).unwrap_or_else(|| panic!("{file} has no place among the layers"));
        let text: String = code(&text).collect::<Vec<_>>().join(" ");
        // `crate::x` and `crate::{x::.., y}`.
        for after in text.split("crate::").skip(1) {
            let names: Vec<&str> = match after.strip_prefix('{') {
                Some(group) => top_level(group),
                None => vec![after],
            };
            for name in names {
                let name: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let Some(used) = rank.get(name.as_str()) else { continue };
                seen += 1;
                assert!(*used <= own, "{file} uses {name}, which stands above it");
            }
        }
    }
    assert!(seen > 40, "only {seen} uses were found: the test reads the files wrongly");
}

/// The parts of `a::{b, c}, d}` up to the closing brace, split at the commas of the outer level.
fn top_level(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (place, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&group[start..place]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts
}

/// The list at the head of lib.rs is this one.
#[test]
fn the_documented_order_is_the_tested_one() {
    let head = include_str!("../../src/lib.rs");
    let listed: Vec<&str> = head
        .lines()
        .filter(|line| line.starts_with("//! * "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(listed, LAYERS);
}

#[test]
fn memory_orderings_are_named_in_one_file() {
    for (file, text) in sources() {
        let names = code(&text).filter(|line| line.contains("Ordering::") && !line.contains("cmp::Ordering")).count();
        assert!(names == 0 || file == "base/atomic.rs", "{file} names a memory ordering; atomic.rs alone does");
        if file == "base/atomic.rs" {
            assert!(names > 5, "the test reads the file wrongly");
        }
    }
}

/// Files that may have unsafe code.
const UNSAFE: &[&str] = &["engine/src/storage/alloc.rs", "engine/src/base/native128.rs"];

/// Of the whole house, tests included: the lint is only denied, so that two files can allow it.
#[test]
fn unsafe_code_stands_in_two_files_with_a_reason_for_each_block() {
    // Split, so that this file is not found.
    let (word, reason) = (concat!("un", "safe"), concat!("// SAFE", "TY: "));
    for (file, text) in rust_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let is_code =
            |line: &str| !line.starts_with("//") && line.split(|c: char| !c.is_alphanumeric()).any(|w| w == word);
        // A lint's name, and the name of this test, have it as a part.
        let blocks = lines.iter().filter(|line| is_code(&line.replace(&format!("{word}_"), ""))).count();
        let allows = text.contains(&format!("allow({word}_code")) || text.contains(&format!("expect({word}_code"));
        let reasons = lines.iter().filter(|line| line.starts_with(reason)).count();
        if UNSAFE.contains(&&*file) {
            assert!(blocks > 1 && allows, "the test reads the files wrongly");
            assert_eq!(blocks, reasons, "a block without a reason");
        } else {
            assert!(blocks == 0 && !allows, "{file} has {word} code");
        }
    }
}

/// Where something can be waited for, and why a check does not.
const LOCKS: &[(&str, &str)] = &[
    ("engine/state.rs", "publishes wait for each other"),
    ("engine/heavy_hitters.rs", "who reads the sketch waits; a check that finds it taken goes on without"),
    ("engine/observer.rs", "observers that come and go; a check looks without"),
    ("line.rs", "for those who wait for tokens, with the feature `wait`"),
    ("storage/counters.rs", "handles that are made and dropped, and who reads the counts; a check counts without"),
    ("base/atomic.rs", "loom's 128-bit cells"),
    ("base/thread_id.rs", "a thread takes a number at its first check, and gives it back at its end"),
    ("policy/timezone.rs", "policies that are compiled"),
    (
        "base/clock/system.rs",
        "the one thread that steers the clock has it, and the others go on; they wait only where the machine slept and its \
         counter began anew",
    ),
];

#[test]
fn a_lock_stands_only_where_its_reason_is_known() {
    let is_lock =
        |line: &str| ["Mutex<", "RwLock<", "Condvar", "Barrier", "park("].iter().any(|lock| line.contains(lock));
    let mut files: Vec<String> =
        sources().into_iter().filter(|(_, text)| code(text).any(is_lock)).map(|(file, _)| file).collect();
    let mut known: Vec<&str> = LOCKS.iter().map(|(file, _)| *file).collect();
    files.sort_unstable();
    known.sort_unstable();
    assert_eq!(files, known);
}

#[test]
fn every_file_says_what_it_is_for() {
    for (file, text) in sources() {
        assert!(text.starts_with("//! "), "{file} has no comment at its head");
    }
}

/// The engine does no I/O, runs on no runtime, and logs nothing; who waits for it waits by tokio's timers.
#[test]
fn the_engine_stays_within_its_dependency_budget() {
    // Those of all targets and of each.
    let sections =
        include_str!("../../Cargo.toml").split("\n[").filter_map(|section| section.split_once("dependencies]\n"));
    let dependencies = sections.filter(|(head, _)| !head.ends_with("dev-")).flat_map(|(_, lines)| lines.lines());
    let allowed = [
        "arc-swap",
        "arrayvec",
        "boxcar",
        "jiff",
        "crossbeam-utils",
        "hashbrown",
        "loom",
        "portable-atomic",
        "rapidhash",
        "rustix",
        "safe_arch",
        "schemars",
        "serde",
        "serde-saphyr",
        "serde_json",
        "serde_path_to_error",
        "tokio",
        "toml",
        "toml_edit",
    ];
    for line in dependencies.filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let name = line.split(['.', ' ', '=']).next().expect("a name");
        assert!(allowed.contains(&name), "{name} is not in the engine's budget");
    }
    for (file, text) in sources() {
        for banned in [
            "std::net::Tcp",
            "std::fs",
            "thread::spawn",
            "thread::Builder",
            "thread::sleep",
            "std::io",
            "println!",
            "tokio",
            "std::sync::RwLock",
        ] {
            let uses = code(&text).any(|line| line.contains(banned));
            // The clock that ticks is the one thread of the engine's own, and the one file that sleeps.
            let may = file == "base/clock/coarse.rs" && ["thread::Builder", "thread::sleep"].contains(&banned)
                || ["line.rs", "wait.rs"].contains(&&*file) && banned == "tokio";
            assert_eq!(uses, may, "{file} uses {banned}, or does not and may");
        }
    }
}

/// The pinned toolchain is the stated minimum, so every run of the tests tests the minimum.
#[test]
fn the_pinned_toolchain_is_the_minimum_version() {
    let quoted = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).map(str::to_owned);
        line.and_then(|line| line.split('"').nth(1).map(str::to_owned)).unwrap_or_else(|| panic!("{key} is not stated"))
    };
    let pinned = quoted(include_str!("../../../rust-toolchain.toml"), "channel");
    let minimum = quoted(include_str!("../../../Cargo.toml"), "rust-version");
    assert_eq!(pinned, format!("{minimum}.0"));
}
