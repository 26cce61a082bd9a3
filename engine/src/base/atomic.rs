//! The atomic cells of the engine, with all of its memory orderings: the real ones, or loom's under `--cfg engine_loom`.
//!
//! Every cell of the engine is a single atomic that holds the whole state of a bucket, and every access to it is `SeqCst`. So
//! all accesses are in one total order, and the protocols can be read, and are checked, as plain interleavings. On x86-64 that
//! costs nothing over acquire and release: every compare-and-swap is a full barrier anyway, and a `SeqCst` load is the same
//! instruction. (A 128-bit load needs AVX; on older processors it is a compare-and-swap.) `native128.rs` has 128-bit operations
//! that are instructions instead of calls.

#[cfg(not(engine_loom))]
mod real {
    use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
    /// A lock for lists of [`Counter`]s that threads use one after the other.
    pub(crate) use std::sync::{Mutex, MutexGuard};

    use portable_atomic::AtomicU128;

    /// A 16-bit number beside a slot.
    #[derive(Debug, Default)]
    pub(crate) struct Cell16(AtomicU16);

    impl Cell16 {
        pub(crate) fn load(&self) -> u16 {
            // Relaxed: an estimate, which decides which group may take a slot; see caller_groups.rs.
            self.0.load(Ordering::Relaxed)
        }

        pub(crate) fn swap(&self, value: u16) -> u16 {
            // Relaxed: the counts follow from the read-modify-write itself; nothing is published through it.
            self.0.swap(value, Ordering::Relaxed)
        }
    }

    /// A counter that gives every caller another number, or adds up.
    #[derive(Debug, Default)]
    pub(crate) struct Counter(AtomicU64);

    impl Counter {
        pub(crate) fn next(&self) -> u64 {
            // Relaxed: uniqueness comes from the read-modify-write itself; nothing is published through it.
            self.0.fetch_add(1, Ordering::Relaxed)
        }

        pub(crate) fn add(&self, count: u64) {
            // Relaxed: a thread that must see the count first reads a word that is swapped after this addition.
            self.0.fetch_add(count, Ordering::Relaxed);
        }

        /// Counts one, for a counter that one thread at a time writes. A lock or a move of its owner must order the writes of
        /// successive threads. It costs a tenth of `next`.
        #[inline]
        pub(crate) fn next_alone(&self) {
            // Relaxed: there is one writer at a time, and readers only show the count to people.
            self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }

        /// Returns how many numbers were given so far, or the sum of what was added.
        pub(crate) fn count(&self) -> u64 {
            // Relaxed: the count is only shown to people; where it decides, see `add`.
            self.0.load(Ordering::Relaxed)
        }
    }

    /// 64 bits that are swapped together.
    #[derive(Debug, Default)]
    pub(crate) struct Cell64(AtomicU64);

    impl Cell64 {
        pub(crate) const fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        pub(crate) fn load(&self) -> u64 {
            // SeqCst: see the head of this file.
            self.0.load(Ordering::SeqCst)
        }

        pub(crate) fn store(&self, value: u64) {
            // SeqCst: see the head of this file.
            self.0.store(value, Ordering::SeqCst);
        }

        /// Stores a value that no other thread needs to see yet: ten times as fast as `store`.
        pub(crate) fn store_unseen(&self, value: u64) {
            // Release: the swap that shows it to others comes later and orders it before itself; a thread that reads it too
            // early sees all that was stored before it.
            self.0.store(value, Ordering::Release);
        }

        pub(crate) fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
            // SeqCst: see the head of this file.
            self.0.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
        }
    }

    /// 128 bits that are swapped together. Lock-free where the processor has a 128-bit compare-and-swap, which is every
    /// x86-64 since 2006 and every 64-bit ARM; elsewhere behind portable-atomic's locks.
    #[derive(Debug, Default)]
    pub(crate) struct Cell128(pub(super) AtomicU128);

    impl Cell128 {
        pub(crate) fn load(&self) -> u128 {
            // SeqCst: a scan that begins after a claim was published sees every claim published before (table.rs).
            self.0.load(Ordering::SeqCst)
        }

        pub(crate) fn compare_exchange(&self, current: u128, new: u128) -> Result<u128, u128> {
            // SeqCst: publishes a claim before the scan that follows it; see `load`.
            self.0.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
        }
    }
}

#[cfg(engine_loom)]
mod real {
    use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    #[derive(Debug, Default)]
    pub(crate) struct Cell16(AtomicU16);

    impl Cell16 {
        pub(crate) fn load(&self) -> u16 {
            self.0.load(Ordering::Relaxed)
        }

        pub(crate) fn swap(&self, value: u16) -> u16 {
            self.0.swap(value, Ordering::Relaxed)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Counter(AtomicU64);

    impl Counter {
        pub(crate) fn next(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }

        pub(crate) fn add(&self, count: u64) {
            self.0.fetch_add(count, Ordering::Relaxed);
        }

        pub(crate) fn next_alone(&self) {
            self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }

        pub(crate) fn count(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// loom treats `SeqCst` loads as acquire loads, which may see old values. A read-modify-write sees the newest value
    /// of its cell, which is what the total order of `SeqCst` gives between cells here: each thread's operations take
    /// effect in its own order, one after the other.
    #[derive(Debug, Default)]
    pub(crate) struct Cell64(AtomicU64);

    impl Cell64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        pub(crate) fn load(&self) -> u64 {
            self.0.fetch_add(0, Ordering::AcqRel)
        }

        pub(crate) fn store(&self, value: u64) {
            self.0.swap(value, Ordering::AcqRel);
        }

        /// Does the same as `store`: of a plain store and a swap that race, loom lets readers see the one that was first.
        pub(crate) fn store_unseen(&self, value: u64) {
            self.store(value);
        }

        pub(crate) fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
            self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
        }
    }

    /// loom has no 128-bit atomic: the cell holds the index of its value in a list of all values that it ever had.
    #[derive(Debug)]
    pub(crate) struct Cell128 {
        index: Cell64,
        values: std::sync::Mutex<Vec<u128>>,
    }

    impl Default for Cell128 {
        fn default() -> Self {
            Self { index: Cell64::new(0), values: std::sync::Mutex::new(vec![0]) }
        }
    }

    impl Cell128 {
        pub(crate) fn load(&self) -> u128 {
            let index = self.index.load();
            self.values.lock().expect("no thread of a model panics while it holds this")[index as usize]
        }

        pub(crate) fn compare_exchange(&self, current: u128, new: u128) -> Result<u128, u128> {
            let index_of = |value| {
                let mut values = self.values.lock().expect("no thread of a model panics while it holds this");
                values.iter().position(|&known| known == value).unwrap_or_else(|| {
                    values.push(value);
                    values.len() - 1
                }) as u64
            };
            let (from, to) = (index_of(current), index_of(new));
            let outcome = self.index.compare_exchange(from, to);
            let value_of = |index: u64| self.values.lock().expect("as above")[index as usize];
            outcome.map(value_of).map_err(value_of)
        }
    }
}

use std::sync::atomic::{AtomicI64, Ordering};

pub(crate) use real::{Cell16, Cell64, Cell128, Counter, Mutex, MutexGuard};

use crate::base::native128::Native128;

/// Operations without a call, for processors that have the instructions.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(engine_loom)))]
impl Cell128 {
    /// Loads as [`load`](Self::load) does, by one instruction.
    #[inline(always)]
    pub(crate) fn load_natively(&self, native: Native128) -> u128 {
        native.load(&self.0)
    }

    /// Loads the upper half alone. It is only a hint: the caller must load or swap the whole cell after it.
    #[inline(always)]
    pub(crate) fn load_upper(&self, native: Native128) -> u64 {
        native.load_upper(&self.0)
    }

    /// Loads the lower half alone, as [`load_upper`](Self::load_upper).
    #[inline(always)]
    pub(crate) fn load_lower(&self, native: Native128) -> u64 {
        native.load_lower(&self.0)
    }

    /// Swaps `current` for `new` by one instruction, and returns whether it did.
    #[inline(always)]
    pub(crate) fn swap_natively(&self, native: Native128, current: u128, new: u128) -> bool {
        native.swap(&self.0, current, new)
    }
}

#[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64", not(engine_loom))))]
impl Cell128 {
    pub(crate) fn load_natively(&self, _: Native128) -> u128 {
        self.load()
    }

    /// Loads the upper half. To loom this is a load of its own, so values that are loaded after it may be newer.
    pub(crate) fn load_upper(&self, _: Native128) -> u64 {
        (self.load() >> 64) as u64
    }

    pub(crate) fn load_lower(&self, _: Native128) -> u64 {
        self.load() as u64
    }

    pub(crate) fn swap_natively(&self, _: Native128, current: u128, new: u128) -> bool {
        self.compare_exchange(current, new).is_ok()
    }
}

/// A number that threads raise and lower. No protocol relies on the order of its changes, so loom does not explore
/// them.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicI64);

impl Gauge {
    pub(crate) fn add(&self, count: i64) {
        // Relaxed: the sum comes from the read-modify-write itself; nothing is published through it.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        // Relaxed: as above.
        self.0.store(i64::try_from(value).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Returns the number; 0 where one thread has lowered it before another has raised it.
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as above.
        u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0)
    }
}
