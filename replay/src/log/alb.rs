//! Parser of the access logs of AWS load balancers: the application load balancer, and the classic one, which lacks the first
//! word. The format is
//! `TYPE TIME NAME CLIENT:PORT TARGET:PORT SECONDS SECONDS SECONDS STATUS STATUS BYTES BYTES "REQUEST" ...`

use memchr::{memchr, memrchr};

use super::{
    client::{self, ClientOptions},
    line_error::LineError,
    record::{LogRecord, RequestTarget, readable, word},
};
use crate::{clients::IdentityKind, timestamp::TimestampReader};

const TYPES: [&[u8]; 6] = [b"http", b"https", b"h2", b"grpcs", b"ws", b"wss"];

/// Splits a line into the time, the client, and the rest.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (first, rest) = word(line)?;
    let (time, rest) = if TYPES.contains(&first) { word(rest)? } else { (first, rest) };
    let (_name, rest) = word(rest)?;
    let (client, rest) = word(rest)?;
    Some((time, client, rest))
}

/// Returns whether a line is of a load balancer: three durations follow the two addresses.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let Some((time, client, rest)) = parts(line) else { return false };
    let is_number = |word: &[u8]| str::from_utf8(word).is_ok_and(|word| word.parse::<f64>().is_ok());
    let mut durations = rest.split(|&byte| byte == b' ').skip(1).take(3);
    time.len() >= 19 && time[0].is_ascii_digit() && client::is_address(client) && durations.all(is_number)
}

pub(crate) fn read<'l>(
    line: &'l [u8],
    clients: &ClientOptions,
    stamps: &mut TimestampReader,
) -> Result<LogRecord<'l>, LineError> {
    let (time, client, rest) = parts(line).filter(|_| is_line(line)).ok_or("it is no line of an AWS load balancer")?;
    let time = stamps.read(time).map_err(|error| error.of_line(time))?;
    let client = clients.read(readable(client), None)?;
    let request = memchr(b'"', rest).map(|start| &rest[start + 1..]).ok_or("no quoted request follows the sizes")?;
    let end = memchr::memmem::find(request, b"\" \"").or_else(|| memrchr(b'"', request));
    let request = &request[..end.ok_or("the quoted request has no end")?];
    Ok(LogRecord { time, client, user: None, kind: IdentityKind::USER, target: RequestTarget::of_request(request) })
}
