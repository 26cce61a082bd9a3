//! Rules of the house that are tests: what a file may use, and where orderings and unsafe code may stand.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, mem,
    path::Path,
    slice,
};

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

/// Lines of code without comments and without the module of tests at the end.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let is_tests =
        |at: usize| text[at..].lines().nth(2).is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'));
    let marks = ["\n#[cfg(test)]", "\n#[cfg(all(test"].into_iter().flat_map(|mark| text.match_indices(mark));
    let end = marks.map(|(at, _)| at).filter(|&at| is_tests(at)).min();
    text[..end.unwrap_or(text.len())].lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// The order of the layers, from the ground up. There is one list of it: the head of `lib.rs` lists the folders (`base/`), and
/// the head of each folder's `mod.rs` lists its files.
struct Order {
    /// The rank of each folder and file among all, by its module path.
    ranks: BTreeMap<Vec<String>, usize>,
}

/// Returns the names between backticks in the list at the head of a file.
fn listed(text: &str) -> Vec<String> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    let items = head.filter(|line| line.starts_with("//! * `")).filter_map(|line| line.split('`').nth(1));
    items.map(str::to_owned).collect()
}

impl Order {
    /// # Errors
    ///
    /// The first list that does not have each module of its folder once.
    fn of(sources: &[(String, String)]) -> Result<Self, String> {
        let text = |wanted: &str| {
            let found = sources.iter().find(|(file, _)| file == wanted);
            found.map(|(_, text)| &**text).ok_or_else(|| format!("{wanted} is missing"))
        };
        let complete = |file: &str, names: &[String]| {
            let is_folder = file != "lib.rs";
            let mut wanted: Vec<String> = declared(&[], text(file)?)
                .filter(|(_, is_test)| !is_test)
                .map(|(path, _)| if is_folder { path[0].clone() } else { format!("{}/", path[0]) })
                .collect();
            let mut names = names.to_vec();
            wanted.sort_unstable();
            names.sort_unstable();
            if wanted == names { Ok(()) } else { Err(format!("{file} lists {names:?} and has {wanted:?}")) }
        };
        let mut ranks = BTreeMap::new();
        let listed_folders = listed(text("lib.rs")?);
        complete("lib.rs", &listed_folders)?;
        for folder in listed_folders {
            let folder = folder.trim_end_matches('/').to_owned();
            let file = format!("{folder}/mod.rs");
            let files = listed(text(&file)?);
            complete(&file, &files)?;
            for name in files {
                ranks.insert(vec![folder.clone(), name], ranks.len());
            }
            // What the folder shows as a whole stands above each of its files.
            ranks.insert(vec![folder], ranks.len());
        }
        Ok(Self { ranks })
    }

    /// Returns the place of the file, or of the file that it is a part of: `base/clock/manual.rs` has that of `base/clock.rs`.
    fn rank(&self, module: &[String]) -> Option<usize> {
        self.ranks.get(&module[..module.len().min(2)]).copied()
    }

    /// Returns each use of a file that does not stand before the one that uses it, and each circle of the parts of a file.
    fn violations(&self, sources: &[(String, String)]) -> (Vec<String>, usize) {
        let modules: BTreeSet<Vec<String>> = sources.iter().map(|(file, _)| module(file)).collect();
        let (mut violations, mut seen) = (Vec::new(), 0);
        // Of the parts of one file, such as `base/clock/`: which uses which.
        let mut parts: BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (file, text) in sources.iter().filter(|(file, _)| file != "lib.rs") {
            let own = module(file);
            let Some(rank) = self.rank(&own) else {
                violations.push(format!("{file} has no place among the layers"));
                continue;
            };
            for path in used_paths(&own, &code(text).collect::<Vec<_>>().join("\n")) {
                let used = (0..=path.len()).rev().map(|len| &path[..len]).find(|path| modules.contains(*path));
                let used = used.unwrap_or_default();
                let name = path.join("::");
                seen += 1;
                if used.is_empty() {
                    violations.push(format!("{file} uses crate::{name}, which names no file"));
                } else if used.len() > 1 && own.len() > 1 && used[..2] == own[..2] {
                    let common = used.iter().zip(&own).take_while(|(one, other)| one == other).count();
                    // A parent and its parts may use each other; two parts in one direction.
                    if common < used.len() && common < own.len() {
                        let siblings = parts.entry(own[..common].to_vec()).or_default();
                        siblings.entry(own[common].clone()).or_default().insert(used[common].clone());
                    }
                } else if self.rank(used).is_none_or(|used| used >= rank) && !(own.len() == 1 && used[0] == own[0]) {
                    violations.push(format!("{file} uses crate::{name}, which does not stand before it"));
                }
            }
        }
        for (parent, mut uses) in parts {
            // A part that uses none of those that are left, or that none of them uses, is in no circle.
            loop {
                let left: BTreeSet<String> = uses.keys().cloned().collect();
                let used: BTreeSet<String> = uses.values().flatten().cloned().collect();
                uses.retain(|part, uses| used.contains(part) && uses.iter().any(|used| left.contains(used)));
                if uses.len() == left.len() {
                    break;
                }
            }
            if !uses.is_empty() {
                violations.push(format!("parts of {} use each other in a circle: {uses:?}", parent.join("/")));
            }
        }
        (violations, seen)
    }
}

/// Returns the paths that a file's code names from the root of the crate or from a parent, all from the root.
fn used_paths(own: &[String], code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut add = |from: &[String], rest: &str| {
        for path in tree(rest) {
            paths.push([from, &path[..]].concat());
        }
    };
    for (place, _) in code.match_indices("crate::").filter(|(place, _)| starts_a_word(code, *place)) {
        add(&[], &code[place + "crate::".len()..]);
    }
    for (place, _) in code.match_indices("super::") {
        // `super::super::` is found at its first word.
        if starts_a_word(code, place) && !code[..place].ends_with("super::") {
            let mut rest = &code[place..];
            let mut parent = own;
            while let Some(after) = rest.strip_prefix("super::") {
                (rest, parent) = (after, &parent[..parent.len().saturating_sub(1)]);
            }
            add(parent, rest);
        }
    }
    paths
}

fn starts_a_word(code: &str, place: usize) -> bool {
    !code[..place].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$')
}

/// Returns the paths of a tree such as `a::{b, c::{d, e}}`, of which anything may follow.
fn tree(text: &str) -> Vec<Vec<String>> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        // A comma may stand behind the last.
        return top_level(group).into_iter().filter(|part| !part.trim().is_empty()).flat_map(tree).collect();
    }
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.is_empty() || name == "self" {
        return vec![Vec::new()];
    }
    match text[name.len()..].strip_prefix("::") {
        Some(rest) => tree(rest).into_iter().map(|path| [slice::from_ref(&name), &path[..]].concat()).collect(),
        None => vec![vec![name]],
    }
}

#[test]
fn a_file_uses_only_what_stands_below_it() {
    let sources = sources();
    let (violations, seen) = Order::of(&sources).map(|order| order.violations(&sources)).expect("the lists");
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert!(seen > 400, "only {seen} uses were found: the test reads the files wrongly");
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

/// A house of three files in two folders, in which `body` is that of the middle one.
fn small_house(body: &str) -> Result<Vec<String>, String> {
    let files = [
        ("lib.rs", "//! * `low/`: it\n//! * `high/`: it\n\nmod high;\nmod low;\n"),
        ("low/mod.rs", "//! * `first`: it\n//! * `second`: it\n\npub(crate) mod first;\npub(crate) mod second;\n"),
        ("low/first.rs", "//! It.\n\nmod one;\nmod other;\n"),
        ("low/first/one.rs", "use super::{other::Thing, Word};\n"),
        ("low/first/other.rs", "#[cfg(all(test, loom))]\nmod models;\n"),
        ("low/second.rs", body),
        ("high/mod.rs", "//! * `third`: it\n\nmod third;\n"),
        ("high/third.rs", "use crate::low::{first, second::A};\n"),
    ];
    let files: Vec<_> = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
    Order::of(&files).map(|order| order.violations(&files).0)
}

#[test]
fn a_wrong_use_is_found() {
    for right in ["use crate::low::first::{A, B};", "use super::first::one::{self, C};", "// use crate::high::third;"] {
        assert_eq!(small_house(right), Ok(Vec::new()), "{right}");
    }
    for wrong in [
        "use crate::high::third::A;",
        "use crate::{high::{third::{A, B}}, low::first::C};",
        "fn f() { super::super::high::third::f() }",
        // Neither the folder that it is in, nor the root.
        "use super::A;",
        "use crate::A;",
    ] {
        assert!(small_house(wrong).is_ok_and(|violations| !violations.is_empty()), "{wrong}");
    }
}

#[test]
fn a_circle_of_parts_and_a_file_that_is_not_listed_are_found() {
    let mut files: Vec<(String, String)> = [
        ("lib.rs", "//! * `low/`: it\n\nmod low;\n"),
        ("low/mod.rs", "//! * `first`: it\n\nmod first;\n"),
        ("low/first.rs", "//! It.\n"),
        ("low/first/one.rs", "use super::other::Thing;\n"),
        ("low/first/other.rs", "use super::third::Thing;\n"),
        ("low/first/third.rs", "use super::one::Thing;\n"),
    ]
    .iter()
    .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
    .collect();
    let violations = Order::of(&files).map(|order| order.violations(&files).0.len());
    assert_eq!(violations, Ok(1));
    files[1].1.push_str("pub(crate) mod second;\n");
    assert!(Order::of(&files).is_err());
}

/// The `mod.rs` of a folder only lists its files: what the folder does stands in them.
#[test]
fn a_folder_lists_its_files_and_has_no_code_of_its_own() {
    for (file, text) in sources().iter().filter(|(file, _)| file.ends_with("/mod.rs")) {
        let is_code = |line: &str| ["fn ", "impl", "struct ", "enum ", "const "].iter().any(|word| line.contains(word));
        assert!(!code(text).any(is_code), "{file} has code; it belongs into a file that is named after it");
    }
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

/// Looks through the whole repository, tests included: the lint is denied, not forbidden, so that two files can allow it.
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

/// The files that take a lock, each with the reason why a check does not wait for it.
const LOCKS: &[(&str, &str)] = &[
    ("engine/state.rs", "publishes wait for each other"),
    ("engine/heavy_hitters.rs", "readers of the sketch wait; a check that finds it locked skips it"),
    ("engine/observer.rs", "adding and removing observers; a check takes no lock"),
    ("limiter/wait_queue.rs", "for tasks that wait for tokens, with the feature `wait`"),
    ("storage/counters.rs", "making and dropping handles, and reading the counts; a check takes no lock"),
    ("base/atomic.rs", "loom's 128-bit cells"),
    ("base/lock.rs", "the function that locks for the others"),
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

/// The engine does no I/O, runs on no runtime, and logs nothing; tasks that wait for it use tokio's timers.
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
                || ["limiter/wait_queue.rs", "limiter/wait.rs"].contains(&&*file) && banned == "tokio";
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
