//! Nothing: the tests of `hostcall-remote` with kernels are in `tests`, its figures in `examples/rates.rs`.
#![forbid(unsafe_code)]
