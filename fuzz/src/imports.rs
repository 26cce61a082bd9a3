//! Any text is the file of another limiter, or is refused with what is wrong.

use tidegate::{
    Snapshot,
    import::{Source, envoy, limitador},
};

/// Imports `data`: the first byte chooses whose file it is, and whether there are two.
///
/// # Panics
///
/// Where something does not hold.
pub fn imports(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let (first, second) = text.split_once("\n====\n").unwrap_or((text, ""));
    let both = [Source { name: "a.yaml", text: first }, Source { name: "a.yaml", text: second }];
    let sources = if second.is_empty() { &both[..1] } else { &both };
    let import = if choice.is_multiple_of(2) { envoy } else { limitador };
    match import(sources) {
        Err(error) => {
            // What the original takes is told in notes; of all files together nothing is wrong, whatever stands in them.
            assert!(error.place.is_some_and(|place| place < sources.len()), "{error}");
            assert!(error.problems.iter().all(|problem| !problem.message.is_empty()), "{error:?}");
        }
        Ok(imported) => {
            Snapshot::compile(&imported.policy).expect("it compiled before");
            for note in &imported.notes {
                assert!(!note.what.is_empty() && !note.instead.is_empty(), "{note:?}");
            }
        }
    }
}
