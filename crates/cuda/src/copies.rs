//! Copies that lanes wait for, asked for by many threads at once: one of them gives all to the driver and waits once, since
//! threads that do so side by side take ten times as long.

use crate::{Error, Gpu};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Rounds that a thread makes for others before it goes on with its own work.
const ROUNDS: usize = 8;

/// Which way a copy between the host's memory and a GPU's goes.
pub(crate) enum Way {
    /// To the GPU's address.
    To(u64),
    /// From the GPU's address.
    From(u64),
}

/// A copy that its thread waits for.
struct Asked {
    way: Way,
    host: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the thread that asks waits for the copy, and uses the memory no sooner.
unsafe impl Send for Asked {}

/// The copies of all threads.
#[derive(Default)]
pub(crate) struct Copies {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Copies that nobody has given to the driver.
    waiting: Vec<Asked>,
    /// Copies that were asked for, ever, and those of them that are over.
    asked: u64,
    over: u64,
    /// Of those that are over, the ones that failed and whose threads have not asked; each has its place in the order.
    failed: Vec<(u64, Error)>,
    /// A thread gives copies to the driver.
    is_led: bool,
}

impl Copies {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies, and waits for it.
    ///
    /// # Errors
    /// When a kernel failed before, or the driver does not know the address.
    ///
    /// # Safety
    /// `bytes` bytes lie at `host`, which nobody else uses meanwhile, but to read them in a copy to the GPU.
    pub unsafe fn run(&self, gpu: &Gpu, way: Way, host: NonNull<c_void>, bytes: usize) -> Result<(), Error> {
        let mut state = self.state();
        state.waiting.push(Asked { way, host, bytes });
        state.asked += 1;
        let mine = state.asked;
        while state.over < mine {
            state = if state.is_led {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.lead(gpu, state)
            };
        }
        match state.failed.iter().position(|(place, _)| *place == mine) {
            Some(at) => Err(state.failed.swap_remove(at).1),
            None => Ok(()),
        }
    }

    /// Makes the copies that wait, and those that come meanwhile.
    fn lead<'s>(&'s self, gpu: &Gpu, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.is_led = true;
        for _ in 0..ROUNDS {
            let (batch, first) = (std::mem::take(&mut state.waiting), state.over + 1);
            if batch.is_empty() {
                break;
            }
            drop(state);
            let failed = make(gpu, &batch, first);
            state = self.state();
            state.over += batch.len() as u64;
            state.failed.extend(failed);
            self.changed.notify_all();
        }
        state.is_led = false;
        // One of those that came last leads next.
        self.changed.notify_all();
        state
    }
}

/// Makes copies, of which the first has place `first` in the order of all. Returns those that failed.
fn make(gpu: &Gpu, batch: &[Asked], first: u64) -> Vec<(u64, Error)> {
    let mut failed = Vec::new();
    for (place, Asked { way, host, bytes }) in (first..).zip(batch) {
        let doing = || format!("copying {bytes} bytes for a lane");
        let (host, stream) = (host.as_ptr(), gpu.copies());
        // SAFETY: LOADED; the thread that asks vouches for the host's memory until the copy is over, and the driver checks the
        // GPU's address.
        let given = gpu.run(doing, || unsafe {
            match way {
                Way::To(address) => sys::cuMemcpyHtoDAsync_v2(*address, host, *bytes, stream),
                Way::From(address) => sys::cuMemcpyDtoHAsync_v2(host, *address, *bytes, stream),
            }
        });
        failed.extend(given.err().map(|error| (place, error)));
    }
    if let Err(error) = gpu.finish_copies(|| "copying for lanes".into()) {
        // Which of them it was is not known, and the driver refuses everything from now on.
        return (first..).zip(batch).map(|(place, _)| (place, error.clone())).collect();
    }
    failed
}
