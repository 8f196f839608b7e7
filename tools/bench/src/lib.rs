//! hostcall's benchmarks, which `hostcall bench` runs. Each figure stands beside its floor, which is measured
//! in the same run: a figure and its floor are taken in turn, several times, and the medians are compared. So
//! a ratio holds for the machine's state at that moment; absolute times hold for the machine only.
//!
//! A module is a group of `--only`. Begin at `run` (which groups there are), then at `latency` (calls) and
//! its kernels in `programs/bench`. `docs/measurements.md` has the last figure of each row.
#![deny(unsafe_code)]

mod bytes;
mod compute;
mod consumers;
mod contexts;
mod costs;
mod floor;
mod graphs;
mod latency;
mod launches;
mod parallel;
mod points;
mod queues;
mod rate;
mod rival;
mod run;
mod traces;

pub use rival::device_printf;
pub use run::{Group, Options, Report, Result, Row, bench};

/// Middle of some measurements.
fn median(values: Vec<f64>) -> f64 {
    percentile(values, 50)
}

/// What so many in a hundred of the measurements are at most.
fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * percent / 100]
}
