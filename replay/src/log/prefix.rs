//! What other programs write before a line when they pass it on: `grep`, container runtimes, syslog.

use memchr::memchr;

use super::{client, form::Prefix, record::word};

/// The most prefixes before one line: a file name, a container's stamp, a header of syslog.
const PREFIXES_MAX: usize = 3;

/// Returns the line behind what stands before it, and which prefixes those were. They are tried in this order: `grep`'s file
/// name, a header of syslog, the stamp of a container.
pub(crate) fn strip(line: &[u8]) -> (&[u8], impl Iterator<Item = Prefix> + use<>) {
    let (mut rest, mut found) = (line, [None; PREFIXES_MAX]);
    for place in &mut found {
        let known =
            [(Prefix::FileName, file_name(rest)), (Prefix::Syslog, syslog(rest)), (Prefix::Container, container(rest))];
        let Some((prefix, after)) = known.into_iter().find_map(|(prefix, after)| Some((prefix, after?))) else { break };
        (rest, *place) = (after, Some(prefix));
    }
    (rest, found.into_iter().flatten())
}

/// `FILE:` or `FILE:NUMBER:` before an address or an object.
fn file_name(line: &[u8]) -> Option<&[u8]> {
    let end = memchr(b' ', line).unwrap_or(line.len());
    if matches!(line.first(), Some(b'{' | b'"')) || client::is_address(&line[..end]) {
        return None;
    }
    let starts = || memchr::memchr_iter(b':', &line[..end]).map(|colon| colon + 1);
    let found = starts().find(|&start| line[start..].starts_with(b"{\""));
    // `12:2001:db8::1` is an address, and the twelfth line that has another one.
    let is_plausible = |&start: &usize| {
        str::from_utf8(&line[start..end]).is_ok_and(|word| client::is_plausible(word.trim_end_matches(',')))
    };
    let is_header = |&start: &usize| is_stamp(&line[start..end]) || traditional_stamp(&line[start..]).is_some();
    found.or_else(|| starts().find(is_plausible)).or_else(|| starts().find(is_header)).map(|start| &line[start..])
}

/// `Mar 12 09:00:01 HOST TAG: `, the same with a stamp of RFC 3339, or RFC 5424 with its number, fields and data.
fn syslog(line: &[u8]) -> Option<&[u8]> {
    let rest = match line.strip_prefix(b"<") {
        Some(priority) => {
            let (number, rest) = priority.split_at_checked(memchr(b'>', priority.get(..5)?)?)?;
            number.iter().all(u8::is_ascii_digit).then(|| &rest[1..])?
        }
        None => line,
    };
    if let Some(rest) = rest.strip_prefix(b"1 ") {
        let (stamp, rest) = word(rest)?;
        if stamp != b"-" && !is_stamp(stamp) {
            return None;
        }
        let rest = (0..4).try_fold(rest, |rest, _field| word(rest).map(|(_, rest)| rest))?;
        return match rest.strip_prefix(b"- ") {
            Some(message) => Some(message),
            None => rest.strip_prefix(b"[").and_then(|data| Some(&data[memchr::memmem::find(data, b"] ")? + 2..])),
        };
    }
    let rest =
        traditional_stamp(rest).or_else(|| word(rest).filter(|(stamp, _)| is_stamp(stamp)).map(|(_, rest)| rest))?;
    let (_host, rest) = word(rest)?;
    let (_tag, rest) = word(rest).filter(|(tag, _)| tag.ends_with(b":"))?;
    Some(rest.trim_ascii_start())
}

/// `Mar 12 09:00:01 ` or `Mar  2 09:00:01.123456 `, and what follows.
fn traditional_stamp(line: &[u8]) -> Option<&[u8]> {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let (stamp, rest) = line.split_at_checked(15)?;
    let (_fraction, rest) = rest.split_at(memchr(b' ', rest)?);
    let is_month = MONTHS.chunks(3).any(|month| stamp.starts_with(month));
    let is_clock = stamp[9] == b':' && stamp[12] == b':' && stamp[13..15].iter().all(u8::is_ascii_digit);
    (is_month && is_clock && stamp[3] == b' ').then(|| &rest[1..])
}

/// `STAMP stdout F `, `STAMP `, `[pod/NAME/CONTAINER] ` or `NAME  | `.
fn container(line: &[u8]) -> Option<&[u8]> {
    if let Some(pod) = line.strip_prefix(b"[pod/") {
        return Some(&pod[memchr::memmem::find(pod, b"] ")? + 2..]);
    }
    let (first, rest) = word(line)?;
    if let Some(rest) = rest.trim_ascii_start().strip_prefix(b"| ") {
        return Some(rest);
    }
    if !is_stamp(first) {
        return None;
    }
    let stream = [&b"stdout "[..], b"stderr "].into_iter().find_map(|stream| rest.strip_prefix(stream));
    let Some(rest) = stream else { return Some(rest) };
    Some(rest.strip_prefix(b"F ").or_else(|| rest.strip_prefix(b"P ")).unwrap_or(rest))
}

/// Returns whether a word is a date and a time such as `2025-03-12T09:00:01Z`.
fn is_stamp(word: &[u8]) -> bool {
    word.len() >= 19
        && word[..4].iter().all(u8::is_ascii_digit)
        && (word[4], word[7], word[10], word[13], word[16]) == (b'-', b'-', b'T', b':', b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_line_is_skipped() {
        use Prefix::{Container, FileName, Syslog};
        const LINE: &str = "192.0.2.7 - - [12/Mar/2025:09:00:01 +0000] \"GET / HTTP/1.1\" 200 5";
        for (before, prefixes) in [
            ("", &[][..]),
            ("access.log:", &[FileName]),
            ("./logs/access.log.1:12:", &[FileName]),
            ("2025-03-12T09:00:01.000000001Z stdout F ", &[Container]),
            ("2025-03-12T09:00:01+01:00 stderr P ", &[Container]),
            ("2025-03-12T09:00:01.5Z ", &[Container]),
            ("web-1  | ", &[Container]),
            ("[pod/web-7d9/nginx] ", &[Container]),
            ("[pod/web-7d9/nginx] 2025-03-12T09:00:01.5Z ", &[Container, Container]),
            ("Mar 12 09:00:01 web1 nginx: ", &[Syslog]),
            ("Mar  2 09:00:01 10.0.0.9 nginx[12]: ", &[Syslog]),
            ("Mar 12 09:00:01.123456 web1 nginx[12]: ", &[Syslog]),
            ("<190>Mar 12 09:00:01 web1 nginx: ", &[Syslog]),
            ("2025-03-12T09:00:01.123456+00:00 web1 nginx: ", &[Syslog]),
            ("<190>1 2025-03-12T09:00:01Z web1 nginx 12 - - ", &[Syslog]),
            ("<190>1 - web1 nginx - - [a@1 b=\"c\"] ", &[Syslog]),
            ("pods.log:2025-03-12T09:00:01.5Z stdout F ", &[FileName, Container]),
            ("messages:Mar 12 09:00:01 web1 nginx: ", &[FileName, Syslog]),
        ] {
            let line = format!("{before}{LINE}");
            let (rest, found) = strip(line.as_bytes());
            let found: Vec<Prefix> = found.collect();
            assert_eq!(found, prefixes, "{before}");
            assert_eq!(rest == LINE.as_bytes(), !prefixes.is_empty() || before.is_empty(), "{before}");
        }
        for (line, rest) in [
            ("access.log:{\"time\":1}", "{\"time\":1}"),
            ("access.log:12:2001:db8::1 - -", "2001:db8::1 - -"),
            ("access.log:2001:db8::1, 10.0.0.1 - -", "2001:db8::1, 10.0.0.1 - -"),
            ("2001:db8::1 - -", "2001:db8::1 - -"),
            ("[2001:db8::1]:80 - -", "[2001:db8::1]:80 - -"),
            ("www.example.org:443 192.0.2.7 - -", "www.example.org:443 192.0.2.7 - -"),
            ("{\"a\":\"b:192.0.2.7\"}", "{\"a\":\"b:192.0.2.7\"}"),
            ("Mar 12 09:00:01 web1 no tag", "Mar 12 09:00:01 web1 no tag"),
            ("<12", "<12"),
            ("<1", "<1"),
        ] {
            assert_eq!(strip(line.as_bytes()).0, rest.as_bytes(), "{line}");
        }
    }
}
