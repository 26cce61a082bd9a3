//! Parts of the documents that programs write, between two comments that name them.

/// Returns the part of this name: what stands between its comments.
#[must_use]
pub fn part<'t>(document: &'t str, name: &str) -> Option<&'t str> {
    let [begin, end] = comments(name);
    let (_, after) = document.split_once(&begin)?;
    Some(after.split_once(&end)?.0)
}

/// Returns the document with another text as the part of this name, or `None` where it has no such part.
#[must_use]
pub fn with_part(document: &str, name: &str, text: &str) -> Option<String> {
    let [begin, end] = comments(name);
    let (before, after) = document.split_once(&begin)?;
    let (_, after) = after.split_once(&end)?;
    Some(format!("{before}{begin}{text}{end}{after}"))
}

fn comments(name: &str) -> [String; 2] {
    [format!("<!-- {name}: begin -->\n\n"), format!("\n<!-- {name}: end -->\n")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_replaced_and_all_else_stays() {
        let document = "a\n<!-- x: begin -->\n\nold\n\n<!-- x: end -->\nb\n";
        assert_eq!(part(document, "x"), Some("old\n"));
        let newer = with_part(document, "x", "new\n").expect("a part");
        assert_eq!(newer, document.replace("old", "new"));
        assert_eq!((part(document, "y"), with_part(document, "y", "new\n")), (None, None));
    }
}
