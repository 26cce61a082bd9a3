//! Where buckets are kept: the bounded table without locks, the logs beside it, stripes of hot buckets, and counters.
//!
//! * `layout`: the bits of a bucket's word and of a slot
//! * `two_choice`: the two lines of the table that a key may be in
//! * `alloc`: the table's memory, and prefetching
//! * `atomic_update`: the one compare-and-swap loop
//! * `bucket`: a bucket that stands alone
//! * `table_shares`: how many slots the keys of a limit or domain may hold, and overflow buckets
//! * `log_pool`: the cells of sliding window logs
//! * `caller_groups`: how many slots the keys that a group of callers brought may hold
//! * `table`: finds a key's slot, makes room for new keys, takes back idle slots
//! * `sliding_log`: a key's log: its slot and its cells, charged together
//! * `refund_log`: how far buckets were moved back by refunds and resets
//! * `striping`: a hot bucket's tokens in stripes, one for each few threads
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
