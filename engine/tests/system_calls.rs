//! A check makes no system call, on the system clock and through every entry point; nor does the clock when it is steered.
//!
//! The kernel is the judge: a child process gives up all system calls but writing, and is killed by the next one. The usual
//! harness could not go on after that, so this test has a binary of its own, with its own `main`.

#[cfg(target_os = "linux")]
#[path = "suite/no_allocation/entry_points.rs"]
mod entry_points;

fn main() {
    #[cfg(target_os = "linux")]
    strict::main();
}

#[cfg(target_os = "linux")]
mod strict {
    use std::{
        env,
        io::{self, Write},
        num::NonZeroU32,
        process::{Command, Output},
        sync::atomic::{AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    use tidegate::{
        Engine, HeavyHitters,
        clock::{Clock, SystemClock},
    };

    use super::entry_points::{EntryPoints, SECOND, Sums, engine, leasing};

    /// The task of a child process, and the text that it writes when it has done it.
    const CHECK: &str = "--as-a-child-check";
    const CALL: &str = "--as-a-child-make-a-system-call";
    const DONE: &str = "did it all";
    /// The key that two threads check. A lease begins only while much of its bucket is left, so the key changes until there was
    /// one.
    static SHARED_KEY: AtomicU64 = AtomicU64::new(0);
    const KEYS: u64 = 4_096;
    /// Threads on one processor may never lose a race to each other.
    const LONELY: &str = "note: threads never met on a key, so no lease was looked at";

    pub(super) fn main() {
        match env::args().nth(1).as_deref() {
            Some(CHECK) => check(),
            Some(CALL) => call(),
            // As the usual harness answers, for tools that run tests one by one; there are none that are ignored.
            Some("--list") if env::args().any(|argument| argument == "--ignored") => {}
            Some("--list") => {
                let _ = writeln!(io::stdout(), "a_hundred_thousand_checks_make_no_system_call: test");
            }
            // Whatever cargo passes on.
            _ => a_hundred_thousand_checks_make_no_system_call(),
        }
    }

    fn a_hundred_thousand_checks_make_no_system_call() {
        let caught = said_by(CALL);
        assert!(!caught.contains(DONE), "a system call went unnoticed, so this test shows nothing: {caught}");
        let said = said_by(CHECK);
        assert!(
            said.contains(DONE),
            "a check made a system call (or the clocks of this machine cannot be read without one: see \
             /sys/devices/system/clocksource/clocksource0/current_clocksource): {said}"
        );
        if said.contains(LONELY) {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            assert_eq!(processors, 1, "two threads on one key got no lease in a minute");
            let _ = writeln!(io::stdout(), "{LONELY}");
        }
        // As scripts/test counts.
        let _ = writeln!(io::stdout(), "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    }

    /// Runs a child to its end, which is a violent one: to end in peace takes a call that it has given up.
    fn said_by(child: &str) -> String {
        let this = env::current_exe().expect("this test");
        let Output { status, stderr, .. } = Command::new(this).arg(child).output().expect("a process");
        assert!(!status.success(), "{child} was not held to its word");
        String::from_utf8_lossy(&stderr).into_owned()
    }

    fn check() {
        let engine: &'static Engine = Box::leak(Box::new(engine(10_000, SystemClock::new())));
        engine.observe(NonZeroU32::MIN, HeavyHitters::new(16, Duration::from_mins(1)));
        let (mut entry_points, mut sums) = (EntryPoints::new(engine), Sums::default());
        entry_points.pass(0, &mut sums);
        // On one processor they would hardly meet, and where others are busy the kernel may leave both on one for minutes.
        let (first, last) = first_and_last_processor();
        pin_to(first);
        // A thread that checks the same key, so that it has leases. Ends with the process.
        thread::spawn(move || {
            pin_to(last);
            let mut handle = leasing(engine);
            let _ = handle.check(0_u64);
            give_up_system_calls();
            loop {
                let _ = handle.check(SHARED_KEY.load(Ordering::Relaxed));
            }
        });
        let (mut shared, mut shared_sums) = (leasing(engine), Sums::default());
        let until = engine.clock().now() + Duration::from_nanos(SECOND / 2);
        give_up_system_calls();
        let mut number = 0;
        let is_enough = |sums: &Sums| sums.allowed + sums.denied >= 100_000 && engine.leases_ended() > 0;
        // Long enough for the clock to be steered many times, and until the threads have met, for a minute at most.
        while engine.clock().now() < until
            || (!is_enough(&sums) && engine.clock().now() < until + Duration::from_nanos(60 * SECOND))
        {
            number += 1;
            entry_points.pass(number, &mut sums);
            let has_ended = engine.leases_ended() > 0;
            if !has_ended {
                SHARED_KEY.store(number % KEYS, Ordering::Relaxed);
            }
            for _ in 0..if has_ended { 100 } else { 20_000 } {
                shared_sums.extend([shared.check(SHARED_KEY.load(Ordering::Relaxed))]);
            }
        }
        if sums.allowed > 1_000 && sums.denied > 1_000 {
            if engine.leases_ended() == 0 {
                let _ = writeln!(io::stderr(), "{LONELY}");
            }
            say_done();
        }
    }

    /// Returns two processors that this process may use; the same one twice if there are no more.
    fn first_and_last_processor() -> (usize, usize) {
        let usable = sched_getaffinity(None).expect("the set of this process");
        let mut processors = (0..CpuSet::MAX_CPU).filter(|&processor| usable.is_set(processor));
        let first = processors.next().expect("it runs on one");
        (first, processors.next_back().unwrap_or(first))
    }

    /// Has the calling thread run on this processor alone.
    fn pin_to(processor: usize) {
        let mut one = CpuSet::new();
        one.set(processor);
        sched_setaffinity(None, &one).expect("one of its own set");
    }

    fn call() {
        give_up_system_calls();
        thread::yield_now();
        say_done();
    }

    fn give_up_system_calls() {
        let (rules, kills) = ([(libc::SYS_write, vec![])].into(), SeccompAction::KillProcess);
        let machine = env::consts::ARCH.try_into().expect("a processor that seccomp knows");
        let filter = SeccompFilter::new(rules, kills, SeccompAction::Allow, machine).expect("a filter");
        apply_filter(&BpfProgram::try_from(filter).expect("short")).expect("a kernel with seccomp");
    }

    /// Writes the text without a buffer, which would be allocated.
    fn say_done() {
        let _ = writeln!(io::stderr(), "{DONE}");
    }
}
