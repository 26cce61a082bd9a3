//! Parser of the common and the combined log format, as Apache, nginx and most other servers write them:
//! `ADDRESS IDENT USER [TIME] "REQUEST" STATUS BYTES`, then for combined `"REFERER" "AGENT"`.
//!
//! Variants are tried in this order: the format itself; that of old ingress-nginx, with `[FORWARDED] -` after the address;
//! a virtual host before the address; a virtual host after it. A user that begins with `- ` or `[`, or ends with ` -`, means
//! that there is an extra field.

use std::{iter, net::IpAddr};

use memchr::{memchr, memchr_iter, memchr2, memrchr};

use super::{
    client::{self, ClientOptions},
    line_error::LineError,
    line_format::{BaseFormat, LineFormat, LinePrefix},
    record::{LogRecord, RequestTarget, readable, word},
};
use crate::{
    clients::IdentityKind,
    timestamp::{TimeError, TimestampReader},
};

/// Bytes within which the closing bracket of a time is searched; longer than any time.
const TIME_BYTES_MAX: usize = 48;

/// Reads a line that begins with an address or a virtual host.
pub(crate) fn read<'l>(
    line: &'l [u8],
    is_combined: bool,
    clients: &ClientOptions,
    stamps: &mut TimestampReader,
) -> Result<(LogRecord<'l>, LineFormat), LineError> {
    read_from(line, is_combined, clients, stamps).or_else(|why| {
        let (_, rest) = word(line).filter(|(vhost, rest)| may_stand_first(vhost, rest)).ok_or_else(|| why.clone())?;
        let behind = read_from(rest, is_combined, clients, stamps);
        behind.map(|(record, form)| (record, form.behind(LinePrefix::Vhost))).map_err(|_| why)
    })
}

/// Reads a line that begins with an address.
fn read_from<'l>(
    line: &'l [u8],
    is_combined: bool,
    clients: &ClientOptions,
    stamps: &mut TimestampReader,
) -> Result<(LogRecord<'l>, LineFormat), LineError> {
    let (addresses, rest) = addresses(line);
    let (ingress, rest) = match forwarded_in_brackets(rest) {
        Some((list, rest)) => (Some(list), rest),
        None => (None, rest),
    };
    let forwarded = ingress.map(readable);
    let mut client = clients.read(readable(addresses), forwarded.as_deref())?;
    let (ident, rest) = match ingress {
        Some(_) => (&b"-"[..], rest),
        None => word(rest).ok_or("nothing follows the address")?,
    };
    let (user, time, rest) = user_and_time(rest, stamps)?;
    let user = after_vhost(user, ident, client.as_deref(), clients);
    if client::is_address(ident) || client::is_address(user) {
        return Err(LineError::of(
            "an address stands after the first field too; cut the one that is not the client's",
            user,
        ));
    }
    if user.starts_with(b"- ") || user.starts_with(b"[") || user.ends_with(b" -") {
        return Err(LineError::of("it has a field too many between the address and the time", user));
    }
    let (request, rest) = request_and_status(rest)?;
    let is_end = |after: &[u8]| matches!(after, [] | [b' ', ..]);
    let referer = rest.strip_prefix(b"\"").and_then(|rest| quoted(rest, is_end));
    // Servers truncate a long agent, including its closing quote.
    let agent = referer.and_then(|(_, rest)| rest.strip_prefix(b" \""));
    let has_agent = agent.is_some();
    // The format that nginx installs has `X-Forwarded-For` after the agent.
    let after_agent = agent.and_then(|agent| quoted(agent, is_end)?.1.strip_prefix(b" \""));
    let list = after_agent.and_then(|list| quoted(list, is_end)).map(|(list, _)| list).filter(|list| is_list(list));
    if let Some(list) = list {
        client = clients.read(readable(addresses), Some(&readable(list)))?;
    }
    if is_combined && !has_agent {
        return Err("no quoted referer and agent follow the size".into());
    }
    let base = match ingress {
        Some(_) => BaseFormat::OldIngress,
        None if has_agent => BaseFormat::Combined,
        None => BaseFormat::Common,
    };
    let user = user.strip_prefix(b"\"").and_then(|user| user.strip_suffix(b"\"")).unwrap_or(user);
    let user = Some(user).filter(|user| !matches!(*user, b"" | b"-"));
    let record =
        LogRecord { time, client, user: user.map(readable), kind: IdentityKind::USER, target: target(request) };
    Ok((record, LineFormat::new(base)))
}

/// Returns the user after `- `, if a virtual host stands in the place of `ident`: after an address, since after a host name it may
/// be the client.
fn after_vhost<'l>(user: &'l [u8], ident: &[u8], client: Option<&str>, clients: &ClientOptions) -> &'l [u8] {
    let follows_address = client.map_or(!clients.host_names, is_ip);
    let is_host = is_vhost(ident) && memchr(b'.', ident).is_some() && !client::is_address(ident);
    user.strip_prefix(b"- ").filter(|_| follows_address && is_host).unwrap_or(user)
}

/// Splits the quoted request, the status and the size from the text after the time. Returns the request and the rest.
fn request_and_status(rest: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let rest = rest.strip_prefix(b" \"").ok_or("no quoted request follows the time")?;
    let is_status = |after: &[u8]| matches!(after, [] | [b' ', b'-' | b'0'..=b'9', ..]);
    let (request, rest) = quoted(rest, is_status).ok_or("the quoted request has no end")?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let (status, rest) = word(rest).ok_or("no status and size follow the request")?;
    if !(status == b"-" || status.len() == 3 && status.iter().all(u8::is_ascii_digit)) {
        return Err(LineError::of("no status follows the request; three digits do", status));
    }
    let (bytes, rest) = word(rest).unwrap_or((rest, b""));
    if !(bytes == b"-" || !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)) {
        return Err(LineError::of("no size follows the status; a number of bytes does", bytes));
    }
    Ok((request, rest))
}

/// Returns the method and the path of the quoted text after the time. Other quoted fields, such as the host, may precede or
/// follow the request.
fn target(quoted: &[u8]) -> RequestTarget<'_> {
    let is_request = |field: &&[u8]| {
        let version = memrchr(b' ', field).map(|space| &field[space + 1..]);
        version.is_some_and(|version| version.starts_with(b"HTTP/"))
            && RequestTarget::of_request(field).method.is_some()
    };
    let mut fields = iter::once(quoted).chain(quoted.split(|&byte| byte == b'"'));
    RequestTarget::of_request(fields.find(is_request).unwrap_or(quoted))
}

/// Splits a line after its first address, or after a list of addresses with commas, in quotes or not.
fn addresses(line: &[u8]) -> (&[u8], &[u8]) {
    if let Some(list) = line.strip_prefix(b"\"")
        && let Some(end) = memchr::memmem::find(list, b"\" ")
    {
        return (&list[..end], &list[end + 2..]);
    }
    let end = memchr_iter(b' ', line).find(|&space| space > 0 && line[space - 1] != b',').unwrap_or(line.len());
    (&line[..end], line.get(end + 1..).unwrap_or_default())
}

/// Splits `- [LIST] - `, with the addresses of proxies, from a line of old ingress-nginx.
fn forwarded_in_brackets(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let list = text.strip_prefix(b"- [")?;
    let end = memchr(b']', list)?;
    is_list(&list[..end]).then(|| Some((&list[..end], list[end..].strip_prefix(b"] - ")?))).flatten()
}

/// Returns whether a field is a list of addresses, some of which may be missing.
fn is_list(field: &[u8]) -> bool {
    let is_address = |part: &[u8]| part == b"-" || client::is_address(part);
    field.split(|&byte| byte == b',').all(|part| is_address(part.trim_ascii()))
}

/// Returns whether a word may be a virtual host before the address. If it is an address itself, it must have a port, and
/// another address must follow it.
fn may_stand_first(vhost: &[u8], rest: &[u8]) -> bool {
    let is_alone = || str::from_utf8(vhost).is_ok_and(|vhost| is_ip(vhost.trim_matches(['[', ']'])));
    let has_address = || word(rest).is_some_and(|(next, _)| client::is_address(next));
    if client::is_address(vhost) { !is_alone() && has_address() } else { vhost != b"-" && is_vhost(vhost) }
}

/// Returns whether a text is an address without a port.
fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// Returns whether a word may be the name of a virtual host, with or without a port.
pub(crate) fn is_vhost(word: &[u8]) -> bool {
    word.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-_:*".contains(byte))
}

/// Splits user and time. A user's name may have spaces and brackets, so it ends where a time begins.
fn user_and_time<'l>(text: &'l [u8], stamps: &mut TimestampReader) -> Result<(&'l [u8], u64, &'l [u8]), LineError> {
    for bracket in memchr_iter(b'[', text) {
        let after = &text[bracket + 1..];
        let end = memchr(b']', &after[..after.len().min(TIME_BYTES_MAX)]);
        let Some((user, end)) = text[..bracket].strip_suffix(b" ").zip(end) else { continue };
        match stamps.read(&after[..end]) {
            Ok(time) => return Ok((user, time, &after[end + 1..])),
            Err(TimeError::NoZone) => return Err(TimeError::NoZone.of_line(&after[..end])),
            Err(TimeError::Unreadable) => {}
        }
    }
    Err("it has no time such as [17/May/2015:10:05:03 +0000] or [2015-05-17T10:05:03Z] in the fourth field".into())
}

/// Splits a text after the closing quote. A quote does not close after a backslash, nor if `may_follow` rejects the text
/// after it: some servers do not escape quotes.
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

    fn read_common(line: &str, is_combined: bool) -> Result<(LogRecord<'_>, LineFormat), LineError> {
        read(line.as_bytes(), is_combined, &ClientOptions::default(), &mut TimestampReader::default())
    }

    const PREFIX: &str = "192.0.2.7 - - [17/May/2015:10:05:03 +0000]";

    #[test]
    fn lines_of_real_servers_are_read() {
        for (line, user, method, endpoint) in [
            (format!(r#"{PREFIX} "GET /a?b HTTP/1.1" 200 5"#), None, Some("GET"), Some("/a")),
            (format!(r#"{PREFIX} "GET /a HTTP/1.1" 200 - "-" "curl \"8\"""#), None, Some("GET"), Some("/a")),
            (format!(r#"{PREFIX} "GET /\"q\" x HTTP/1.1" 200 5 more 0.001"#), None, Some("GET"), Some(r#"/\"q\" x"#)),
            (format!(r#"{PREFIX} "GET /"q" HTTP/1.1" 200 5"#), None, Some("GET"), Some(r#"/"q""#)),
            (format!(r#"{PREFIX} "h.example.org" "POST /a HTTP/1.1" 200 5"#), None, Some("POST"), Some("/a")),
            (format!(r#"{PREFIX} "POST /a HTTP/1.1" "h.example.org" 200 5"#), None, Some("POST"), Some("/a")),
            (format!(r#"{PREFIX} "GET /" "POST /a HTTP/1.1" 200 5"#), None, Some("GET"), Some(r#"/" "POST /a"#)),
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
            let (record, _) = read_common(&line, false).expect(&line);
            let expected = LogRecord {
                time: 1_431_857_103_000_000_000,
                client: Some("192.0.2.7".into()),
                user: user.map(Cow::from),
                kind: IdentityKind::USER,
                target: RequestTarget { method: method.map(Cow::from), endpoint: endpoint.map(Cow::from) },
            };
            assert_eq!(record, expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        for (line, why) in [
            ("garbage".to_owned(), "address"),
            ("a b c d e f".to_owned(), "address"),
            ("192.0.2.7".to_owned(), "follows"),
            ("192.0.2.7 b".to_owned(), "follows"),
            ("192.0.2.7 b c d e f".to_owned(), "time"),
            ("192.0.2.7 - - [17/May/2015:10:05:03] \"GET /\" 200 5".to_owned(), "--time-zone"),
            ("192.0.2.7 a b - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 5".to_owned(), "too many"),
            ("192.0.2.7 - [x] - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 5".to_owned(), "too many"),
            ("192.0.2.7 - - [17/Mai/2015:10:05:03 +0000] \"GET /\" 200 5".to_owned(), "time"),
            (PREFIX.to_owned(), "request"),
            (format!("{PREFIX} \"GET / HTTP/1.1"), "end"),
            (format!("{PREFIX} \"GET /\\"), "end"),
            (format!("{PREFIX} \"GET /\""), "status"),
            (format!("{PREFIX} \"GET /\" 200"), "size"),
            (format!("{PREFIX} \"GET /\" 20 5"), "status"),
            (format!("{PREFIX} \"GET /\" 200 x"), "size"),
        ] {
            let refused = read_common(&line, false).expect_err(&line).to_string();
            assert!(refused.contains(why), "{line}: {refused}");
        }
        let common = format!(r#"{PREFIX} "GET / HTTP/1.1" 200 5"#);
        assert!(read_common(&common, true).is_err());
        for rest in [r#""-" "curl" "more""#, r#""-" "cut off"#] {
            let combined = format!("{common} {rest}");
            assert!(read_common(&combined, true).is_ok(), "{combined}");
        }
    }

    #[test]
    fn fields_too_many_are_told_from_a_user() {
        const REST: &str = r#"[17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5"#;
        for (before, client, user, form) in [
            ("192.0.2.7 - -", Some("192.0.2.7"), None, "common"),
            ("- - -", None, None, "common"),
            ("- - ada", None, Some("ada"), "common"),
            ("www.example.org:443 192.0.2.7 - -", Some("192.0.2.7"), None, "common, vhost first"),
            ("www.example.org 192.0.2.7 - Ada L", Some("192.0.2.7"), Some("Ada L"), "common, vhost first"),
            ("www.example.org - - -", None, None, "common, vhost first"),
            ("203.0.113.1:443 192.0.2.7 - -", Some("192.0.2.7"), None, "common, vhost first"),
            ("[2001:db8::1]:443 192.0.2.7, 10.0.0.1 - -", Some("192.0.2.7"), None, "common, vhost first"),
            ("_ 192.0.2.7 - -", Some("192.0.2.7"), None, "common, vhost first"),
            ("192.0.2.7 www.example.org - ada", Some("192.0.2.7"), Some("ada"), "common"),
            ("192.0.2.7, 10.0.0.1 - -", Some("192.0.2.7"), None, "common"),
            ("\"192.0.2.7, 10.0.0.1\" - ada", Some("192.0.2.7"), Some("ada"), "common"),
            ("\"-\" - -", None, None, "common"),
            ("192.0.2.7 - \"-\"", Some("192.0.2.7"), None, "common"),
            ("192.0.2.7 - \"ada\"", Some("192.0.2.7"), Some("ada"), "common"),
            ("192.0.2.7 - [192.0.2.7] - -", Some("192.0.2.7"), None, "ingress-nginx of old"),
            ("10.0.0.1 - [192.0.2.7, 10.0.0.1] - ada", Some("192.0.2.7"), Some("ada"), "ingress-nginx of old"),
            ("192.0.2.7 - [-] - -", Some("192.0.2.7"), None, "ingress-nginx of old"),
        ] {
            let line = format!("{before} {REST}");
            let (record, read_by) = read_common(&line, false).expect(before);
            assert_eq!((record.client.as_deref(), record.user.as_deref()), (client, user), "{before}");
            assert_eq!(read_by.to_string(), form, "{before}");
        }
    }

    #[test]
    fn a_virtual_host_before_a_host_name_is_not_the_client() {
        const REST: &str = r#"[17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5"#;
        let names = ClientOptions { host_names: true, ..ClientOptions::default() };
        for (before, client, form) in [
            ("www.example.org client1.example.net - -", "client1.example.net", "common, vhost first"),
            ("www.example.org:443 client1.example.net - -", "client1.example.net", "common, vhost first"),
            ("client1.example.net - -", "client1.example.net", "common"),
            ("192.0.2.7 www.example.org - -", "192.0.2.7", "common"),
        ] {
            let line = format!("{before} {REST}");
            let (record, read_by) =
                read(line.as_bytes(), false, &names, &mut TimestampReader::default()).expect(before);
            assert_eq!((record.client.as_deref(), &*read_by.to_string()), (Some(client), form), "{before}");
        }
    }

    #[test]
    fn the_addresses_after_the_agent_are_those_before_the_proxy() {
        const COMBINED: &str = r#"- - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl""#;
        for (line, client) in [
            (format!(r#"10.0.0.1 {COMBINED} "192.0.2.7""#), "192.0.2.7"),
            (format!(r#"10.0.0.1 {COMBINED} "198.51.100.9, 192.0.2.7, 10.0.0.2""#), "192.0.2.7"),
            (format!(r#"10.0.0.1 {COMBINED} "-""#), "10.0.0.1"),
            (format!(r#"10.0.0.1 {COMBINED} "more" "192.0.2.7""#), "10.0.0.1"),
            (format!(r#"192.0.2.1 {COMBINED} "192.0.2.7""#), "192.0.2.1"),
        ] {
            let (record, _) = read_common(&line, true).expect(&line);
            assert_eq!(record.client.as_deref(), Some(client), "{line}");
        }
    }

    #[test]
    fn which_of_two_addresses_is_the_clients_is_not_guessed() {
        const REST: &str = r#"[17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5"#;
        for before in ["192.0.2.7 10.0.0.1 - -", "- 10.0.0.1 - -", "10.0.0.1 192.0.2.7 -", "10.0.0.1 - 192.0.2.7"] {
            assert!(read_common(&format!("{before} {REST}"), false).is_err(), "{before}");
        }
    }
}
