//! The documents name files, headings and tests that exist.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every `[text](target)` of a document: the text and the target.
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("](").skip(1).zip(text.split("](")).filter_map(|(after, before)| {
        let text = &before[before.rfind('[')? + 1..];
        Some((text, after.split_once(')')?.0))
    })
}

/// Returns a heading in the form in which the target of a link names it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

/// Returns the paths that a document names between backticks, such as `engine/src/lib.rs` or `docs/`.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |span: &&str| {
        span.contains('/')
            && [".rs", ".ts", "/"].iter().any(|end| span.ends_with(end))
            && !span.contains(['*', ' ', '<', '{'])
    };
    text.split('`').skip(1).step_by(2).filter(is_path)
}

/// Returns the Markdown files below a folder.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let pages = entries.flat_map(|path| match path.extension() {
        _ if path.is_dir() => pages_below(&path),
        Some(extension) if extension == "md" => vec![path],
        _ => Vec::new(),
    });
    pages.collect()
}

/// Returns the documents of the project: Markdown files.
fn documents() -> Vec<PathBuf> {
    let mut documents = pages_below(&root().join("docs"));
    let others = ["README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY", "benches/README"];
    documents.extend(others.map(|name| root().join(name).with_extension("md")));
    documents
}

#[test]
fn every_file_that_is_named_exists() {
    let mut checked = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("text");
        for path in paths(&text) {
            let folder = path.split('/').next().expect("a path");
            // Other paths are relative to a folder that the text names, or of requests.
            if !folder.is_empty() && root().join(folder).is_dir() {
                assert!(root().join(path).exists(), "{}: {path} is not there", document.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "the documents were not read: {checked} paths");
}

#[test]
fn every_link_leads_somewhere_and_every_test_that_is_named_exists() {
    let (mut files, mut tests) = (0, 0);
    for document in documents() {
        let name = document.display();
        let text = fs::read_to_string(&document).expect("text");
        for (label, target) in links(&text).filter(|(_, target)| !target.starts_with("http")) {
            let (file, heading) =
                target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
            let path = if file.is_empty() { document.clone() } else { document.parent().expect("a folder").join(file) };
            let there = fs::read(&path).unwrap_or_else(|_| panic!("{name}: {target} is not there"));
            let there = String::from_utf8_lossy(&there);
            files += 1;
            if let Some(heading) = heading {
                let mut anchors =
                    there.lines().filter_map(|line| Some(anchor(line.strip_prefix('#')?.trim_start_matches('#'))));
                assert!(anchors.any(|anchor| anchor == heading), "{name}: {target} is no heading");
            }
            if let Some(test) = label.strip_prefix('`').and_then(|label| label.strip_suffix('`'))
                && path.extension().is_some_and(|extension| extension == "rs")
            {
                assert!(there.contains(&format!("fn {test}(")), "{name}: {test} is not in {file}");
                tests += 1;
            }
        }
    }
    assert!(files > 40 && tests > 30, "the documents were not read: {files} links, {tests} tests");
}

/// The pages that a newcomer reads first stay short.
#[test]
fn the_first_pages_stay_short() {
    let pages = [
        ("README.md", 6),
        ("ARCHITECTURE.md", 20),
        ("CONTRIBUTING.md", 4),
        ("CHANGELOG.md", 4),
        ("SECURITY.md", 4),
        ("docs/README.md", 3),
    ];
    for (page, kibibytes) in pages {
        let bytes = fs::read(root().join(page)).expect("text").len();
        assert!(bytes <= kibibytes * 1024, "{page}: {bytes} bytes, of {kibibytes} KiB; move a part to a page of docs/");
    }
}

/// The index of all pages leads to each of them, and that of the decisions to each decision.
#[test]
fn every_page_is_in_an_index() {
    for folder in ["docs", "docs/adr"].map(|folder| root().join(folder)) {
        let index = fs::read_to_string(folder.join("README.md")).expect("text");
        let targets: Vec<&str> = links(&index).map(|(_, target)| target).collect();
        for page in pages_below(&folder).iter().filter(|page| page.parent() == Some(&folder)) {
            let name = page.file_name().expect("a name").to_str().expect("text");
            assert!(name == "README.md" || targets.contains(&name), "{} does not lead to {name}", folder.display());
        }
    }
}

/// A decision is a page with a number, three parts and 1.5 KiB.
#[test]
fn every_decision_has_its_parts() {
    let folder = root().join("docs/adr");
    let mut pages = pages_below(&folder);
    pages.retain(|page| !page.ends_with("README.md"));
    pages.sort();
    assert!(pages.len() > 50, "the decisions were not found");
    for (page, number) in pages.iter().zip(1..) {
        let name = page.file_name().expect("a name").to_str().expect("text");
        let text = fs::read_to_string(page).expect("text");
        assert!(name.starts_with(&format!("{number:04}-")), "{name} is not number {number}");
        assert!(text.starts_with(&format!("# {number}. ")), "{name} has another number in its heading");
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, ["## Context", "## Decision", "## Consequences"], "{name}");
        assert!(text.len() <= 1_536, "{name}: {} bytes", text.len());
    }
}

/// Blocks of the first page that the engine's doc tests cannot compile are in a page whose doc tests compile them.
#[test]
fn code_of_the_readme_that_is_not_compiled_there_is_compiled_elsewhere() {
    let readme = fs::read_to_string(root().join("README.md")).expect("text");
    let compiled = fs::read_to_string(root().join("docs/middleware.md")).expect("text");
    let blocks: Vec<&str> =
        readme.split("```rust,ignore\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect();
    assert!(!blocks.is_empty(), "the blocks were not found");
    for block in blocks {
        assert!(compiled.contains(block), "{block}");
    }
}

/// The bits of words and tags are a budget that users can look up.
#[test]
fn the_guarantees_show_the_bits_as_the_code_does() {
    let source = include_str!("../../src/storage/layout.rs");
    let shown = fs::read_to_string(root().join("docs/guarantees.md")).expect("text");
    let tables = source.lines().filter_map(|line| line.strip_prefix("//! |"));
    let rows: Vec<String> = tables.map(|row| format!("|{row}")).collect();
    assert!(rows.len() >= 15, "the tables were not found");
    for row in rows {
        assert!(shown.lines().any(|line| line == row), "{row} is not in guarantees.md");
    }
}

/// Returns the texts of all files called `models.rs`.
fn models_below(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path());
    let texts = entries.flat_map(|path| match path.file_name() {
        _ if path.is_dir() => models_below(&path),
        Some(name) if name == "models.rs" => vec![fs::read_to_string(&path).expect("text")],
        _ => Vec::new(),
    });
    texts.collect()
}

/// Every model of loom's shows a sentence of the document on how the engine works.
#[test]
fn every_model_is_named_where_the_engine_is_explained() {
    let explained = fs::read_to_string(root().join("docs/internals.md")).expect("text");
    let models = models_below(&root().join("engine/src"));
    let mut named = 0;
    for model in models {
        for test in model.split("#[test]\nfn ").skip(1) {
            let name = test.split('(').next().expect("a name");
            assert!(explained.contains(&format!("[`{name}`]")), "internals.md does not say what {name} shows");
            named += 1;
        }
    }
    assert!(named >= 40, "the models were not found");
}
