//! The parts of a check, one by one, under criterion: the pure step, a bucket's compare-and-swap, the table, the full check.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate::{
    algorithm::{FixedWindow, Meter},
    clock::{Clock, SystemClock},
    internals::{Bucket, Verdict},
};
use tidegate_benches::{
    LIMIT_ID,
    contender::TestedLimiter,
    engine,
    floor::Floor,
    full_check::{CLIENTS, FullCheck},
    key_of, meter,
    random::Uniform,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn step(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    let now = SystemClock::new().now().as_nanos();
    let window = Meter::FixedWindow(FixedWindow::new(1 << 24, Duration::from_mins(1)).expect("fits"));
    for (name, meter) in [("token_bucket", meter(1_000_000_000, 1_000_000)), ("fixed_window", window)] {
        group.bench_function(name, |b| b.iter(|| black_box(&meter).step(black_box(0), black_box(now), black_box(1))));
    }
    group.finish();
}

fn word(c: &mut Criterion) {
    let mut group = c.benchmark_group("word");
    let (bucket, meter, clock) = (Bucket::new(), meter(1_000_000_000, 1_000_000), SystemClock::new());
    group.bench_function("bucket", |b| b.iter(|| bucket.charge(&meter, black_box(clock.now().as_nanos()), 1)));
    let floor = Floor::default();
    let mut check = floor.checker();
    group.bench_function("clock, hash and swap", |b| b.iter(|| check(black_box(1))));
    group.finish();
}

fn table(c: &mut Criterion) {
    let mut group = c.benchmark_group("table");
    let hot = engine(1_000, 1_000_000_000, 1_000_000);
    let mut handle = hot.handle(LIMIT_ID, "k").expect("is there");
    group.bench_function("hot key", |b| b.iter(|| handle.check(black_box(&key_of(1))).is_allowed()));
    let wide = engine(1_000_000, 1_000_000_000, 1_000_000);
    let mut handle = wide.handle(LIMIT_ID, "k").expect("is there");
    for number in 0..1_000_000 {
        let _ = handle.check(key_of(number));
    }
    let mut numbers = Uniform::new(7, 1_000_000);
    group.bench_function("1 M keys", |b| {
        b.iter(|| handle.check(key_of(numbers.draw())).is_allowed());
    });
    let mut numbers = Uniform::new(7, u64::MAX);
    // Most keys are new: they touch a slot for the first time, or take an idle one once the table is full.
    group.bench_function("new keys", |b| {
        b.iter(|| handle.check(key_of(numbers.draw())).is_allowed());
    });
    let denying = engine(1_000, 1, 1);
    let mut handle = denying.handle(LIMIT_ID, "k").expect("is there");
    group.bench_function("denial", |b| b.iter(|| handle.check(black_box(&key_of(1))).is_allowed()));
    group.finish();
}

/// Measures the full check: three identities, the client's tier looked up among 100,000 clients, the endpoint matched, three
/// limits charged.
fn full_check(c: &mut Criterion) {
    let full = FullCheck::new();
    let mut check = full.checker();
    let mut numbers = Uniform::new(7, CLIENTS as u64);
    c.bench_function("full check", |b| b.iter(|| check(numbers.draw())));
}

fn give_back(c: &mut Criterion) {
    let meter = meter(10, 10);
    let Verdict::Admit(word) = meter.step(0, 1_000, 1) else { return };
    let receipt = tidegate::internals::Receipt { cost: 1, charged_at: 1_000, word, moved_ns: u64::MAX };
    c.bench_function("give back", |b| {
        b.iter(|| black_box(&meter).give_back(black_box(word), black_box(2_000), &receipt));
    });
}

criterion_group!(benches, step, word, table, full_check, give_back);
criterion_main!(benches);
