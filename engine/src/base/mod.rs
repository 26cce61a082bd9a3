//! The foundation of all other layers: time and clocks, atomics, hashes and keys. It knows nothing of limits.
//!
//! * `time`: `Timestamp`, an instant of a clock, and periods as policies write them
//! * `lock`: locks a mutex, also a poisoned one
//! * `bit_field`: bit fields of a 64-bit word
//! * `address`: IP addresses and their networks
//! * `native128`: 128-bit loads and swaps by instructions
//! * `atomic`: all atomics, with their memory orderings
//! * `thread_id`: a small number for each thread
//! * `clock`: the clocks that an engine reads
//! * `hash`: the keyed hash of a counted identity
//! * `key`: keys that are not written as text

pub(crate) mod address;
pub(crate) mod atomic;
pub(crate) mod bit_field;
pub mod clock;
pub(crate) mod hash;
pub(crate) mod key;
pub(crate) mod lock;
pub(crate) mod native128;
pub(crate) mod thread_id;
pub mod time;
