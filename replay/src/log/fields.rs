//! What fields with names mean: those that nginx, Caddy and most others choose.
//!
//! What a line tells is found under several names; of those that it has, the one named first here counts.

use std::borrow::Cow;

use super::record::{Record, Target, Why};
use crate::{clients::Kind, stamp};

pub(crate) const TIME: [&str; 7] = ["time", "timestamp", "@timestamp", "ts", "time_iso8601", "msec", "time_local"];
pub(crate) const CLIENT: [&str; 6] = ["ip", "remote_addr", "client_ip", "client", "remote_ip", "remote"];
const USER: [&str; 2] = ["user", "remote_user"];
const METHOD: [&str; 2] = ["method", "request_method"];
const ENDPOINT: [&str; 5] = ["path", "uri", "request_uri", "endpoint", "url"];
/// A request line, or an object with more of the fields above, as Caddy writes it.
const REQUEST: &str = "request";

/// A value, and the place of its name in its list: less is better.
type Found<'l> = Option<(usize, Value<'l>)>;

#[derive(Debug, Default)]
pub(crate) struct Fields<'l> {
    time: Found<'l>,
    client: Found<'l>,
    user: Found<'l>,
    method: Found<'l>,
    endpoint: Found<'l>,
    request: Option<Cow<'l, str>>,
}

impl<'l> Fields<'l> {
    pub(crate) fn record(self) -> Result<Record<'l>, Why> {
        let (_, time) = self.time.ok_or("no time; its field is `time`, or one of those that the help names")?;
        let time = match time {
            Value::Number(number) => stamp::of_number(number),
            Value::Text(text) => stamp::read_any(&text),
            Value::Fields(_) | Value::Other => None,
        };
        let text = |found: Found<'l>| match found {
            Some((_, Value::Text(text))) => Some(text),
            _ => None,
        };
        let target = match (text(self.endpoint), self.request) {
            (None, Some(Cow::Borrowed(request))) => Target::of_request(request.as_bytes()),
            (None, Some(Cow::Owned(request))) => Target::of_request(request.as_bytes()).into_owned(),
            (endpoint, _) => Target::of_fields(text(self.method), endpoint),
        };
        Ok(Record {
            time: time.ok_or("its time cannot be read; RFC 3339 and Unix seconds can")?,
            client: text(self.client),
            user: text(self.user),
            kind: Kind::USER,
            target,
        })
    }

    pub(crate) fn put_text(&mut self, name: &str, text: Cow<'l, str>) {
        self.put(name, Value::Text(text));
    }

    pub(crate) fn put(&mut self, name: &str, value: Value<'l>) {
        let lists = [
            (&TIME[..], &mut self.time),
            (&CLIENT, &mut self.client),
            (&USER, &mut self.user),
            (&METHOD, &mut self.method),
            (&ENDPOINT, &mut self.endpoint),
        ];
        for (names, found) in lists {
            if let Some(place) = names.iter().position(|known| *known == name) {
                return keep_better(found, value.says_something().then_some((place, value)));
            }
        }
        match value {
            Value::Text(request) if name == REQUEST => self.request = Some(request),
            Value::Fields(fields) if name == REQUEST => {
                keep_better(&mut self.client, fields.client);
                keep_better(&mut self.user, fields.user);
                keep_better(&mut self.method, fields.method);
                keep_better(&mut self.endpoint, fields.endpoint);
            }
            _ => {}
        }
    }
}

/// Of two finds the one whose name stands first in its list.
fn keep_better<'l>(found: &mut Found<'l>, other: Found<'l>) {
    if other.as_ref().is_some_and(|(place, _)| found.as_ref().is_none_or(|(best, _)| place < best)) {
        *found = other;
    }
}

#[derive(Debug)]
pub(crate) enum Value<'l> {
    Text(Cow<'l, str>),
    Number(f64),
    Fields(Box<Fields<'l>>),
    /// Nothing that a field could be.
    Other,
}

impl Value<'_> {
    /// A name that is there without a value leaves the field to the next name.
    fn says_something(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty() && text != "-",
            Self::Number(_) | Self::Fields(_) => true,
            Self::Other => false,
        }
    }
}

pub(crate) fn is_known(name: &str) -> bool {
    [&TIME[..], &CLIENT, &USER, &METHOD, &ENDPOINT].iter().any(|names| names.contains(&name)) || name == REQUEST
}
