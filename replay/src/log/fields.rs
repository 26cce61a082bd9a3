//! Values of the named fields of a line, and the request that they make.

use std::borrow::Cow;

use super::{
    client::{ClientOptions, is_nothing, trimmed},
    field_names::{FieldMap, Meaning, NameMeaning, meaning},
    line_error::LineError,
    record::{LogRecord, RequestTarget},
};
use crate::{
    clients::IdentityKind,
    timestamp::{self, LogZone, TimeError},
};

/// Added to the rank of a field that counts only if no other one has its meaning.
const UNLIKELY: usize = 1_000;
/// Description of an object for the client without an address.
const NO_ADDRESS: &str = "an object without an address";
/// Most names that an error lists.
const LISTED_MAX: usize = 30;

/// Columns of a format whose header names them, with the meaning of each.
#[derive(Debug)]
pub(crate) struct HeaderColumns {
    pub(crate) names: Vec<String>,
    known: Vec<Option<NameMeaning>>,
}

impl HeaderColumns {
    /// Finds the meanings of the names of a header.
    pub(crate) fn of(names: Vec<String>, map: &FieldMap) -> Self {
        let known = |name: &String| match map.names.iter().find(|(_, mapped)| mapped.eq_ignore_ascii_case(name)) {
            Some((meaning, _)) => Some((*meaning, 0)),
            // `Client IP` is the same name as `client_ip`.
            None => meaning(&name.replace(' ', "_"))
                .filter(|(found, _)| !map.names.iter().any(|(mapped, _)| mapped == found)),
        };
        Self { known: names.iter().map(known).collect(), names }
    }

    /// Returns whether these are several short names, some of them with a meaning.
    pub(crate) fn are_names(&self) -> bool {
        let is_short = |name: &String| name.split_ascii_whitespace().count() <= 2;
        self.names.len() > 1 && self.names.iter().all(is_short) && self.known.iter().any(Option::is_some)
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns an error if the header lacks a field that requests need.
    pub(crate) fn check(&self, map: &FieldMap, is_client_needed: bool) -> Result<(), LineError> {
        let has = |wanted| self.known.iter().flatten().any(|(meaning, _)| *meaning == wanted);
        let names = map.names.iter().map(|(_, name)| name);
        if let Some(absent) = names.into_iter().find(|name| !self.has(name)) {
            return Err(format!("the header has no field `{absent}`; {}", listed(&self.names)).into());
        }
        let lacks =
            |what, option| Err(format!("the header has no {what}; {option} names it; {}", listed(&self.names)).into());
        match () {
            () if !has(Meaning::Time) && !has(Meaning::Date) => lacks("time", "--map time=FIELD"),
            () if is_client_needed && !has(Meaning::Client) && !has(Meaning::Forwarded) => {
                lacks("client", "--map client=FIELD")
            }
            () => Ok(()),
        }
    }

    pub(crate) fn fields<'l>(&self, values: impl Iterator<Item = Cow<'l, str>>) -> LineFields<'l> {
        let mut fields = LineFields::default();
        for (known, value) in self.known.iter().zip(values) {
            if let Some(known) = known {
                fields.put(*known, FieldValue::Text(trimmed(value)));
            }
        }
        fields
    }
}

/// Lists the fields of a line or a header for an error.
pub(crate) fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > LISTED_MAX { " and more" } else { "" };
    format!("its fields are {}{more}", shown.join(", "))
}

/// A value with the rank of its name: less is better.
type RankedValue<'l> = Option<(usize, FieldValue<'l>)>;

/// Values of the fields of a line, by their meaning.
#[derive(Debug, Default)]
pub(crate) struct LineFields<'l> {
    time: RankedValue<'l>,
    date: RankedValue<'l>,
    client: RankedValue<'l>,
    client_address: RankedValue<'l>,
    forwarded: RankedValue<'l>,
    user: RankedValue<'l>,
    user_name: RankedValue<'l>,
    method: RankedValue<'l>,
    endpoint: RankedValue<'l>,
    request: Option<Cow<'l, str>>,
    line: RankedValue<'l>,
    /// Whether there is a field for the client, with or without a value.
    has_client: bool,
    /// The value of a field for the client that is not a text.
    unusable_client: Option<Cow<'static, str>>,
}

/// Reason why fields do not make a request.
#[derive(Debug)]
pub(crate) enum FieldsError {
    NoTime,
    NoClient,
    Unreadable(LineError),
}

impl<'l> LineFields<'l> {
    pub(crate) fn record(
        self,
        clients: &ClientOptions,
        zone: Option<&LogZone>,
        is_client_needed: bool,
    ) -> Result<LogRecord<'l>, FieldsError> {
        let time = self.instant(zone)?;
        if is_client_needed && !self.has_client {
            return Err(FieldsError::NoClient);
        }
        let forwarded = text(self.forwarded);
        if self.client.is_none()
            && forwarded.is_none()
            && let Some(found) = self.unusable_client
        {
            let error = LineError::of("the client is no text with an address", found.as_bytes());
            return Err(FieldsError::Unreadable(error));
        }
        let client = text(self.client).unwrap_or_default();
        let client = clients.read(client, forwarded.as_deref()).map_err(FieldsError::Unreadable)?;
        let target = match self.request {
            Some(Cow::Borrowed(request)) => RequestTarget::of_request(request.as_bytes()),
            Some(Cow::Owned(request)) => RequestTarget::of_request(request.as_bytes()).into_owned(),
            None => RequestTarget::of_fields(text(self.method), text(self.endpoint)),
        };
        let user = match self.user {
            Some((_, FieldValue::Number(number))) => Some(number.to_string().into()),
            user => text(user),
        };
        Ok(LogRecord { time, client, user, kind: IdentityKind::USER, target })
    }

    /// Takes the line of another format that is in a field of this one, and returns whether the other fields are irrelevant. A
    /// client beside it may be the server that sent the line to a collector, unless there is a request too.
    pub(crate) fn take_line(&mut self) -> Option<(Cow<'l, str>, bool)> {
        let has_request = self.request.is_some() || self.method.is_some() || self.endpoint.is_some();
        match self.line.take_if(|_| !self.has_client || !has_request) {
            Some((place, FieldValue::Text(line))) => Some((line, place == 0 && !self.has_client)),
            _ => None,
        }
    }

    fn instant(&self, zone: Option<&LogZone>) -> Result<u64, FieldsError> {
        let read = |text: &str| {
            timestamp::read_any(text.as_bytes(), zone).map_err(|error| FieldsError::Unreadable(error.of_line(text)))
        };
        match (&self.time, &self.date) {
            (Some((_, FieldValue::Text(clock))), Some((_, FieldValue::Text(date)))) if is_clock(clock) => {
                read(&format!("{date}T{clock}"))
            }
            (Some((_, value)), _) | (None, Some((_, value))) => match value {
                FieldValue::Number(number) => number
                    .as_f64()
                    .and_then(timestamp::of_number)
                    .ok_or_else(|| FieldsError::Unreadable(TimeError::Unreadable.of_line(number.to_string()))),
                FieldValue::Text(text) => read(text),
                FieldValue::Fields(_) | FieldValue::Texts(_) | FieldValue::Null | FieldValue::Other(_) => {
                    Err(FieldsError::NoTime)
                }
            },
            (None, None) => Err(FieldsError::NoTime),
        }
    }

    /// Puts the value of a field, if its name ranks before that of the value so far.
    pub(crate) fn put(&mut self, (meaning, rank): NameMeaning, value: FieldValue<'l>) {
        let found = match meaning {
            Meaning::Time => &mut self.time,
            Meaning::Date => &mut self.date,
            Meaning::Client => return self.put_client(rank, value),
            Meaning::ClientAddress => {
                self.client_address = Some((rank, value));
                return;
            }
            Meaning::Forwarded => &mut self.forwarded,
            Meaning::User => &mut self.user,
            Meaning::UserName => &mut self.user_name,
            Meaning::Method => &mut self.method,
            Meaning::Endpoint => &mut self.endpoint,
            Meaning::Headers | Meaning::Group | Meaning::Line | Meaning::Request => {
                return self.put_nested(meaning, rank, value);
            }
        };
        let is_list = meaning == Meaning::Forwarded;
        self.has_client |= is_list;
        match value {
            // Such as {"user": {"name": ...}}.
            FieldValue::Fields(fields) => match meaning {
                Meaning::User => keep_better(found, fields.user_name),
                Meaning::Endpoint => keep_better(found, fields.endpoint),
                _ => {}
            },
            FieldValue::Texts(texts) if is_list => keep_better(found, Some((rank, FieldValue::Text(texts.into())))),
            FieldValue::Text(text) if is_list && is_nothing(&text) => {}
            value => {
                let rank = if meaning == Meaning::Time && !value.is_likely_time() { rank + UNLIKELY } else { rank };
                keep_better(found, value.has_content().then_some((rank, value)));
            }
        }
    }

    /// Puts a field that contains other fields: headers, a group, a line of another format, or a request.
    fn put_nested(&mut self, meaning: Meaning, rank: usize, value: FieldValue<'l>) {
        match (meaning, value) {
            (Meaning::Headers, FieldValue::Fields(fields)) => {
                self.has_client |= fields.forwarded.is_some();
                keep_better(&mut self.forwarded, fields.forwarded);
            }
            (Meaning::Headers, _) => {}
            (_, FieldValue::Fields(fields)) => self.put_all(*fields),
            // Other values, such as the number of a line of source text, are not lines.
            (Meaning::Line, value @ FieldValue::Text(_)) => keep_better(&mut self.line, Some((rank, value))),
            // Logstash has only the path there.
            (Meaning::Request, FieldValue::Text(path)) if path.starts_with('/') => {
                self.endpoint = Some((0, FieldValue::Text(path)));
            }
            (Meaning::Request, FieldValue::Text(request)) if request.contains(' ') => self.request = Some(request),
            _ => {}
        }
    }

    /// Puts the client, or the client in an object such as `{"client": {"ip": ...}}`.
    fn put_client(&mut self, place: usize, value: FieldValue<'l>) {
        self.has_client = true;
        let value = match value {
            FieldValue::Fields(fields) if fields.has_client => {
                self.unusable_client = self.unusable_client.take().or(fields.unusable_client);
                return keep_better(&mut self.client, fields.client);
            }
            FieldValue::Fields(fields) => {
                fields.client_address.map_or(FieldValue::Other(NO_ADDRESS), |(_, value)| value)
            }
            value => value,
        };
        let unusable = match value {
            FieldValue::Text(text) if is_nothing(&text) => return,
            FieldValue::Null => return,
            FieldValue::Text(_) => return keep_better(&mut self.client, Some((place, value))),
            FieldValue::Texts(texts) => {
                return keep_better(&mut self.client, Some((place, FieldValue::Text(texts.into()))));
            }
            FieldValue::Number(number) => number.to_string().into(),
            FieldValue::Fields(_) => NO_ADDRESS.into(),
            FieldValue::Other(text) => text.into(),
        };
        self.unusable_client.get_or_insert(unusable);
    }

    /// Puts a field and drops the value so far.
    pub(crate) fn replace(&mut self, meaning: Meaning, value: FieldValue<'l>) {
        match meaning {
            Meaning::Time => (self.time, self.date) = (None, None),
            Meaning::Client => (self.client, self.forwarded, self.unusable_client) = (None, None, None),
            Meaning::User => self.user = None,
            Meaning::Method => self.method = None,
            Meaning::Endpoint => (self.endpoint, self.request) = (None, None),
            Meaning::Date
            | Meaning::ClientAddress
            | Meaning::Forwarded
            | Meaning::Headers
            | Meaning::UserName
            | Meaning::Request
            | Meaning::Group
            | Meaning::Line => {}
        }
        self.put((meaning, 0), value);
    }

    fn put_all(&mut self, other: LineFields<'l>) {
        // The time of a nested object is often another one, so it counts only if there is no other.
        keep_better(&mut self.time, other.time.map(|(place, time)| (place + UNLIKELY, time)));
        if self.request.is_none() {
            self.request = other.request;
        }
        keep_better(&mut self.client, other.client);
        keep_better(&mut self.forwarded, other.forwarded);
        keep_better(&mut self.user, other.user);
        keep_better(&mut self.method, other.method);
        keep_better(&mut self.endpoint, other.endpoint);
        self.has_client |= other.has_client;
        self.unusable_client = self.unusable_client.take().or(other.unusable_client);
    }
}

/// Keeps the one of two values whose name ranks first.
fn keep_better<'l>(found: &mut RankedValue<'l>, other: RankedValue<'l>) {
    if other.as_ref().is_some_and(|(place, _)| found.as_ref().is_none_or(|(best, _)| place < best)) {
        *found = other;
    }
}

fn text(found: RankedValue<'_>) -> Option<Cow<'_, str>> {
    match found {
        Some((_, FieldValue::Text(text))) => Some(text),
        _ => None,
    }
}

/// Returns whether a text is a time of the day, without its date.
fn is_clock(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8 && bytes[2] == b':' && bytes[5] == b':'
}

#[derive(Debug)]
pub(crate) enum FieldValue<'l> {
    Text(Cow<'l, str>),
    Number(serde_json::Number),
    Fields(Box<LineFields<'l>>),
    /// Texts of an array, joined by commas.
    Texts(String),
    /// A field without a value.
    Null,
    /// A value that no field can have; its description.
    Other(&'static str),
}

impl FieldValue<'_> {
    /// Returns a value that no field can have.
    pub(crate) fn of_bool(flag: bool) -> Self {
        Self::Other(if flag { "true" } else { "false" })
    }

    /// Returns whether the value of a time field is a time, and not a duration, a date alone or a time of the day.
    fn is_likely_time(&self) -> bool {
        match self {
            Self::Text(text) => timestamp::is_likely_text(text),
            Self::Number(number) => number.as_f64().is_some_and(timestamp::is_likely_number),
            Self::Fields(_) | Self::Texts(_) | Self::Null | Self::Other(_) => false,
        }
    }

    /// Returns whether the value has content; otherwise the next name counts.
    fn has_content(&self) -> bool {
        match self {
            Self::Text(text) => !matches!(text.as_ref(), "" | "-"),
            Self::Number(_) | Self::Fields(_) => true,
            Self::Texts(_) | Self::Null | Self::Other(_) => false,
        }
    }
}
