//! One suite of tests for every hostcall device: [`CASES`], each a function that gets a [`Context`], opens
//! devices with it, and runs the kernels of the program `programs/conformance`. A device that passes it keeps
//! what the seam and the device crate promise. A failure says seed, case and what was waited for.
//!
//! `cargo test -p hostcall-conformance` runs every case on the software device in several settings; the
//! `hostcall-conformance` command runs them on any device. A new case is a function in `cases/`, in the file
//! of its topic.
//!
//! # Traps
//! What projects beside this one fell into, with where it was seen, and what would fail here. `module::case` is a case of the suite.
//!
//! | trap | what would fail |
//! |---|---|
//! | the host cleans a finished slot up when its next use has begun (nccl#2389) | loom models of `core/channel`, of all protocols; `host/server/tests/detached.rs` |
//! | lanes that diverge meet at an address with other state (llvm#182211) | `calls::divergence`, `waves::spinning`; `diverge` and `mixed` of `bindings/c` (`contexts`); `tests/crosscheck`; `scripts/gpu-check-llvm` |
//! | a handler copies or allocates while launches stand behind its caller (mscclpp#285, #440) | `streams::handlers_copy`, `streams::beside_a_full_device` |
//! | more workgroups wait for each other than the GPU holds (mscclpp#242) | `a_grid_that_meets_and_is_too_large_is_told_of` of `host/hostcall`: a wait that reached its limit names it; nobody knows whether it meets |
//! | replays leak slots, entries or memory (nccl#1251) | `--foreign`, `--replays`; `graph_memory` of `host/hostcall` |
//! | captured work is done at the capture, or in the first replay alone (chipStar#1502, cupy#9274) | `graphs::replays`, `graphs::prints`; `work_is_run_once_where_it_must_be` of `host/hostcall` |
//! | a call of the driver holds the lock that a handler needs (TensorRT-LLM#15855) | `test_a_thread_that_holds_the_gil_is_named` of `bindings/python` |
//! | what was said before a fault is lost (DeepEP#542, hip#1959) | `what_a_kernel_posts_before_a_fault_arrives` of `bindings/c`, `raw::killed`, `panics::kinds`; on NVIDIA nothing |
//! | nobody knows which replay said something (flashinfer#3172) | `foreign::captured`; `each_call_of_a_row_has_its_origin` of `host/hostcall` |
//! | an operation that a device has not does nothing and says so to nobody (pytorch#191858) | `noop` of `host/hostcall`; skipped launches: `graphs::panics`, `progress::cancelled_nodes` |
//! | counts of records are nearly right (CUTracer#220, triton#8109) | `raw::records`, `raw::dropped` and `points::said` under `--repeat`; three readers: `scripts/trace-readers` |
//! | a counter wraps (GSan#11338) | `posts_arrive_in_order` and `nothing_is_lost_uncounted` of `core/channel`, `generations_begin_again` of `host/server` |
//! | the host never sees what a device wrote (nccl#2255) | any case, on hardware; opening a device does not try it |
//! | a graph of 200 kernels has stale arguments (hip#3887); a mapped file is read wrong on coherent machines (cuvs#2301) | `graphs::changed`; `system::maps`, never run on such a machine |
//! | threads lose their affinity, queues for 64 ranks do not fit (uccl#1030, #922) | `threads_run_where_the_process_may` of `host/hostcall`; for 64 ranks nothing |
//! | a fatal end exits with 0 (vllm#48966) | `run.rs` and `ending.rs` of `tools/cli`, `test_run.py` of `bindings/python` |
//! | other releases of compilers do not link the bitcode (modular#5461, numba-cuda#194) | `triton_links_the_library`, `kernels_in_hip_call_from_a_context` and `debug_and_release_code_links_the_library` of `bindings/c` |
//! | a process that is killed with calls in flight wedges the GPU (llama-swap#927) | nothing: no AMD GPU has run this |
//! | costs are measured with long kernels (parca-agent#3213) | figures `launches` and `traces` of `tools/bench` |
//! | results are right only while somebody prints or traces (KernelAbstractions#547) | the setting `traced` of `tests/cases.rs` |
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
