//! Check tokens: a file with one token a line and its rights, read again when it changes.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt, fs, mem,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use derive_more::{Display, Error};
use sha2::{Digest, Sha256};
use tokio::{task::spawn_blocking, time};

/// The fewest characters of a token. Shorter ones could be guessed.
const CHARACTERS_MIN: usize = 16;

/// The setting of the file of tokens for checks, as error messages name it.
pub(crate) const CHECK_TOKENS: &str = "--check-tokens";
/// The setting of the file of tokens for the metrics, as error messages name it.
pub(crate) const METRICS_TOKENS: &str = "--metrics-tokens";

/// The prefix of a domain in the line of a token.
const DOMAIN: &str = "domain=";

/// A right, which a kind of calls takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Right {
    /// Checks, one by one or in batches and streams, and the requests of proxies and of Envoy.
    Check,
    /// Reservations, their settlements and refunds.
    Reserve,
    /// Resets of what was used.
    Reset,
}

impl Right {
    const ALL: [Self; 3] = [Self::Check, Self::Reserve, Self::Reset];

    /// Returns the name in a file.
    const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Reserve => "reserve",
            Self::Reset => "reset",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The rights of a caller. Clones share the domains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    /// A bit for each [`Right`].
    calls: u8,
    /// The domains in which the caller has them; `None` for all domains.
    domains: Option<Arc<[Box<str>]>>,
}

impl Default for Rights {
    /// Returns the rights of a token without rights in its line, and of all callers where the server asks for no token.
    fn default() -> Self {
        Self { calls: Right::Check.bit() | Right::Reserve.bit(), domains: None }
    }
}

impl Rights {
    /// Returns an error unless this right is among them.
    pub(crate) fn permit(&self, right: Right) -> Result<(), Forbidden> {
        if self.calls & right.bit() == 0 { Err(Forbidden::Call(right)) } else { Ok(()) }
    }

    /// Returns an error unless they hold in this domain.
    pub(crate) fn permit_domain(&self, domain: &str) -> Result<(), Forbidden> {
        match &self.domains {
            Some(domains) if !domains.iter().any(|own| **own == *domain) => Err(Forbidden::Domain(domain.to_owned())),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Display)]
pub(crate) enum Forbidden {
    /// A right to calls of this kind.
    #[display("this token lacks the right `{0}`; send another, or write {0} behind it in the file of --check-tokens", _0.name())]
    Call(Right),
    /// Any right in this domain.
    #[display(
        "domain: this token has no rights in `{_0}`; send one that has, or write {DOMAIN} and the name behind it in the file \
         of --check-tokens"
    )]
    Domain(String),
}

/// The tokens of a file. Clones share them.
#[derive(Clone, Debug)]
pub struct Tokens {
    file: Arc<Path>,
    /// Whether rights may stand behind a token.
    has_rights: bool,
    table: Arc<TokenTable>,
}

/// The tokens that the file had last.
#[derive(Debug)]
struct TokenTable {
    /// The rights by the digest of the token, so that a lookup takes no longer for a nearer guess.
    rights: RwLock<HashMap<TokenDigest, Rights>>,
    /// A number that changes after the rights have changed.
    generation: AtomicU64,
}

/// The SHA-256 of a token.
pub(crate) type TokenDigest = [u8; 32];

/// A token that was valid when it was looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ValidToken {
    pub(crate) digest: TokenDigest,
    generation: u64,
    pub(crate) rights: Rights,
}

/// The reason why a file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Display, Error)]
pub struct TokensError(#[error(not(source))] String);

impl Tokens {
    /// Reads the file: a token in each line, of 16 characters at least and without white space. Lines that are empty or
    /// begin with `#` are skipped. Behind a token may stand, with white space between them, its rights (`check`,
    /// `reserve` and `reset`), and the domains in which alone it has them (`domain=NAME`). Without any right there it
    /// has `check` and `reserve`. Where a token stands in two lines, the last counts.
    ///
    /// # Errors
    ///
    /// The file cannot be read, has no token, has one that is too short, or something else behind a token.
    pub fn open(file: PathBuf) -> Result<Self, TokensError> {
        Self::open_file(file, true)
    }

    /// Reads a file in which nothing stands behind a token, such as the tokens for the metrics.
    ///
    /// # Errors
    ///
    /// The same as of [`open`](Self::open).
    pub fn open_without_rights(file: PathBuf) -> Result<Self, TokensError> {
        Self::open_file(file, false)
    }

    fn open_file(file: PathBuf, has_rights: bool) -> Result<Self, TokensError> {
        let rights = by_digest(read(&file, has_rights)?);
        let table = TokenTable { rights: RwLock::new(rights), generation: AtomicU64::new(0) };
        Ok(Self { file: file.into(), has_rights, table: Arc::new(table) })
    }

    /// Returns the first token of the file that may check in this domain, for a client of such a server.
    ///
    /// # Errors
    ///
    /// The same as of [`open`](Self::open), or no token of the file may check in this domain.
    pub fn first(file: &Path, domain: &str) -> Result<String, TokensError> {
        let may_check = |rights: &Rights| rights.permit(Right::Check).is_ok() && rights.permit_domain(domain).is_ok();
        let first = read(file, true)?.into_iter().find(|(_, rights)| may_check(rights));
        let none = || TokensError(format!("{}: no token in it may check in the domain `{domain}`", file.display()));
        first.map(|(token, _)| token).ok_or_else(none)
    }

    /// Returns whether this is one of the tokens.
    #[must_use]
    pub fn has(&self, token: &[u8]) -> bool {
        self.find(token).is_some()
    }

    pub(crate) fn find(&self, token: &[u8]) -> Option<ValidToken> {
        self.table.find(Sha256::digest(token).into())
    }

    /// Returns whether the token is still valid, and updates its rights. While the file does not change, it only compares two
    /// numbers.
    pub(crate) fn refresh(&self, token: &mut ValidToken) -> bool {
        if self.table.generation.load(Ordering::Acquire) == token.generation {
            return true;
        }
        let found = self.table.find(token.digest);
        let is_valid = found.is_some();
        *token = found.unwrap_or_else(|| token.clone());
        is_valid
    }

    /// Reads the file again after each period. While the file cannot be used, the tokens of before stay valid. It never ends.
    pub async fn follow(self, period: Duration) -> Infallible {
        let mut was_logged = false;
        loop {
            time::sleep(period).await;
            let (file, has_rights) = (Arc::clone(&self.file), self.has_rights);
            let Ok(tokens) = spawn_blocking(move || read(&file, has_rights)).await else { continue };
            let is_wrong = tokens.is_err();
            match tokens {
                Ok(tokens) => self.table.replace(by_digest(tokens)),
                Err(why) if !was_logged => {
                    tracing::error!(%why, "the file of tokens cannot be used; those of before are good");
                }
                Err(_) => {}
            }
            if mem::replace(&mut was_logged, is_wrong) && !is_wrong {
                tracing::info!("the file of tokens can be used again");
            }
        }
    }
}

impl TokenTable {
    fn find(&self, digest: TokenDigest) -> Option<ValidToken> {
        // The generation is read before the rights, so that a change in between is noticed at the next refresh.
        let generation = self.generation.load(Ordering::Acquire);
        // A poisoned lock is sound: nothing panics while it is held.
        let rights = self.rights.read().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned()?;
        Some(ValidToken { digest, generation, rights })
    }

    fn replace(&self, new: HashMap<TokenDigest, Rights>) {
        let mut rights = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        if *rights != new {
            *rights = new;
            // A thread that sees the new number sees the new rights, too, since it takes the lock that is held here.
            self.generation.fetch_add(1, Ordering::Release);
        }
    }
}

fn by_digest(tokens: Vec<(String, Rights)>) -> HashMap<TokenDigest, Rights> {
    tokens.into_iter().map(|(token, rights)| (Sha256::digest(token).into(), rights)).collect()
}

/// Reads the tokens of a file with their rights.
fn read(file: &Path, has_rights: bool) -> Result<Vec<(String, Rights)>, TokensError> {
    let wrong = |why: &dyn fmt::Display| TokensError(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (token, behind) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if token.chars().count() < CHARACTERS_MIN {
            return Err(wrong(&format_args!("line {number}: a token has at least {CHARACTERS_MIN} characters")));
        }
        if !has_rights && !behind.is_empty() {
            return Err(wrong(&format_args!("line {number}: nothing stands behind a token in this file")));
        }
        // The message does not quote the text, which may be part of a secret.
        let rights = rights(behind).ok_or_else(|| {
            wrong(&format_args!(
                "line {number}: behind a token stand rights, check, reserve and reset, and domains, {DOMAIN}NAME; nothing else"
            ))
        })?;
        tokens.push((token.to_owned(), rights));
    }
    if tokens.is_empty() { Err(wrong(&"there is no token in it; write one in each line")) } else { Ok(tokens) }
}

/// Reads the rights and domains behind a token; `None` where a word of it is neither.
fn rights(text: &str) -> Option<Rights> {
    let (mut calls, mut domains) = (0, Vec::<Box<str>>::new());
    for word in text.split_whitespace() {
        match word.strip_prefix(DOMAIN) {
            Some("") => return None,
            Some(domain) => domains.push(Box::from(domain)),
            None => calls |= Right::ALL.into_iter().find(|right| right.name() == word)?.bit(),
        }
    }
    let calls = if calls == 0 { Rights::default().calls } else { calls };
    Some(Rights { calls, domains: (!domains.is_empty()).then(|| domains.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(2);

    #[test]
    fn each_line_of_a_file_has_a_token() {
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
        assert_eq!(Tokens::first(&file, "default").as_deref(), Ok("morning-star-0001"));
        fs::remove_file(&file).expect("it is there");
        assert!(Tokens::open(file.clone()).is_err());
    }

    #[test]
    fn a_token_has_the_rights_that_stand_behind_it() {
        use Right::{Check, Reserve, Reset};

        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let open = |text: &str| {
            fs::write(&file, text).expect("room for a file");
            Tokens::open(file.clone())
        };
        let tokens = open(
            "without-any-00001\nchecks-only-00001 check\n  resets-only-00001\treset  \n\
             of-two-domains-01 domain=shop domain=search\nall-of-it-all-0001 check reserve reset domain=default\n",
        );
        let tokens = tokens.expect("they are good");
        for (token, calls, domains) in [
            ("without-any-00001", &[Check, Reserve][..], &["default", "shop", "search"][..]),
            ("checks-only-00001", &[Check], &["default", "shop", "search"]),
            ("resets-only-00001", &[Reset], &["default", "shop", "search"]),
            ("of-two-domains-01", &[Check, Reserve], &["shop", "search"]),
            ("all-of-it-all-0001", &[Check, Reserve, Reset], &["default"]),
        ] {
            let rights = tokens.find(token.as_bytes()).expect("it is good").rights;
            for right in Right::ALL {
                assert_eq!(rights.permit(right).is_ok(), calls.contains(&right), "{token} {right:?}");
            }
            for domain in ["default", "shop", "search"] {
                assert_eq!(rights.permit_domain(domain).is_ok(), domains.contains(&domain), "{token} {domain}");
            }
        }
        assert!(!tokens.has(b"checks-only-00001 check"), "the token is the first word");
        assert_eq!(Tokens::first(&file, "search").as_deref(), Ok("without-any-00001"));
        fs::write(&file, "resets-only-00001 reset\nof-one-domain-001 check domain=shop").expect("room for a file");
        assert_eq!(Tokens::first(&file, "shop").as_deref(), Ok("of-one-domain-001"));
        let none = Tokens::first(&file, "default").expect_err("neither may").to_string();
        assert!(none.contains("`default`") && !none.contains("of-one"), "{none}");
        for behind in ["battery", "check,reserve", "Check", "domain=", "domain", "check # of the gateway"] {
            let error = open(&format!("morning-star-0001 {behind}")).expect_err(behind).to_string();
            assert!(error.contains("line 1") && error.contains("reserve") && !error.contains("battery"), "{error}");
        }
        fs::write(&file, "morning-star-0001").expect("room for a file");
        assert!(Tokens::open_without_rights(file.clone()).expect("they are good").has(b"morning-star-0001"));
        fs::write(&file, "morning-star-0001 check").expect("room for a file");
        let error = Tokens::open_without_rights(file.clone()).expect_err("there are none").to_string();
        assert!(error.contains("line 1") && !error.contains("morning"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn changed_rights_hold_for_tokens_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        fs::write(&file, "morning-star-0001").expect("room for a file");
        let tokens = Tokens::open(file.clone()).expect("they are good");
        let following = tokio::spawn(tokens.clone().follow(PERIOD));
        let mut morning = tokens.find(b"morning-star-0001").expect("it is good");
        assert!(morning.rights.permit(Right::Check).is_ok());
        fs::write(&file, "morning-star-0001 reset").expect("room for a file");
        time::sleep(3 * PERIOD).await;
        assert!(tokens.refresh(&mut morning));
        assert_eq!(morning.rights.permit(Right::Check), Err(Forbidden::Call(Right::Check)));
        assert_eq!(morning.rights.permit(Right::Reset), Ok(()));
        following.abort();
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
            assert_eq!(tokens.refresh(&mut morning), good.starts_with("morning"), "{text}");
        }
        following.abort();
    }
}
