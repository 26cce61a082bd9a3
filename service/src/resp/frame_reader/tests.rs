//! Tests of the frame reader with input that comes in pieces.

use proptest::{collection::vec, prelude::*};

use super::*;

/// An owned result of reading: the words of a command, or the other frame.
#[derive(PartialEq, Eq, Debug)]
enum Read {
    Command(Vec<Vec<u8>>),
    Else(Frame),
    Wrong(ProtocolError),
}

/// Reads input that comes in these pieces, as a connection does. Returns the results, and how many bytes are left of an
/// incomplete command.
fn read(pieces: &[&[u8]]) -> (Vec<Read>, usize) {
    let (mut decoder, mut input, mut read) = (FrameReader::default(), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut done = 0;
        let mut words = Arguments::new();
        loop {
            match decoder.next(&input[done..], &mut words) {
                Ok((bytes, what)) => {
                    assert!(done + bytes <= input.len());
                    done += bytes;
                    match what {
                        Frame::Incomplete => break,
                        Frame::Command => read.push(Read::Command(words.iter().map(|word| word.to_vec()).collect())),
                        other => read.push(Read::Else(other)),
                    }
                }
                Err(error) => {
                    read.push(Read::Wrong(error));
                    return (read, 0);
                }
            }
        }
        drop(words);
        input.drain(..done);
    }
    (read, input.len())
}

fn command(words: &[&str]) -> Read {
    Read::Command(words.iter().map(|word| word.as_bytes().to_vec()).collect())
}

fn array(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn commands_are_arrays_or_lines() {
    for (bytes, reads) in [
        ("*1\r\n$4\r\nPING\r\n", vec![command(&["PING"])]),
        ("*2\r\n$0\r\n\r\n$2\r\n\r\n\r\n", vec![command(&["", "\r\n"])]),
        ("PING\r\nPING\n", vec![command(&["PING"]), command(&["PING"])]),
        ("  SET\ta  b \r\n", vec![command(&["SET", "a", "b"])]),
        ("AUTH 'a b' \"c d\"\r\n", vec![command(&["AUTH", "a b", "c d"])]),
        ("AUTH ''\r\n", vec![command(&["AUTH", ""])]),
        ("\r\n\n*0\r\n*-1\r\n*-7\r\nPING\r\n", vec![command(&["PING"])]),
        ("AUTH \"a\r\nPING\r\n", vec![Read::Else(Frame::Quotes), command(&["PING"])]),
        ("AUTH \"a\"b\r\n", vec![Read::Else(Frame::Quotes)]),
        ("AUTH \"a\\n\"\r\n", vec![Read::Else(Frame::Quotes)]),
        ("AUTH 'a\\n'\r\n", vec![command(&["AUTH", "a\\n"])]),
    ] {
        assert_eq!(read(&[bytes.as_bytes()]), (reads, 0), "{bytes:?}");
    }
}

#[test]
fn input_that_is_no_command_has_an_error_with_the_reason() {
    for (bytes, wrong) in [
        ("*x\r\n", ProtocolError::Count),
        ("*\r\n", ProtocolError::Count),
        ("*-\r\n", ProtocolError::Count),
        ("*1\n", ProtocolError::Count),
        ("*1\rx", ProtocolError::Count),
        ("*1048577\r\n", ProtocolError::Count),
        ("*99999999999999999999\r\n", ProtocolError::Count),
        ("*1\r\nPING\r\n", ProtocolError::NotBulk(b'P')),
        ("*1\r\n$-1\r\n", ProtocolError::Length),
        ("*1\r\n$1048577\r\n", ProtocolError::Length),
        ("*1\r\n$+4\r\n", ProtocolError::Length),
        ("*1\r\n$4\r\nPINGED\r\n", ProtocolError::NoEnd),
        ("*65\r\n$1\r\na\r\n:1\r\n", ProtocolError::NotBulk(b':')),
    ] {
        assert_eq!(read(&[bytes.as_bytes()]), (vec![Read::Wrong(wrong)], 0), "{bytes:?}");
    }
}

#[test]
fn bounds_are_exact() {
    let words = vec!["a"; ARGUMENTS_MAX];
    assert_eq!(read(&[&array(&words)]), (vec![command(&words)], 0));
    // A command with more arguments is discarded, and the command behind it is read.
    let many = [array(&vec!["a"; ARGUMENTS_MAX + 1]), array(&["PING"])].concat();
    assert_eq!(read(&[&many]), (vec![Read::Else(Frame::TooMany), command(&["PING"])], 0));
    let line = [vec!["a"; ARGUMENTS_MAX + 1].join(" "), "\nPING\n".to_owned()].concat();
    assert_eq!(read(&[line.as_bytes()]), (vec![Read::Else(Frame::TooMany), command(&["PING"])], 0));

    let longest = array(&[vec![b'a'; COMMAND_BYTES_MAX - 20]]);
    assert!(longest.len() <= COMMAND_BYTES_MAX, "with its framing");
    let (reads, left) = read(&[&longest]);
    assert!(matches!(reads[..], [Read::Command(_)]) && left == 0);
    let long = array(&[vec![b'a'; COMMAND_BYTES_MAX - 20], vec![b'a'; 20]]);
    for long in [&long[..], &long[..long.len() - 1]] {
        assert_eq!(read(&[long]).0, [Read::Wrong(ProtocolError::LongCommand)]);
    }
    // The bound holds for discarded commands, too.
    let long = array(&vec![vec![b'a'; COMMAND_BYTES_MAX / ARGUMENTS_MAX]; ARGUMENTS_MAX + 1]);
    assert_eq!(read(&[&long]).0, [Read::Wrong(ProtocolError::LongCommand)]);

    let line = vec![b'a'; LINE_BYTES_MAX];
    assert_eq!(read(&[&line[1..]]), (Vec::new(), LINE_BYTES_MAX - 1));
    assert_eq!(read(&[&line]).0, [Read::Wrong(ProtocolError::LongLine)]);
}

proptest! {
    #[test]
    fn short_numbers_are_read_as_those_of_any_length(
        bytes in prop_oneof![
            "-?[0-9]{0,3}\r\n[0-9]{0,2}".prop_map(String::into_bytes),
            "-?[0-9]{0,12}\r?\n?[-0-9\r\n]{0,3}".prop_map(String::into_bytes),
            vec(prop_oneof![Just(b'0'), Just(b'9'), Just(b'/'), Just(b':'), Just(b'\r'), Just(b'\n'), any::<u8>()], 0..6),
        ],
    ) {
        prop_assert_eq!(read_number(&bytes), read_any_number(&bytes));
    }

    /// Commands of any words are read, wherever the input is cut.
    #[test]
    fn commands_are_read_as_they_were_written(
        commands in vec(vec(vec(any::<u8>(), 0..20), 1..8), 0..6),
        cuts in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| array(words)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let reads: Vec<Read> = commands.into_iter().map(Read::Command).collect();
        prop_assert_eq!(read(&pieces), (reads, 0));
    }

    /// Any input has the same result when it comes byte by byte as when it comes at once.
    #[test]
    fn the_result_does_not_depend_on_how_the_input_is_cut(bytes in "([*$:][0-9-]{1,3}\r\n|[a-z \"'\\\\]{0,6}\r?\n|[ -~]|\r\n){0,12}") {
        let bytes = bytes.as_bytes();
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(read(&[bytes]), read(&each));
    }
}
