//! Threads that something waits for when it ends.

use std::io;
use std::sync::Mutex;
use std::thread::{self, Builder, JoinHandle};

use super::runtime::lock;

/// Threads of one owner.
#[derive(Debug, Default)]
pub struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// The system gives none.
    pub fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut threads = lock(&self.0);
        threads.retain(|thread| !thread.is_finished());
        threads.push(Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    /// Waits for all threads, but for the one that calls this.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *lock(&self.0));
        threads.into_iter().for_each(join);
    }
}

/// Waits for a thread's end, unless it is the calling one.
pub fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != thread::current().id() {
        // A panic of the thread was printed when it happened.
        let _ = thread.join();
    }
}
