//! The kernels of the examples, each in a module of its example's name. The same source runs on every device.

#![no_std]

extern crate alloc;

pub mod all_to_all;
pub mod features;
pub mod heat_map;
pub mod histogram;
pub mod join;
pub mod mandelbrot;
pub mod matrix;
pub mod nbody;
pub mod png;
pub mod probe;
pub mod reduction;
pub mod sanitizer;
pub mod solver;
pub mod sort;
