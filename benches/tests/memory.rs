//! The test of the memory measurement, in a binary of its own: it reads the memory of the whole process, which other tests would
//! change meanwhile.

use tidegate_benches::memory::{TableMemory, measure};

/// Tests only that the figures are measured; the table's own test holds them to the goal.
#[test]
fn memory_and_overflow_of_a_full_table_are_measured() {
    let TableMemory { keys, bytes_per_key, overflow_share } = measure(100_000);
    assert_eq!(keys, 100_000);
    assert!((0.0..0.01).contains(&overflow_share), "{overflow_share}");
    assert!(!cfg!(target_os = "linux") || bytes_per_key > 12.0 && bytes_per_key < 100.0, "{bytes_per_key}");
}
