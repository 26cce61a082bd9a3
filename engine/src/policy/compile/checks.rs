//! Reads and checks single fields of a policy: ids, texts, instants and values of identities.

use std::collections::HashSet;

use crate::{
    base::time::Nanos,
    policy::{
        document::{DESCRIPTION_CHARACTERS_MAX, TAGS_MAX, is_id},
        error::ProblemCollector,
        matcher::Matcher,
        request::VALUE_BYTES_MAX,
    },
};

pub(super) fn read_matcher<'v>(
    report: &mut ProblemCollector<'_>,
    kind: &str,
    value: &'v str,
) -> Option<Matcher<&'v str>> {
    if value.is_empty() || value.len() > VALUE_BYTES_MAX {
        report.wrong(format!("{} bytes; from 1 to {VALUE_BYTES_MAX} fit", value.len()));
        return None;
    }
    // Not every database can store it.
    if value.contains('\0') {
        report.wrong("a NUL character cannot be part of a value".to_owned());
        return None;
    }
    Matcher::parse(kind, value).map_err(|why| report.wrong(why)).ok()
}

pub(super) fn read_instant(report: &mut ProblemCollector<'_>, text: &str) -> Option<Nanos> {
    let instant = text.parse::<jiff::Timestamp>().ok().and_then(|at| u64::try_from(at.as_nanosecond()).ok());
    if instant.is_none() {
        report.wrong(format!("`{text}` is not an instant; write RFC 3339, such as 2027-01-01T00:00:00Z"));
    }
    instant
}

pub(super) fn check_id(report: &mut ProblemCollector<'_>, id: &str) {
    if !is_id(id) {
        report
            .wrong(format!("`{id}` is not an id; begin with a-z, go on with a-z, 0-9, _ and -, 64 characters at most"));
    }
}

pub(super) fn check_description(report: &mut ProblemCollector<'_>, text: &str) {
    let characters = text.chars().count();
    if characters > DESCRIPTION_CHARACTERS_MAX {
        report.wrong(format!("{characters} characters; at most {DESCRIPTION_CHARACTERS_MAX} fit"));
    }
    if let Some(control) = text.chars().find(|character| character.is_control() && *character != '\n') {
        report.wrong(format!(
            "the control character U+{:04X} cannot be part of it; take it out (line feeds may stay)",
            u32::from(control)
        ));
    }
}

pub(super) fn check_tags(report: &mut ProblemCollector<'_>, tags: &[String]) {
    if tags.len() > TAGS_MAX {
        report.field("tags").wrong(format!("{} tags; at most {TAGS_MAX} fit", tags.len()));
    }
    let mut known = HashSet::new();
    for (place, tag) in tags.iter().enumerate() {
        let report = &mut report.item("tags", place);
        check_id(report, tag);
        check_unique(report, &mut known, tag, "tag");
    }
}

pub(super) fn check_unique<'p>(report: &mut ProblemCollector<'_>, ids: &mut HashSet<&'p str>, id: &'p str, what: &str) {
    if !ids.insert(id) {
        report.wrong(format!("another {what} here is called `{id}`"));
    }
}
