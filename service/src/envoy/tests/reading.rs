//! Messages are read as prost reads them.

use super::*;

/// The message of an error and the wrong field; no field where the bytes are no message.
type ReportedError = (String, Option<String>);

/// Decides the bytes of a message by a new decider. The response is returned without `retry-after`, to which a random
/// time is added.
fn decided(bytes: &[u8]) -> Result<(bool, RateLimitResponse), ReportedError> {
    let (decider, _) = decider(POLICY);
    let caller = Caller::without_token(IpAddr::from([192, 0, 2, 1]).into());
    let mut written = BytesMut::new();
    match now(decide::decide(&decider, bytes, &caller, &mut written)) {
        Ok(outcome) => {
            let mut response = RateLimitResponse::decode(&*written).expect("a message");
            assert_eq!(response.encode_to_vec(), written);
            response.response_headers_to_add.retain(|header| header.key != "retry-after");
            Ok((outcome.is_allowed, response))
        }
        Err(error) => {
            assert!(written.is_empty());
            Err(match error {
                MessageError::Malformed(why) => (why, None),
                MessageError::Invalid(error) => (error.report().message, Some(error.report().field.expect("a place"))),
            })
        }
    }
}

/// A `RateLimitRequest` whose descriptors are not decoded.
#[derive(Clone, PartialEq, Message)]
struct UndecodedRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(bytes = "vec", repeated, tag = "2")]
    descriptors: Vec<Vec<u8>>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

/// Asserts that a message is read as prost reads it. A message that prost cannot read is refused with the reason that
/// prost gives, unless something before the malformed descriptor is refused: the domain, or another descriptor.
#[track_caller]
fn assert_read_as_by_prost(bytes: &[u8]) {
    let ours = decided(bytes);
    match RateLimitRequest::decode(bytes) {
        // Compares the message with the form that prost writes, where the fields are in their order and each stands once.
        Ok(message) => assert_eq!(ours, decided(&message.encode_to_vec()), "{}", bytes.escape_ascii()),
        Err(why) => {
            let refusal = ours.expect_err("it is no message");
            let wrong_before = UndecodedRequest::decode(bytes).ok().and_then(|mut request| {
                let is_no_message = |bytes: &Vec<u8>| RateLimitDescriptor::decode(&**bytes).is_err();
                let place = request.descriptors.iter().position(is_no_message).expect("one that prost cannot read");
                request.descriptors.truncate(place);
                let is_before =
                    |(_, field): &ReportedError| field.as_deref().is_some_and(|field| field != "descriptors");
                decided(&request.encode_to_vec()).err().filter(is_before)
            });
            let is_as_by_prost = refusal == (why.to_string(), None);
            assert!(is_as_by_prost || Some(&refusal) == wrong_before.as_ref(), "{refusal:?}: {}", bytes.escape_ascii());
        }
    }
}

#[test]
fn prost_gives_the_reason_of_a_malformed_message_unless_that_takes_much_memory() {
    let explained = |bytes: &[u8]| {
        let (why, field) = decided(bytes).expect_err("it is no message");
        assert_eq!(field, None);
        let of_prost = RateLimitRequest::decode(bytes).expect_err("it is no message").to_string();
        assert!(why == of_prost || why == "this is no message", "{why}");
        why == of_prost
    };
    // A domain that is cut off, after a field that is not known, or after empty descriptors.
    for bytes in [16 << 10, (16 << 10) + 1] {
        let rest = bytes - 5;
        let unknown = [&[0x7a, 0x80 | rest as u8, (rest >> 7) as u8][..], &vec![0; rest], &[0x0a, 9]].concat();
        assert_eq!(unknown.len(), bytes);
        assert_eq!(explained(&unknown), bytes <= 16 << 10);
    }
    for descriptors in [32, 33, 8_000] {
        let bytes = [&[0x12, 0].repeat(descriptors)[..], &[0x0a, 9]].concat();
        assert_eq!(explained(&bytes), descriptors <= 32);
    }
}

fn bytes_field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::bytes::encode(number, &value.to_vec(), &mut field);
    field
}

fn number_field(number: u32, value: u64) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::uint64::encode(number, &value, &mut field);
    field
}

/// Generates a field with a number that none of these messages has, of each wire type, groups included.
fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    (9_u32..40, proptest::collection::vec(any::<u8>(), 0..9), 0..5_u8).prop_map(|(number, value, form)| {
        let tag = |wire: u32| {
            let mut tag = Vec::new();
            prost::encoding::encode_varint(u64::from(number << 3 | wire), &mut tag);
            tag
        };
        match form {
            0 => number_field(number, value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))),
            1 => [tag(1), vec![7; 8]].concat(),
            2 => bytes_field(number, &value),
            3 => [tag(3), bytes_field(1, &value), tag(4)].concat(),
            _ => [tag(5), vec![7; 4]].concat(),
        }
    })
}

#[test]
fn fields_that_come_twice_or_are_wrong_are_read_as_prost_reads_them() {
    let user = bytes_field(1, &[bytes_field(1, b"user"), bytes_field(2, b"a")].concat());
    let domain = bytes_field(1, b"edge");
    // With these fields in the descriptor, and after it in the message.
    let with_fields = |within: &[Vec<u8>], after: &[Vec<u8>]| {
        let descriptor = [&user[..], &within.concat()].concat();
        [&domain[..], &bytes_field(2, &descriptor), &after.concat()].concat()
    };
    let limit = [number_field(1, 2), number_field(2, 2)].map(|part| bytes_field(2, &part));
    let hits = |hits| bytes_field(3, &number_field(1, hits));
    for (name, bytes) in [
        ("domain twice", with_fields(&[], &[bytes_field(1, b"other"), bytes_field(1, b"edge")])),
        ("hits twice", with_fields(&[], &[number_field(3, 9), number_field(3, 2)])),
        ("hits above 32 bits", with_fields(&[], &[number_field(3, (1 << 32) + 2)])),
        ("hits above 32 bits that are none", with_fields(&[], &[number_field(3, 1 << 32)])),
        ("limit in two parts", with_fields(&limit, &[])),
        ("own hits twice", with_fields(&[hits(9), hits(2)], &[])),
        ("own hits twice, the second empty", with_fields(&[hits(2), bytes_field(3, b"")], &[])),
        ("own hits, empty", with_fields(&[bytes_field(3, b"")], &[])),
        ("a group", with_fields(&[vec![0x7b, 0x08, 0x01, 0x7c]], &[vec![0x7b, 0x7c]])),
        ("key and value twice", with_fields(&[bytes_field(1, &[&user[2..], &user[2..]].concat())], &[])),
        ("a number that is not negative", with_fields(&[number_field(4, 0)], &[])),
    ] {
        assert!(RateLimitRequest::decode(&*bytes).is_ok() && decided(&bytes).is_ok(), "{name}: {:?}", decided(&bytes));
        assert_read_as_by_prost(&bytes);
    }
    let limited = decided(&with_fields(&limit, &[])).expect("a message").1;
    assert_eq!(limited.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit), Some(2), "both parts");
    let group = |end: u8| vec![0x7b, 0x08, 0x01, end];
    // Each form that a field may have, of each number.
    let forms = |number: u8| {
        let tag = |wire| number << 3 | wire;
        [
            vec![tag(0), 1],
            [&[tag(1)][..], &[7; 8]].concat(),
            vec![tag(2), 0],
            vec![tag(3), tag(4)],
            vec![tag(4)],
            [&[tag(5)][..], &[7; 4]].concat(),
            vec![tag(6)],
            vec![tag(7)],
        ]
    };
    let mut wrong = vec![
        with_fields(&[group(0x08)], &[]),
        with_fields(&[group(0x74)], &[]),
        with_fields(&[], &[group(0x08)]),
        with_fields(&[], &[vec![0x7b]]),
        with_fields(&[], &[bytes_field(1, b"\xff")]),
        with_fields(&[bytes_field(1, &bytes_field(1, b"\xff"))], &[]),
    ];
    for number in 1..=4 {
        let known_form = |place| match number {
            1 | 2 => [2, 2, 2, 2][place],
            3 => [0, 2, 0, 0][place],
            _ => [8, 0, 8, 8][place],
        };
        for (form, field) in forms(number).into_iter().enumerate() {
            let is_wrong = |place| form != known_form(place) && (known_form(place) != 8 || form == 4 || form > 5);
            if is_wrong(0) {
                wrong.push(with_fields(&[], slice::from_ref(&field)));
            }
            if is_wrong(1) {
                wrong.push(with_fields(slice::from_ref(&field), &[]));
            }
        }
    }
    assert!(wrong.len() > 50);
    for bytes in wrong {
        let why = RateLimitRequest::decode(&*bytes).expect_err("it is no message").to_string();
        assert_eq!(decided(&bytes), Err((why, None)), "{}", bytes.escape_ascii());
    }
    // A value is bytes: any are one.
    let value = bytes_field(1, &[bytes_field(1, b"path"), bytes_field(2, b"\xff\xfe")].concat());
    assert!(decided(&with_fields(slice::from_ref(&value), &[])).is_ok());
    assert_read_as_by_prost(&with_fields(&[value], &[]));
}

proptest! {
    #[test]
    fn messages_are_read_as_prost_reads_them(
        messages in proptest::collection::vec((proptest::collection::vec(any_descriptor(), 0..4), any::<u32>()), 1..4),
        unknown in proptest::collection::vec((any::<proptest::sample::Index>(), unknown_field()), 0..3),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        // Messages one after the other are one message.
        let parts = messages.into_iter().map(|(descriptors, hits_addend)| {
            RateLimitRequest { hits_addend, ..message(descriptors) }.encode_to_vec()
        });
        let mut bytes = parts.collect::<Vec<_>>().concat();
        for (place, field) in unknown {
            let place = place.index(bytes.len() + 1);
            bytes.splice(place..place, field);
        }
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
        assert_read_as_by_prost(&bytes);
    }

    #[test]
    fn unknown_fields_are_skipped(
        fields in proptest::collection::vec((1..5_usize, unknown_field()), 0..5),
        hits in 0..9_u64,
    ) {
        let at = |place| fields.iter().filter(|(of, _)| *of == place).flat_map(|(_, field)| field.clone()).collect::<Vec<u8>>();
        let entry = [bytes_field(1, b"user"), at(1), bytes_field(2, b"a")].concat();
        let hits = [at(2), number_field(1, hits)].concat();
        let descriptor = [at(3), bytes_field(1, &entry), at(3), bytes_field(3, &hits)].concat();
        let bytes = [bytes_field(1, b"edge"), at(4), bytes_field(2, &descriptor), at(4)].concat();
        prop_assert!(decided(&bytes).is_ok() && RateLimitRequest::decode(&*bytes).is_ok());
        assert_read_as_by_prost(&bytes);
    }
}
