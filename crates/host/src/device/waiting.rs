//! Threads that must not wait: those that run a handler for a kernel, or a host function of a stream, which what they
//! would wait for waits for.

use super::Error;
use super::core::Core;
use super::uses::Point;
use hostcall_server::handling;
use std::cell::{Cell, RefCell};

thread_local! {
    /// The host functions that the thread runs, the innermost last.
    static FUNCTIONS: RefCell<Vec<Point>> = const { RefCell::new(Vec::new()) };
    /// The thread runs handlers of ROCm's protocol and nothing else.
    static IS_ROCMS: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the thread runs handlers of ROCm's protocol from now on, whose calls do not say which launch waits.
pub(super) fn enter_rocm_thread() {
    IS_ROCMS.set(true);
}

/// The thread runs a host function while this lives.
pub(super) struct InHostFunction(());

/// Notes that the thread runs the host function at this point.
pub(super) fn enter_host_function(point: &Point) -> InHostFunction {
    FUNCTIONS.with_borrow_mut(|functions| functions.push(point.clone()));
    InHostFunction(())
}

impl Drop for InHostFunction {
    fn drop(&mut self) {
        FUNCTIONS.with_borrow_mut(Vec::pop);
    }
}

/// Says whether the thread runs a handler.
pub(super) fn is_in_handler() -> bool {
    IS_ROCMS.get() || handling().is_some()
}

/// Refuses to wait for points on a thread for which one of them waits.
pub(super) fn may_wait(core: &Core, points: &[Point], operation: &'static str) -> Result<(), Error> {
    let waits_for = |blocked: &Point| points.iter().any(|point| point.depends_on(blocked, &mut Vec::new()));
    let function = FUNCTIONS.with_borrow(|functions| functions.iter().any(waits_for));
    if function {
        return Err(Error::WouldDeadlock {
            operation,
            device: core.name.clone(),
            waiting: "a host function of the stream, which the stream waits for".into(),
        });
    }
    let Some(handling) = handling().filter(|handling| handling.server == core.id()) else { return Ok(()) };
    let found = core.streams().iter().find_map(|stream| stream.find(handling.launch));
    let Some((kernel, point)) = found else { return Ok(()) };
    if waits_for(&point) {
        let waiting =
            format!("a handler of {} for kernel {kernel}, which waits for its answer", handling.service);
        return Err(Error::WouldDeadlock { operation, device: core.name.clone(), waiting });
    }
    Ok(())
}
