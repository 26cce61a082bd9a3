//! Renders the guides, the Markdown files of `docs/`, as pages that need no script.
//!
//! `docs/sharing.md` becomes `docs/sharing.html`, and `docs/README.md` becomes `docs/index.html`. The pages use the style sheet of
//! the page of REST calls. Links between guides lead to their addresses, `/docs/sharing`; links to other files of the repository,
//! which the server does not have, become plain text.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// Renders the guides in the folder `from` into `to`, and copies their images.
pub(crate) fn render(from: &Path, to: &Path) -> io::Result<()> {
    render_folder(from, Path::new(""), to)
}

fn render_folder(root: &Path, folder: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.join(folder))?;
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            render_folder(root, &path, to)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(entry.path())?;
            fs::write(to.join(address(&path)).with_extension("html"), page(&text, folder))?;
        } else {
            fs::copy(entry.path(), to.join(&path))?;
        }
    }
    Ok(())
}

/// Returns the address of a guide below `/docs/`; the page for an empty one is `index`.
fn address(path: &Path) -> PathBuf {
    if path.file_stem().is_some_and(|stem| stem == "README") {
        path.with_file_name("index")
    } else {
        path.with_extension("")
    }
}

fn page(text: &str, folder: &Path) -> String {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let contents = name_headings(&mut events);
    let title = contents.first().map_or_else(String::new, |(_, _, title)| escape(title));
    let mut body = String::new();
    html::push_html(
        &mut body,
        events.into_iter().scan(PageState::default(), |state, event| Some(state.rewrite(event, folder))).flatten(),
    );
    let links: Vec<String> = contents
        .iter()
        .filter(|(level, ..)| *level == HeadingLevel::H2)
        .map(|(_, id, heading)| format!("<li><a href=\"#{id}\">{}</a></li>\n", escape(heading)))
        .collect();
    let links = links.concat();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<title>{title} - Tidegate</title>\n<link rel=\"stylesheet\" href=\"/docs/api.css\">\n</head>\n<body \
         class=\"guide\">\n<header><p><a href=\"/docs/\">Guides</a> <a href=\"/docs/api\">REST calls</a> <a \
         href=\"/\">Dashboard</a></p></header>\n<nav aria-label=\"Contents\"><details open><summary>Contents</summary>\n<ul>\n{links}\
         </ul></details></nav>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Gives each heading the ID by which links name it, and returns level, ID and text of each.
fn name_headings(events: &mut [Event<'_>]) -> Vec<(HeadingLevel, String, String)> {
    let mut headings: Vec<(HeadingLevel, String, String)> = Vec::new();
    let starts: Vec<usize> =
        (0..events.len()).filter(|&index| matches!(events[index], Event::Start(Tag::Heading { .. }))).collect();
    for start in starts {
        let text: String = events[start..]
            .iter()
            .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))))
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let plain = anchor(&text);
        let before = headings.iter().filter(|(_, _, other)| anchor(other) == plain).count();
        let named = if before == 0 { plain } else { format!("{plain}-{before}") };
        if let Event::Start(Tag::Heading { level, id, .. }) = &mut events[start] {
            *id = Some(CowStr::from(named.clone()));
            headings.push((*level, named, text));
        }
    }
    headings
}

/// Returns a heading in the form in which the target of a link names it, as the hosts of repositories do.
fn anchor(heading: &str) -> String {
    let dashed = heading.trim().to_lowercase().replace(' ', "-");
    dashed.chars().filter(|character| character.is_alphanumeric() || "-_".contains(*character)).collect()
}

/// What the events before decide about the next one.
#[derive(Default)]
struct PageState {
    /// Whether each open link leads somewhere.
    links: Vec<bool>,
    is_in_rust: bool,
}

impl PageState {
    /// Returns an event as the page shows it, or nothing.
    fn rewrite<'a>(&mut self, event: Event<'a>, folder: &Path) -> Option<Event<'a>> {
        match event {
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let target = target(&dest_url, folder);
                self.links.push(target.is_some());
                Some(Event::Start(Tag::Link { link_type, dest_url: target?.into(), title, id }))
            }
            Event::End(TagEnd::Link) => self.links.pop().unwrap_or_default().then_some(Event::End(TagEnd::Link)),
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let path = within_docs(&folder.join(&*dest_url)).unwrap_or_default();
                Some(Event::Start(Tag::Image { link_type, dest_url: format!("/docs/{path}").into(), title, id }))
            }
            // An alignment would be an inline style, which the content security policy forbids.
            Event::Start(Tag::Table(alignments)) => {
                Some(Event::Start(Tag::Table(vec![pulldown_cmark::Alignment::None; alignments.len()])))
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                self.is_in_rust = matches!(&kind, CodeBlockKind::Fenced(language) if language.starts_with("rust"));
                Some(Event::Start(Tag::CodeBlock(kind)))
            }
            Event::End(TagEnd::CodeBlock) => {
                self.is_in_rust = false;
                Some(Event::End(TagEnd::CodeBlock))
            }
            // rustdoc runs lines that begin with `# `, and does not show them.
            Event::Text(code) if self.is_in_rust => {
                let is_shown = |line: &&str| !(line.starts_with("# ") || line.trim_end() == "#");
                Some(Event::Text(code.split_inclusive('\n').filter(is_shown).collect::<String>().into()))
            }
            event => Some(event),
        }
    }
}

/// Returns the address of a link's target, or nothing for a file of the repository that is not a guide.
fn target(target: &str, folder: &Path) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") || target.starts_with('#') {
        return Some(target.to_owned());
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = PathBuf::from(within_docs(&folder.join(file))?);
    if path.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let page = address(&path);
    let page = page.to_string_lossy();
    let page = page.strip_suffix("index").unwrap_or(&page);
    Some(heading.map_or_else(|| format!("/docs/{page}"), |heading| format!("/docs/{page}#{heading}")))
}

/// Returns a path relative to `docs/` without `..`, or nothing if it leads out of there.
fn within_docs(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => drop(parts.pop()?),
            _ => {}
        }
    }
    Some(parts.join("/"))
}
