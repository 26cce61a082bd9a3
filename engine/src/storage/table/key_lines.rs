//! Finds a key in its two lines, where a check looks first.

use super::SlotSnapshot;
use crate::{
    base::{atomic::Cell128, native128::Native128},
    storage::{
        alloc::{CacheLine, WAYS, prefetch},
        atomic_update::Swap,
        layout::{Slot, is_tag},
    },
};

/// The two lines of a key, and its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLines<'t> {
    pub(crate) hash: u64,
    pub(super) lines: [&'t CacheLine; 2],
}

impl<'t> KeyLines<'t> {
    /// Lets the processor fetch both lines while other keys are checked. In a table just filled three keys in ten are
    /// in the second line, and later, when there is no empty slot, up to half.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        self.lines.into_iter().for_each(|line| prefetch(line));
    }

    /// Lets the processor fetch both lines by loads whose values are not used. Unlike prefetches, they cannot be
    /// dropped where many lines are on their way. But they delay the instructions that come some hundred later until
    /// the lines are there.
    #[inline(always)]
    pub(crate) fn fetch(self, native: Option<Native128>) {
        let Some(native) = native else { return self.prefetch() };
        for line in self.lines {
            let _unused = line[0].load_lower(native);
        }
    }

    /// Finds the slot that has this [plain tag](crate::storage::layout::PlainTag), except perhaps for the bit of
    /// striping. Returns the whole tag too.
    ///
    /// Only the tag is read, and it is a hint: the slot may have another by the time that its state is read.
    #[inline(always)]
    pub(crate) fn find_tag(self, native: Native128, tag: u64) -> Option<(&'t Cell128, u64)> {
        prefetch(self.lines[1]);
        // Most keys are in the preferred slot and not striped: one comparison of the whole tag finds them. The search below
        // ignores the bit of striping.
        let preferred = &self.lines[0][self.hash as usize % WAYS];
        if preferred.load_upper(native) == tag {
            return Some((preferred, tag));
        }
        self.find(|cell| Some(cell.load_upper(native)).filter(|seen| is_tag(*seen, tag)))
    }

    /// Finds the same slot as [`find_tag`](Self::find_tag), and reads it, without instructions that the processor may
    /// lack.
    pub(crate) fn find_tag_by_calls(self, tag: u64) -> Option<SlotSnapshot<'t>> {
        self.find(|cell| Some(Swap::load(cell)).filter(|slot: &Slot| is_tag(slot.tag(), tag)))
    }

    /// Returns the first slot for which `is_it` returns a value. The search of each line begins at the slot that the
    /// key prefers. The second line comes from memory while the first is read.
    #[inline(always)]
    pub(super) fn find<T>(self, is_it: impl Fn(&Cell128) -> Option<T>) -> Option<(&'t Cell128, T)> {
        let Self { hash, lines } = self;
        prefetch(lines[1]);
        for line in lines {
            for way in 0..WAYS {
                let cell = &line[(hash as usize % WAYS + way) % WAYS];
                if let Some(found) = is_it(cell) {
                    return Some((cell, found));
                }
            }
        }
        None
    }
}
