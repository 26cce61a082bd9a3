//! The order of the files of a crate: checks that each file uses only what stands before it in the list of its folder.
//!
//! The lists stay with the crates: a test passes the same list that stands at the head of the crate's `lib.rs`.

use std::{collections::BTreeSet, fs, path::Path};

/// Folders below `src`, each with its entries (files and folders), from the ground up. `src` is the crate's root; a file that has
/// parts (`a.rs` and `a/b.rs`) is a folder with a list, too.
pub type Layers = [(&'static str, &'static [&'static str])];

/// Checks the files below the folder `src` of a crate. A file uses only what stands before it in the list of its
/// folder, and every file has a place in a list. A folder's `mod.rs` uses its own files; a file and its parts use each
/// other. Modules called `tests` are not checked. Returns how many uses it found.
///
/// # Panics
///
/// A file breaks a rule; the message names it.
#[must_use]
#[expect(clippy::panic, reason = "it fails the test that calls it")]
pub fn check_layers(src: &Path, layers: &Layers) -> usize {
    let sources = sources(src, &[]);
    let mut uses_count = 0;
    for Source { module, text, .. } in sources.iter().filter(|source| !source.module.is_empty()) {
        let place = |entry: usize| rank(layers, &module[..entry], &module[entry]);
        assert!((0..module.len()).all(|entry| place(entry).is_some()), "{module:?} has no place among the layers");
        let has_parts =
            sources.iter().any(|other| other.module.len() > module.len() && other.module.starts_with(module));
        for used in used_paths(module, has_parts, &code(text)) {
            let common = used.iter().zip(module).take_while(|(a, b)| a == b).count();
            if common == module.len() && has_parts {
                continue;
            }
            let is_part = common > 0 && sources.iter().any(|file| !file.is_mod_file && file.module == module[..common]);
            if is_part && used.get(common).is_none_or(|entry| rank(layers, &used[..common], entry).is_none()) {
                // A part uses the file that it is a part of.
                continue;
            }
            let Some(entry) = used.get(common) else { panic!("{module:?} uses the folder {used:?} that it is in") };
            let used_place = rank(layers, &used[..common], entry);
            let used_place = used_place.unwrap_or_else(|| panic!("{module:?} uses {used:?}, not by the file it is in"));
            assert!(used_place < place(common).expect("a place"), "{module:?} uses {used:?}, which stands above it");
            uses_count += 1;
        }
    }
    let files: BTreeSet<_> = sources.iter().map(|source| source.module.join("/")).collect();
    for (folder, entries) in layers {
        for entry in *entries {
            let path = if *folder == "src" { (*entry).to_owned() } else { format!("{folder}/{entry}") };
            assert!(files.contains(&path), "there is no {path}");
        }
    }
    uses_count
}

/// Checks that the list at the head of `lib.rs` is this one: a line for each folder, which begins with `//! * ` and names the
/// folder and its entries between backticks.
///
/// # Panics
///
/// The lists differ.
pub fn check_documented_layers(lib_text: &str, layers: &Layers) {
    let lines = lib_text.lines().filter_map(|line| line.strip_prefix("//! * "));
    let listed: Vec<Vec<&str>> = lines.map(|line| line.split('`').skip(1).step_by(2).collect()).collect();
    let tested: Vec<Vec<&str>> =
        layers.iter().map(|(folder, entries)| [folder].into_iter().chain(*entries).copied().collect()).collect();
    assert_eq!(listed, tested);
}

/// A file of Rust.
struct Source {
    /// The path of its module: `["store", "key"]`; of a `mod.rs` that of its folder.
    module: Vec<String>,
    is_mod_file: bool,
    text: String,
}

/// Returns the files of Rust below a folder, but for modules called `tests`.
fn sources(folder: &Path, module: &[String]) -> Vec<Source> {
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
            let is_mod_file = ["lib", "main", "mod"].contains(&&*name);
            if !is_mod_file {
                path.push(name);
            }
            found.push(Source { module: path, is_mod_file, text: fs::read_to_string(&entry).expect("text") });
        }
    }
    found
}

/// Returns a file's code without comments, without its tests at the end, and without other items, arms and statements that only
/// tests have.
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
            // The path of a visibility is no use.
            code.push_str(&line.replace("pub(in crate::", "pub("));
            code.push(' ');
        }
    }
    code
}

/// Adds the paths of `a::{b, c::d}`, each behind the prefix. Returns the text behind the last of them.
fn paths<'t>(prefix: &[String], text: &'t str, found: &mut Vec<Vec<String>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            rest = paths(prefix, rest, found);
            // Behind a name there may be another, as in `a as b`.
            rest = &rest[rest.find([',', '}']).expect("a list ends")..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if &text[..end] == "self" {
        found.push(prefix.to_vec());
        return &text[end..];
    }
    let path: Vec<_> = prefix.iter().cloned().chain([text[..end].to_owned()]).collect();
    if let Some(rest) = text[end..].strip_prefix("::") {
        return paths(&path, rest, found);
    }
    found.push(path);
    &text[end..]
}

/// Returns the paths that a module's code names, from the root of the crate.
fn used_paths(module: &[String], has_parts: bool, code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (root, base) in
        [("crate::", &[][..]), ("self::", module), ("super::", &module[..module.len().saturating_sub(1)])]
    {
        for (place, _) in code.match_indices(root) {
            let is_whole = !code[..place].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            assert!(!is_whole || root != "self::" || has_parts, "{module:?} names itself");
            if is_whole {
                paths(base, &code[place + root.len()..], &mut found);
            }
        }
    }
    found
}

/// Returns the place of an entry in the list of its folder.
fn rank(layers: &Layers, folder: &[String], entry: &str) -> Option<usize> {
    let name = if folder.is_empty() { "src".to_owned() } else { folder.join("/") };
    let (_, entries) = layers.iter().find(|(folder, _)| *folder == name)?;
    entries.iter().position(|known| *known == entry)
}
