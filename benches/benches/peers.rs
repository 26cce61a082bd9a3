//! Beside governor, in the same run: each row runs the two one after the other, on the same keys in the same order.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use governor::RateLimiter;
use tidegate::{
    Bucket,
    clock::{Clock, SystemClock},
};
use tidegate_benches::{Governor, LIMIT_ID, Numbers, engine, key_of, meter, quota, text_of, together};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const LIMIT: u32 = 1_000_000_000;
const BURST: u32 = 1_000_000;
const KEYS: u64 = 1_000_000;

/// One bucket, without a table.
fn direct(c: &mut Criterion) {
    let mut group = c.benchmark_group("direct, one thread");
    let (bucket, meter, clock) = (Bucket::new(), meter(LIMIT.into(), BURST.into()), SystemClock::new());
    group.bench_function("tidegate", |b| b.iter(|| bucket.charge(&meter, clock.now(), 1)));
    let governor = RateLimiter::direct(quota(LIMIT, BURST));
    group.bench_function("governor", |b| b.iter(|| governor.check().is_ok()));
    group.finish();
}

fn hot_key(c: &mut Criterion) {
    let mut group = c.benchmark_group("one hot key, one thread");
    let ours = engine(1_000, LIMIT.into(), BURST.into());
    let mut handle = ours.handle(LIMIT_ID, "k").expect("is there");
    group.bench_function("tidegate, 16 bytes", |b| {
        b.iter(|| handle.check(black_box(&key_of(1)), 1).expect("valid").is_allowed());
    });
    let (governor, text) = (Governor::<String>::keyed(quota(LIMIT, BURST)), text_of(1));
    group.bench_function("governor, String", |b| b.iter(|| governor.check_key(black_box(&text)).is_ok()));
    group.finish();
}

fn many_keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("1 M keys, uniform, one thread");
    let ours = engine(KEYS as usize, LIMIT.into(), BURST.into());
    let mut handle = ours.handle(LIMIT_ID, "k").expect("is there");
    let by_number = Governor::<u64>::keyed(quota(LIMIT, BURST));
    let by_text = Governor::<String>::keyed(quota(LIMIT, BURST));
    let texts: Vec<String> = (0..KEYS).map(text_of).collect();
    for number in 0..KEYS {
        let _ = handle.check(key_of(number), 1).expect("valid");
        let _ = by_number.check_key(&number);
        let _ = by_text.check_key(&texts[number as usize]);
    }
    let mut numbers = Numbers::new(7, KEYS);
    group.bench_function("tidegate, 16 bytes", |b| {
        b.iter(|| handle.check(key_of(numbers.draw()), 1).expect("valid").is_allowed());
    });
    let mut numbers = Numbers::new(7, KEYS);
    group.bench_function("governor, u64", |b| b.iter(|| by_number.check_key(&numbers.draw()).is_ok()));
    let mut numbers = Numbers::new(7, KEYS);
    group.bench_function("governor, String", |b| b.iter(|| by_text.check_key(&texts[numbers.draw() as usize]).is_ok()));
    group.finish();
}

/// Time per check of one thread while two run: throughput is twice its inverse.
fn two_threads(c: &mut Criterion) {
    for (name, limit, burst, shared) in [
        ("two threads, one hot key, allowed", LIMIT, BURST, true),
        ("two threads, private keys, allowed", LIMIT, BURST, false),
        ("two threads, one hot key, denied", 1, 1, true),
        ("two threads, private keys, denied", 1, 1, false),
    ] {
        let mut group = c.benchmark_group(name);
        let number = |thread: usize| if shared { 0 } else { thread as u64 };
        let ours = engine(1_000, limit.into(), burst.into());
        group.bench_function("tidegate, 16 bytes", |b| {
            b.iter_custom(|rounds| {
                together(2, |thread| {
                    let mut handle = ours.handle(LIMIT_ID, "k").expect("is there");
                    for _ in 0..rounds {
                        black_box(handle.check(key_of(number(thread)), 1).expect("valid").is_allowed());
                    }
                })
            });
        });
        let governor = Governor::<u64>::keyed(quota(limit, burst));
        group.bench_function("governor, u64", |b| {
            b.iter_custom(|rounds| {
                together(2, |thread| {
                    for _ in 0..rounds {
                        black_box(governor.check_key(&number(thread)).is_ok());
                    }
                })
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = direct, hot_key, many_keys, two_threads
}
criterion_main!(benches);
