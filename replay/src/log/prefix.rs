//! Strips the prefixes that `grep`, container runtimes and syslog write before a line.

use memchr::memchr;

use super::{client, combined, line_format::LinePrefix, record::word};

/// Most prefixes before one line: a file name, a container's timestamp, a syslog header.
const PREFIXES_MAX: usize = 3;
/// Longest file name before a line, and longest word that may follow it.
const NAME_BYTES_MAX: usize = 300;
/// First byte of a terminal sequence, such as a colour.
const ESCAPE: u8 = 0x1b;

/// Returns the line without its prefixes, and the prefixes. They are tried in this order: `grep`'s file name, a syslog header,
/// the timestamp of a container.
pub(crate) fn strip(line: &[u8]) -> (&[u8], impl Iterator<Item = LinePrefix> + use<>) {
    let (mut rest, mut found) = (line, [None; PREFIXES_MAX]);
    for place in &mut found {
        let known = [
            (LinePrefix::FileName, file_name(rest)),
            (LinePrefix::Syslog, syslog(rest)),
            (LinePrefix::Container, container(rest)),
        ];
        let Some((prefix, after)) = known.into_iter().find_map(|(prefix, after)| Some((prefix, after?))) else { break };
        (rest, *place) = (after, Some(prefix));
    }
    (rest, found.into_iter().flatten())
}

/// Strips `FILE:`, `NUMBER:` or `FILE:NUMBER:` before an address, a virtual host, an object or another prefix.
fn file_name(line: &[u8]) -> Option<&[u8]> {
    let end = memchr(b' ', line).unwrap_or(line.len());
    let first = &line[..end];
    if matches!(line.first(), Some(b'{' | b'"' | b'[' | b'<')) || is_stamp(first) || is_plausible(first) {
        return None;
    }
    let starts = || memchr::memchr_iter(b':', &line[..end.min(NAME_BYTES_MAX)]).map(|colon| colon + 1);
    // `12:2001:db8::1` is an address, and the twelfth line that has another one; `64:ff9b::192.0.2.1` is one address.
    if client::is_address(first) {
        let start = starts().next().filter(|start| line[..start - 1].iter().all(u8::is_ascii_digit))?;
        return is_plausible(&line[start..end]).then(|| &line[start..]);
    }
    let is_header = |&start: &usize| is_stamp(&line[start..end]) || traditional_stamp(&line[start..]).is_some();
    let is_vhost = |&start: &usize| {
        let vhost = &line[start..end];
        combined::is_vhost(vhost) && vhost.iter().any(u8::is_ascii_alphabetic)
    };
    let object = starts().find(|&start| line[start..].starts_with(b"{\""));
    // Only a short word is examined after every colon.
    let starts = || starts().filter(|start| end - start <= NAME_BYTES_MAX);
    let address = || starts().find(|start| is_plausible(&line[*start..end]));
    let is_before_address = || begins_with_address(line.get(end + 1..).unwrap_or_default());
    let vhost = || is_before_address().then(|| starts().find(is_vhost))?;
    let start = object.or_else(address).or_else(|| starts().find(is_header)).or_else(vhost);
    start.map(|start| &line[start..])
}

/// Strips `Mar 12 09:00:01 HOST TAG: `, the same with a timestamp of RFC 3339 or of `journalctl`, or an RFC 5424 header with
/// its version, fields and data. The host may be missing: nginx omits it.
fn syslog(line: &[u8]) -> Option<&[u8]> {
    // Over TCP, messages may have a byte count first (RFC 6587).
    let counted = word(line).filter(|(count, rest)| count.iter().all(u8::is_ascii_digit) && rest.starts_with(b"<"));
    let line = counted.map_or(line, |(_, rest)| rest);
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
        let message = rest.strip_prefix(b"- ").or_else(|| {
            let data = rest.strip_prefix(b"[")?;
            Some(&data[memchr::memmem::find(data, b"] ")? + 2..])
        })?;
        return Some(without_cookie(message.strip_prefix(b"\xef\xbb\xbf").unwrap_or(message)));
    }
    let rest = traditional_stamp(rest).or_else(|| journal_stamp(rest))?;
    let (host, rest) = word(rest)?;
    let rest = if host.ends_with(b":") { rest } else { word(rest).filter(|(tag, _)| tag.ends_with(b":"))?.1 };
    Some(without_cookie(rest.trim_ascii_start()))
}

/// Strips the cookie that marks a message as JSON.
fn without_cookie(message: &[u8]) -> &[u8] {
    message.strip_prefix(b"@cee:").map_or(message, <[u8]>::trim_ascii_start)
}

/// Strips `Mar 12 09:00:01 ` or `Mar  2 09:00:01.123456 `.
fn traditional_stamp(line: &[u8]) -> Option<&[u8]> {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let (stamp, rest) = line.split_at_checked(15)?;
    let is_month = MONTHS.chunks(3).any(|month| stamp.starts_with(month));
    let is_clock = stamp[9] == b':' && stamp[12] == b':' && stamp[13..15].iter().all(u8::is_ascii_digit);
    let is_stamp = is_month && is_clock && stamp[3] == b' ';
    // A fraction may precede the space.
    is_stamp.then(|| Some(&rest[memchr(b' ', rest)? + 1..]))?
}

/// Strips a timestamp of RFC 3339, `1741770001.123456 ` or `Wed 2025-03-12 09:00:01 UTC `.
fn journal_stamp(line: &[u8]) -> Option<&[u8]> {
    let (first, rest) = word(line)?;
    let is_unix =
        first.len() > 10 && first[10] == b'.' && first[..10].iter().chain(&first[11..]).all(u8::is_ascii_digit);
    if is_unix || is_stamp(first) {
        return Some(rest);
    }
    let (date, rest) = word(rest)?;
    let (clock, rest) = word(rest)?;
    let (_zone, rest) = word(rest)?;
    let is_weekday = first.len() == 3 && first.iter().all(u8::is_ascii_alphabetic);
    (is_weekday && is_stamp(&[date, b"T", clock].concat())).then_some(rest)
}

/// Strips `STAMP stdout F `, `STAMP `, `[pod/NAME/CONTAINER] `, `NAME  | `, or `POD CONTAINER ` as stern writes it, in colours
/// or not.
fn container(line: &[u8]) -> Option<&[u8]> {
    let line = without_colors(line);
    if let Some(pod) = line.strip_prefix(b"[pod/") {
        return Some(&pod[memchr::memmem::find(pod, b"] ")? + 2..]);
    }
    if let Some((_, _, rest)) = cri(line) {
        return Some(rest);
    }
    let (first, rest) = word(line)?;
    if is_stamp(first) {
        return Some(rest);
    }
    let after_name = without_colors(rest.trim_ascii_start());
    if let Some(rest) = after_name.strip_prefix(b"|") {
        return without_colors(rest).strip_prefix(b" ").map(without_colors);
    }
    let (second, rest) = word(after_name)?;
    let rest = without_colors(rest);
    let is_name = |word: &[u8]| {
        let word = word.split(|&byte| byte == ESCAPE).next().unwrap_or_default();
        let is_of_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(byte);
        word.iter().any(u8::is_ascii_lowercase) && word.iter().all(is_of_name)
    };
    (is_name(first) && is_name(second) && (rest.starts_with(b"{\"") || begins_with_address(rest))).then_some(rest)
}

/// Splits `STAMP stdout F ` or `STAMP stderr P ` from a line. Returns the index of the stream, whether the line continues in
/// the next one of the stream, and the rest.
pub(crate) fn cri(line: &[u8]) -> Option<(usize, bool, &[u8])> {
    let (_stamp, rest) = word(line).filter(|(stamp, _)| is_stamp(stamp))?;
    let mut streams = [&b"stdout "[..], b"stderr "].into_iter().enumerate();
    let (stream, rest) = streams.find_map(|(place, stream)| Some((place, rest.strip_prefix(stream)?)))?;
    let (tag, rest) = rest.split_at_checked(2)?;
    matches!(tag, b"F " | b"P ").then_some((stream, tag == b"P ", rest))
}

/// Strips the colours at the beginning of a line.
fn without_colors(mut line: &[u8]) -> &[u8] {
    while let [ESCAPE, b'[', color @ ..] = line
        && let Some(end) = memchr(b'm', color)
    {
        line = &color[end + 1..];
    }
    line
}

/// Returns whether the first word is an address.
fn begins_with_address(line: &[u8]) -> bool {
    word(line).is_some_and(|(first, _)| is_plausible(first))
}

/// Returns whether a word is a routable address, or the first one of a list.
fn is_plausible(word: &[u8]) -> bool {
    str::from_utf8(word).is_ok_and(|word| client::is_plausible(word.trim_end_matches(',')))
}

/// Returns whether a word is a date and a time such as `2025-03-12T09:00:01Z`.
pub(crate) fn is_stamp(word: &[u8]) -> bool {
    word.len() >= 19
        && word[..4].iter().all(u8::is_ascii_digit)
        && (word[4], word[7], word[10], word[13], word[16]) == (b'-', b'-', b'T', b':', b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_line_is_skipped() {
        use LinePrefix::{Container, FileName, Syslog};
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
            ("<190>Mar 12 09:00:01 nginx: ", &[Syslog]),
            ("212 <190>1 2025-03-12T09:00:01Z web1 nginx 12 - - \u{feff}", &[Syslog]),
            ("1741770001.123456 web1 nginx[12]: ", &[Syslog]),
            ("Wed 2025-03-12 09:00:01 UTC web1 nginx[12]: ", &[Syslog]),
            ("\x1b[36mweb-1  | \x1b[0m", &[Container]),
            ("\x1b[36;1mweb_1  |\x1b[0m ", &[Container]),
            ("web-7d9f8b6c5-x2x4z nginx ", &[Container]),
            ("\x1b[31mweb-7d9\x1b[0m \x1b[36mnginx\x1b[0m ", &[Container]),
        ] {
            let line = format!("{before}{LINE}");
            let (rest, found) = strip(line.as_bytes());
            let found: Vec<LinePrefix> = found.collect();
            assert_eq!(found, prefixes, "{before}");
            assert_eq!(rest == LINE.as_bytes(), !prefixes.is_empty() || before.is_empty(), "{before}");
        }
        for (line, rest) in [
            ("access.log:{\"time\":1}", "{\"time\":1}"),
            ("access.log:12:2001:db8::1 - -", "2001:db8::1 - -"),
            ("access.log:2001:db8::1, 10.0.0.1 - -", "2001:db8::1, 10.0.0.1 - -"),
            ("2001:db8::1 - -", "2001:db8::1 - -"),
            ("12:2001:db8::1 - -", "2001:db8::1 - -"),
            ("12:::1 - -", "::1 - -"),
            ("64:ff9b::192.0.2.1 - -", "64:ff9b::192.0.2.1 - -"),
            ("/var/log/a.log:www.example.org:443 192.0.2.7 - -", "www.example.org:443 192.0.2.7 - -"),
            ("a.log:12:www.example.org 192.0.2.7 - -", "www.example.org 192.0.2.7 - -"),
            ("Mar 12 09:00:01 web1 app: @cee: {\"a\":1}", "{\"a\":1}"),
            ("host-a - ada [", "host-a - ada ["),
            ("192.0.2.7 www.example.org 192.0.2.8 -", "192.0.2.7 www.example.org 192.0.2.8 -"),
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

    /// Reading each of these from every colon would take minutes.
    #[test]
    fn a_long_word_with_colons_is_no_file_name() {
        for part in [":", "a:", "a.b:"] {
            let word = "x:".to_owned() + &part.repeat((64 << 10) / part.len());
            for line in [word.clone(), format!("{word} 192.0.2.7 - -"), format!("a:b:c:d: {word}")] {
                assert_eq!(strip(line.as_bytes()).0, line.as_bytes(), "{part}");
            }
        }
        let name = format!("{}.log:", "x".repeat(NAME_BYTES_MAX - 5));
        for (line, rest) in [
            (format!("{name}192.0.2.7 - -"), "192.0.2.7 - -"),
            (format!("{name}www.example.org 192.0.2.7 - -"), "www.example.org 192.0.2.7 - -"),
            (format!("{name}{{\"a\":1}}"), "{\"a\":1}"),
            (format!("x{name}192.0.2.7 - -"), &*format!("x{name}192.0.2.7 - -")),
        ] {
            assert_eq!(strip(line.as_bytes()).0, rest.as_bytes(), "{line}");
        }
    }
}
