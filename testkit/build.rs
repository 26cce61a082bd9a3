//! The migrations are compiled in: a change to them builds this crate again.

fn main() {
    println!("cargo::rerun-if-changed=../migrations/postgres");
}
