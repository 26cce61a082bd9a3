//! Writes the fields of a protobuf message by hand, byte for byte as prost would; tests compare the two.

use actix_web::web::{BufMut, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Writes a field with a number, unless that is 0, the value of an absent field.
pub(crate) fn put_varint(field: u32, number: u64, to: &mut BytesMut) {
    if number != 0 {
        encode_key(field, WireType::Varint, to);
        encode_varint(number, to);
    }
}

pub(crate) fn put_text(field: u32, text: &str, to: &mut BytesMut) {
    encode_key(field, WireType::LengthDelimited, to);
    encode_varint(text.len() as u64, to);
    to.put_slice(text.as_bytes());
}

/// Writes a field with a message, whose fields `write` appends.
pub(crate) fn put_message(field: u32, to: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    encode_key(field, WireType::LengthDelimited, to);
    let at = to.len();
    // Most are shorter than 128 bytes, whose length takes one byte.
    to.put_u8(0);
    write(to);
    let length = to.len() - at - 1;
    let more = encoded_len_varint(length as u64) - 1;
    to.put_bytes(0, more);
    if more > 0 {
        to.copy_within(at + 1..at + 1 + length, at + 1 + more);
    }
    encode_varint(length as u64, &mut &mut to[at..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_length_of_an_inner_message_is_as_short_as_prost_writes_it(length in 0_usize..40_000) {
            let mut bytes = BytesMut::from(&b"before"[..]);
            put_message(2, &mut bytes, |to| to.put_bytes(7, length));
            let mut expected = b"before".to_vec();
            prost::encoding::bytes::encode(2, &vec![7; length], &mut expected);
            prop_assert_eq!(&bytes[..], &expected[..]);
        }
    }
}
