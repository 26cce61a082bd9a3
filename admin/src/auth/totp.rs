//! Codes of an authenticator app: TOTP (RFC 6238) with SHA-1, six digits and steps of 30 seconds, which every app understands;
//! and recovery codes, for a user who has lost the app.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;

/// Bytes of a secret: as many as SHA-1 gives (RFC 4226, section 4).
const SECRET_BYTES: usize = 20;
/// Seconds of a step.
const STEP_S: i64 = 30;
/// Digits of a code.
const DIGITS: usize = 6;
/// Recovery codes that a user is given.
const RECOVERY_CODES: usize = 10;
/// Random bytes of a recovery code: 80 bits cannot be found by trying, so their SHA-256 suffices to know it.
const RECOVERY_BYTES: usize = 10;
/// Letters between two hyphens of a recovery code.
const GROUP_LETTERS: usize = 4;

/// The secret of a new app.
pub(crate) fn secret() -> Result<[u8; SECRET_BYTES], getrandom::Error> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}

/// The step that a code is of, if it is one that may be used now: the present one, the one before it or the one after it,
/// since clocks differ, and later than the one that was used `last`.
pub(crate) fn step_of(secret: &[u8], code: &str, last: i64, now: i64) -> Option<i64> {
    let present = now.div_euclid(STEP_S);
    (present - 1..=present + 1).find(|step| *step > last && code_of(secret, *step) == code)
}

/// The code of a step (RFC 4226, section 5.3).
fn code_of(secret: &[u8], step: i64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let tag: &[u8] = tag.as_ref();
    let at = tag.last().map_or(0, |last| usize::from(last & 15));
    let word = tag.iter().skip(at).take(4).fold(0, |word: u32, byte| (word << 8) | u32::from(*byte));
    format!("{:06}", (word & 0x7fff_ffff) % 1_000_000)
}

/// A code as it is compared, whether it is of an app or a recovery code: people write spaces and hyphens, and small letters.
pub(crate) fn plain(code: &str) -> String {
    code.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_uppercase()).collect()
}

/// Is this plain code one of an app? A recovery code is longer.
pub(crate) fn is_of_app(code: &str) -> bool {
    code.len() == DIGITS
}

/// Recovery codes, as they are shown.
pub(crate) fn recovery_codes() -> Result<Vec<String>, getrandom::Error> {
    (0..RECOVERY_CODES).map(|_| recovery_code()).collect()
}

fn recovery_code() -> Result<String, getrandom::Error> {
    let mut bytes = [0; RECOVERY_BYTES];
    getrandom::fill(&mut bytes)?;
    let letters = base32(&bytes).to_ascii_lowercase();
    let groups = (0..letters.len()).step_by(GROUP_LETTERS).filter_map(|at| letters.get(at..at + GROUP_LETTERS));
    Ok(groups.collect::<Vec<_>>().join("-"))
}

/// The address by which an app takes a secret over: the app shows the name under the installation's.
pub(crate) fn uri(secret: &[u8], name: &str, environment: Option<&str>) -> String {
    let issuer = environment.map_or_else(|| "Tidegate".to_owned(), |environment| format!("Tidegate {environment}"));
    let (issuer, name) = (encoded(&issuer), encoded(name));
    let secret = base32(secret);
    format!("otpauth://totp/{issuer}:{name}?secret={secret}&issuer={issuer}&algorithm=SHA1&digits=6&period=30")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Base32 (RFC 4648) of whole groups of five bytes, as apps take secrets that are typed.
pub(crate) fn base32(bytes: &[u8]) -> String {
    const LETTERS: [char; 32] = [
        'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V',
        'W', 'X', 'Y', 'Z', '2', '3', '4', '5', '6', '7',
    ];
    let letters = |group: &[u8]| {
        let word = group.iter().fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
        (0..8).rev().map(move |place| LETTERS[(word >> (5 * place)) as usize % LETTERS.len()])
    };
    bytes.chunks_exact(5).flat_map(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238, appendix B: the last six of eight digits.
    #[test]
    fn the_codes_are_those_of_the_standard() {
        let secret = b"12345678901234567890";
        for (now, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(step_of(secret, code, 0, now), Some(now / 30), "{now}");
        }
    }

    #[test]
    fn a_code_counts_a_step_before_and_after_its_own_and_once() {
        let secret = secret().expect("random numbers");
        let code = code_of(&secret, 100);
        for (now, is_taken) in
            [(2_969, false), (2_970, true), (3_000, true), (3_029, true), (3_059, true), (3_060, false)]
        {
            assert_eq!(step_of(&secret, &code, 0, now), is_taken.then_some(100), "{now}");
        }
        assert_eq!(step_of(&secret, &code, 99, 3_000), Some(100));
        assert_eq!(step_of(&secret, &code, 100, 3_000), None, "it was used");
        assert_eq!(step_of(&secret, &code, 101, 3_000), None, "so was a later one");
        assert_eq!(step_of(b"another secret of 20", &code, 0, 3_000), None);
        for nonsense in ["", "0", "0000000", "abcdef"] {
            assert_eq!(step_of(&secret, nonsense, 0, 3_000), None, "{nonsense}");
        }
    }

    #[test]
    fn codes_are_compared_as_people_write_them() {
        for (written, is_one) in [("123 456", true), (" 123-456 ", true), ("12345", false), ("", false)] {
            assert_eq!(is_of_app(&plain(written)), is_one, "{written}");
        }
        assert_eq!(plain("abcd-EFGH 2345"), "ABCDEFGH2345");
        let codes = recovery_codes().expect("random numbers");
        assert_eq!(codes.len(), RECOVERY_CODES);
        for code in &codes {
            assert_eq!(code.split('-').map(str::len).collect::<Vec<_>>(), [4; 4], "{code}");
            assert!(!is_of_app(&plain(code)) && codes.iter().filter(|other| *other == code).count() == 1, "{code}");
        }
    }

    #[test]
    fn an_app_takes_the_secret_over_by_an_address() {
        // RFC 4648, section 10.
        assert_eq!((base32(b"fooba"), base32(b"")), ("MZXW6YTB".to_owned(), String::new()));
        let secret = b"12345678901234567890";
        let letters = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
        assert_eq!(base32(secret), letters);
        let rest = "&algorithm=SHA1&digits=6&period=30";
        assert_eq!(
            uri(secret, "ana.b", None),
            format!("otpauth://totp/Tidegate:ana%2Eb?secret={letters}&issuer=Tidegate{rest}")
        );
        assert_eq!(
            uri(secret, "ana", Some("prod: eu")),
            format!("otpauth://totp/Tidegate%20prod%3A%20eu:ana?secret={letters}&issuer=Tidegate%20prod%3A%20eu{rest}")
        );
    }
}
