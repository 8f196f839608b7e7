//! One suite of tests for every hostcall device: [`CASES`], each a function that gets a [`Context`], opens
//! devices with it, and runs the kernels of the program `programs/conformance`. A device that passes it keeps
//! what the seam and the device crate promise. A failure says seed, case and what was waited for.
//!
//! `cargo test -p hostcall-conformance` runs every case on the software device in several settings; the
//! `hostcall-conformance` command runs them on any device. A new case is a function in `cases/`, in the file
//! of its topic.
#![allow(missing_docs, reason = "names of cases say what they check")]
#![allow(clippy::missing_errors_doc, reason = "an error is a failed case")]

pub mod cancels;
mod cases;
mod context;
pub mod fast;
pub mod foreign;
mod handlers;
pub mod repeat;
pub mod replays;
pub mod streams;
pub mod stress;

pub use cases::{CASES, Case};
pub use context::{Capture, Context, MakeBackend, MakeBackendFn, OpenDevices, Session, read};
pub use handlers::{Gates, Messages, Noted, echo};

/// How a case ends.
pub type Outcome = Result<(), String>;

/// Ends the case with a sentence if the two differ.
#[macro_export]
macro_rules! same {
    ($left:expr, $right:expr) => {
        match (&$left, &$right) {
            (left, right) => {
                if left != right {
                    return Err(format!(
                        "{}:{}: {} is {left:?}, not {right:?}",
                        file!(),
                        line!(),
                        stringify!($left)
                    ));
                }
            }
        }
    };
}

/// Ends the case with a sentence if the condition does not hold.
#[macro_export]
macro_rules! ensure {
    ($condition:expr) => {{
        let holds: bool = $condition;
        if !holds {
            return Err(format!("{}:{}: `{}` does not hold", file!(), line!(), stringify!($condition)));
        }
    }};
}
