//! JSON lines: one object a line, with the field names that nginx, Caddy, Traefik's users and most others choose.
//!
//! What a line tells is found under several names; of those that it has, the one named first here counts.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::{
    clients::Kind,
    format::{Record, Target, Why},
    stamp,
};

pub(crate) const TIME: [&str; 7] = ["time", "timestamp", "@timestamp", "ts", "time_iso8601", "msec", "time_local"];
pub(crate) const CLIENT: [&str; 6] = ["ip", "remote_addr", "client_ip", "client", "remote_ip", "remote"];
const USER: [&str; 2] = ["user", "remote_user"];
const METHOD: [&str; 2] = ["method", "request_method"];
const ENDPOINT: [&str; 5] = ["path", "uri", "request_uri", "endpoint", "url"];
/// A request line, or an object with more of the fields above, as Caddy writes it.
const REQUEST: &str = "request";

pub(crate) fn read(line: &[u8]) -> Result<Record<'_>, Why> {
    match serde_json::from_slice::<Fields<'_>>(line) {
        Ok(fields) => fields.record(),
        // Somebody's bytes in a path should not cost us the line.
        Err(_) if std::str::from_utf8(line).is_err() => {
            let text = String::from_utf8_lossy(line);
            let fields: Fields<'_> = serde_json::from_str(&text).map_err(not_json)?;
            fields.record().map(Record::into_owned)
        }
        Err(error) => Err(not_json(error)),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn not_json(error: serde_json::Error) -> Why {
    let message = error.to_string();
    format!("not a JSON object: {}", message.split(" at line ").next().unwrap_or(&message)).into()
}

/// The names of a line's fields.
pub(crate) fn names(line: &[u8]) -> Vec<String> {
    let fields: Result<serde_json::Map<_, _>, _> = serde_json::from_slice(line);
    fields.map(|fields| fields.into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

/// A field as text, by its name; of one in an object by both names with a dot between them.
pub(crate) fn field(line: &[u8], name: &str) -> Option<String> {
    let fields: serde_json::Value = serde_json::from_slice(line).ok()?;
    let found = fields.get(name).or_else(|| name.split('.').try_fold(&fields, |fields, name| fields.get(name)))?;
    match found {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

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

    fn put(&mut self, name: &str, value: Value<'l>) {
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

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Fields(fields) => Ok(*fields),
            _ => Err(serde::de::Error::custom("an object is wanted")),
        }
    }
}

#[derive(Debug)]
enum Value<'l> {
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

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value<'de>, E> {
        Ok(Value::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value<'de>, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value<'de>, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value<'de>, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value<'de>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value<'de>, A::Error> {
        let mut fields = Box::<Fields<'_>>::default();
        while let Some(name) = entries.next_key::<Name<'_>>()? {
            if is_known(&name.0) {
                fields.put(&name.0, entries.next_value()?);
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Fields(fields))
    }
}

/// A name of a field, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'l>(#[serde(borrow)] Cow<'l, str>);

pub(crate) fn is_known(name: &str) -> bool {
    [&TIME[..], &CLIENT, &USER, &METHOD, &ENDPOINT].iter().any(|names| names.contains(&name)) || name == REQUEST
}

impl Record<'_> {
    fn into_owned(self) -> Record<'static> {
        Record {
            time: self.time,
            client: self.client.map(owned),
            user: self.user.map(owned),
            kind: Kind::USER,
            target: self.target.into_owned(),
        }
    }
}

impl Target<'_> {
    fn into_owned(self) -> Target<'static> {
        Target { method: self.method.map(owned), endpoint: self.endpoint.map(owned) }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_servers_choose_are_known() {
        const NS: u64 = 1_431_857_103_000_000_000;
        for (line, time, user, method, endpoint) in [
            (r#"{"time":"2015-05-17T10:05:03Z","ip":"192.0.2.7","path":"/a?b"}"#, NS, None, None, Some("/a")),
            (
                r#"{"ts":1431857103.5,"request":{"remote_ip":"192.0.2.7","method":"GET","uri":"/a"},"status":200}"#,
                NS + 500_000_000,
                None,
                Some("GET"),
                Some("/a"),
            ),
            (
                r#"{"msec":"1431857103.000","remote_addr":"192.0.2.7","remote_user":"ada","request":"POST /a HTTP/1.1"}"#,
                NS,
                Some("ada"),
                Some("POST"),
                Some("/a"),
            ),
            (
                r#"{"time_local":"17/May/2015:10:05:03 +0000","client":"192.0.2.7","user":"","request_method":"GET","request_uri":"/\u0061"}"#,
                NS,
                None,
                Some("GET"),
                Some("/a"),
            ),
            (
                r#"{"msec":1,"url":"http://h/b","remote":"x","ip":"192.0.2.7","time":1431857103000,"endpoint":"/a","user":"-","x":[{}],"y":{"ip":"z"}}"#,
                NS,
                None,
                None,
                Some("/a"),
            ),
            (r#"{"time":null,"ts":1431857103,"ip":null,"client_ip":"192.0.2.7"}"#, NS, None, None, None),
            // The order of the list counts, not that of the line.
            (r#"{"request":{"remote":"x"},"ip":"192.0.2.7","ts":1431857103}"#, NS, None, None, None),
            (r#"{"ip":"192.0.2.7","request":{"remote":"x"},"ts":1431857103}"#, NS, None, None, None),
            (r#"{"ts":1431857103,"ip":"192.0.2.7","user":"-","remote_user":"ada"}"#, NS, Some("ada"), None, None),
        ] {
            let record = read(line.as_bytes()).expect(line);
            assert_eq!((record.time, record.user.as_deref()), (time, user), "{line}");
            assert_eq!(record.client.as_deref(), Some("192.0.2.7"), "{line}");
            assert_eq!(
                (record.target.method.as_deref(), record.target.endpoint.as_deref()),
                (method, endpoint),
                "{line}"
            );
        }
        let record = read(b"{\"time\":1,\"ip\":\"a\",\"path\":\"/\xff\"}").expect("replaced");
        assert_eq!(record.target.endpoint.as_deref(), Some("/\u{fffd}"));
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        let line = br#"{"a.b":"c","a":{"b":1,"d":"e"},"n":12345678901234567,"x":["y"],"z":true}"#;
        for (name, value) in [
            ("a.b", Some("c")),
            ("a.d", Some("e")),
            ("n", Some("12345678901234567")),
            ("x", None),
            ("z", None),
            ("q", None),
        ] {
            assert_eq!(field(line, name).as_deref(), value, "{name}");
        }
        assert_eq!(names(line), ["a", "a.b", "n", "x", "z"]);
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        for (line, why) in [
            ("{", "JSON"),
            ("[]", "object"),
            ("{}", "no time"),
            (r#"{"time":"noon","ip":"a"}"#, "cannot be read"),
            (r#"{"time":-1,"ip":"a"}"#, "cannot be read"),
            (r#"{"time":1,"ip":"a"} x"#, "JSON"),
        ] {
            let refused = read(line.as_bytes()).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
