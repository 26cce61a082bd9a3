//! The rows of the comparison under criterion: one side of a row after the other, on the same keys in the same order. The program
//! `compare` measures the sides in turns, and judges the goals.

use std::{cell::Cell, iter, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_benches::{comparison::ComparisonRow, rows::GROUPS, threads::CHUNK};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the time per check of one thread while all threads of the row run. The throughput is the number of threads divided
/// by that time.
fn rows(c: &mut Criterion) {
    for group in GROUPS.iter().filter(|group| !group.is_large) {
        (group.visit)(&mut |row| bench(c, row));
    }
}

fn bench(c: &mut Criterion, row: &ComparisonRow<'_>) {
    let threads = if row.threads == 1 { "one thread" } else { "two threads" };
    let mut group = c.benchmark_group(format!("{threads}, {}", row.work));
    for side in iter::once(&row.ours).chain(&row.others) {
        let done_chunks = Cell::new(0);
        group.bench_function(side.name, |b| {
            b.iter_custom(|checks| {
                let chunks = checks.div_ceil(CHUNK as u64);
                let slice = side.run(row.threads, chunks, done_chunks.get());
                done_chunks.set(done_chunks.get() + chunks);
                slice.time_of(checks)
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = rows
}
criterion_main!(benches);
