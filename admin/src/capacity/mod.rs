//! Bounds on what callers use at a time: turns, queues of long work, memory and disk of bodies.

pub(crate) mod body_budget;
pub(crate) mod read_turns;
pub(crate) mod shared_work;
pub(crate) mod spool;
pub(crate) mod work_queue;
