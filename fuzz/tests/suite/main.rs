//! Tests of the fuzz targets without a fuzzer, in one binary.

mod seeds;
