//! The one-time sign-in link of a server that has no administrator yet.

use std::sync::{Mutex, PoisonError};

use crate::base::{
    secrets::{now, secret},
    sha256::sha256,
};

/// How long a link lives, in seconds.
const LIFE_SECONDS: i64 = 60 * 60;

/// The link that is open, if one is.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    code_sha256: String,
    /// Unix seconds.
    ends_at: i64,
}

impl Setup {
    /// A server that needs an administrator, and the code of its link.
    pub(crate) fn open() -> Result<(Self, String), getrandom::Error> {
        let code = secret()?;
        let open = Open { code_sha256: sha256(&code), ends_at: now() + LIFE_SECONDS };
        Ok((Self { open: Mutex::new(Some(open)) }, code))
    }

    /// Is this the code of a link that is still good?
    pub(crate) fn admits(&self, code: &str) -> bool {
        self.admits_at(code, now())
    }

    fn admits_at(&self, code: &str, now: i64) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Digests are compared, which tells nothing about the code by its time.
        open.as_ref().is_some_and(|open| now < open.ends_at && open.code_sha256 == sha256(code))
    }

    /// Is there a link that is still good?
    pub(crate) fn is_open(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|open| now() < open.ends_at)
    }

    /// An administrator exists: the link is dead.
    pub(crate) fn close(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_dies_by_age_and_by_use() {
        let (setup, code) = Setup::open().expect("random numbers");
        assert!(setup.admits(&code));
        assert!(!setup.admits("") && !setup.admits(&code[1..]));
        assert!(setup.admits_at(&code, now() + LIFE_SECONDS - 5));
        assert!(!setup.admits_at(&code, now() + LIFE_SECONDS));
        setup.close();
        assert!(!setup.admits(&code));
        assert!(!Setup::default().admits(""));
    }
}
