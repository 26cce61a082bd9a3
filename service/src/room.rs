//! Room for the bodies that are being read: so many bytes in all connections together, whoever sends how slowly.

use std::{
    ops::Deref,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Bytes of bodies that have come, in requests that are not whole yet. What holds them may have twice the room.
pub(crate) const BYTES_MAX: usize = 64 << 20;

/// What is left of the room, for all workers.
#[derive(Debug)]
pub(crate) struct Room(AtomicUsize);

impl Default for Room {
    fn default() -> Self {
        Self(AtomicUsize::new(BYTES_MAX))
    }
}

/// The part of one body, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Part<R: Deref<Target = Room>> {
    room: R,
    bytes: usize,
}

impl Room {
    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> usize {
        BYTES_MAX - self.0.load(Ordering::Relaxed)
    }

    /// Of a body of which nothing has come.
    pub(crate) fn part(&self) -> Part<&Self> {
        Part::of(self)
    }
}

impl<R: Deref<Target = Room>> Part<R> {
    /// Of a body of which nothing has come.
    pub(crate) fn of(room: R) -> Self {
        Self { room, bytes: 0 }
    }

    /// Has room for so many bytes from now on, if there is so much.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            return self.grow(bytes - self.bytes);
        }
        if bytes < self.bytes {
            self.room.0.fetch_add(self.bytes - bytes, Ordering::Relaxed);
            self.bytes = bytes;
        }
        true
    }

    /// Takes room for so many bytes more, if there is so much.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let taken = self.room.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        if taken.is_ok() {
            self.bytes += bytes;
        }
        taken.is_ok()
    }
}

impl<R: Deref<Target = Room>> Drop for Part<R> {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}
