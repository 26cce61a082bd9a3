//! Sections of Markdown documents that programs write, and rows of Markdown tables.

/// Returns the section with this name: the text between its two comments.
#[must_use]
pub fn section<'t>(document: &'t str, name: &str) -> Option<&'t str> {
    let [begin, end] = comments(name);
    let (_, after) = document.split_once(&begin)?;
    Some(after.split_once(&end)?.0)
}

/// Returns the document with another text in the section with this name, or `None` if it has no such section.
#[must_use]
pub fn with_section(document: &str, name: &str, text: &str) -> Option<String> {
    let [begin, end] = comments(name);
    let (before, after) = document.split_once(&begin)?;
    let (_, after) = after.split_once(&end)?;
    Some(format!("{before}{begin}{text}{end}{after}"))
}

pub(crate) fn table_row(cells: impl IntoIterator<Item = String>) -> String {
    format!("| {} |\n", cells.into_iter().collect::<Vec<_>>().join(" | "))
}

fn comments(name: &str) -> [String; 2] {
    [format!("<!-- {name}: begin -->\n\n"), format!("\n<!-- {name}: end -->\n")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_rest_stays() {
        let document = "a\n<!-- x: begin -->\n\nold\n\n<!-- x: end -->\nb\n";
        assert_eq!(section(document, "x"), Some("old\n"));
        let newer = with_section(document, "x", "new\n").expect("a section");
        assert_eq!(newer, document.replace("old", "new"));
        assert_eq!((section(document, "y"), with_section(document, "y", "new\n")), (None, None));
    }
}
