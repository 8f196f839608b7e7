//! Looks at queues that have slept for long. Device code may ring a doorbell, and the client may write a packet behind one,
//! without a word: each queue's thread looks for a while, and leaves that to one thread for all of them then.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use super::runtime::{Runtime, lock};
use super::threads::join;
use super::{Status, status};
use crate::changes::{Changes, Pause};

/// The thread, from the first queue on.
#[derive(Debug, Default)]
pub struct Doorbells {
    /// Queues that were made, and the runtime's end.
    noted: Arc<Changes>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Doorbells {
    /// Starts the thread, if there is none yet.
    pub fn start(&self, runtime: &Arc<Runtime>) -> Result<(), Status> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (weak, noted) = (Arc::downgrade(runtime), Arc::clone(&self.noted));
            let spawned = Builder::new().name("doorbells".to_owned()).spawn(move || look(&weak, &noted));
            *thread = Some(spawned.map_err(|_| status::OUT_OF_RESOURCES)?);
        }
        Ok(())
    }

    /// Says that a queue was made.
    pub fn note_queue(&self) {
        self.noted.note();
    }

    /// Ends the thread. The runtime has stopped.
    pub fn stop(&self) {
        self.noted.note();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            join(thread);
        }
    }
}

/// Wakes queues that have something to do, until the runtime stops.
fn look(runtime: &Weak<Runtime>, noted: &Changes) {
    loop {
        let seen = noted.count();
        let Some(runtime) = runtime.upgrade().filter(|runtime| !runtime.is_stopped()) else { return };
        let queues = runtime.queues.read().unwrap_or_else(PoisonError::into_inner);
        for queue in queues.values().filter(|queue| queue.has_packets()) {
            queue.ring();
        }
        let timeout = (!queues.is_empty()).then_some(Pause::LAST);
        drop(queues);
        drop(runtime);
        noted.wait(seen, timeout);
    }
}
