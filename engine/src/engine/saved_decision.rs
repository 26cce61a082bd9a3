//! `SavedDecision`: a decision kept without its engine, to answer repeats of a request.

use crate::{
    base::clock::Clock,
    engine::{
        decision::{DecidedBy, Decision, Degraded, Shadows},
        state::Engine,
    },
};

/// A decision without the engine from which it borrows its names: plain data that can be kept, for [`Engine::restore`].
/// At most 160 bytes, and 40 more where shadow limits would have denied.
#[derive(Clone, Debug)]
pub struct SavedDecision {
    policy_version: u64,
    delay_ns: u64,
    degraded: Option<Degraded>,
    decided_by: Option<DecidedBy>,
    /// The shadow limits; few decisions have any.
    shadows: Option<Box<Shadows>>,
}

const _: () = assert!(size_of::<SavedDecision>() <= 160);

impl Decision<'_> {
    /// Returns the decision without its engine.
    #[must_use]
    pub fn save(&self) -> SavedDecision {
        let Self { policy_version, delay_ns, degraded, decided_by, shadows, names: _ } = *self;
        let shadows = (shadows.places != 0).then(|| Box::new(shadows));
        SavedDecision { policy_version, delay_ns, degraded, decided_by, shadows }
    }
}

impl<C: Clock> Engine<C> {
    /// Returns the decision that was saved, number by number as it was made: times from now are those from then. A
    /// decision of another engine gets names that mean nothing.
    ///
    /// ```
    /// # use tidegate::{Engine, Identity, Request, RequestError};
    /// # let engine = Engine::with_max_keys(10);
    /// let who = [Identity::new("user", "ada")?];
    /// let first = engine.check(&Request::new(&who)?).save();
    /// assert!(engine.restore(&first).is_allowed());
    /// # Ok::<(), RequestError>(())
    /// ```
    pub fn restore(&self, saved: &SavedDecision) -> Decision<'_> {
        let SavedDecision { policy_version, delay_ns, degraded, decided_by, ref shadows } = *saved;
        let (shadows, names) = (shadows.as_deref().copied().unwrap_or_default(), &self.buckets.names);
        Decision { policy_version, delay_ns, degraded, decided_by, shadows, names }
    }
}
