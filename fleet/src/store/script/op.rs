//! Operations that the script carries out on a record.

use tidegate::{algorithm::Addition, time::Nanos};

use crate::store::script::{
    grant::{Grant, LeaseRequest},
    record::{Record, VersionedMeter, head},
};

/// An operation on the record of one key.
#[derive(Debug)]
pub(super) enum ScriptOp {
    Look,
    Clear,
    /// Writes a value where another one is, within a time.
    Swap {
        before: String,
        after: String,
        from: Nanos,
        until: Nanos,
    },
    /// Adds to a tail, wherever the head and the leases are these.
    Add {
        head: String,
        leases: String,
        addition: Addition,
    },
    /// Takes off a tail, wherever the head is this.
    Take {
        head: String,
        take: Addition,
    },
    /// Adds to a tail, and to what is out, wherever the head is this and the epoch of the leases that.
    Lend {
        head: String,
        epoch: u64,
        more: [i64; 2],
        out_most: u64,
        addition: Addition,
    },
}

impl ScriptOp {
    pub(super) fn add(held: &Record, addition: Addition, lease_ns: Nanos) -> Self {
        let until = addition.until.min(held.leases.until(lease_ns));
        let addition = Addition { until, ..addition };
        Self::Add { head: head(&held.under.meter, addition.head), leases: held.leases.write(), addition }
    }

    /// Lends the requested tokens by additions, which need not know what others did meanwhile: while no more than a quarter is out,
    /// and no more than the other three are used. `None`: it must be done by a swap, which knows what there is.
    pub(super) fn lend(held: &Record, now: Nanos, ask: &LeaseRequest, grant: &Grant, lease_ns: Nanos) -> Option<Self> {
        let Record { under: VersionedMeter { meter, .. }, word, leases } = held;
        if grant.is_charged || grant.kept + grant.given < ask.wanted() {
            return None;
        }
        let epoch = now / lease_ns;
        let signed = |tokens: u64| i64::try_from(tokens).ok();
        let mut more = [signed(grant.kept + grant.given)?, 0];
        let mut spent = 0;
        if grant.is_counted {
            more[usize::from(ask.epoch < epoch)] -= signed(ask.out)?;
            spent = ask.spent();
        }
        let out_most = meter.capacity() / 4;
        let addition = meter.lent(*word, now, spent, out_most)?;
        // Else the script would find the same.
        let fits = leases.with(epoch, more)?.out() <= out_most && addition.tail(meter.tail(*word), now).is_some();
        let (from, until) = (addition.from.max(epoch * lease_ns), addition.until.min((epoch + 1) * lease_ns));
        let addition = Addition { from, until, ..addition };
        fits.then(|| Self::Lend { head: head(meter, addition.head), epoch, more, out_most, addition })
    }
}
