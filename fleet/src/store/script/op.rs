//! The operations that the script makes on a record.

use tidegate::{internals::RemoteAdd, time::Nanos};

use crate::store::script::{
    grant::{Grant, LeaseRequest},
    record::{Record, VersionedMeter, head},
};

#[derive(Debug)]
pub(super) enum ScriptOp {
    Look,
    Clear,
    /// Replaces one value by another within a time.
    Swap {
        before: String,
        after: String,
        from: Nanos,
        until: Nanos,
    },
    /// Adds to the tail of a record with this head and these leases.
    Add {
        head: String,
        leases: String,
        addition: RemoteAdd,
    },
    /// Subtracts from the tail of a record with this head.
    Take {
        head: String,
        take: RemoteAdd,
    },
    /// Adds to the tail and to the lent tokens of a record with this head and with leases of this epoch.
    Lend {
        head: String,
        epoch: u64,
        more: [i64; 2],
        out_most: u64,
        addition: RemoteAdd,
    },
}

impl ScriptOp {
    pub(super) fn add(held: &Record, addition: RemoteAdd, lease_ns: Nanos) -> Self {
        let until = addition.until.min(held.leases.until(lease_ns));
        let addition = RemoteAdd { until, ..addition };
        Self::Add { head: head(&held.under.meter, addition.head), leases: held.leases.write(), addition }
    }

    /// Plans a grant as additions, which hold whatever other nodes did meanwhile, as long as at most a quarter is lent
    /// and at most three quarters are used. `None`: the grant needs a swap, which depends on the whole record.
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
        let addition = meter.plan_lease(*word, now, spent, out_most)?;
        // Otherwise the script would refuse it.
        let fits = leases.with(epoch, more)?.out() <= out_most && addition.apply(meter.tail_of(*word), now).is_some();
        let (from, until) = (addition.from.max(epoch * lease_ns), addition.until.min((epoch + 1) * lease_ns));
        let addition = RemoteAdd { from, until, ..addition };
        fits.then(|| Self::Lend { head: head(meter, addition.head), epoch, more, out_most, addition })
    }
}
