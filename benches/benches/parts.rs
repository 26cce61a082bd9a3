//! The parts of a check, one by one: the pure step, the word under compare-and-swap, the table, the whole.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
};

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate::{
    Bucket, Engine, Identity, Request, Snapshot,
    algorithm::{FixedWindow, Meter, Verdict},
    clock::{Clock, SystemClock},
    formats::Format,
};
use tidegate_benches::{LIMIT_ID, Numbers, engine, key_of, meter};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn step(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    let now = SystemClock::new().now();
    let window = Meter::FixedWindow(FixedWindow::new(1 << 24, 60_000_000_000).expect("fits"));
    for (name, meter) in [("token_bucket", meter(1_000_000_000, 1_000_000)), ("fixed_window", window)] {
        group.bench_function(name, |b| b.iter(|| black_box(&meter).step(black_box(0), black_box(now), black_box(1))));
    }
    group.finish();
}

fn word(c: &mut Criterion) {
    let mut group = c.benchmark_group("word");
    let (bucket, meter, clock) = (Bucket::new(), meter(1_000_000_000, 1_000_000), SystemClock::new());
    group.bench_function("bucket", |b| b.iter(|| bucket.charge(&meter, black_box(clock.now()), 1)));
    // What no keyed limiter can be faster than: each round needs the word of the last.
    let (word, secrets) = (AtomicU64::new(0), rapidhash::v3::RapidSecrets::seed(7));
    let clock = quanta::Clock::new();
    let key = key_of(1);
    group.bench_function("clock, hash and swap", |b| {
        b.iter(|| {
            let hash = rapidhash::v3::rapidhash_v3_seeded(black_box(&key), &secrets);
            let seen = word.load(Ordering::Acquire);
            let next = seen.max(clock.raw()) ^ (hash & 1);
            word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire)
        });
    });
    group.finish();
}

fn table(c: &mut Criterion) {
    let mut group = c.benchmark_group("table");
    let hot = engine(1_000, 1_000_000_000, 1_000_000);
    let mut handle = hot.handle(LIMIT_ID, "k").expect("is there");
    group.bench_function("hot key", |b| b.iter(|| handle.check(black_box(&key_of(1)), 1).expect("valid").is_allowed()));
    let wide = engine(1_000_000, 1_000_000_000, 1_000_000);
    let mut handle = wide.handle(LIMIT_ID, "k").expect("is there");
    for number in 0..1_000_000 {
        let _ = handle.check(key_of(number), 1).expect("valid");
    }
    let mut numbers = Numbers::new(7, 1_000_000);
    group.bench_function("1 M keys", |b| {
        b.iter(|| handle.check(key_of(numbers.draw()), 1).expect("valid").is_allowed());
    });
    let mut numbers = Numbers::new(7, u64::MAX);
    // Most keys are new: first touch, and reuse once the table is full of idle ones.
    group.bench_function("new keys", |b| {
        b.iter(|| handle.check(key_of(numbers.draw()), 1).expect("valid").is_allowed());
    });
    let denying = engine(1_000, 1, 1);
    let mut handle = denying.handle(LIMIT_ID, "k").expect("is there");
    group.bench_function("denial", |b| b.iter(|| handle.check(black_box(&key_of(1)), 1).expect("valid").is_allowed()));
    group.finish();
}

/// Three identities, the client's tier looked up among 100,000, the endpoint matched, three limits charged.
fn full_check(c: &mut Criterion) {
    let limit = |id: &str| {
        format!(
            "{{ id = \"{id}\", algorithm = \"token_bucket\", limit = 1000000000, period = \"1s\", burst = 1000000 }}"
        )
    };
    let mut policy = format!(
        "[domains.default]\ndefaults = {{ ip = \"free\" }}\n\
         [[domains.default.tiers]]\nid = \"free\"\nlimits = [{}]\n\
         [[domains.default.tiers]]\nid = \"pro\"\nlimits = [{}]\n\
         [[domains.default.rules]]\nid = \"search\"\nendpoint = \"/api/v1/users/{{id}}/posts\"\nper = \"user\"\nlimits = [{}]\n",
        limit("ip"),
        limit("key"),
        limit("search")
    );
    let client = |name: &String| {
        format!("[[domains.default.clients]]\nkind = \"api_key\"\nvalue = \"{name}\"\ntier = \"pro\"\n")
    };
    let keys: Vec<String> = (0..100_000).map(|client| format!("k-{client}")).collect();
    policy.extend(keys.iter().map(client));
    let engine = Engine::new();
    engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a policy")).expect("few limits");
    let mut numbers = Numbers::new(7, 100_000);
    c.bench_function("full check", |b| {
        b.iter(|| {
            let key = &keys[numbers.draw() as usize];
            let identity = |kind, value| Identity::new(kind, value).expect("valid");
            let who = [identity("ip", "192.0.2.7"), identity("api_key", key), identity("user", key)];
            let request =
                Request::new(&who).and_then(|request| request.endpoint("/api/v1/users/7/posts")).expect("valid");
            engine.check(&request).is_allowed()
        });
    });
}

fn give_back(c: &mut Criterion) {
    let meter = meter(10, 10);
    let Verdict::Admit(word) = meter.step(0, 1_000, 1) else { return };
    let receipt = tidegate::algorithm::Receipt { cost: 1, charged_at: 1_000, word, moved_ns: u64::MAX };
    c.bench_function("give back", |b| {
        b.iter(|| black_box(&meter).give_back(black_box(word), black_box(2_000), &receipt));
    });
}

criterion_group!(benches, step, word, table, full_check, give_back);
criterion_main!(benches);
