//! Passwords: which are taken, and argon2id off the threads that answer requests.

use std::{
    sync::{LazyLock, OnceLock},
    thread::available_parallelism,
};

use argon2::{
    Argon2, Params,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use tokio::sync::{AcquireError, Semaphore};
use tokio::task::spawn_blocking;

use crate::domain::error::Problem;

/// The fewest characters of a password.
pub(crate) const CHARACTERS_MIN: usize = 12;
/// The longest password, in bytes: hashing more only costs time.
const BYTES_MAX: usize = 1_024;
/// Passwords that are hashed at a time: each takes 19 MiB, and a processor for some ten milliseconds. With few processors it is
/// one, since hashing threads would have more of a processor than the thread that answers.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    Semaphore::new(if processors < 4 { 1 } else { 2 })
});
/// Held by the stranger whose password is hashed or is the next: a known caller waits for one of them.
static STRANGERS_TURN: Semaphore = Semaphore::const_new(1);
/// Strangers who are being served or wait; others are told to come again, so that none waits behind a crowd.
static STRANGERS: Semaphore = Semaphore::const_new(16);
/// Callers who are known, and are served or wait: a crowd of strangers does not keep them away.
static KNOWN: Semaphore = Semaphore::const_new(16);

/// The hash that names without a user are verified against: its digest is random, so it is of no password.
static NO_USER: OnceLock<String> = OnceLock::new();

/// A caller for whom a password is hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallerKind {
    Stranger,
    /// A caller with a known browser, a session, a token or a setup code.
    Known,
}

/// Passwords that are long enough and still the first to be tried.
const COMMON: [&str; 16] = [
    "111111111111",
    "123123123123",
    "123456123456",
    "1234567890123",
    "123456789012",
    "abcdefghijkl",
    "adminadminadmin",
    "administrator",
    "changemechangeme",
    "iloveyou1234",
    "letmeinletmein",
    "password1234",
    "passwordpassword",
    "qwerty123456",
    "qwertyuiop123",
    "tidegatetidegate",
];

/// Why a password is not taken.
pub(crate) fn refuse(password: &str) -> Option<String> {
    let lower = password.to_lowercase();
    if password.chars().count() < CHARACTERS_MIN {
        Some(format!("{CHARACTERS_MIN} characters or more; a few words make a good password"))
    } else if password.len() > BYTES_MAX {
        Some(format!("at most {BYTES_MAX} bytes fit"))
    } else if COMMON.contains(&lower.as_str()) || is_one_character(&lower) {
        Some("this is one of the first that anybody would try; a few words make a good password".to_owned())
    } else {
        None
    }
}

fn is_one_character(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| characters.all(|other| other == first))
}

/// The argon2id hash of a new password, as a PHC string.
pub(crate) async fn hash(password: String) -> Result<String, Problem> {
    let failed = |why: String| Problem::Internal(format!("hashing a password: {why}"));
    off_thread(CallerKind::Known, move || {
        Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string())
    })
    .await?
    .map_err(|error| failed(error.to_string()))
}

/// Makes the hash by which [`verify`] takes as long for names without a user. Fails where the system has no random numbers.
pub(crate) fn prepare() -> Result<(), getrandom::Error> {
    let (mut salt, mut digest) = ([0; 16], [0; 32]);
    getrandom::fill(&mut salt)?;
    getrandom::fill(&mut digest)?;
    let (memory, passes, lanes) = (Params::DEFAULT_M_COST, Params::DEFAULT_T_COST, Params::DEFAULT_P_COST);
    let (salt, digest) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(digest));
    // Another server of this process may have made it.
    NO_USER.get_or_init(|| format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${digest}"));
    Ok(())
}

/// Returns whether this is the password of `hash`; `None` stands for a name without a user, and takes as long.
pub(crate) async fn verify(password: String, hash: Option<String>, caller: CallerKind) -> Result<bool, Problem> {
    let is_somebody = hash.is_some();
    let hash = hash.or_else(|| NO_USER.get().cloned());
    let hash = hash.ok_or_else(|| Problem::Internal("passwords are not prepared".to_owned()))?;
    off_thread(caller, move || {
        let verify = |hash: &str| {
            let hash = PasswordHash::new(hash).ok()?;
            // Longer ones are never set, so they need not be hashed.
            let password = password.as_bytes().get(..BYTES_MAX).unwrap_or(password.as_bytes());
            Argon2::default().verify_password(password, &hash).ok()
        };
        verify(&hash).is_some() && is_somebody && password.len() <= BYTES_MAX
    })
    .await
}

async fn off_thread<T: Send + 'static>(
    caller: CallerKind,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let (places, strangers_turn) = match caller {
        CallerKind::Known => (&KNOWN, None),
        CallerKind::Stranger => (&STRANGERS, Some(&STRANGERS_TURN)),
    };
    let closed = |error: AcquireError| Problem::Internal(error.to_string());
    let place = places.try_acquire().map_err(|_| Problem::TooMany { retry_after_s: 1 })?;
    let own = match strangers_turn {
        Some(turn) => Some(turn.acquire().await.map_err(closed)?),
        None => None,
    };
    let turn = TURNS.acquire().await.map_err(closed)?;
    let work = move || {
        // Held until it is done, also if the caller disconnects.
        let _held = (place, own, turn);
        work()
    };
    spawn_blocking(work).await.map_err(|error| Problem::Internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::future::join_all;

    use super::*;

    #[test]
    fn short_long_and_common_passwords_are_refused() {
        for password in ["", "short", "elevenchars", "Password1234", "zzzzzzzzzzzzzz", &"x y".repeat(400)] {
            assert!(refuse(password).is_some(), "{password}");
        }
        for password in ["correct horse battery", "ééééééééééüü", "p4ssphrase-of-12"] {
            assert_eq!(refuse(password), None, "{password}");
        }
    }

    #[tokio::test]
    async fn a_known_caller_waits_for_the_password_of_one_stranger() {
        const STRANGERS: usize = 10;
        prepare().expect("random numbers");
        let ended = RefCell::new(Vec::new());
        let verify_of = |caller| {
            let ended = &ended;
            async move {
                verify("correct horse battery".to_owned(), None, caller).await.expect("there is a place");
                ended.borrow_mut().push(caller);
            }
        };
        let callers = [[CallerKind::Stranger; STRANGERS].as_slice(), &[CallerKind::Known]].concat();
        join_all(callers.into_iter().map(verify_of)).await;
        let ended = ended.into_inner();
        assert_eq!(ended.len(), STRANGERS + 1);
        let place = ended.iter().position(|caller| *caller == CallerKind::Known);
        assert!(place.is_some_and(|place| place <= 2), "{ended:?}");
    }

    #[tokio::test]
    async fn only_the_right_password_of_somebody_is_verified() {
        assert!(verify("correct horse battery".to_owned(), None, CallerKind::Stranger).await.is_err());
        prepare().expect("random numbers");
        let hash = hash("correct horse battery".to_owned()).await.expect("a hash");
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        // Names without a user cost the same.
        let no_user = PasswordHash::new(NO_USER.get().expect("it is made")).expect("a hash");
        let hashed = PasswordHash::new(&hash).expect("a hash");
        assert_eq!((no_user.algorithm, no_user.version), (hashed.algorithm, hashed.version));
        assert_eq!(no_user.params.to_string(), hashed.params.to_string());
        let lengths = |hash: &PasswordHash| (hash.salt.map(|it| it.len()), hash.hash.map(|it| it.len()));
        assert_eq!(lengths(&no_user), lengths(&hashed));
        let verify = async |password: &str, hash: Option<&str>| {
            verify(password.to_owned(), hash.map(str::to_owned), CallerKind::Stranger).await.expect("an answer")
        };
        assert!(verify("correct horse battery", Some(&hash)).await);
        assert!(!verify("correct horse batterz", Some(&hash)).await);
        assert!(!verify("correct horse battery", None).await);
        assert!(!verify("correct horse battery", Some("nonsense")).await);
        // As many strangers wait as may: a caller who is known has a place all the same.
        let _waiting = STRANGERS.acquire_many(16).await.expect("it is open");
        let verify = async |caller| super::verify("correct horse battery".to_owned(), None, caller).await;
        assert!(matches!(verify(CallerKind::Stranger).await, Err(Problem::TooMany { retry_after_s: 1 })));
        assert!(matches!(verify(CallerKind::Known).await, Ok(false)));
    }
}
