//! The table's memory: zeroed, taken from the system as it is touched, in huge pages where it is large; and
//! prefetching. This file and `native128.rs` are the only two with unsafe code.
#![allow(unsafe_code, reason = "each block says why it is sound; everything else stays free of it")]

use std::{ops::Deref, slice};

use crate::{
    base::atomic::{Cell16, Cell128},
    storage::two_choice::{self, places},
};

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// Bytes of a huge page: 2 MiB on every 64-bit Linux on x86-64, and on most on ARM.
const HUGE_PAGE: usize = 2 << 20;

/// Cells of a line. A cache line has four. Loom checks the same code with lines of one cell, so a key has two
/// candidates.
pub(crate) const WAYS: usize = if cfg!(engine_loom) { 1 } else { 4 };

/// The cells of one cache line.
pub(crate) type CacheLine = [Cell128; WAYS];

/// Lines of cells that are all 0. The first begins at the start of a cache line; lines that fill a huge page begin at
/// the start of one.
///
/// Making them takes no time, however many: the system provides each page when it is first touched.
#[derive(Debug)]
pub(crate) struct Lines {
    /// All cells: more than were asked for, so that one of them is aligned.
    all: Box<[Cell128]>,
    /// Bytes before the first cell of the first line.
    first: usize,
    /// The number of lines, as [`two_choice::count_for`] returned it.
    count: usize,
}

impl Lines {
    /// Makes so many lines, at least two.
    pub(crate) fn new(lines: usize) -> Self {
        let count = two_choice::count_for(lines);
        let cells = count.saturating_mul(WAYS);
        let bytes = cells.saturating_mul(size_of::<Cell128>());
        let alignment = match bytes {
            // Loom's cell is larger, and has no alignment in particular.
            _ if cfg!(engine_loom) => align_of::<Cell128>(),
            0..HUGE_PAGE => CACHE_LINE,
            _ => HUGE_PAGE,
        };
        let all = zeroed(cells.saturating_add((alignment / size_of::<Cell128>()).saturating_sub(1)));
        let first = all.as_ptr().align_offset(alignment);
        assert!(first <= all.len() - cells, "there are as many spare cells as the alignment can skip");
        let lines = Self { all, first: first * size_of::<Cell128>(), count };
        let whole = bytes / HUGE_PAGE * (HUGE_PAGE / size_of::<Cell128>());
        if whole > 0 {
            let cells = lines.as_flattened();
            ask_for_huge_pages(&cells[..whole], &cells[whole..]);
        }
        lines
    }

    /// Returns the two lines of a key with this hash. They always differ.
    #[inline(always)]
    pub(crate) fn of(&self, hash: u64) -> [&CacheLine; 2] {
        // SAFETY: `places` returns indices below a count that `count_for` returned, as its property test shows. This is not
        // checked again because every check of a limit takes this path.
        places(hash, self.count).map(|place| unsafe { self.get_unchecked(place) })
    }
}

impl Deref for Lines {
    type Target = [CacheLine];

    #[inline(always)]
    fn deref(&self) -> &[CacheLine] {
        // SAFETY: `new` asserted that `all` has the cells of `count` lines from `first` on, and none of the three ever changes.
        // A line is an array of cells, so it has their layout.
        unsafe { slice::from_raw_parts(self.all.as_ptr().byte_add(self.first).cast(), self.count) }
    }
}

/// Allocates cells that are all 0. With the alignment of a `Cell128` the allocator takes the memory from the system
/// without writing zeroes; with that of a cache line it would write them, and so touch every page.
#[cfg(not(engine_loom))]
fn zeroed(count: usize) -> Box<[Cell128]> {
    let cells = Box::new_zeroed_slice(count);
    // SAFETY: a `Cell128` is one `AtomicU128`, which has the bit validity of `u128`: all zeroes are the value 0.
    unsafe { cells.assume_init() }
}

/// Makes cells one by one: loom's cell has more than its value.
#[cfg(engine_loom)]
fn zeroed(count: usize) -> Box<[Cell128]> {
    (0..count).map(|_| Cell128::default()).collect()
}

/// Allocates numbers that are all 0. The system provides their memory page by page, as that of [`Lines`].
#[cfg(not(engine_loom))]
pub(crate) fn zeroed_numbers(count: usize) -> Box<[Cell16]> {
    let numbers = Box::new_zeroed_slice(count);
    // SAFETY: a `Cell16` is one `AtomicU16`, which has the bit validity of `u16`: all zeroes are the value 0.
    unsafe { numbers.assume_init() }
}

#[cfg(engine_loom)]
pub(crate) fn zeroed_numbers(count: usize) -> Box<[Cell16]> {
    (0..count).map(|_| Cell16::default()).collect()
}

/// Asks the system for huge pages for the cells in `whole`, which fill such pages. Asks for none for the `rest`, of
/// which most would stay unused; the allocator or the administrator may have asked for one.
#[cfg(all(target_os = "linux", not(engine_loom)))]
fn ask_for_huge_pages(whole: &[Cell128], rest: &[Cell128]) {
    use rustix::mm::{Advice, madvise};

    for (cells, advice) in [(whole, Advice::LinuxHugepage), (rest, Advice::LinuxNoHugepage)] {
        // Nothing changes where the system ignores the advice.
        // SAFETY: this allocation owns the memory, and the advice changes nothing that can be read there, nor in the rest of its
        // last page.
        let _ = unsafe { madvise(cells.as_ptr().cast_mut().cast(), size_of_val(cells), advice) };
    }
}

#[cfg(not(all(target_os = "linux", not(engine_loom))))]
fn ask_for_huge_pages(_: &[Cell128], _: &[Cell128]) {}

/// Lets the processor fetch the cache line where these cells begin, while the program goes on. The processor may ignore
/// it. Does nothing on processors for which stable Rust has no prefetch.
#[inline(always)]
pub(crate) fn prefetch(cells: &[Cell128]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program could see, and every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(cells.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = cells;
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn lines_are_zero_and_begin_at_a_cache_line_or_a_huge_page() {
        for (count, alignment) in
            [(0, CACHE_LINE), (1, CACHE_LINE), (32_767, CACHE_LINE), (32_768, HUGE_PAGE), (125_000, HUGE_PAGE)]
        {
            let lines = Lines::new(count);
            assert_eq!(lines.len(), two_choice::count_for(count));
            assert!(lines.as_ptr().addr().is_multiple_of(alignment), "{count} lines at {:p}", lines.as_ptr());
            let cells = lines.as_flattened();
            assert!(cells.iter().all(|cell| cell.load() == 0));
            for cell in [&cells[0], &cells[cells.len() - 1]] {
                assert_eq!(cell.compare_exchange(0, u128::MAX), Ok(0));
                assert_eq!(cell.load(), u128::MAX);
            }
        }
    }

    /// Returns the kernel's description of the mapping at `address`.
    #[cfg(target_os = "linux")]
    fn of_mapping(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux shows it");
        let holds = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            let bound = |text| usize::from_str_radix(text, 16).ok();
            Some((bound(from)?..bound(to)?).contains(&address))
        };
        let mut lines = maps.lines().skip_while(|line| holds(line) != Some(true));
        let _head = lines.next();
        lines.take_while(|line| holds(line).is_none()).collect::<Vec<_>>().join("\n")
    }

    /// The memory for a hundred million keys is not resident before it is touched, and then comes in huge pages.
    #[test]
    #[cfg(target_os = "linux")]
    fn large_memory_is_taken_as_it_is_touched_in_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            // This kernel has no huge pages.
            return;
        }
        let lines = Lines::new(37_500_000);
        let field = |name: &str| {
            let mapping = of_mapping(lines.as_ptr().addr());
            let line = mapping.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{mapping}"));
            line.trim().to_owned()
        };
        assert!(
            field("VmFlags:").split(' ').any(|flag| flag == "hg"),
            "the kernel was not asked: {}",
            field("VmFlags:")
        );
        assert_eq!(field("Rss:"), "0 kB");
        let _ = lines[0][0].compare_exchange(0, 1);
        // One page of the usual size where the administrator forbade huge pages, or memory is too fragmented.
        assert!(["2048 kB", "4 kB"].contains(&&*field("Rss:")), "{}", field("Rss:"));
    }
}
