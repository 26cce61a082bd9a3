//! Imports any text as a file of another limiter: it gives a policy, or is rejected with a reason.

use tidegate::{
    Snapshot,
    import::{Source, envoy, limitador},
};

/// Imports `data`: the first byte chooses the other limiter; a separator line makes two files of the rest.
///
/// # Panics
///
/// If a property does not hold.
pub fn imports(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let (first, second) = text.split_once("\n====\n").unwrap_or((text, ""));
    let both = [Source { name: "a.yaml", text: first }, Source { name: "a.yaml", text: second }];
    let sources = if second.is_empty() { &both[..1] } else { &both };
    let import = if choice.is_multiple_of(2) { envoy } else { limitador };
    match import(sources) {
        Err(error) => {
            // Differences from the other limiter are notes, so each error belongs to one of the files.
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
