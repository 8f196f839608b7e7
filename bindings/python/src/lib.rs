//! The part of the Python package `hostcall` that is not Python: devices, contexts, and the thread on which kernels' calls reach
//! functions. `python/hostcall` is what users see.
//!
//! A call's hops: the server's consumer finds it and puts it into the device's [`queue`]; the
//! [`interpreter`]'s thread takes all that is there and holds the GIL once for it; [`handling`] turns
//! [`words`] into arguments, calls the function and answers. Functions that JAX compiles call by [`xla`]. A
//! [`channel`] has records that kernels stream, which [`arrow`] gives to others. Functions that kernels of
//! other processes call have a [`signature`]. [`posts`] are for a thread of the user's, which polls. The
//! [`watch`]dog ends calls at their deadlines, whoever has the GIL.

mod arrow;
mod channel;
mod device;
mod errors;
mod handling;
mod interpreter;
mod kernels;
mod metrics;
mod posts;
mod queue;
mod released;
mod service;
mod signature;
mod trace;
mod watch;
mod words;
mod xla;

use hostcall_abi::service::derived_number;
use hostcall_abi::{schema, word};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::os::fd::RawFd;

#[pymodule]
mod _hostcall {
    #[pymodule_export]
    use super::arrow::arrow_stream;
    #[pymodule_export]
    use super::channel::{RawChannel, RawPage};
    #[pymodule_export]
    use super::device::{RawContext, RawDevice, RawFence};
    #[pymodule_export]
    use super::kernels::{RawBuffer, RawCode, RawLaunch};
    #[pymodule_export]
    use super::metrics::{metrics, metrics_text};
    #[pymodule_export]
    use super::posts::RawPostQueue;
    #[pymodule_export]
    use super::signature::RawSignature;
    #[pymodule_export]
    use super::trace::{RawPointRecording, RawTracer};
    #[pymodule_export]
    use super::xla::xla_handlers;
    #[pymodule_export]
    use super::{caller, check_number, check_of, demo_kernel, devices, end_with, number_of};
}

/// Returns the devices of this machine: name, description, and why it cannot be used.
#[pyfunction]
fn devices(py: Python<'_>) -> Vec<(String, String, Option<String>)> {
    let devices = py.detach(hostcall::device::devices);
    devices.into_iter().map(|device| (device.name, device.description, device.unavailable)).collect()
}

/// Returns the number of the first method of a service for which none was chosen.
#[pyfunction]
fn number_of(service: &str) -> u16 {
    derived_number(schema::of(service))
}

/// Returns the check bits that calls of a method of these types carry.
#[pyfunction]
fn check_of(name: &str, arguments: Vec<String>, results: Vec<String>) -> PyResult<u32> {
    let signature = words::Signature::of(&arguments, &results)?;
    Ok(word::check_of(signature.schema(name)))
}

/// Returns the number of a check, for kernels that have no text.
#[pyfunction]
fn check_number(text: &str, file: &str, line: u32) -> PyResult<u32> {
    hostcall::services::check_number(text, file, line)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Returns who calls the function that this thread runs.
#[pyfunction]
fn caller() -> Option<handling::Place> {
    handling::caller()
}

/// Has this process and its group end once nobody has the other end of a socket any more, whoever has the GIL then.
#[pyfunction]
fn end_with(descriptor: RawFd) -> std::io::Result<()> {
    // SAFETY: it fails where there is no such socket. The copy is the thread's, so that nobody closes it.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let end = move || {
        let mut looked = libc::pollfd { fd: copy, events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one entry, which lives as long.
        while unsafe { libc::poll(&raw mut looked, 1, -1) } < 1 {}
        // SAFETY: signals have no memory. The group is this process's, with what it started.
        unsafe { libc::kill(0, libc::SIGKILL) };
    };
    std::thread::Builder::new().name("hostcall-end".into()).spawn(end).map(drop)
}

/// Returns the address of the demo's kernel, which `kernels/newton.c` has.
#[pyfunction]
fn demo_kernel() -> usize {
    unsafe extern "C" {
        fn hostcall_demo_row(picture: *const std::ffi::c_void, row: u32, scratch: *mut f64) -> u64;
    }
    hostcall_demo_row as *const () as usize
}
