//! Meanings of fields with names: those that nginx, Caddy, Traefik, Envoy, Cloudflare, Google, AWS and the W3C's extended
//! format have, in any case, or those that `--map` names.
//!
//! What a line tells is found under several names; of those that it has, the one named first here counts.

use std::{borrow::Cow, str::FromStr, sync::LazyLock};

use rustc_hash::FxHashMap;

use super::{
    client::{ClientReading, is_nothing, trimmed},
    line_error::LineError,
    record::{Record, Target},
};
use crate::{
    clients::Kind,
    timestamp::{self, LogZone, TimeError},
};

/// Meanings of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    Time,
    /// A date, beside a time of the day.
    Date,
    Client,
    /// The address of a client, in an object for the client.
    ClientAddress,
    /// A list of addresses that a proxy wrote.
    Forwarded,
    /// The headers of the request, of which only such lists count.
    Headers,
    User,
    /// The name of a user, in an object for the user.
    UserName,
    Method,
    Endpoint,
    /// A request line, or an object with more of these fields.
    Request,
    /// An object with more of these fields.
    Group,
    /// A whole line of another form, or its fields as an object.
    Line,
}

/// Names in lower case, the best first.
const NAMES: [(Meaning, &[&str]); 13] = [
    (
        Meaning::Time,
        &[
            "startutc",
            "time",
            "timestamp",
            "@timestamp",
            "ts",
            "time_iso8601",
            "msec",
            "time_local",
            "start_time",
            "edgestarttimestamp",
            "startlocal",
            "datetime",
            "requesttimeepoch",
            "requesttime",
        ],
    ),
    (Meaning::Date, &["date"]),
    (
        Meaning::Client,
        &[
            "ip",
            "client_ip",
            "remote_addr",
            "client",
            "remote_ip",
            "remote",
            "clienthost",
            "clientaddr",
            "clientip",
            "c-ip",
            "remoteip",
            "remoteaddr",
            "remote_address",
            "client_addr",
            "client_address",
            "remote_host",
            "downstream_remote_address",
            "source_ip",
            "src_ip",
            "client.ip",
            "source.ip",
            "client.address",
            "source.address",
        ],
    ),
    (
        Meaning::Forwarded,
        &[
            "x_forwarded_for",
            "x-forwarded-for",
            "http_x_forwarded_for",
            "request_x-forwarded-for",
            "cs(x-forwarded-for)",
            "forwarded",
            "http_forwarded",
            "x-real-ip",
            "x_real_ip",
            "http_x_real_ip",
        ],
    ),
    (Meaning::Headers, &["headers", "request_headers"]),
    (Meaning::User, &["user", "remote_user", "user_id", "clientusername", "cs-username", "user.name", "user.id"]),
    (Meaning::UserName, &["name", "username", "id"]),
    (Meaning::ClientAddress, &["address"]),
    (
        Meaning::Method,
        &[
            "method",
            "request_method",
            "requestmethod",
            "httpmethod",
            "http_method",
            "verb",
            "clientrequestmethod",
            "cs-method",
            "http.request.method",
        ],
    ),
    (
        Meaning::Endpoint,
        &[
            // Of nginx `uri` is the path as it was rewritten.
            "request_uri",
            "path",
            "uri",
            "endpoint",
            "url",
            "requestpath",
            "request_path",
            "requesturl",
            "clientrequestpath",
            "clientrequesturi",
            "cs-uri-stem",
            "cs-uri",
            "resourcepath",
            "x-envoy-origin-path",
            "url.path",
            "url.original",
            "original",
        ],
    ),
    (Meaning::Request, &["request", "httprequest", "request_line"]),
    (Meaning::Group, &["http", "source", "attributes"]),
    (Meaning::Line, &["log", "line", "textpayload", "event.original", "_raw", "message", "jsonpayload"]),
];

/// The longest of these names.
const NAME_BYTES_MAX: usize = 32;
/// Added to the place of a field that counts only where no other has its meaning.
const UNLIKELY: usize = 1_000;
/// What an object for the client is that has none.
const NO_ADDRESS: &str = "an object without an address";
/// Names that an error lists.
const LISTED_MAX: usize = 30;

/// The meaning of a name, and its place in the list of its meaning: less is better.
pub(crate) type NameMeaning = (Meaning, usize);

/// Returns what a field of this name means.
pub(crate) fn meaning(name: &str) -> Option<NameMeaning> {
    static TABLE: LazyLock<FxHashMap<&[u8], NameMeaning>> = LazyLock::new(|| {
        let with_places = |(meaning, names): &(Meaning, &'static [&'static str])| {
            let meaning = *meaning;
            names.iter().enumerate().map(move |(place, name)| (name.as_bytes(), (meaning, place)))
        };
        NAMES.iter().flat_map(with_places).collect()
    });
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    TABLE.get(&*lower).copied()
}

/// Fields by the names that a log has for them, for logs with other names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldMap {
    pub(crate) names: Vec<(Meaning, String)>,
}

impl FieldMap {
    pub(crate) fn set(&mut self, meaning: Meaning, name: &str) {
        self.names.retain(|(known, _)| *known != meaning);
        self.names.push((meaning, name.to_owned()));
    }
}

impl FromStr for FieldMap {
    type Err = String;

    /// Reads `client=FIELD,method=FIELD,...`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut map = Self::default();
        for pair in text.split(',') {
            let (what, name) = pair.split_once('=').unwrap_or((pair, ""));
            let meaning = match what.trim() {
                "client" => Some(Meaning::Client),
                "method" => Some(Meaning::Method),
                "path" => Some(Meaning::Endpoint),
                "time" => Some(Meaning::Time),
                "user" => Some(Meaning::User),
                // No limit looks at it.
                "status" => None,
                other => {
                    return Err(format!("`{other}` is not known; client, method, path, time, user and status are"));
                }
            };
            if name.trim().is_empty() {
                return Err(format!("`{pair}` names no field; write {}=FIELD", what.trim()));
            }
            if let Some(meaning) = meaning {
                map.set(meaning, name.trim());
            }
        }
        Ok(map)
    }
}

/// Columns of a form whose header names them: what each means.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) names: Vec<String>,
    known: Vec<Option<NameMeaning>>,
}

impl Columns {
    /// Finds the fields of a header.
    pub(crate) fn of(names: Vec<String>, map: &FieldMap) -> Self {
        let known = |name: &String| match map.names.iter().find(|(_, mapped)| mapped.eq_ignore_ascii_case(name)) {
            Some((meaning, _)) => Some((*meaning, 0)),
            // `Client IP` is as good as `client_ip`.
            None => meaning(&name.replace(' ', "_"))
                .filter(|(found, _)| !map.names.iter().any(|(mapped, _)| mapped == found)),
        };
        Self { known: names.iter().map(known).collect(), names }
    }

    /// Returns whether these are several short names, of which some mean something.
    pub(crate) fn are_names(&self) -> bool {
        let is_short = |name: &String| name.split_ascii_whitespace().count() <= 2;
        self.names.len() > 1 && self.names.iter().all(is_short) && self.known.iter().any(Option::is_some)
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Says what the header lacks to tell requests.
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

    /// The fields of a record.
    pub(crate) fn fields<'l>(&self, values: impl Iterator<Item = Cow<'l, str>>) -> Fields<'l> {
        let mut fields = Fields::default();
        for (known, value) in self.known.iter().zip(values) {
            if let Some(known) = known {
                fields.put(*known, Value::Text(trimmed(value)));
            }
        }
        fields
    }
}

/// The fields that a line or a header has, for an error.
pub(crate) fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > LISTED_MAX { " and more" } else { "" };
    format!("its fields are {}{more}", shown.join(", "))
}

/// A value with the place of its name, of which less is better.
type RankedValue<'l> = Option<(usize, Value<'l>)>;

#[derive(Debug, Default)]
pub(crate) struct Fields<'l> {
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
    /// The value of a field for the client that is no text.
    unusable_client: Option<Cow<'static, str>>,
}

/// A reason for which fields make no request.
#[derive(Debug)]
pub(crate) enum FieldsError {
    /// No field is the time.
    NoTime,
    /// No field is the client.
    NoClient,
    /// A field cannot be read.
    Unreadable(LineError),
}

impl<'l> Fields<'l> {
    /// Returns the request of these fields.
    pub(crate) fn record(
        self,
        clients: &ClientReading,
        zone: Option<&LogZone>,
        is_client_needed: bool,
    ) -> Result<Record<'l>, FieldsError> {
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
            Some(Cow::Borrowed(request)) => Target::of_request(request.as_bytes()),
            Some(Cow::Owned(request)) => Target::of_request(request.as_bytes()).into_owned(),
            None => Target::of_fields(text(self.method), text(self.endpoint)),
        };
        let user = match self.user {
            Some((_, Value::Number(number))) => Some(number.to_string().into()),
            user => text(user),
        };
        Ok(Record { time, client, user, kind: Kind::USER, target })
    }

    /// Takes the line of another form that this one wraps, and returns whether it has nothing else to say. A client beside it
    /// may be the server that sent the line to a collector, unless there is a request too.
    pub(crate) fn take_line(&mut self) -> Option<(Cow<'l, str>, bool)> {
        let has_request = self.request.is_some() || self.method.is_some() || self.endpoint.is_some();
        match self.line.take_if(|_| !self.has_client || !has_request) {
            Some((place, Value::Text(line))) => Some((line, place == 0 && !self.has_client)),
            _ => None,
        }
    }

    fn instant(&self, zone: Option<&LogZone>) -> Result<u64, FieldsError> {
        let read = |text: &str| {
            timestamp::read_any(text.as_bytes(), zone).map_err(|error| FieldsError::Unreadable(error.of_line(text)))
        };
        match (&self.time, &self.date) {
            (Some((_, Value::Text(clock))), Some((_, Value::Text(date)))) if is_clock(clock) => {
                read(&format!("{date}T{clock}"))
            }
            (Some((_, value)), _) | (None, Some((_, value))) => match value {
                Value::Number(number) => number
                    .as_f64()
                    .and_then(timestamp::of_number)
                    .ok_or_else(|| FieldsError::Unreadable(TimeError::Unreadable.of_line(number.to_string()))),
                Value::Text(text) => read(text),
                Value::Fields(_) | Value::Texts(_) | Value::Null | Value::Other(_) => Err(FieldsError::NoTime),
            },
            (None, None) => Err(FieldsError::NoTime),
        }
    }

    pub(crate) fn put(&mut self, (meaning, place): NameMeaning, value: Value<'l>) {
        let found = match meaning {
            Meaning::Time => &mut self.time,
            Meaning::Date => &mut self.date,
            Meaning::Client => return self.put_client(place, value),
            Meaning::ClientAddress => {
                self.client_address = Some((place, value));
                return;
            }
            Meaning::Forwarded => &mut self.forwarded,
            Meaning::User => &mut self.user,
            Meaning::UserName => &mut self.user_name,
            Meaning::Method => &mut self.method,
            Meaning::Endpoint => &mut self.endpoint,
            Meaning::Headers => {
                if let Value::Fields(fields) = value {
                    self.has_client |= fields.forwarded.is_some();
                    keep_better(&mut self.forwarded, fields.forwarded);
                }
                return;
            }
            Meaning::Group => {
                if let Value::Fields(fields) = value {
                    self.put_all(*fields);
                }
                return;
            }
            Meaning::Line => {
                match value {
                    Value::Fields(fields) => self.put_all(*fields),
                    Value::Text(_) => keep_better(&mut self.line, Some((place, value))),
                    // Such as the number of a line of source text.
                    _ => {}
                }
                return;
            }
            Meaning::Request => {
                match value {
                    // Logstash has the path alone there.
                    Value::Text(path) if path.starts_with('/') => self.endpoint = Some((0, Value::Text(path))),
                    Value::Text(request) if request.contains(' ') => self.request = Some(request),
                    Value::Fields(fields) => self.put_all(*fields),
                    Value::Text(_) | Value::Number(_) | Value::Texts(_) | Value::Null | Value::Other(_) => {}
                }
                return;
            }
        };
        let is_list = meaning == Meaning::Forwarded;
        self.has_client |= is_list;
        match value {
            // Such as {"user": {"name": ...}}.
            Value::Fields(fields) => match meaning {
                Meaning::User => keep_better(found, fields.user_name),
                Meaning::Endpoint => keep_better(found, fields.endpoint),
                _ => {}
            },
            Value::Texts(texts) if is_list => keep_better(found, Some((place, Value::Text(texts.into())))),
            Value::Text(text) if is_list && is_nothing(&text) => {}
            value => {
                let rank = if meaning == Meaning::Time && !value.is_likely_time() { place + UNLIKELY } else { place };
                keep_better(found, value.says_something().then_some((rank, value)));
            }
        }
    }

    /// Puts the client, or that of an object such as `{"client": {"ip": ...}}`.
    fn put_client(&mut self, place: usize, value: Value<'l>) {
        self.has_client = true;
        let value = match value {
            Value::Fields(fields) if fields.has_client => {
                self.unusable_client = self.unusable_client.take().or(fields.unusable_client);
                return keep_better(&mut self.client, fields.client);
            }
            Value::Fields(fields) => fields.client_address.map_or(Value::Other(NO_ADDRESS), |(_, value)| value),
            value => value,
        };
        let unusable = match value {
            Value::Text(text) if is_nothing(&text) => return,
            Value::Null => return,
            Value::Text(_) => return keep_better(&mut self.client, Some((place, value))),
            Value::Texts(texts) => return keep_better(&mut self.client, Some((place, Value::Text(texts.into())))),
            Value::Number(number) => number.to_string().into(),
            Value::Fields(_) => NO_ADDRESS.into(),
            Value::Other(text) => text.into(),
        };
        self.unusable_client.get_or_insert(unusable);
    }

    /// Puts a field in the place of whatever stands there.
    pub(crate) fn replace(&mut self, meaning: Meaning, value: Value<'l>) {
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

    fn put_all(&mut self, other: Fields<'l>) {
        // What stands in an object of its own is often another time, so it counts only where there is no other.
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

/// Keeps the one of two values whose name stands first in its list.
fn keep_better<'l>(found: &mut RankedValue<'l>, other: RankedValue<'l>) {
    if other.as_ref().is_some_and(|(place, _)| found.as_ref().is_none_or(|(best, _)| place < best)) {
        *found = other;
    }
}

fn text(found: RankedValue<'_>) -> Option<Cow<'_, str>> {
    match found {
        Some((_, Value::Text(text))) => Some(text),
        _ => None,
    }
}

/// Returns whether a text is a time of the day, without its date.
fn is_clock(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8 && bytes[2] == b':' && bytes[5] == b':'
}

#[derive(Debug)]
pub(crate) enum Value<'l> {
    Text(Cow<'l, str>),
    Number(serde_json::Number),
    Fields(Box<Fields<'l>>),
    /// Texts of an array, with commas between them.
    Texts(String),
    /// A field without a value.
    Null,
    /// Nothing that a field could be: what it is.
    Other(&'static str),
}

impl Value<'_> {
    /// Returns a value that no field has.
    pub(crate) fn of_bool(flag: bool) -> Self {
        Self::Other(if flag { "true" } else { "false" })
    }

    /// Returns whether a field for the time has one, and not a duration, a date alone or a time of the day.
    fn is_likely_time(&self) -> bool {
        match self {
            Self::Text(text) => timestamp::is_likely_text(text),
            Self::Number(number) => number.as_f64().is_some_and(timestamp::is_likely_number),
            Self::Fields(_) | Self::Texts(_) | Self::Null | Self::Other(_) => false,
        }
    }

    /// A name that is there without a value leaves the field to the next name.
    fn says_something(&self) -> bool {
        match self {
            Self::Text(text) => !matches!(text.as_ref(), "" | "-"),
            Self::Number(_) | Self::Fields(_) => true,
            Self::Texts(_) | Self::Null | Self::Other(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for (meaning_of, names) in NAMES {
            for (place, name) in names.iter().enumerate() {
                assert_eq!(meaning(name), Some((meaning_of, place)), "{name}");
                assert_eq!(meaning(&name.to_uppercase()), Some((meaning_of, place)), "{name}");
            }
        }
        assert_eq!((meaning("other"), meaning(&"x".repeat(99))), (None, None));
    }

    #[test]
    fn a_map_of_fields_that_is_wrong_is_named() {
        let map: FieldMap = "client=peer.addr, path=u,status=s".parse().expect("right");
        assert_eq!(map.names, [(Meaning::Client, "peer.addr".to_owned()), (Meaning::Endpoint, "u".to_owned())]);
        for (text, why) in [("peer", "`peer` is not known"), ("client=", "names no field"), ("", "`` is not known")] {
            let refused = text.parse::<FieldMap>().expect_err(text);
            assert!(refused.contains(why), "{refused}");
        }
    }
}
