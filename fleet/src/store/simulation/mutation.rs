//! Test only: mistakes in the arithmetic, made on purpose to see that the simulation finds them.

use std::cell::Cell;

use tidegate::policy::Sharing;

/// A mistake in the arithmetic of leases and views.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// A lease is granted as if other nodes held none.
    GrantIgnoresOthers,
    /// Leases that ran out do not count as spent.
    ExpiredLeasesVanish,
    /// A charge in the store is bounded as if nothing was lent.
    ChargeIgnoresLeases,
    /// Tokens that were spent of a lease are not charged when the lease is renewed or given back.
    SpentTokensAreNotCharged,
    /// A delta that is sent again has a new number, so the store counts it again.
    DeltaGetsNewNumber,
    /// A view forgets what it sent before the store has answered.
    DeltaIsForgotten,
}

thread_local! {
    static CURRENT: Cell<Option<Mutation>> = const { Cell::new(None) };
}

impl Mutation {
    pub(super) const ALL: [Self; 6] = [
        Self::GrantIgnoresOthers,
        Self::ExpiredLeasesVanish,
        Self::ChargeIgnoresLeases,
        Self::SpentTokensAreNotCharged,
        Self::DeltaGetsNewNumber,
        Self::DeltaIsForgotten,
    ];

    /// Returns the sharing mode whose arithmetic has the mistake.
    pub(super) fn sharing(self) -> Sharing {
        match self {
            Self::DeltaGetsNewNumber | Self::DeltaIsForgotten => Sharing::Synced,
            _ => Sharing::Leased,
        }
    }

    /// Returns whether this thread makes the mistake.
    pub(crate) fn is_on(self) -> bool {
        CURRENT.get() == Some(self)
    }

    /// Makes the mistake on this thread from now on; `None`: no mistake.
    pub(super) fn set(mutation: Option<Self>) {
        CURRENT.set(mutation);
    }
}
