//! Clients as lines of CSV (RFC 4180): reading, writing, and what one line makes of a client.
//!
//! Columns are known by the names in the first line: `kind` and `value` are needed, `tier`, `label`, `tags`, `note`,
//! `override`, `until` and `reason` are there if wanted. `tags` stand with spaces between them. `override` is `blocked`, `unlimited`, a JSON list of limits, or empty for none;
//! `until` an instant (RFC 3339), `never`, or empty for the end that it has or a week from now. A column that is absent leaves
//! what a client has.

use csv::{ErrorKind, ReaderBuilder, Trim};
use jiff::Timestamp;
use serde_json::json;
use tidegate::{
    formats::read_json,
    policy::{Client, Limit, Override},
};

use crate::domain::{
    error::{ErrorLocation, FieldError, stands_here},
    overrides,
};

/// In the order in which they are written.
const COLUMNS: [&str; 9] = ["kind", "value", "tier", "label", "tags", "note", "override", "until", "reason"];
/// What stands in `until` where an override has no end.
const NEVER: &str = "never";
const NO_TEXT: &str = "it is not UTF-8 text; save the file as UTF-8";

/// One line after the first.
pub(super) struct Line {
    /// From 1, that of the columns' names.
    pub(super) number: u64,
    /// By place in [`COLUMNS`]; none where the column is absent.
    cells: Result<[Option<String>; COLUMNS.len()], Wrong>,
}

/// What is wrong with a line.
#[derive(Clone, Debug)]
pub(super) struct Wrong {
    pub(super) column: Option<&'static str>,
    pub(super) message: String,
}

fn wrong<T>(column: &'static str, message: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { column: Some(column), message: message.into() })
}

/// The lines of a file, or why there are none.
pub(super) fn read(text: &[u8]) -> Result<impl Iterator<Item = Line>, FieldError> {
    let refused = |message: String| FieldError::invalid("", message);
    // Spreadsheets put a mark before the first name.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::Headers).from_reader(text);
    let names = reader.headers().map_err(|_| refused(format!("line 1: {NO_TEXT}")))?.clone();
    let mut places = Vec::with_capacity(names.len());
    for name in &names {
        let known = COLUMNS.iter().position(|column| *column == name);
        let place = known
            .ok_or_else(|| refused(format!("line 1: there is no column `{name}`; there are {}", COLUMNS.join(", "))))?;
        if places.contains(&place) {
            return Err(refused(format!("line 1: the column `{name}` stands here twice")));
        }
        places.push(place);
    }
    if let Some(needed) = (0..2).find(|needed| !places.contains(needed)) {
        return Err(refused(format!("line 1: the column `{}` is missing", COLUMNS[needed])));
    }
    let (mut number, mut read) = (1, 0);
    Ok(reader.into_records().map(move |record| {
        // The reader's own count takes the second half of a line's end for the next line.
        let position = match &record {
            Ok(record) => record.position(),
            Err(error) => error.position(),
        };
        match position.map(|position| position.byte() as usize) {
            Some(byte) => {
                let ends = text[byte..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
                number += line_ends(&text[read..byte + ends]);
                read = byte + ends;
            }
            None => number += 1,
        }
        let unreadable = |error: csv::Error| {
            // Nothing else is wrong with bytes in memory: lines of other lengths are read.
            let column = match error.kind() {
                ErrorKind::Utf8 { err, .. } => places.get(err.field()).map(|place| COLUMNS[*place]),
                _ => None,
            };
            Wrong { column, message: NO_TEXT.to_owned() }
        };
        let cells = record.map_err(unreadable).and_then(|record| {
            if record.len() != places.len() {
                let message = format!("it has {} fields; the first line has {}", record.len(), places.len());
                return Err(Wrong { column: None, message });
            }
            let mut cells = [const { None }; COLUMNS.len()];
            for (place, cell) in places.iter().zip(&record) {
                cells[*place] = Some(cell.to_owned());
            }
            Ok(cells)
        });
        Line { number, cells }
    }))
}

/// Lines that end in `text`: with LF, CR LF, or CR.
fn line_ends(text: &[u8]) -> u64 {
    let is_end = |place: &usize| match text[*place] {
        b'\n' => true,
        b'\r' => text.get(place + 1) != Some(&b'\n'),
        _ => false,
    };
    (0..text.len()).filter(is_end).count() as u64
}

impl Line {
    /// Kind and value of the client that it is about.
    pub(super) fn identity(&self) -> Result<(&str, &str), Wrong> {
        let cells = self.cells.as_ref().map_err(Wrong::clone)?;
        Ok((cells[0].as_deref().unwrap_or_default(), cells[1].as_deref().unwrap_or_default()))
    }

    /// The client of this line, that was `before` so.
    pub(super) fn client(&self, before: Option<&Client>, now: Timestamp) -> Result<Client, Wrong> {
        let (kind, value) = self.identity()?;
        let mut client = before.cloned().unwrap_or_else(|| Client::new(kind, value));
        let cell = |name: &str| {
            let place = COLUMNS.iter().position(|column| *column == name)?;
            self.cells.as_ref().ok()?[place].as_deref()
        };
        let text = |cell: &str| Some(cell.to_owned()).filter(|cell| !cell.is_empty());
        for (name, field) in [("tier", &mut client.tier), ("label", &mut client.label), ("note", &mut client.note)] {
            if let Some(cell) = cell(name) {
                *field = text(cell);
            }
        }
        if let Some(cell) = cell("tags") {
            client.tags = cell.split_whitespace().map(str::to_owned).collect();
        }
        let had = before.and_then(|before| before.exception.clone());
        let mut made = match cell("override") {
            None => had.clone(),
            Some("") => None,
            Some("blocked") => Some(Override { blocked: true, ..Override::default() }),
            Some("unlimited") => Some(Override { unlimited: true, ..Override::default() }),
            Some(list) if list.starts_with('[') => match read_json::<Vec<Limit>>(list) {
                Ok(limits) => Some(Override { limits, ..Override::default() }),
                Err(error) => return wrong("override", error.to_string()),
            },
            Some(other) => {
                let wanted = "`blocked`, `unlimited`, a JSON list of limits, or nothing";
                return wrong("override", stands_here(other, wanted));
            }
        };
        let Some(exception) = &mut made else {
            client.exception = None;
            return match ["until", "reason"].into_iter().find(|name| cell(name).is_some_and(|cell| !cell.is_empty())) {
                Some(column) => wrong(column, "there is no override that it could be about"),
                None => Ok(client),
            };
        };
        let before = had.as_ref().and_then(|had| had.reason.clone());
        exception.reason = cell("reason").map_or(before, text);
        let until = cell("until").unwrap_or_default();
        exception.until = text(until).filter(|until| until != NEVER);
        client.exception = made;
        // Said as a caller of the API would.
        let given = if until == NEVER { json!({ "override": { "until": null } }) } else { json!({}) };
        match overrides::complete(&mut client, &given, had.as_ref(), now) {
            Ok(()) => Ok(client),
            Err(error) => {
                let is_of_end = matches!(&error.at, ErrorLocation::Pointer(pointer) if pointer.ends_with("until"));
                wrong(if is_of_end { "until" } else { "reason" }, error.message)
            }
        }
    }
}

/// The column that a field of a client stands in.
pub(super) fn column_of(field: &str) -> Option<&'static str> {
    let field = field.trim_start_matches('.');
    let field = field.strip_prefix("override.").filter(|field| matches!(*field, "until" | "reason")).unwrap_or(field);
    COLUMNS
        .into_iter()
        .find(|column| field.strip_prefix(column).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])))
}

/// Clients as a file that [`read`] makes the same clients of.
pub(super) fn write<'c>(clients: impl Iterator<Item = &'c Client>) -> Result<Vec<u8>, String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| error.to_string();
    writer.write_record(COLUMNS).map_err(failed)?;
    for client in clients {
        let (mut kind_of_override, mut until, mut reason) = (String::new(), "", "");
        if let Some(made) = &client.exception {
            kind_of_override = match (made.blocked, made.unlimited) {
                (true, _) => "blocked".to_owned(),
                (_, true) => "unlimited".to_owned(),
                _ => serde_json::to_string(&made.limits).map_err(|error| error.to_string())?,
            };
            (until, reason) = (made.until.as_deref().unwrap_or(NEVER), made.reason.as_deref().unwrap_or_default());
        }
        let text = |field: &'c Option<String>| field.as_deref().unwrap_or_default();
        let cells = [
            &client.kind,
            &client.value,
            text(&client.tier),
            text(&client.label),
            &client.tags.join(" "),
            text(&client.note),
            &kind_of_override,
            until,
            reason,
        ];
        writer.write_record(cells).map_err(failed)?;
    }
    writer.into_inner().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_line_is_said_in_plain_words() {
        let file = |cell: &[u8]| [b"kind,value,override\nuser,ada,".as_slice(), cell, b"\n"].concat();
        for (text, column, message) in [
            (file(b"\xff"), Some("override"), NO_TEXT),
            (b"kind,value\nuser\n".to_vec(), None, "it has 1 fields; the first line has 2"),
            (
                file(b"stop"),
                Some("override"),
                "`stop` stands here; write `blocked`, `unlimited`, a JSON list of limits, or nothing",
            ),
            (file(b"[5]"), Some("override"), "/0: `5` stands here; write a table of keys and values"),
            (
                file(b"[{]"),
                Some("override"),
                "not JSON: line 1: a key stands here without quotes; put it in double quotes",
            ),
        ] {
            let line = read(&text).unwrap_or_else(|error| panic!("{error:?}")).next().expect("a line");
            let wrong = line.client(None, Timestamp::UNIX_EPOCH).expect_err("wrong");
            assert_eq!((wrong.column, &*wrong.message), (column, message));
        }
        let error = read(b"kind,\xff\n").map(drop).expect_err("no text");
        assert_eq!(error.message, format!("line 1: {NO_TEXT}"));
    }
}
