//! Memory for the bodies of requests, and for answers that are not read: so many bytes in all, and a share of them for each
//! client address.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    web::Bytes,
};

use crate::problem::Problem;

/// The longest body that takes nothing of the budget.
pub(crate) const FREE_BYTES: usize = 16 << 10;
/// Bytes of all longer bodies together. What reads a body may have twice the memory that it is charged for.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of those of one address.
const ADDRESS_BYTES_MAX: usize = 8 << 20;

/// The memory that bodies, or answers, take and may take.
#[derive(Debug, Default)]
pub(crate) struct BodyBudget(Mutex<TakenBytes>);

#[derive(Debug, Default)]
struct TakenBytes {
    all: usize,
    by_address: HashMap<String, usize>,
}

/// The part of the budget that one body takes, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    budget: Arc<BodyBudget>,
    address: String,
    bytes: usize,
}

impl BodyBudget {
    /// Returns the permit of a body from this address, of which nothing has come yet.
    pub(crate) fn permit(self: &Arc<Self>, address: String) -> BodyPermit {
        BodyPermit { budget: Arc::clone(self), address, bytes: 0 }
    }

    /// Takes memory for an answer to this address, or refuses it. One that is longer than what is left is not refused: an export
    /// may be longer than a share.
    pub(crate) fn answer_permit(self: &Arc<Self>, address: String, bytes: usize) -> Result<BodyPermit, Problem> {
        let mut taken = self.taken();
        let of_address = taken.by_address.get(&address).copied().unwrap_or_default();
        if of_address >= ADDRESS_BYTES_MAX {
            return Err(Problem::Overload(
                "Answers to this address that are not read take 8 MiB already, its share. Read them first.",
            ));
        }
        if taken.all >= BYTES_MAX {
            return Err(Problem::Overload("Answers that are not read take 64 MiB already. Ask again later."));
        }
        taken.all += bytes;
        taken.by_address.insert(address.clone(), of_address + bytes);
        drop(taken);
        Ok(BodyPermit { budget: Arc::clone(self), address, bytes })
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
        let more = bytes - self.bytes;
        let mut taken = self.budget.taken();
        let of_address = taken.by_address.get(&self.address).copied().unwrap_or_default() + more;
        if of_address > ADDRESS_BYTES_MAX {
            return Err(Problem::Overload(
                "Bodies that are being sent from this address take 8 MiB already, its share. Send fewer at a time.",
            ));
        }
        if taken.all + more > BYTES_MAX {
            return Err(Problem::Overload("Bodies that are being sent take 64 MiB already. Send it again later."));
        }
        taken.all += more;
        taken.by_address.insert(self.address.clone(), of_address);
        self.bytes = bytes;
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
        if let Entry::Occupied(mut of_address) = taken.by_address.entry(mem::take(&mut self.address)) {
            *of_address.get_mut() -= self.bytes;
            if *of_address.get() == 0 {
                of_address.remove();
            }
        }
    }
}

/// A long answer, with its part of the budget until it is sent.
pub(crate) struct HeldBody {
    body: BoxBody,
    _permit: BodyPermit,
}

impl HeldBody {
    pub(crate) fn new(body: BoxBody, permit: BodyPermit) -> Self {
        Self { body, _permit: permit }
    }
}

impl MessageBody for HeldBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY_BYTES: usize = 1 << 20;

    fn body(budget: &Arc<BodyBudget>, address: &str, bytes: usize) -> Result<BodyPermit, Problem> {
        let mut permit = budget.permit(address.to_owned());
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
        assert_eq!((taken.all, taken.by_address.len()), (0, 0));
    }

    #[test]
    fn all_addresses_together_have_a_bound() {
        let budget = Arc::default();
        let of = |address: usize| body(&budget, &format!("192.0.2.{address}"), ADDRESS_BYTES_MAX);
        let held: Vec<BodyPermit> = (0..8).map(|address| of(address).expect("there is room")).collect();
        assert!(matches!(of(8), Err(Problem::Overload(why)) if why.contains("64 MiB")));
        drop(held);
        assert!(of(8).is_ok());
    }

    #[test]
    fn a_long_answer_is_held_where_something_is_left() {
        let budget: Arc<BodyBudget> = Arc::default();
        let answer = |number: usize, bytes| budget.answer_permit(format!("192.0.2.{number}"), bytes);
        let mut held = vec![answer(1, ADDRESS_BYTES_MAX - 1).expect("nothing is held")];
        held.push(answer(1, 2 * ADDRESS_BYTES_MAX).expect("a byte is left"));
        assert!(matches!(answer(1, 1), Err(Problem::Overload(why)) if why.contains("8 MiB")));
        held.extend(
            (2..=7).map(|number| answer(number, ADDRESS_BYTES_MAX).expect("another address has its own share")),
        );
        assert!(matches!(answer(8, 1), Err(Problem::Overload(why)) if why.contains("64 MiB")));
        drop(held);
        let taken = budget.taken();
        assert_eq!((taken.all, taken.by_address.len()), (0, 0));
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
        assert!(permit.grow_to(ADDRESS_BYTES_MAX + 1).is_err());
        assert_eq!(budget.taken().all, BODY_BYTES, "what is refused takes nothing");
    }
}
