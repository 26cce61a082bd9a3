//! Thread numbers: a small number for each running thread, which chooses its stripe.

use std::{cell::Cell, collections::BTreeSet, sync::Mutex};

use crate::base::lock::lock;

/// Returns a number that no other running thread has, counted from 0. A new thread gets the number of one that ended.
#[inline]
pub(crate) fn thread_number() -> usize {
    let number = NUMBER.get();
    if number == NO_NUMBER { take() } else { number }
}

const NO_NUMBER: usize = usize::MAX;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NO_NUMBER) };
}

/// The free numbers. The least is given first, so that few threads have small numbers.
struct Numbers {
    next: usize,
    left: BTreeSet<usize>,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { next: 0, left: BTreeSet::new() });

/// Owns a thread's number, and frees it when the thread ends.
struct Owner(usize);

thread_local! {
    static OWNER: Owner = Owner::new();
}

impl Owner {
    fn new() -> Self {
        let mut numbers = lock(&NUMBERS);
        let Numbers { next, left } = &mut *numbers;
        Self(left.pop_first().unwrap_or_else(|| {
            *next += 1;
            *next - 1
        }))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The lock orders what this thread wrote by its number before what the next one writes.
        NUMBER.set(NO_NUMBER);
        lock(&NUMBERS).left.insert(self.0);
    }
}

/// Takes a number at a thread's first check, the one time that it waits for a lock.
#[cold]
fn take() -> usize {
    // A thread that checks while it ends, after its number was given back, uses a number that is shared by all such threads.
    let Ok(number) = OWNER.try_with(|owner| owner.0) else { return NO_NUMBER };
    NUMBER.set(number);
    number
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use std::{collections::HashSet, sync::Barrier};

    use super::thread_number;

    #[test]
    fn running_threads_have_distinct_numbers_and_ended_threads_free_theirs() {
        let mut seen = HashSet::new();
        for _ in 0..50 {
            let together = Barrier::new(4);
            let number = || {
                let number = thread_number();
                assert_eq!(thread_number(), number);
                together.wait();
                number
            };
            let numbers: HashSet<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(number)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            assert_eq!(numbers.len(), 4, "two threads at one time had one number");
            seen.extend(numbers);
        }
        // Other tests of this process run beside it.
        assert!(seen.len() < 100, "{} numbers for four threads at a time", seen.len());
    }
}
