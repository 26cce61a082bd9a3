//! Recognizes log formats that are not read, and says what to do about each.

use super::{client, line_error::LineError, prefix::is_stamp};

/// Function that returns whether a line has a format.
type IsLine = fn(&[u8]) -> bool;

/// The formats, with the error message of each.
const FORMS: [(IsLine, &str); 9] = [
    (is_json_array, "it is an array of JSON; write jq -c '.[]' FILE | tidegate replay -"),
    (
        is_envoy,
        "it is the default text format of Envoy, which lacks the address of the peer; set json_format with start_time, \
         downstream_remote_address, x_forwarded_for, method and path",
    ),
    (is_squid, "it is the native format of Squid; set access_log with the format combined"),
    (
        is_s3,
        "it is an access log of S3; write sed -E 's/^[^ ]+ [^ ]+ (\\[[^]]+\\]) ([^ ]+) [^ ]+ [^ ]+ [^ ]+ [^ ]+ \
         (\"[^\"]*\") ([0-9-]+) .*/\\2 - - \\1 \\3 \\4 -/' FILE | tidegate replay -",
    ),
    (
        is_network_load_balancer,
        "it is the log of an AWS network load balancer, which has connections and no requests; give the log of the \
         servers behind it",
    ),
    (is_haproxy, "it is the format httplog or tcplog of HAProxy; set option httplog clf"),
    (is_nginx_error, "it is an error log of nginx; give the access log"),
    (is_apache_error, "it is an error log of Apache; give the access log"),
    (
        is_w3c,
        "it begins with a date and a time as W3C extended does; put the line #Fields: before it, which the server \
         writes at the beginning of a log",
    ),
];

/// Returns the error of a line whose format is known and not read.
pub(crate) fn problem(line: &[u8]) -> Option<LineError> {
    let (_, advice) = FORMS.iter().find(|(is_line, _)| is_line(line))?;
    Some(LineError::of(*advice, line))
}

fn is_json_array(line: &[u8]) -> bool {
    line.starts_with(b"[{")
}

/// `[2025-03-12T09:00:01.250Z] "GET / HTTP/1.1" 200 - 0 5 12 11 "-" "curl" ...`
fn is_envoy(line: &[u8]) -> bool {
    line.starts_with(b"[") && is_stamp(&line[1..]) && memchr::memmem::find(line, b"] \"").is_some()
}

/// `1741770001.250     45 192.0.2.7 TCP_MISS/200 5 GET http://example.org/ - HIER_DIRECT/192.0.2.9 text/html`
fn is_squid(line: &[u8]) -> bool {
    let [time, duration, address, result] = first_words(line);
    let is_number = |word: &[u8]| str::from_utf8(word).is_ok_and(|word| word.parse::<f64>().is_ok());
    is_number(time) && is_number(duration) && client::is_address(address) && result.contains(&b'/')
}

/// `OWNER BUCKET [06/Feb/2019:00:00:38 +0000] 192.0.2.7 - REQUEST REST.GET.OBJECT KEY "GET /a HTTP/1.1" 200 ...`
fn is_s3(line: &[u8]) -> bool {
    let [owner, _bucket, time, _zone] = first_words(line);
    owner.len() == 64 && owner.iter().all(u8::is_ascii_hexdigit) && time.starts_with(b"[")
}

/// `tls 2.0 2018-12-20T02:59:40 net/NAME/ID LISTENER 192.0.2.7:51341 10.0.0.1:443 5 2 98 246 ...`
fn is_network_load_balancer(line: &[u8]) -> bool {
    let [kind, _version, time, name] = first_words(line);
    kind == b"tls" && is_stamp(time) && name.starts_with(b"net/")
}

/// `192.0.2.7:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 ...`
fn is_haproxy(line: &[u8]) -> bool {
    let [address, time, _frontend, server] = first_words(line);
    client::is_address(address) && time.starts_with(b"[") && time.ends_with(b"]") && server.contains(&b'/')
}

/// `2025/03/12 09:00:01 [error] 123#123: *1 open() "/a" failed (2: No such file or directory), client: 192.0.2.7, ...`
fn is_nginx_error(line: &[u8]) -> bool {
    let [date, clock, level, _process] = first_words(line);
    matches!(date, [_, _, _, _, b'/', _, _, b'/', _, _]) && is_clock(clock) && level.starts_with(b"[")
}

/// `[Wed Mar 12 09:00:01.250000 2025] [core:error] [pid 12] [client 192.0.2.7:5] ...`
fn is_apache_error(line: &[u8]) -> bool {
    let [weekday, _month, _day, clock] = first_words(line);
    weekday.len() == 4 && weekday.starts_with(b"[") && is_clock(clock) && memchr::memmem::find(line, b"] [").is_some()
}

/// `2025-03-12 09:00:01 10.0.0.2 GET /a - 443 - 192.0.2.7 curl - 200 0 0 15`, without a line `#Fields:` before it.
fn is_w3c(line: &[u8]) -> bool {
    let [date, clock, third, fourth] = first_words(line);
    let is_date = matches!(date, [_, _, _, _, b'-', _, _, b'-', _, _]) && date[..4].iter().all(u8::is_ascii_digit);
    is_date && is_clock(clock) && !third.is_empty() && !fourth.is_empty()
}

/// Returns the first words of a line; missing ones are empty.
fn first_words(line: &[u8]) -> [&[u8]; 4] {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

/// Returns whether a word begins with a time of the day.
fn is_clock(word: &[u8]) -> bool {
    word.len() >= 8 && (word[2], word[5]) == (b':', b':') && word[..2].iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_are_not_read_are_named() {
        for (line, name) in [
            (r#"[{"a":1},"#, "array of JSON"),
            (
                r#"[2025-03-12T09:00:01.250Z] "GET / HTTP/1.1" 200 - 0 5 12 11 "-" "curl" "id" "h" "10.0.0.9:80""#,
                "Envoy",
            ),
            ("1741770001.250     45 192.0.2.7 TCP_MISS/200 5 GET http://h/ - HIER_DIRECT/192.0.2.9 text/html", "Squid"),
            (
                r#"79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be b [06/Feb/2019:00:00:38 +0000] 192.0.2.3 - 3E57 REST.GET.OBJECT k "GET /b/k HTTP/1.1" 200 - 1 1 1 1 "-" "S3" -"#,
                "S3",
            ),
            ("tls 2.0 2018-12-20T02:59:40 net/n/c6 g3 192.0.2.7:51341 10.0.0.1:443 5 2 98 246 - arn", "network load"),
            ("192.0.2.7:33317 [06/Feb/2009:12:14:14.655] in static/srv1 10/0/30/69/109 200 2750 - -", "HAProxy"),
            ("2025/03/12 09:00:01 [error] 12#12: *1 open() failed, client: 192.0.2.7", "error log of nginx"),
            ("[Wed Mar 12 09:00:01.25 2025] [core:error] [pid 12] [client 192.0.2.7:5] x", "error log of Apache"),
            ("2025-03-12 09:00:01 10.0.0.2 GET /a - 443 - 192.0.2.7 curl - 200 0 0 15", "W3C"),
        ] {
            assert!(problem(line.as_bytes()).expect(line).problem.contains(name), "{line}");
        }
        for line in ["", "x", "[x] y", r#"192.0.2.7 - - [12/Mar/2025:09:00:01 +0000] "GET / HTTP/1.1" 200 5"#] {
            assert_eq!(problem(line.as_bytes()), None, "{line}");
        }
    }
}
