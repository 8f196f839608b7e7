//! hostcall's benchmarks. Each figure stands beside its floor, measured in the same run: a figure and its
//! floor are taken in turn, several times, and the medians are compared.
#![forbid(unsafe_code)]

mod floor;
mod latency;
mod rate;
mod run;

pub use run::{Options, Report, Result, Row, bench};

/// Middle of some measurements.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
