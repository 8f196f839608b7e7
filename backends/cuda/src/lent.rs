//! Copies that lanes wait for, asked for by many threads at once: one of them gives all to the driver and
//! waits once, since threads that do so side by side wait for each other inside the driver.

use crate::gpu::Stream;
use crate::{Error, Gpu};
use cudarc::driver::sys;
use hostcall_locks::Mutex;
use std::ffi::c_void;
use std::hint::spin_loop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a thread looks for its copy's end before it sleeps: about as long as a batch of short copies takes.
const SPIN: Duration = Duration::from_micros(100);

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
    waits: Arc<Waits>,
}

// SAFETY: the thread that asks waits for the copy, and uses the memory no sooner.
unsafe impl Send for Asked {}

/// A thread that waits.
struct Waits {
    thread: Thread,
    state: AtomicU8,
    /// Why the copy failed.
    error: Mutex<Option<Error>>,
}

// States of a thread that waits.
const WAITS: u8 = 0;
/// It sleeps, and is to be woken.
const SLEEPS: u8 = 1;
/// It is to give the copies that wait to the driver, its own among them.
const LEADS: u8 = 2;
const IS_OVER: u8 = 3;

impl Waits {
    /// Tells the thread what it waits for.
    fn tell(&self, what: u8) {
        if self.state.swap(what, Ordering::AcqRel) == SLEEPS {
            self.thread.unpark();
        }
    }

    /// Waits until the thread is told something.
    fn wait(&self) -> u8 {
        let start = Instant::now();
        loop {
            match self.state.load(Ordering::Acquire) {
                WAITS if start.elapsed() < SPIN => spin_loop(),
                WAITS => {
                    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
                    _ = self.state.compare_exchange(WAITS, SLEEPS, success, failure);
                }
                SLEEPS => thread::park(),
                told => return told,
            }
        }
    }
}

/// Copies of many threads that go one after the other.
#[derive(Default)]
pub(crate) struct Copies {
    state: Mutex<State>,
    stream: OnceLock<Stream>,
}

/// Lines of copies that go side by side: a short copy's beginning and end take longer than its bytes. More than two make
/// nothing faster (docs/history).
const LINES: usize = 2;

/// The copies of all threads.
#[derive(Default)]
pub(crate) struct LaneCopies {
    lines: [Copies; LINES],
    next: AtomicUsize,
}

impl LaneCopies {
    /// Copies, and waits for it.
    ///
    /// # Safety
    /// `bytes` bytes lie at `host`, which nobody else uses meanwhile, but to read them in a copy to the GPU.
    pub unsafe fn run(&self, gpu: &Gpu, way: Way, host: NonNull<c_void>, bytes: usize) -> Result<(), Error> {
        let line = &self.lines[self.next.fetch_add(1, Ordering::Relaxed) % LINES];
        let stream = match line.stream.get() {
            Some(stream) => stream.0,
            None => {
                let stream = gpu.take_stream()?;
                // Another thread may have been faster.
                if let Err(stream) = line.stream.set(stream) {
                    gpu.give_back_stream(stream);
                }
                line.stream.get().expect("it was set").0
            }
        };
        line.ask(way, host, bytes, |batch| make(gpu, stream, batch))
    }

    /// The streams, once nobody copies any more.
    pub fn streams(&self) -> impl Iterator<Item = Stream> + '_ {
        self.lines.iter().filter_map(|line| line.stream.get().copied())
    }
}

#[derive(Default)]
struct State {
    /// Copies that nobody has given to the driver.
    waiting: Vec<Asked>,
    /// A thread gives copies to the driver.
    is_led: bool,
}

impl Copies {
    /// Has the copy made in a batch, by this thread or another one. `make` makes those of a batch.
    fn ask(
        &self,
        way: Way,
        host: NonNull<c_void>,
        bytes: usize,
        make: impl Fn(&[Asked]),
    ) -> Result<(), Error> {
        let (state, error) = (AtomicU8::new(WAITS), Mutex::default());
        let waits = Arc::new(Waits { thread: thread::current(), state, error });
        let mut state = self.state.lock();
        state.waiting.push(Asked { way, host, bytes, waits: waits.clone() });
        let leads = !std::mem::replace(&mut state.is_led, true);
        drop(state);
        if leads || waits.wait() == LEADS {
            self.lead(make);
        }
        let mut error = waits.error.lock();
        error.take().map_or(Ok(()), Err)
    }

    /// Makes the copies that wait, and those that come meanwhile.
    fn lead(&self, make: impl Fn(&[Asked])) {
        for _ in 0..ROUNDS {
            let mut state = self.state.lock();
            let batch = std::mem::take(&mut state.waiting);
            if batch.is_empty() {
                state.is_led = false;
                return;
            }
            drop(state);
            make(&batch);
            batch.iter().for_each(|asked| asked.waits.tell(IS_OVER));
        }
        let mut state = self.state.lock();
        match state.waiting.first() {
            Some(next) => next.waits.tell(LEADS),
            None => state.is_led = false,
        }
    }
}

/// Makes copies, and notes those that failed.
fn make(gpu: &Gpu, stream: sys::CUstream, batch: &[Asked]) {
    for Asked { way, host, bytes, waits } in batch {
        let doing = || format!("copying {bytes} bytes for a lane");
        let host = host.as_ptr();
        // SAFETY: LOADED; the thread that asks vouches for the host's memory until the copy is over, and the driver checks the
        // GPU's address.
        let given = gpu.run(doing, || unsafe {
            match way {
                Way::To(address) => sys::cuMemcpyHtoDAsync_v2(*address, host, *bytes, stream),
                Way::From(address) => sys::cuMemcpyDtoHAsync_v2(host, *address, *bytes, stream),
            }
        });
        *waits.error.lock() = given.err();
    }
    // SAFETY: LOADED, with a stream of this GPU.
    let finished = gpu.run(|| "copying for lanes".into(), || unsafe { sys::cuStreamSynchronize(stream) });
    for Asked { waits, .. } in batch {
        if let Err(error) = &finished {
            // Which of them it was is not known, and the driver refuses everything from now on.
            *waits.error.lock() = Some(error.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every copy is made once and before its thread goes on, whoever makes it and however long that takes.
    #[test]
    fn copies_of_many_threads_are_made_once() {
        let (copies, made) = (Copies::default(), AtomicUsize::new(0));
        let make = |batch: &[Asked]| {
            if made.fetch_add(batch.len(), Ordering::Relaxed) % 7 == 0 {
                thread::sleep(2 * SPIN);
            }
            for Asked { way, host, bytes, .. } in batch {
                let Way::To(value) = way else { continue };
                // SAFETY: the thread that asks has a number there, and waits.
                unsafe { host.cast::<u64>().write(value + *bytes as u64) };
            }
        };
        thread::scope(|scope| {
            for thread in 0..8 {
                let (copies, make) = (&copies, &make);
                scope.spawn(move || {
                    for round in 0..500 {
                        let mut number = 0u64;
                        let host = NonNull::from(&mut number).cast();
                        copies.ask(Way::To(1000 * thread), host, round, make).unwrap();
                        assert_eq!(number, 1000 * thread + round as u64);
                    }
                });
            }
        });
        assert_eq!(made.into_inner(), 8 * 500);
        assert!(!copies.state.lock().is_led);
    }
}
