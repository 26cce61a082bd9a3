//! The part of a report that the process provides: its error counts and its memory.

use std::{collections::BTreeMap, fmt, fs, sync::Arc};

use crate::wire::ErrorCount;

/// A source of error counts. The default has no errors.
#[derive(Clone, Default)]
pub struct ErrorCounts(Option<Arc<CountErrors>>);

type CountErrors = dyn Fn() -> BTreeMap<&'static str, u64> + Send + Sync;

impl ErrorCounts {
    /// Makes a source of a function that returns the count of each kind of errors since the start of the process.
    #[must_use]
    pub fn of(count: impl Fn() -> BTreeMap<&'static str, u64> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(count)))
    }

    /// Returns the counts as of now.
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

/// Returns the resident memory of the process, bytes; `None` where the system does not tell.
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
    fn resident_bytes_grow_with_what_the_process_uses() {
        let before = resident_bytes().expect("Linux says");
        assert!((1 << 20..1 << 40).contains(&before), "{before}");
        let taken = vec![1u8; 64 << 20];
        let after = resident_bytes().expect("Linux says");
        assert!(after >= before + (32 << 20), "{before} {after}");
        drop(taken);
    }
}
