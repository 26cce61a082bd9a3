//! What a process reports of itself, beside what its engine counts.

use std::{collections::BTreeMap, fmt, fs, sync::Arc};

use crate::wire::ErrorCount;

/// What counts the errors of a process; nothing does unless given.
#[derive(Clone, Default)]
pub struct ErrorCounts(Option<Arc<CountErrors>>);

type CountErrors = dyn Fn() -> BTreeMap<&'static str, u64> + Send + Sync;

impl ErrorCounts {
    /// `count` answers how many errors of each kind there were since the start of the process, whenever it is asked.
    #[must_use]
    pub fn of(count: impl Fn() -> BTreeMap<&'static str, u64> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(count)))
    }

    /// As of now.
    #[must_use]
    pub fn now(&self) -> Vec<ErrorCount> {
        let kinds = self.0.as_ref().map(|count| count()).unwrap_or_default();
        kinds.into_iter().map(|(kind, count)| ErrorCount { kind: kind.to_owned(), count }).collect()
    }
}

impl fmt::Debug for ErrorCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ErrorCounts(..)" } else { "ErrorCounts(none)" })
    }
}

/// Memory that the process has from the machine, bytes; `None` where the system does not say.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    // Total and resident, in pages.
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_process_is_what_it_uses() {
        let before = resident_bytes().expect("Linux says");
        assert!((1 << 20..1 << 40).contains(&before), "{before}");
        let taken = vec![1u8; 64 << 20];
        let after = resident_bytes().expect("Linux says");
        assert!(after >= before + (32 << 20), "{before} {after}");
        drop(taken);
    }
}
