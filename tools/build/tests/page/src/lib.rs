//! The kernels of the page of costs alone: those of `hostcall bench`, which has many more.
#![no_std]

#[path = "../../../../../programs/bench/src/costs.rs"]
pub mod costs;
