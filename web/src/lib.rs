//! The dashboard, embedded: the files of the page that `build.rs` made, for a server to hand out.
//!
//! Every address of the page (`/tiers/pro`) answers [`index`]; a file is found by [`asset`], and one that is missing
//! is a 404, never the page. Names under `assets/` carry a hash of their content, so they never change. The page
//! works under a strict content security policy: nothing in it is inline, nothing comes from elsewhere.
//!
//! The guides of `docs/` are pages of their own, which [`guide`] finds; they need no script.

#[cfg(not(doc))]
mod embedded;

use std::borrow::Cow;

const INDEX: &str = "index.html";

/// One file of the page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asset {
    /// The content, unchanged.
    pub bytes: Cow<'static, [u8]>,
    /// The same, compressed with brotli, where that is smaller.
    pub brotli: Option<Cow<'static, [u8]>>,
    /// The media type with its character set.
    pub content_type: &'static str,
    /// Weak, so that one tag serves both forms; quoted as the header has it.
    pub etag: String,
    /// Whether a browser may keep it for ever. Otherwise the browser asks again each time.
    pub immutable: bool,
}

/// A file of the page by its path without the leading slash, such as `assets/index-1a2b.js`.
///
/// ```
/// assert!(tidegate_web::asset("assets/missing.js").is_none());
/// ```
#[must_use]
pub fn asset(path: &str) -> Option<Asset> {
    // The compressed forms are no files of their own.
    if has_ending(path, "br") {
        return None;
    }
    let (bytes, sha256) = embedded::file(path)?;
    Some(Asset {
        bytes,
        brotli: embedded::file(&format!("{path}.br")).map(|(bytes, _)| bytes),
        content_type: content_type(path),
        etag: etag(&sha256),
        immutable: path.starts_with("assets/"),
    })
}

/// Returns a guide by its name, such as `sharing`; the name of a folder, empty or with a slash at its end, is that of its list.
///
/// ```
/// assert!(tidegate_web::guide("missing").is_none());
/// ```
#[must_use]
pub fn guide(name: &str) -> Option<Asset> {
    let index = if name.is_empty() || name.ends_with('/') { "index" } else { "" };
    asset(&format!("docs/{name}{index}.html"))
}

/// The page itself; an empty one in a build that could not have any.
#[must_use]
pub fn index() -> Asset {
    asset(INDEX).unwrap_or_else(|| Asset {
        bytes: Cow::Borrowed(b""),
        brotli: None,
        content_type: content_type(INDEX),
        etag: etag(&[0; 32]),
        immutable: false,
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml; charset=utf-8",
        Some("json") => "application/json",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}

fn has_ending(path: &str, ending: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, found)| found == ending)
}

/// Half of the hash tells contents apart.
fn etag(sha256: &[u8; 32]) -> String {
    let half = sha256[..16].iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    format!("W/\"{half:032x}\"")
}

/// Documentation is made without a page.
#[cfg(doc)]
mod embedded {
    use std::borrow::Cow;

    pub(crate) fn file(_path: &str) -> Option<(Cow<'static, [u8]>, [u8; 32])> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn page() -> String {
        String::from_utf8(index().bytes.into_owned()).unwrap()
    }

    /// The first path in the page that has this ending, without the leading slash.
    fn linked(ending: &str) -> String {
        let page = page();
        let path = page.split('"').find(|part| has_ending(part, ending));
        path.expect("the page links to it").trim_start_matches('/').to_owned()
    }

    #[test]
    fn the_page_is_asked_for_again_and_its_files_never() {
        assert!(page().starts_with("<!doctype html>"));
        assert!(!index().immutable);
        assert_eq!(index().content_type, "text/html; charset=utf-8");
        for (ending, content_type) in [("js", "text/javascript; charset=utf-8"), ("css", "text/css; charset=utf-8")] {
            let asset = asset(&linked(ending)).unwrap();
            assert!(asset.immutable, "{ending}");
            assert_eq!(asset.content_type, content_type);
        }
    }

    #[test]
    fn text_has_a_smaller_form_that_is_no_file_of_its_own() {
        let path = linked("js");
        let asset = asset(&path).unwrap();
        assert!(asset.brotli.is_some_and(|brotli| brotli.len() < asset.bytes.len()));
        assert_eq!(super::asset(&format!("{path}.br")), None);
    }

    /// Scripts that a script names, and whether it waits for them: `from"./a.js"`, or `import("./a.js")` when it comes to that.
    fn named(script: &str, scripts: &[String]) -> Vec<(String, bool)> {
        let text = String::from_utf8(asset(script).unwrap().bytes.into_owned()).unwrap();
        let names = scripts.iter().filter_map(|other| {
            let name = other.strip_prefix("assets/")?;
            let places: Vec<_> = text.match_indices(&format!("./{name}")).map(|(place, _)| place).collect();
            // A quotation mark stands between.
            let waits = places.iter().any(|place| !text[..place - 1].ends_with("import("));
            (!places.is_empty()).then(|| (other.clone(), waits))
        });
        names.collect()
    }

    /// All that is read with a script. Without `later`, that which the script has to wait for.
    fn read_with(script: &str, scripts: &[String], later: bool, read: &mut BTreeSet<String>) {
        if read.insert(script.to_owned()) {
            for (other, waits) in named(script, scripts) {
                if waits || later {
                    read_with(&other, scripts, later, read);
                }
            }
        }
    }

    /// Limits the bytes: of the entry counts what it waits for, of each part that it reads later, a page or a dialog, everything that
    /// this part ever reads. A visit to a page reads these and no dialog before it is wanted, which
    /// `web/e2e/scripts.spec.ts` holds in a browser: a dialog is counted with the entry, not with each page.
    #[test]
    fn the_scripts_of_a_page_stay_small() {
        const BYTES_MAX: usize = 80_000;
        let scripts: Vec<_> = embedded::paths().into_iter().filter(|path| has_ending(path, "js")).collect();
        let mut entry = BTreeSet::new();
        read_with(&linked("js"), &scripts, false, &mut entry);
        let named = entry.iter().flat_map(|script| named(script, &scripts));
        let parts: BTreeSet<_> = named.map(|(script, _)| script).filter(|script| !entry.contains(script)).collect();
        assert!(parts.len() >= 10, "the pages are parts: {parts:?}");
        let mut seen = entry.clone();
        for part in parts {
            let mut read = entry.clone();
            read_with(&part, &scripts, true, &mut read);
            let bytes: usize = read.iter().map(|script| packed_len(script)).sum();
            assert!(bytes <= BYTES_MAX, "{part}: {bytes} bytes in {read:?}");
            seen.append(&mut read);
        }
        assert_eq!(seen.len(), scripts.len(), "every script belongs to a part: {scripts:?}");
    }

    fn packed_len(path: &str) -> usize {
        let asset = asset(path).unwrap();
        asset.brotli.unwrap_or(asset.bytes).len()
    }

    /// Returns the values of an attribute of a page.
    fn attributes<'h>(html: &'h str, name: &str) -> Vec<&'h str> {
        let start = format!(" {name}=\"");
        html.split(&*start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn guides_link_to_guides_and_headings_that_exist() {
        let pages: Vec<(String, String)> = embedded::paths()
            .into_iter()
            .filter(|path| path.starts_with("docs/") && has_ending(path, "html"))
            .map(|path| (path.clone(), String::from_utf8(asset(&path).unwrap().bytes.into_owned()).unwrap()))
            .collect();
        assert!(pages.len() > 20, "{pages:?}");
        let (mut links, mut images) = (0, 0);
        for (path, html) in &pages {
            for target in attributes(html, "href") {
                let (address, heading) = target.split_once('#').map_or((target, None), |(a, h)| (a, Some(h)));
                // These two are made by the server.
                if ["/", "/docs/api", "/docs/api.css"].contains(&address) || address.starts_with("http") {
                    continue;
                }
                let linked = match address.strip_prefix("/docs/") {
                    Some(name) => guide(name).map(|asset| String::from_utf8(asset.bytes.into_owned()).unwrap()),
                    None => address.is_empty().then(|| html.clone()),
                };
                let linked = linked.unwrap_or_else(|| panic!("{path}: there is no page for {target}"));
                if let Some(heading) = heading {
                    assert!(attributes(&linked, "id").contains(&heading), "{path}: {target} has no such heading");
                }
                links += 1;
            }
            for source in attributes(html, "src") {
                assert!(asset(source.trim_start_matches('/')).is_some(), "{path}: there is no image {source}");
                images += 1;
            }
            for inline in ["<style", " style=", "<script", " onload="] {
                assert!(!html.contains(inline), "{path}: {inline}");
            }
        }
        assert!(links > 100 && images > 5, "{links} links, {images} images");
    }

    #[test]
    fn guides_show_code_without_the_lines_that_only_run() {
        let library = String::from_utf8(guide("library").unwrap().bytes.into_owned()).unwrap();
        assert!(library.contains("<h1 id=\"") && library.contains("use tidegate::"));
        assert!(!library.contains("\n# Ok::&lt;"), "a hidden line is shown");
    }

    #[test]
    fn missing_files_are_missing() {
        for path in ["", "assets/missing.js", "assets", "../Cargo.toml", "/index.html", "tiers/pro"] {
            assert_eq!(asset(path), None, "{path}");
        }
    }

    #[test]
    fn tags_are_weak_quoted_and_differ() {
        let (page, script) = (index().etag, asset(&linked("js")).unwrap().etag);
        assert_ne!(page, script);
        for tag in [page, script] {
            assert!(tag.starts_with("W/\"") && tag.ends_with('"') && tag.len() == 36, "{tag}");
        }
    }

    #[test]
    fn the_page_has_nothing_inline() {
        let page = page();
        for inline in ["<style", "style=", "<script>", "onload=", "http://", "https://"] {
            assert!(!page.contains(inline), "{inline}");
        }
    }
}
