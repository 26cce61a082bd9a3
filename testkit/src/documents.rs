//! The documents of the repository as doc tests: their code is compiled and run. They stand here and not in the libraries, whose
//! packages hold nothing from outside their folders.

#[doc = include_str!("../../README.md")]
struct Readme;

#[doc = include_str!("../../docs/choosing-an-algorithm.md")]
struct ChoosingAnAlgorithm;

#[doc = include_str!("../../docs/fleet.md")]
struct Fleet;

#[doc = include_str!("../../docs/guarantees.md")]
struct Guarantees;

#[doc = include_str!("../../docs/library.md")]
struct Library;

#[doc = include_str!("../../docs/middleware.md")]
struct Middleware;

#[doc = include_str!("../../docs/sizing.md")]
struct Sizing;
