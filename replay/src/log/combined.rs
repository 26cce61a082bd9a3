//! The common log format and the combined one, as Apache, nginx and most others write them:
//! `ADDRESS IDENT USER [TIME] "REQUEST" STATUS BYTES`, then for combined `"REFERER" "AGENT"`.

use memchr::{memchr, memchr_iter, memchr2};

use super::record::{Record, Target, Why, readable};
use crate::{clients::Kind, stamp::Stamps};

/// Longer than any time in brackets.
const TIME_BYTES_MAX: usize = 48;

pub(crate) fn read<'l>(line: &'l [u8], is_combined: bool, stamps: &mut Stamps) -> Result<Record<'l>, Why> {
    let (address, rest) = word(line).ok_or("it does not begin with an address and a space")?;
    let (_ident, rest) = word(rest).ok_or("nothing follows the address")?;
    let (user, time, rest) =
        user_and_time(rest, stamps).ok_or("it has no time such as [17/May/2015:10:05:03 +0000] in the fourth field")?;
    let rest = rest.strip_prefix(b" \"").ok_or("no quoted request follows the time")?;
    let is_status = |after: &[u8]| matches!(after, [] | [b' ', b'-' | b'0'..=b'9', ..]);
    let (request, rest) = quoted(rest, is_status).ok_or("the quoted request has no end")?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let (status, rest) = word(rest).ok_or("no status and size follow the request")?;
    if !(status == b"-" || status.len() == 3 && status.iter().all(u8::is_ascii_digit)) {
        return Err("no status follows the request".into());
    }
    let (bytes, rest) = word(rest).unwrap_or((rest, b""));
    if !(bytes == b"-" || !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)) {
        return Err("no size follows the status".into());
    }
    if is_combined {
        let is_end = |after: &[u8]| matches!(after, [] | [b' ', ..]);
        let referer = rest.strip_prefix(b"\"").and_then(|rest| quoted(rest, is_end));
        // Servers cut a long agent off, its closing quote too.
        referer.and_then(|(_, rest)| rest.strip_prefix(b" \"")).ok_or("no quoted referer and agent follow the size")?;
    }
    let user = Some(user).filter(|user| !matches!(*user, b"" | b"-" | b"\"\""));
    Ok(Record {
        time,
        client: Some(readable(address)),
        user: user.map(readable),
        kind: Kind::USER,
        target: Target::of_request(request),
    })
}

/// Up to the next space, and what comes after it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr(b' ', text).filter(|&space| space > 0)?;
    Some((&text[..space], &text[space + 1..]))
}

/// A user's name may have spaces and brackets, so it ends where a time begins.
fn user_and_time<'l>(text: &'l [u8], stamps: &mut Stamps) -> Option<(&'l [u8], u64, &'l [u8])> {
    memchr_iter(b'[', text).find_map(|bracket| {
        let user = text[..bracket].strip_suffix(b" ")?;
        let after = &text[bracket + 1..];
        let end = memchr(b']', &after[..after.len().min(TIME_BYTES_MAX)])?;
        Some((user, stamps.read(&after[..end])?, &after[end + 1..]))
    })
}

/// Up to the closing quote, and what comes after it. A quote after a backslash does not close, nor does one that is not
/// followed as it should be: some servers write quotes as they come.
fn quoted(text: &[u8], may_follow: impl Fn(&[u8]) -> bool) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let at = from + memchr2(b'"', b'\\', text.get(from..)?)?;
        let after = &text[at + 1..];
        if text[at] == b'\\' {
            from = at + 2;
        } else if may_follow(after) {
            return Some((&text[..at], after));
        } else {
            from = at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    const PREFIX: &str = "192.0.2.7 - - [17/May/2015:10:05:03 +0000]";

    #[test]
    fn lines_of_real_servers_are_read() {
        for (line, user, method, endpoint) in [
            (format!(r#"{PREFIX} "GET /a?b HTTP/1.1" 200 5"#), None, Some("GET"), Some("/a")),
            (format!(r#"{PREFIX} "GET /a HTTP/1.1" 200 - "-" "curl \"8\"""#), None, Some("GET"), Some("/a")),
            (format!(r#"{PREFIX} "GET /\"q\" x HTTP/1.1" 200 5 more 0.001"#), None, Some("GET"), Some(r#"/\"q\" x"#)),
            (format!(r#"{PREFIX} "GET /"q" HTTP/1.1" 200 5"#), None, Some("GET"), Some(r#"/"q""#)),
            (format!(r#"{PREFIX} "-" 408 -"#), None, None, None),
            (format!(r#"{PREFIX} "" 400 0"#), None, None, None),
            (format!(r#"{PREFIX} "\x16\x03\x01" 400 226"#), None, None, None),
            (
                r#"192.0.2.7 - Ada [x] L [17/May/2015:12:05:03 +0200] "POST /a HTTP/2.0" 201 5"#.to_owned(),
                Some("Ada [x] L"),
                Some("POST"),
                Some("/a"),
            ),
            (
                r#"192.0.2.7 id "" [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5"#.to_owned(),
                None,
                Some("GET"),
                Some("/"),
            ),
        ] {
            let record = read(line.as_bytes(), false, &mut Stamps::default()).expect(&line);
            let expected = Record {
                time: 1_431_857_103_000_000_000,
                client: Some("192.0.2.7".into()),
                user: user.map(Cow::from),
                kind: Kind::USER,
                target: Target { method: method.map(Cow::from), endpoint: endpoint.map(Cow::from) },
            };
            assert_eq!(record, expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        for (line, why) in [
            ("garbage".to_owned(), "address"),
            ("a b".to_owned(), "follows"),
            ("a b c d e f".to_owned(), "time"),
            ("192.0.2.7 - - [17/Mai/2015:10:05:03 +0000] \"GET /\" 200 5".to_owned(), "time"),
            (PREFIX.to_owned(), "request"),
            (format!("{PREFIX} \"GET / HTTP/1.1"), "end"),
            (format!("{PREFIX} \"GET /\\"), "end"),
            (format!("{PREFIX} \"GET /\""), "status"),
            (format!("{PREFIX} \"GET /\" 200"), "size"),
            (format!("{PREFIX} \"GET /\" 20 5"), "status"),
            (format!("{PREFIX} \"GET /\" 200 x"), "size"),
        ] {
            let refused = read(line.as_bytes(), false, &mut Stamps::default()).expect_err(&line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
        let common = format!(r#"{PREFIX} "GET / HTTP/1.1" 200 5"#);
        assert!(read(common.as_bytes(), true, &mut Stamps::default()).is_err());
        for rest in [r#""-" "curl" "more""#, r#""-" "cut off"#] {
            let combined = format!("{common} {rest}");
            assert!(read(combined.as_bytes(), true, &mut Stamps::default()).is_ok(), "{combined}");
        }
    }
}
