//! The body budget of the admin server: bounds the memory of request bodies and of responses that are not read. Each client
//! address and each user have a share of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_listener::OwnerCounts;

use crate::domain::error::Problem;

/// The longest body that takes nothing of the budget.
pub(crate) const FREE_BYTES: usize = 16 << 10;
/// Bytes of all longer bodies together. What reads a body may have twice the memory that it is charged for.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of the bodies of one address, and of the answers to one user.
const SHARE_BYTES: usize = 8 << 20;
/// Bytes of the bodies that one sender sends, from any number of addresses.
const SENDER_BYTES: usize = BYTES_MAX / 2;
/// The most bytes that an answer is counted as: a user can read two of any length at a time.
const ANSWER_BYTES_MAX: usize = SHARE_BYTES / 2;

/// The memory that bodies, or answers, take and may take.
#[derive(Debug, Default)]
pub(crate) struct BodyBudget(Mutex<TakenBytes>);

#[derive(Debug, Default)]
struct TakenBytes {
    all: usize,
    shares: OwnerCounts<Owner>,
}

/// An address, a sender or a reader, each of which has a share of the budget.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Address(String),
    /// A user, with the tokens that they made; or a token of nodes.
    Sender(String),
    /// A user who reads answers, with the tokens that they made.
    Reader(String),
}

/// A share of the budget, which bodies or answers of its owner are part of.
#[derive(Debug)]
struct Share {
    owner: Owner,
    bytes_max: usize,
    /// Why a body or an answer is refused where the share is taken.
    refusal: &'static str,
}

/// The part of the budget that one body or answer takes, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    budget: Arc<BodyBudget>,
    shares: Vec<Share>,
    bytes: usize,
    /// Why it is refused where the whole budget is taken.
    refusal: &'static str,
}

impl BodyBudget {
    /// Returns the permit of a body from this address, of which nothing has come yet. `sender` is the user who sends it, with the
    /// tokens that they made, or the token of a node: `None` for a call that needs neither.
    pub(crate) fn body_permit(self: &Arc<Self>, address: String, sender: Option<String>) -> BodyPermit {
        let of_address = Share {
            owner: Owner::Address(address),
            bytes_max: SHARE_BYTES,
            refusal: "Bodies that are being sent from this address take 8 MiB already, its share. Send fewer at a time.",
        };
        let of_sender = sender.map(|sender| Share {
            owner: Owner::Sender(sender),
            bytes_max: SENDER_BYTES,
            refusal: "Bodies that you send, from all addresses and with all your tokens, take 32 MiB already, your share. Send \
                      fewer at a time.",
        });
        BodyPermit {
            budget: Arc::clone(self),
            shares: [of_address].into_iter().chain(of_sender).collect(),
            bytes: 0,
            refusal: "Bodies that are being sent take 64 MiB already. Send it again later.",
        }
    }

    /// Takes memory for an answer to this user, or refuses it.
    pub(crate) fn answer_permit(self: &Arc<Self>, user: &str, bytes: usize) -> Result<BodyPermit, Problem> {
        let of_user = Share {
            owner: Owner::Reader(user.to_owned()),
            bytes_max: SHARE_BYTES,
            refusal: "Long answers to you and your tokens that are not read take 8 MiB already, your share. Read them first.",
        };
        let mut permit = BodyPermit {
            budget: Arc::clone(self),
            shares: vec![of_user],
            bytes: 0,
            refusal: "Long answers that are not read take 64 MiB already. Ask again later.",
        };
        permit.take(bytes.min(ANSWER_BYTES_MAX)).map(|()| permit)
    }

    fn taken(&self) -> MutexGuard<'_, TakenBytes> {
        // Nothing in here panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyPermit {
    /// Takes memory for a body of which so many bytes have come, or refuses it.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), Problem> {
        if bytes <= self.bytes.max(FREE_BYTES) {
            return Ok(());
        }
        self.take(bytes - self.bytes)
    }

    fn take(&mut self, more: usize) -> Result<(), Problem> {
        let mut taken = self.budget.taken();
        for Share { owner, bytes_max, refusal } in &self.shares {
            if taken.shares.of(owner) + more > *bytes_max {
                return Err(Problem::Overload(refusal));
            }
        }
        if taken.all + more > BYTES_MAX {
            return Err(Problem::Overload(self.refusal));
        }
        taken.all += more;
        for Share { owner, .. } in &self.shares {
            taken.shares.add(owner.clone(), more);
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.budget.taken();
        taken.all -= self.bytes;
        for Share { owner, .. } in self.shares.drain(..) {
            taken.shares.subtract(&owner, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY_BYTES: usize = 1 << 20;

    fn body(budget: &Arc<BodyBudget>, address: &str, bytes: usize) -> Result<BodyPermit, Problem> {
        sent_by(budget, None, address, bytes)
    }

    fn sent_by(
        budget: &Arc<BodyBudget>,
        sender: Option<&str>,
        address: &str,
        bytes: usize,
    ) -> Result<BodyPermit, Problem> {
        let mut permit = budget.body_permit(address.to_owned(), sender.map(str::to_owned));
        permit.grow_to(bytes).map(|()| permit)
    }

    #[test]
    fn an_address_has_its_share_and_leaves_the_others_theirs() {
        let budget = Arc::default();
        let mut held: Vec<BodyPermit> =
            (0..8).map(|_| body(&budget, "192.0.2.1", BODY_BYTES).expect("there is room")).collect();
        assert!(matches!(body(&budget, "192.0.2.1", BODY_BYTES), Err(Problem::Overload(why)) if why.contains("8 MiB")));
        held.push(body(&budget, "192.0.2.1", FREE_BYTES).expect("a small body needs no room"));
        held.push(body(&budget, "192.0.2.2", BODY_BYTES).expect("another address has its own share"));
        held.remove(0);
        held.push(body(&budget, "192.0.2.1", BODY_BYTES).expect("the room was given back"));
        drop(held);
        let taken = budget.taken();
        assert_eq!((taken.all, taken.shares.owners()), (0, 0));
    }

    #[test]
    fn all_addresses_together_have_a_bound() {
        let budget = Arc::default();
        let of = |address: usize| body(&budget, &format!("192.0.2.{address}"), SHARE_BYTES);
        let held: Vec<BodyPermit> = (0..8).map(|address| of(address).expect("there is room")).collect();
        assert!(matches!(of(8), Err(Problem::Overload(why)) if why.contains("64 MiB")));
        drop(held);
        assert!(of(8).is_ok());
    }

    #[test]
    fn a_sender_at_many_addresses_leaves_half_to_others() {
        let budget = Arc::default();
        let of =
            |sender: &str, network: usize| sent_by(&budget, Some(sender), &format!("192.0.2.{network}"), SHARE_BYTES);
        let mut held: Vec<BodyPermit> = (0..4).map(|network| of("ana", network).expect("there is room")).collect();
        assert!(matches!(of("ana", 4), Err(Problem::Overload(why)) if why.contains("32 MiB")));
        assert!(
            matches!(of("ben", 3), Err(Problem::Overload(why)) if why.contains("8 MiB")),
            "the address has its share"
        );
        held.extend((4..8).map(|network| of("ben", network).expect("another sender has its own share")));
        held.remove(0);
        assert!(of("ana", 0).is_ok(), "the room was given back");
        drop(held);
        let taken = budget.taken();
        assert_eq!((taken.all, taken.shares.owners()), (0, 0));
    }

    #[test]
    fn a_user_reads_two_answers_of_any_length_at_a_time() {
        let budget: Arc<BodyBudget> = Arc::default();
        let answer = |user: &str, bytes| budget.answer_permit(user, bytes);
        let mut held: Vec<BodyPermit> = (0..2).map(|_| answer("ana", BYTES_MAX).expect("there is room")).collect();
        assert!(matches!(answer("ana", 1), Err(Problem::Overload(why)) if why.contains("8 MiB")));
        held.pop();
        held.push(answer("ana", BODY_BYTES).expect("room was given back"));
        held.push(answer("ana", ANSWER_BYTES_MAX - BODY_BYTES).expect("short ones take what they are long"));
        for user in ["ben", "eva", "ida", "max", "noa", "pia", "tom"] {
            held.extend((0..2).map(|_| answer(user, BYTES_MAX).expect("another user has their own share")));
        }
        assert!(matches!(answer("zoe", 1), Err(Problem::Overload(why)) if why.contains("64 MiB")));
        drop(held);
        let taken = budget.taken();
        assert_eq!((taken.all, taken.shares.owners()), (0, 0));
    }

    #[test]
    fn a_body_grows_by_what_comes() {
        let budget = Arc::default();
        let mut permit = body(&budget, "192.0.2.1", FREE_BYTES).expect("there is room");
        assert_eq!(budget.taken().all, 0);
        for bytes in [FREE_BYTES + 1, BODY_BYTES, 7] {
            permit.grow_to(bytes).expect("there is room");
        }
        assert_eq!(budget.taken().all, BODY_BYTES);
        assert!(permit.grow_to(SHARE_BYTES + 1).is_err());
        assert_eq!(budget.taken().all, BODY_BYTES, "what is refused takes nothing");
    }
}
