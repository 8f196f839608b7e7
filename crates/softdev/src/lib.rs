//! The software device: runs kernels compiled for the CPU as a GPU would. A launch is a grid of workgroups; a
//! workgroup's lanes run in waves of 32 or 64; every resident wave has one of the launch's slots.
//!
//! A kernel is an [`Entry`](hostcall_abi::cpu::Entry), called once a lane, and asks for what hardware would do
//! through [`CpuOperations`](hostcall_abi::cpu::CpuOperations). Each lane is a coroutine on a stack of its own,
//! so lanes progress independently of each other, and meet where they ask to. A workgroup stays on the thread
//! that took it on, so lanes that share workgroup memory never run at the same instant.
//!
//! | module | what |
//! |---|---|
//! | `executor` | the public [`Executor`]; the queue from which threads take workgroups; ending launches |
//! | `launch` | a launch, its handle and its outcome |
//! | `thread` | an executor thread: turns of its workgroups, and waiting when nothing gets on |
//! | `group` | a resident workgroup: turns of its waves, the barrier, ended lanes |
//! | `wave` | a wave: who is ready or blocked, converging and exchanging |
//! | `lane` | a lane: its coroutine and what it waits for |
//! | `operations` | what kernels call |
//! | `trap` | signals: faults and forced ends |
//!
//! # Scheduling
//! A lane runs until an operation blocks it; a loop without operations holds up the other lanes of its thread.
//! Lanes at a `converge` go on, grouped by site, once no other lane of their wave can run, or when the others
//! keep running for long. A thread that makes no progress polls for some ten microseconds, then yields, then
//! sleeps for a growing time of at most 200 µs; with nothing to do it sleeps until a launch.
//!
//! # Ends that are forced
//! A lane that faults, overflows its stack, or outlives the grace of a cancelled launch is ended where it is,
//! without unwinding: what it owns leaks, and locks that it holds (an allocator's, say) stay locked. A fault in
//! code that runs on no lane's stack goes to the handler that the process had before.

mod config;
mod executor;
mod group;
mod lane;
mod launch;
mod operations;
mod thread;
mod trap;
mod wave;

pub use config::{Config, Faults};
pub use executor::Executor;
pub use launch::{Launch, LaunchError, LaunchHandle, LaunchReport, LaunchResult};
