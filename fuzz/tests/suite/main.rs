//! The tests of the fuzz targets that need no fuzzer, as one binary.

mod seeds;
