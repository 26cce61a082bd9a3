//! Parser of the W3C extended log format, as IIS and `CloudFront` write it: a line `#Fields:` with names, then lines with as
//! many values, separated by spaces or tabs. Times are in UTC.

use std::borrow::Cow;

use memchr::memchr;

use super::{
    field_names::FieldMap,
    fields::{HeaderColumns, LineFields},
    line_error::LineError,
    record::readable,
};

/// Returns the columns of a `#Fields:` directive; `None` for another directive.
pub(crate) fn columns(
    directive: &[u8],
    map: &FieldMap,
    is_client_needed: bool,
) -> Option<Result<HeaderColumns, LineError>> {
    let names = directive.strip_prefix(b"#Fields:")?;
    let columns = HeaderColumns::of(values(names.trim_ascii()).map(|name| name.to_lowercase()).collect(), map);
    Some(columns.check(map, is_client_needed).map(|()| columns))
}

/// Reads a line by the columns of the last directive.
pub(crate) fn read<'l>(line: &'l [u8], columns: &HeaderColumns) -> Result<LineFields<'l>, LineError> {
    let (count, wanted) = (values(line).count(), columns.names.len());
    if count != wanted {
        return Err(LineError::with(
            "its number of fields is not that of the line #Fields: before it",
            format!("it has {count} fields, that line {wanted}"),
        ));
    }
    Ok(columns.fields(values(line)))
}

/// Splits a line at tabs or, if it has none, at spaces. There is an empty value between two tabs.
fn values(line: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    let has_tabs = memchr(b'\t', line).is_some();
    let is_between = move |byte: &u8| if has_tabs { *byte == b'\t' } else { *byte == b' ' };
    line.split(is_between).filter(move |value| has_tabs || !value.is_empty()).map(|value| readable(value.trim_ascii()))
}
