//! Parser of JSON lines: one object a line, with the names of `field_names`.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Number;

use super::{
    field_names::meaning,
    fields::{FieldValue, LineFields},
    line_error::LineError,
};

/// Most names of one line that are listed.
const NAMES_MAX: usize = 60;

/// Returns the fields of a line that have known names.
pub(crate) fn fields(line: &str) -> Result<LineFields<'_>, LineError> {
    serde_json::from_str(line).map_err(|error| {
        let rest = line.get(error.column().saturating_sub(1)..).unwrap_or_default();
        match line.as_bytes() {
            [b'[', ..] | [b'{'] => {
                "a JSON object does not go over several lines here; jq -c '.[]? // .' writes one a line".into()
            }
            [b'{', ..] if error.is_eof() => "the JSON object has no end: the line is cut off".into(),
            [b'{', ..] if line.get(..error.column()).is_some_and(|read| read.ends_with("\\x")) => LineError::of_column(
                "it is no JSON: `\\x` is no escape of it; in nginx, log_format needs escape=json",
                error.column() - 1,
                line.get(error.column() - 2..).unwrap_or_default(),
            ),
            [b'{', ..] => LineError::of_column("it is no JSON", error.column(), rest),
            _ => LineError::of("it is no JSON object, which begins with {", line),
        }
    })
}

pub(crate) fn names(line: &[u8]) -> Vec<String> {
    let fields: Result<serde_json::Map<_, _>, _> = serde_json::from_slice(line);
    fields.map(|fields| fields.into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

/// Returns the names of a line's fields as `--map` takes them, with a dot between the names of an object and its field.
pub(crate) fn paths(line: &str) -> Vec<String> {
    let Ok(fields) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line) else {
        return Vec::new();
    };
    let all = fields.iter().flat_map(|(name, value)| match value {
        serde_json::Value::Object(inner) => inner.keys().map(|key| format!("{name}.{key}")).collect(),
        _ => vec![name.clone()],
    });
    all.take(NAMES_MAX).collect()
}

/// Returns a field by its name; `OBJECT.FIELD` names a field of an object.
pub(crate) fn field<'v>(fields: &'v serde_json::Value, name: &str) -> Option<&'v serde_json::Value> {
    fields.get(name).or_else(|| name.split('.').try_fold(fields, |fields, name| fields.get(name)))
}

/// Returns a field's text or number, as text.
pub(crate) fn text(field: &serde_json::Value) -> Option<String> {
    match field {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the value of a field that `--map` names.
pub(crate) fn value<'l>(field: &serde_json::Value) -> FieldValue<'l> {
    match field {
        serde_json::Value::Null => FieldValue::Null,
        serde_json::Value::Bool(flag) => FieldValue::of_bool(*flag),
        serde_json::Value::Array(_) => FieldValue::Other("an array"),
        serde_json::Value::Object(_) => FieldValue::Other("an object"),
        field => text(field).map_or(FieldValue::Null, |text| FieldValue::Text(text.into())),
    }
}

impl<'de> Deserialize<'de> for LineFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match FieldValue::deserialize(deserializer)? {
            FieldValue::Fields(fields) => Ok(*fields),
            _ => Err(serde::de::Error::custom("no object")),
        }
    }
}

impl<'de> Deserialize<'de> for FieldValue<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = FieldValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<FieldValue<'de>, E> {
        Ok(FieldValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<FieldValue<'de>, E> {
        Ok(FieldValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<FieldValue<'de>, E> {
        Ok(Number::from_f64(number).map_or(FieldValue::Null, FieldValue::Number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<FieldValue<'de>, E> {
        Ok(FieldValue::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<FieldValue<'de>, E> {
        Ok(FieldValue::Number(number.into()))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<FieldValue<'de>, E> {
        Ok(FieldValue::of_bool(flag))
    }

    fn visit_unit<E>(self) -> Result<FieldValue<'de>, E> {
        Ok(FieldValue::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<FieldValue<'de>, A::Error> {
        let mut texts = String::new();
        while let Some(item) = items.next_element()? {
            if let FieldValue::Text(text) = item {
                texts.push_str(if texts.is_empty() { "" } else { ", " });
                texts.push_str(&text);
            }
        }
        Ok(if texts.is_empty() { FieldValue::Other("an array without a text") } else { FieldValue::Texts(texts) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<FieldValue<'de>, A::Error> {
        let mut fields = Box::<LineFields<'_>>::default();
        while let Some(name) = entries.next_key::<Name<'_>>()? {
            match meaning(&name.0) {
                Some(known) => fields.put(known, entries.next_value()?),
                None => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(FieldValue::Fields(fields))
    }
}

/// Name of a field, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Name<'l>(#[serde(borrow)] Cow<'l, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{client::ClientOptions, fields::FieldsError, record::LogRecord};

    fn read(line: &str) -> Result<LogRecord<'_>, String> {
        let fields = fields(line).map_err(|error| error.to_string())?;
        fields.record(&ClientOptions::default(), None, true).map_err(|error| match error {
            FieldsError::Unreadable(error) => error.to_string(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    // Long: a table of cases.
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
            // The Elastic Common Schema, in objects and with dots.
            (
                r#"{"@timestamp":"2015-05-17T10:05:03Z","source":{"ip":"192.0.2.7"},"http":{"request":{"method":"GET","id":"x"},"version":"1.1"},"url":{"path":"/a","domain":"h"},"user":{"name":"ada","id":"7"}}"#,
                NS,
                Some("ada"),
                Some("GET"),
                Some("/a"),
            ),
            (
                r#"{"@timestamp":"2015-05-17T10:05:03Z","client":{"ip":"192.0.2.7"},"url":{"original":"/a?b"},"user":{"id":7},"id":"x","name":"y","source":"stdout"}"#,
                NS,
                Some("7"),
                None,
                Some("/a"),
            ),
            (
                r#"{"@timestamp":"2015-05-17T10:05:03Z","source.ip":"192.0.2.7","http.request.method":"GET","url.path":"/a","user.name":"ada"}"#,
                NS,
                Some("ada"),
                Some("GET"),
                Some("/a"),
            ),
        ] {
            let record = read(line).expect(line);
            assert_eq!((record.time, record.user.as_deref()), (time, user), "{line}");
            assert_eq!(record.client.as_deref(), Some("192.0.2.7"), "{line}");
            assert_eq!(
                (record.target.method.as_deref(), record.target.endpoint.as_deref()),
                (method, endpoint),
                "{line}"
            );
        }
    }

    #[test]
    fn the_client_and_the_time_are_found_beside_others() {
        for line in [
            r#"{"ts":1431857103,"remote_addr":"10.0.0.1","client_ip":"192.0.2.7"}"#,
            r#"{"ts":1431857103,"remote_addr":"10.0.0.1","http_x_real_ip":"192.0.2.7"}"#,
            r#"{"ts":1431857103,"remote_addr":"10.0.0.1","x-forwarded-for":["192.0.2.7","10.0.0.2"]}"#,
            r#"{"ts":1431857103,"remote_addr":"10.0.0.1","http_forwarded":"for=192.0.2.7;proto=https, for=10.0.0.2"}"#,
            r#"{"ts":1431857103,"remote_addr":"unix:","http_x_forwarded_for":"192.0.2.7, 10.0.0.2"}"#,
            r#"{"ts":1431857103,"remote_addr":"unix:","http_forwarded":"for=\"192.0.2.7:5\""}"#,
            r#"{"ts":1431857103,"remote_addr":"@","remote":"192.0.2.7"}"#,
            r#"{"ts":1431857103,"request":{"remote_ip":"10.0.0.1","method":"GET","uri":"/a","headers":{"X-Forwarded-For":["192.0.2.7"],"Ip":["192.0.2.9"]}}}"#,
            // A duration, a date or a time of the day is not the time where another field is.
            r#"{"time":0.045,"ts":1431857103,"ip":"192.0.2.7"}"#,
            r#"{"time":45,"timestamp":"2015-05-17T10:05:03Z","ip":"192.0.2.7"}"#,
            r#"{"time":"12ms","ts":"1431857103","ip":"192.0.2.7"}"#,
            r#"{"time":"2015-05-17","time_local":"[17/May/2015:10:05:03 +0000]","ip":"192.0.2.7"}"#,
            r#"{"time":"10:05:03Z","date":"2015-05-17","ip":"192.0.2.7"}"#,
        ] {
            let record = read(line).expect(line);
            assert_eq!(
                (record.time, record.client.as_deref()),
                (1_431_857_103_000_000_000, Some("192.0.2.7")),
                "{line}"
            );
        }
    }

    #[test]
    fn a_client_is_absent_where_its_field_says_nothing() {
        for (client, found) in [
            (r#"{"address":"192.0.2.7","port":5}"#, Some("192.0.2.7")),
            (r#"{"ip":"192.0.2.7","address":"192.0.2.8"}"#, Some("192.0.2.7")),
            (r#"true,"remote_addr":"192.0.2.7""#, Some("192.0.2.7")),
            (r#"12,"x_forwarded_for":"192.0.2.7""#, Some("192.0.2.7")),
            (r#"{"ip":null}"#, None),
            (r#"{"address":"-"}"#, None),
            (r#""-""#, None),
            ("\"\"", None),
            ("null", None),
        ] {
            let line = format!(r#"{{"time":1,"client":{client}}}"#);
            assert_eq!(read(&line).expect(&line).client.as_deref(), found, "{line}");
        }
    }

    #[test]
    fn a_user_is_a_text_or_a_number_in_all_its_digits() {
        for (user, found) in [
            ("1234567890123456781", "1234567890123456781"),
            ("1234567890123456782", "1234567890123456782"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775807", "-9223372036854775807"),
            (r#"{"username":"ada","id":7}"#, "ada"),
        ] {
            let line = format!(r#"{{"time":1,"ip":"192.0.2.7","user":{user}}}"#);
            assert_eq!(read(&line).expect(&line).user.as_deref(), Some(found), "{line}");
        }
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        let line = br#"{"a.b":"c","a":{"b":1,"d":"e"},"n":12345678901234567,"x":["y"],"z":true}"#;
        let fields = serde_json::from_slice(line).expect("an object");
        for (name, value) in [
            ("a.b", Some("c")),
            ("a.d", Some("e")),
            ("n", Some("12345678901234567")),
            ("x", None),
            ("z", None),
            ("q", None),
        ] {
            assert_eq!(field(&fields, name).and_then(text).as_deref(), value, "{name}");
        }
        assert_eq!(paths(str::from_utf8(line).expect("text")), ["a.b", "a.d", "a.b", "n", "x", "z"]);
        assert_eq!(names(line), ["a", "a.b", "n", "x", "z"]);
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        for (line, why) in [
            ("{", "JSON"),
            ("[]", "object"),
            ("x", "object"),
            ("{}", "NoTime"),
            (r#"{"time":1,"method":"GET"}"#, "NoClient"),
            (r#"{"time":"noon","ip":"192.0.2.7"}"#, "cannot be read"),
            (r#"{"time":"2015-05-17T10:05:03","ip":"192.0.2.7"}"#, "--time-zone"),
            (r#"{"time":-1,"ip":"192.0.2.7"}"#, "cannot be read"),
            (r#"{"time":0.045,"ip":"192.0.2.7"}"#, "cannot be read"),
            (r#"{"time":"2015-05-17","ip":"192.0.2.7"}"#, "cannot be read"),
            (r#"{"time":1,"ip":"a"}"#, "`a`"),
            (r#"{"time":1,"ip":"192.0.2.7"} x"#, "it is no JSON; from column 29 on stands `x`"),
            (r#"{"time":1,"a":"b\x22"}"#, r"escape=json; from column 17 on stands `\x22"),
            (r#"{"time":1,"ip":12}"#, "the client is no text with an address; here stands `12`"),
            (r#"{"time":1,"ip":true}"#, "the client is no text with an address; here stands `true`"),
            (r#"{"time":1,"ip":[1]}"#, "the client is no text with an address; here stands `an array without a text`"),
            (r#"{"time":1,"client":{"a":1}}"#, "here stands `an object without an address`"),
            (r#"{"time":1,"client":{"address":7}}"#, "here stands `7`"),
            (r#"{"time":1,"client":{"ip":false}}"#, "here stands `false`"),
            (r#"{"time":1,"address":"192.0.2.7"}"#, "NoClient"),
            (r#"{"time":1,"ip":"192.0"#, "cut off"),
        ] {
            let refused = read(line).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
