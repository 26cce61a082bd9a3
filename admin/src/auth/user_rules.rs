//! What holds of every user, however he is added: by the first link, by an administrator, on the command line.

use crate::{
    auth::passwords,
    domain::{
        error::{FieldError, Problem},
        roles::SERVER,
    },
    store::users::User,
};

/// Of the name of a user.
pub(crate) const NAME_PATTERN: &str = "^[a-z][a-z0-9_.-]{0,31}$";
const CHARACTERS_MAX: usize = 32;

/// As [`NAME_PATTERN`] says, and not the server's.
pub(crate) fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    name != SERVER
        && bytes.len() <= CHARACTERS_MAX
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-'))
}

/// Refuses to give a role or a password to who has neither from here.
pub(crate) fn check_password_user(user: &User) -> Result<(), Problem> {
    if user.issuer.is_empty() { Ok(()) } else { Err(Problem::ByProvider(user.name.clone())) }
}

/// What is wrong with the name and the password of a new user.
pub(crate) fn check(name: &str, password: &str) -> Result<(), Problem> {
    let mut wrong = Vec::new();
    if name == SERVER {
        wrong.push(FieldError::invalid("/name", "the server itself is called so; take another name"));
    } else if !is_name(name) {
        let message = "begin with a-z, go on with a-z, 0-9, `_`, `.` and `-`, 32 characters at most";
        wrong.push(FieldError::invalid("/name", message));
    }
    if let Some(why) = passwords::refuse(password) {
        wrong.push(FieldError::invalid("/password", why));
    }
    if wrong.is_empty() { Ok(()) } else { Err(Problem::Invalid(wrong)) }
}
