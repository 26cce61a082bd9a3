//! Fills a table with as many live keys as it is made for, and prints what that took as one line of JSON.
//!
//! ```sh
//! cargo run --release -p tidegate-benches --bin memory -- 100000000
//! ```
//!
//! A million keys unless told otherwise; 100 million take 2.4 GB, and a minute or two. With the system's allocator, which
//! does nothing else meanwhile.

use std::env;

use tidegate_benches::memory::{Memory, measure};

fn main() {
    let keys = env::args().nth(1).map_or(Ok(1_000_000), |keys| keys.parse()).expect("a number of keys");
    let Memory { keys, bytes_per_key, overflow_share } = measure(keys);
    #[expect(clippy::print_stdout, reason = "a report")]
    {
        println!(r#"{{"keys":{keys},"bytes_per_key":{bytes_per_key:.3},"overflow_share":{overflow_share:.6}}}"#);
    }
}
