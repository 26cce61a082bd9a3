//! Writes replies in version 2 of the Redis protocol, or in version 3 where the client asked for that.

/// A buffer of replies that are written together.
#[derive(Debug, Default)]
pub(super) struct ReplyWriter {
    pub(super) bytes: Vec<u8>,
    pub(super) is_version_3: bool,
}

impl ReplyWriter {
    pub(super) fn simple(&mut self, text: &'static str) {
        self.line(b'+', text.as_bytes());
    }

    /// Appends an error: a code in capitals, and a message. Control characters, which could end the line, become blanks.
    pub(super) fn error(&mut self, text: &str) {
        self.bytes.push(b'-');
        self.bytes.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    pub(super) fn integers<const N: usize>(&mut self, numbers: [i64; N]) {
        for number in numbers {
            self.integer(number);
        }
    }

    pub(super) fn bulk(&mut self, text: &[u8]) {
        self.length(b'$', text.len());
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_version_3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Appends the head of an array, whose elements are the following replies.
    pub(super) fn array(&mut self, elements: usize) {
        self.length(b'*', elements);
    }

    /// Appends the head of a map, whose entries are the following pairs of replies.
    pub(super) fn map(&mut self, pairs: usize) {
        if self.is_version_3 {
            self.length(b'%', pairs);
        } else {
            self.array(2 * pairs);
        }
    }

    /// Appends a line with the length of what follows.
    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// Appends a line with a number. The line is built from its end, so that it is copied once.
    fn number(&mut self, kind: u8, number: i64) {
        // Nineteen digits, a sign, the kind and the end of the line take 23 bytes.
        let mut line = [b'\n'; 24];
        let mut at = line.len() - 2;
        line[at] = b'\r';
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            line[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            line[at] = b'-';
        }
        at -= 1;
        line[at] = kind;
        self.bytes.extend_from_slice(&line[at..]);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn integers_are_written_in_full(number in prop_oneof![any::<i64>(), -12..12_i64, Just(i64::MIN), Just(i64::MAX)]) {
            let mut replies = ReplyWriter::default();
            replies.integer(number);
            prop_assert_eq!(replies.bytes, format!(":{number}\r\n").into_bytes());
        }
    }
}
