//! How another process of the same user looks into this one, also while everything in it hangs.
//!
//! While a device is open a thread listens on an abstract socket, `@hostcall-PID`, which leaves nothing on disk. Who connects
//! writes one line of JSON, a [`Request`], and gets one line back. Both sides check who the other one is, bound what they read,
//! and give up soon, so that neither holds up the other. With `HOSTCALL_WATCH=off` in the environment nobody listens; where the
//! system gives no socket or thread, nobody can look in, and all else goes on.
//!
//! ```
//! use hostcall::{Device, watch};
//!
//! let device = Device::open("cpu")?;
//! let process = watch::state(std::process::id())?;
//! assert_eq!(process.devices[0].name, "cpu");
//! assert!(watch::processes()?.contains(&process.who.pid));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Who asks to follow ([`follow`]) keeps its connection, and is told what comes: text of kernels, failures of launches. Nothing
//! there waits for who follows: what its socket does not take is kept up to a bound, then left out and counted.
//!
//! To answer another question, add it to [`Request`] and to `answer`.

mod client;
mod collect;
mod culprits;
mod follow;
mod graph;
mod groups;
mod handlers;
mod identity;
#[cfg(test)]
mod ranks_tests;
mod report;
mod socket;
mod state;
mod trace;

pub use crate::device::metrics::{DeviceMetrics, Latency, MethodMetrics};
pub use client::{Answers, Following, WatchError, ask, ask_all, follow, metrics, processes, state};
pub use culprits::{Culprit, Explanation, Member, Rank, Why, explain};
pub use follow::{Failure, News};
pub use graph::{Graph, Mark, Node, NodeKind, Waits, graph};
pub use report::report;
pub use state::{
    DeviceState, HandledCall, Identity, LaunchOf, LaunchState, Metrics, OutputState, Polled, Process,
    ThreadState, Wait, WaitGroup, Workgroup,
};
pub use trace::{TraceAsked, TraceBegun, TraceEnded};

pub(crate) use follow::{hold as hold_followers, stop_in_child as stop_followers_in_child};
pub(crate) use socket::{hold as hold_listener, listen, stop_in_child};
pub(crate) use trace::{forget as forget_trace, hold as hold_trace};

use serde::{Deserialize, Serialize};

/// What can be asked of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// What it does now: a [`Process`].
    State,
    /// What its devices have counted: [`Metrics`].
    Metrics,
    /// To record trace points of its kernels: a [`TraceBegun`].
    TraceOn(TraceAsked),
    /// To be told what comes, in one line of JSON after the other: [`News`]. The connection stays until one of the two ends it.
    Follow,
    /// To end what it records so: a [`TraceEnded`].
    TraceOff {
        /// The trace alone that has this number ([`TraceBegun::number`]); whichever there is without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
    },
}

/// Returns what the devices of this process have counted, also those that have ended.
pub fn own_metrics() -> Metrics {
    collect::metrics()
}

/// What comes back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer<T> {
    /// What was asked for.
    Ok(T),
    /// Why there is none, in one sentence.
    Error(String),
}

fn written<T: Serialize>(result: Result<T, String>) -> serde_json::Result<String> {
    serde_json::to_string(&result.map_or_else(Answer::Error, Answer::Ok))
}

/// Answers a request with JSON, on a thread that may wait. Locks under which a driver or a user's code is called are not taken for
/// what is told, so that there is an answer whatever hangs.
fn answer(request: Request) -> serde_json::Result<String> {
    match request {
        Request::State => written(Ok(collect::process())),
        Request::Metrics => written(Ok(collect::metrics())),
        Request::TraceOn(asked) => written(trace::begin(asked)),
        // It has more than one answer.
        Request::Follow => written(Err::<(), _>("it is followed by another way".into())),
        Request::TraceOff { number } => written(trace::end(number)),
    }
}
