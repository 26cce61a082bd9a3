//! Tokens that callers have to bring, where the server was given some: a file with one in each line, which is read again when
//! it changes.

use std::{
    collections::HashSet,
    convert::Infallible,
    error, fmt, fs, mem,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{task::spawn_blocking, time};

/// Characters of a token; what is shorter can be guessed.
const CHARACTERS_MIN: usize = 16;

/// The tokens of a file. Clones share them.
#[derive(Clone, Debug)]
pub struct Tokens {
    file: Arc<Path>,
    known: Arc<Known>,
}

#[derive(Debug)]
struct Known {
    /// SHA-256 of each: looking one up takes no longer for a nearer guess.
    digests: RwLock<HashSet<TokenDigest>>,
    /// Changes after them.
    generation: AtomicU64,
}

/// The SHA-256 of a token.
pub(crate) type TokenDigest = [u8; 32];

/// A token that was good, for whoever goes on by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Good {
    digest: TokenDigest,
    generation: u64,
}

impl Good {
    pub(crate) fn digest(&self) -> TokenDigest {
        self.digest
    }
}

/// Why a file gives no tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokensError(String);

impl fmt::Display for TokensError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for TokensError {}

impl Tokens {
    /// Reads the file: a token in each line, of 16 characters at least; lines that are empty or begin with `#` say nothing.
    ///
    /// # Errors
    ///
    /// It cannot be read, has no token, or one that is too short.
    pub fn open(file: PathBuf) -> Result<Self, TokensError> {
        let known = digests(&read(&file)?);
        let known = Known { digests: RwLock::new(known), generation: AtomicU64::new(0) };
        Ok(Self { file: file.into(), known: Arc::new(known) })
    }

    /// The first token of the file, for whoever asks such a server.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn first(file: &Path) -> Result<String, TokensError> {
        Ok(read(file)?.swap_remove(0))
    }

    /// Is this one of them?
    #[must_use]
    pub fn has(&self, token: &[u8]) -> bool {
        self.find(token).is_some()
    }

    /// The same, to be asked again.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Good> {
        self.known.find(Sha256::digest(token).into())
    }

    /// Is it good still? It costs next to nothing while the file is as it was.
    pub(crate) fn is_still(&self, good: &mut Good) -> bool {
        if self.known.generation.load(Ordering::Acquire) == good.generation {
            return true;
        }
        let found = self.known.find(good.digest);
        let is_good = found.is_some();
        *good = found.unwrap_or_else(|| good.clone());
        is_good
    }

    /// Reads the file again and again, this long after the last time. While it cannot be used, the tokens of before are good.
    pub async fn follow(self, period: Duration) -> Infallible {
        let mut is_told = false;
        loop {
            time::sleep(period).await;
            let file = Arc::clone(&self.file);
            let Ok(known) = spawn_blocking(move || read(&file)).await else { continue };
            let is_wrong = known.is_err();
            match known {
                Ok(tokens) => self.known.replace(digests(&tokens)),
                Err(why) if !is_told => {
                    tracing::error!(%why, "the file of tokens cannot be used; those of before are good");
                }
                Err(_) => {}
            }
            if mem::replace(&mut is_told, is_wrong) && !is_wrong {
                tracing::info!("the file of tokens can be used again");
            }
        }
    }
}

impl Known {
    fn find(&self, digest: TokenDigest) -> Option<Good> {
        // Before the digests: a change in between is looked at again.
        let generation = self.generation.load(Ordering::Acquire);
        // Nothing panics while it is held.
        let is_known = self.digests.read().unwrap_or_else(PoisonError::into_inner).contains(&digest);
        is_known.then_some(Good { digest, generation })
    }

    fn replace(&self, new: HashSet<TokenDigest>) {
        let mut digests = self.digests.write().unwrap_or_else(PoisonError::into_inner);
        if *digests != new {
            *digests = new;
            // Whoever sees it sees the digests, too: he takes the lock that is held.
            self.generation.fetch_add(1, Ordering::Release);
        }
    }
}

fn digests(tokens: &[String]) -> HashSet<TokenDigest> {
    tokens.iter().map(|token| Sha256::digest(token).into()).collect()
}

fn read(file: &Path) -> Result<Vec<String>, TokensError> {
    let wrong = |why: &dyn fmt::Display| TokensError(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let mut tokens = Vec::new();
    for (line, token) in (1..).zip(text.lines().map(str::trim)) {
        if token.is_empty() || token.starts_with('#') {
            continue;
        }
        if token.chars().count() < CHARACTERS_MIN {
            return Err(wrong(&format_args!("line {line}: a token has at least {CHARACTERS_MIN} characters")));
        }
        tokens.push(token.to_owned());
    }
    if tokens.is_empty() { Err(wrong(&"there is no token in it; write one in each line")) } else { Ok(tokens) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(2);

    #[test]
    fn a_file_has_a_token_in_each_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let open = |text: &str| {
            fs::write(&file, text).expect("room for a file");
            Tokens::open(file.clone())
        };
        let tokens = open("# of the gateway\nmorning-star-0001\n\n  evening-star-0002  \n").expect("they are good");
        assert!(tokens.has(b"morning-star-0001") && tokens.has(b"evening-star-0002"));
        assert!(!tokens.has(b"# of the gateway") && !tokens.has(b"") && !tokens.has(b"morning-star-0003"));
        for (text, why) in [("", "no token"), ("# none\n", "no token"), ("morning-star-0001\nshort\n", "line 2")] {
            let error = open(text).expect_err("it is of no use").to_string();
            assert!(error.contains(why) && error.contains("tokens") && !error.contains("morning"), "{error}");
        }
        fs::write(&file, "# of the gateway\nmorning-star-0001\nevening-star-0002").expect("room for a file");
        assert_eq!(Tokens::first(&file).as_deref(), Ok("morning-star-0001"));
        fs::remove_file(&file).expect("it is there");
        assert!(Tokens::open(file.clone()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_changes_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        fs::write(&file, "morning-star-0001").expect("room for a file");
        let tokens = Tokens::open(file.clone()).expect("they are good");
        let following = tokio::spawn(tokens.clone().follow(PERIOD));
        let mut morning = tokens.find(b"morning-star-0001").expect("it is good");
        for (text, good, bad) in [
            ("evening-star-0002", "evening-star-0002", "morning-star-0001"),
            ("short", "evening-star-0002", "short"),
            ("morning-star-0001", "morning-star-0001", "evening-star-0002"),
        ] {
            fs::write(&file, text).expect("room for a file");
            time::sleep(3 * PERIOD).await;
            assert!(tokens.has(good.as_bytes()) && !tokens.has(bad.as_bytes()), "{text}");
            assert_eq!(tokens.is_still(&mut morning), good.starts_with("morning"), "{text}");
        }
        following.abort();
    }
}
