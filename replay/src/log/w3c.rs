//! The W3C's extended log format, as IIS and `CloudFront` write it: a line `#Fields:` with names, then lines of as many values,
//! with spaces or tabs between them. Its times are in UTC.

use std::borrow::Cow;

use memchr::memchr;

use super::{
    fields::{Columns, FieldMap, Fields},
    line_error::LineError,
    record::readable,
};

/// Returns the columns that a directive names; `None`: it is another directive.
pub(crate) fn columns(directive: &[u8], map: &FieldMap, is_client_needed: bool) -> Option<Result<Columns, LineError>> {
    let names = directive.strip_prefix(b"#Fields:")?;
    let columns = Columns::of(values(names.trim_ascii()).map(|name| name.to_lowercase()).collect(), map);
    Some(columns.check(map, is_client_needed).map(|()| columns))
}

/// Reads a line by the columns of the last directive.
pub(crate) fn read<'l>(line: &'l [u8], columns: &Columns) -> Result<Fields<'l>, LineError> {
    let (count, wanted) = (values(line).count(), columns.names.len());
    if count != wanted {
        return Err(LineError::with(
            "its number of fields is not that of the line #Fields: before it",
            format!("it has {count} fields, that line {wanted}"),
        ));
    }
    Ok(columns.fields(values(line)))
}

/// Returns the values between tabs, or else between spaces. Between two tabs stands an empty value.
fn values(line: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    let has_tabs = memchr(b'\t', line).is_some();
    let is_between = move |byte: &u8| if has_tabs { *byte == b'\t' } else { *byte == b' ' };
    line.split(is_between).filter(move |value| has_tabs || !value.is_empty()).map(|value| readable(value.trim_ascii()))
}
