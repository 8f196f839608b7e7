//! What is done when signals have reached values: the client's handlers, and copies. A thread looks at all that waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use super::runtime::{Runtime, lock};
use super::signals::Condition;
use super::threads::join;
use super::{Status, status};
use crate::changes::Pause;

/// Something that waits.
pub struct Waiting {
    /// Conditions that must all hold at once.
    pub conditions: Vec<Condition>,
    /// Whether it is let go of when the client destroys one of the signals. Otherwise it waits on, as what knows a
    /// signal may still change it.
    pub ends_with_signals: bool,
    /// Is called with the first signal's value. Returns whether it is to be called again.
    pub run: Box<dyn FnMut(i64) -> bool + Send>,
}

impl Waiting {
    /// Returns the first signal's value, if the conditions hold.
    fn ready(&self) -> Option<i64> {
        let mut first = None;
        for condition in &self.conditions {
            let value = condition.signal.value().load(Ordering::SeqCst);
            if !condition.holds(value) {
                return None;
            }
            first = first.or(Some(value));
        }
        first.or(Some(0))
    }

    /// Whether it is let go of.
    fn is_over(&self) -> bool {
        self.ends_with_signals && self.conditions.iter().any(|condition| condition.signal.is_destroyed())
    }
}

/// What one thread waits for, and then runs.
#[derive(Default)]
pub struct Waits {
    list: Arc<Mutex<Vec<Waiting>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: Arc<AtomicBool>,
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waits").field("waiting", &lock(&self.list).len()).finish_non_exhaustive()
    }
}

impl Waits {
    /// Ends the thread. What it runs is waited for, unless that is what ends the runtime.
    pub fn stop(&self, runtime: &Runtime) {
        self.stopped.store(true, Ordering::SeqCst);
        runtime.memory.changes.note();
        // Not locked meanwhile: what the thread runs may ask to add something.
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            join(thread);
        }
    }

    /// Adds what waits. What is refused is dropped: whoever asked has its data still.
    pub fn add(&self, runtime: &Arc<Runtime>, waiting: Waiting) -> Result<(), Status> {
        let mut thread = lock(&self.thread);
        if self.stopped.load(Ordering::SeqCst) {
            return Err(status::NOT_INITIALIZED);
        }
        if thread.is_none() {
            let (list, stopped) = (Arc::clone(&self.list), Arc::clone(&self.stopped));
            let memory = Arc::clone(&runtime.memory);
            let run = move || {
                let mut pause = Pause::default();
                loop {
                    // Before the look at whether it is to end, of which the count tells.
                    let seen = memory.changes.count();
                    if stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    if run_ready(&list, &stopped) {
                        pause = Pause::default();
                    }
                    if lock(&list).is_empty() {
                        memory.changes.wait(seen, None);
                    } else {
                        memory.changes.wait_or_look(seen, &mut pause);
                    }
                }
            };
            let spawned = Builder::new().name("signal waits".to_owned()).spawn(run);
            *thread = Some(spawned.map_err(|_| status::OUT_OF_RESOURCES)?);
        }
        drop(thread);
        lock(&self.list).push(waiting);
        runtime.memory.changes.note();
        Ok(())
    }
}

/// Runs what is ready, and lets go of what never will be. Returns whether something ran.
fn run_ready(list: &Mutex<Vec<Waiting>>, stopped: &AtomicBool) -> bool {
    let mut waiting = lock(list);
    let (over, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut *waiting).into_iter().partition(Waiting::is_over);
    let (ready, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|entry| entry.ready().is_some());
    *waiting = rest;
    // What runs may add others, and what is let go of may be the client's, so the list is not locked meanwhile.
    drop(waiting);
    drop(over);
    let mut ran = false;
    for mut entry in ready {
        // What ran before it may have ended the runtime, destroyed its signals or changed them.
        if stopped.load(Ordering::SeqCst) {
            break;
        }
        if entry.is_over() {
            continue;
        }
        let goes_on = entry.ready().is_none_or(|value| {
            ran = true;
            (entry.run)(value)
        });
        if goes_on {
            lock(list).push(entry);
        }
    }
    ran
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn waiting(run: impl FnMut(i64) -> bool + Send + 'static) -> Waiting {
        Waiting { conditions: Vec::new(), ends_with_signals: true, run: Box::new(run) }
    }

    /// The thread is told to end when it has seen that it is not to, and before it looks at the count of changes.
    #[test]
    fn the_thread_ends_at_any_moment() {
        let runtime = Arc::new(Runtime::start().expect("it starts"));
        for _ in 0..100 {
            let waits = Arc::new(Waits::default());
            let held = runtime.memory.changes.hold();
            let (added, stopped) = (mpsc::channel(), mpsc::channel());
            let (other, of) = (Arc::clone(&waits), Arc::clone(&runtime));
            thread::spawn(move || added.0.send(other.add(&of, waiting(|_| false))));
            thread::sleep(Duration::from_millis(2));
            let of = Arc::clone(&runtime);
            thread::spawn(move || {
                waits.stop(&of);
                stopped.0.send(())
            });
            thread::sleep(Duration::from_millis(2));
            drop(held);
            assert!(added.1.recv_timeout(LONG).is_ok(), "it is added, or refused");
            stopped.1.recv_timeout(LONG).expect("the thread ends");
        }
    }

    /// What runs adds something while the thread is told to end.
    #[test]
    fn nothing_is_added_at_the_end() {
        let runtime = Arc::new(Runtime::start().expect("it starts"));
        let (begun, stopped, refused) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let of = Arc::clone(&runtime);
        let run = move |_| {
            begun.0.send(()).expect("the test waits for it");
            thread::sleep(Duration::from_millis(50));
            refused.0.send(of.handlers.add(&of, waiting(|_| true))).expect("the test waits for it");
            false
        };
        assert_eq!(runtime.handlers.add(&runtime, waiting(run)), Ok(()));
        begun.1.recv_timeout(LONG).expect("it runs");
        let of = Arc::clone(&runtime);
        thread::spawn(move || {
            of.handlers.stop(&of);
            stopped.0.send(())
        });
        assert_eq!(refused.1.recv_timeout(LONG), Ok(Err(status::NOT_INITIALIZED)));
        stopped.1.recv_timeout(LONG).expect("the thread ends");
    }
}
