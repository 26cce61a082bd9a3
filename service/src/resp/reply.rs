//! Writes replies, as version 2 of the protocol has them, and version 3 where the client asked for it.

/// Replies that wait to be written together.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) bytes: Vec<u8>,
    /// Did the client ask for version 3?
    pub(super) is_version_3: bool,
}

impl Replies {
    pub(super) fn simple(&mut self, text: &'static str) {
        self.line(b'+', text.as_bytes());
    }

    /// A code of capitals, and a message; what would end the line is left out.
    pub(super) fn error(&mut self, text: &str) {
        self.bytes.push(b'-');
        self.bytes.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn integer(&mut self, number: i64) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    pub(super) fn integers<const N: usize>(&mut self, numbers: [i64; N]) {
        for number in numbers {
            self.integer(number);
        }
    }

    pub(super) fn bulk(&mut self, text: &[u8]) {
        self.line(b'$', itoa::Buffer::new().format(text.len()).as_bytes());
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_version_3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// So many replies follow, which are its elements.
    pub(super) fn array(&mut self, elements: usize) {
        self.line(b'*', itoa::Buffer::new().format(elements).as_bytes());
    }

    /// So many pairs of replies follow.
    pub(super) fn map(&mut self, pairs: usize) {
        if self.is_version_3 {
            self.line(b'%', itoa::Buffer::new().format(pairs).as_bytes());
        } else {
            self.array(2 * pairs);
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }
}
