//! How much memory this process has, in pages that are really there.

/// Bytes of memory that are resident now; `None` where the system does not say.
#[must_use]
pub fn bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_once_it_was_touched() {
        let Some(before) = bytes() else { return };
        let touched = std::hint::black_box(vec![1_u8; 32 << 20]);
        let grown = bytes().unwrap_or_default().saturating_sub(before);
        assert!(grown >= touched.len() as u64 * 9 / 10, "{grown}");
    }
}
