//! Search of text.

/// Does it stand in there? A to Z and a to z are the same.
pub(crate) fn has_text(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    part.is_empty() || text.windows(part.len()).any(|within| within.eq_ignore_ascii_case(part))
}
