//! The files, as they lie in `OUT_DIR`, inside the binary in every profile.

use std::borrow::Cow;

use rust_embed::Embed;

#[derive(Embed)]
#[folder = "$OUT_DIR/page"]
struct Page;

/// A file's content and its SHA-256.
pub(crate) fn file(path: &str) -> Option<(Cow<'static, [u8]>, [u8; 32])> {
    let file = Page::get(path)?;
    Some((file.data, file.metadata.sha256_hash()))
}

#[cfg(test)]
pub(crate) fn paths() -> Vec<String> {
    Page::iter().map(Cow::into_owned).collect()
}
