//! The storage of bucket states, shared by all threads without locks: the table, the logs beside it, token striping,
//! counters.
//!
//! * `layout`: the bit layouts of a bucket state and of a slot
//! * `two_choice`: the two lines of the table that a key's hash chooses
//! * `alloc`: the table's memory, and prefetching
//! * `atomic_update`: the compare-and-swap loop
//! * `bucket`: one bucket without a table
//! * `table_shares`: how many slots the keys of a limit or a domain may hold, and overflow buckets
//! * `log_pool`: the rings of sliding window logs
//! * `caller_groups`: how many slots the keys of a group of callers may hold
//! * `table`: finds the slot of a key, makes room for new keys, takes back idle slots
//! * `sliding_log`: charges the slot and the ring of a sliding window log together
//! * `refund_log`: how far refunds and resets moved buckets back
//! * `striping`: spends the tokens of a hot key from stripes, one for each few threads
//! * `counters`: striped counters of decisions

pub(crate) mod alloc;
pub(crate) mod atomic_update;
pub(crate) mod bucket;
pub(crate) mod caller_groups;
pub(crate) mod counters;
pub(crate) mod layout;
pub(crate) mod log_pool;
pub(crate) mod refund_log;
pub(crate) mod sliding_log;
pub(crate) mod striping;
pub(crate) mod table;
pub(crate) mod table_shares;
pub(crate) mod two_choice;
