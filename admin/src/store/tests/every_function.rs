//! Looks through the sources of the store: the contract covers every asynchronous function that other modules can call.

use std::{collections::BTreeMap, fs, path::Path};

/// A function of the store.
#[derive(Debug)]
struct Function {
    file: String,
    name: String,
    /// How a call of it looks.
    call: String,
}

/// Returns the Rust files of a folder with their texts, by name.
fn sources(folder: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder).expect("the folder of sources").map(|file| file.expect("a file").path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let named = |path: std::path::PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("text"))
    };
    sources.map(named).collect()
}

/// Returns the asynchronous functions of a file that are visible outside the store.
fn functions(file: &str, text: &str) -> Vec<Function> {
    let (mut found, mut of) = (Vec::new(), String::new());
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        if let Some(rest) = line.strip_prefix("impl") {
            // `impl<'a> Trait for Name<'a> {` is of `Name`.
            let rest = if rest.starts_with('<') { rest.split_once("> ").map_or("", |(_, rest)| rest) } else { rest };
            let name = rest.split_once(" for ").map_or(rest, |(_, name)| name).trim_start();
            of = name.chars().take_while(char::is_ascii_alphanumeric).collect();
        } else if *line == "}" {
            of.clear();
        }
        let line = line.trim_start();
        let Some(rest) = ["pub(crate) async fn ", "pub async fn "].iter().find_map(|start| line.strip_prefix(start))
        else {
            continue;
        };
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let signature: String = lines[number..].iter().take_while(|line| !line.ends_with('{')).copied().collect();
        let signature = if signature.is_empty() { rest.to_owned() } else { signature };
        let is_method = ["&self", "&mut self", "(self", "(mut self"].iter().any(|this| signature.contains(this));
        let call = match (of.is_empty(), is_method) {
            (true, _) => format!("{name}("),
            (false, true) => format!(".{name}("),
            (false, false) => format!("{of}::{name}("),
        };
        found.push(Function { file: file.to_owned(), name, call });
    }
    found
}

/// Is `call` in this text, and not as the end of another name?
fn has_call(text: &str, call: &str) -> bool {
    let is_start = |at: usize| {
        call.starts_with('.') || !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    };
    text.match_indices(call).any(|(at, _)| is_start(at) && !text[..at].ends_with("fn "))
}

#[test]
fn every_function_of_the_store_is_called_in_the_contract() {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let files = [sources(&store), sources(&store.join("database"))];
    let functions: Vec<Function> = files.iter().flatten().flat_map(|(file, text)| functions(file, text)).collect();
    assert!(functions.len() > 60, "the sources are read: {functions:?}");
    let contract: String = sources(&store.join("tests"))
        .into_iter()
        .filter(|(file, _)| !["mod.rs", "every_function.rs"].contains(&&**file))
        .map(|(_, text)| text)
        .collect();
    let missing: Vec<String> = functions
        .iter()
        .filter(|function| !has_call(&contract, &function.call))
        .map(|Function { file, name, call }| format!("{name} of src/store/{file} (looked for `{call}`)"))
        .collect();
    assert!(missing.is_empty(), "functions that no test of src/store/tests calls: {missing:#?}");
}

#[test]
fn calls_are_told_from_other_names() {
    assert!(has_call("store.user(", ".user("));
    assert!(!has_call("store.add_user(", ".user("));
    assert!(has_call("Version::read(", "Version::read(") && !has_call("NewVersion::read(", "Version::read("));
    let text = "impl Store {\n    pub(crate) async fn a(&self) {\n    }\n}\n\nimpl Audit<'_> {\n    pub(crate) async fn \
                b(\n        c: u8,\n    ) {\n    }\n}\n\npub async fn d(e: u8) {\n}\n";
    let calls: Vec<String> = functions("f.rs", text).into_iter().map(|function| function.call).collect();
    assert_eq!(calls, [".a(", "Audit::b(", "d("]);
}
