//! A runtime of the user's, which runs async handlers in place of the server's executor.

use super::executor::Task;
use super::handling::ThreadSetup;

#[cfg(feature = "tokio")]
pub(crate) use with_tokio::{Runtime, Tasks};
#[cfg(not(feature = "tokio"))]
pub(crate) use without::{Runtime, Tasks};

#[cfg(feature = "tokio")]
mod with_tokio {
    use super::{Task, ThreadSetup};
    use hostcall_locks::Mutex;
    use std::future::poll_fn;
    use tokio::runtime::Handle;
    use tokio::task::AbortHandle;

    /// Tasks after which those that have ended are forgotten, beside twice those that were kept.
    const FORGET_AFTER: usize = 64;

    /// A runtime.
    pub(crate) type Runtime = Handle;

    /// The futures that a runtime has of a server.
    pub(crate) struct Tasks {
        runtime: Runtime,
        setup: ThreadSetup,
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        tasks: Vec<AbortHandle>,
        /// Tasks after those that had ended were forgotten.
        kept: usize,
        is_stopped: bool,
    }

    impl Tasks {
        pub fn new(runtime: Runtime, setup: ThreadSetup) -> Self {
            Self { runtime, setup, state: Mutex::default() }
        }

        /// Has a future run to its end. It is dropped before where the runtime ends, or [`Tasks::stop`] is called.
        pub fn spawn(&self, mut future: Task) {
            let setup = self.setup.clone();
            let entered = poll_fn(move |context| {
                setup.enter_again();
                future.as_mut().poll(context)
            });
            // Not under the lock: a runtime that has ended drops the future at once.
            let task = self.runtime.spawn(entered).abort_handle();
            let mut state = self.state.lock();
            if state.is_stopped {
                drop(state);
                return task.abort();
            }
            state.tasks.push(task);
            if state.tasks.len() > 2 * state.kept + FORGET_AFTER {
                state.tasks.retain(|task| !task.is_finished());
                state.kept = state.tasks.len();
            }
        }

        /// Has the futures dropped by the runtime, each when it is not polled.
        pub fn stop(&self) {
            let mut state = self.state.lock();
            state.is_stopped = true;
            let tasks = std::mem::take(&mut state.tasks);
            drop(state);
            tasks.iter().for_each(AbortHandle::abort);
        }
    }
}

#[cfg(not(feature = "tokio"))]
mod without {
    use super::{Task, ThreadSetup};

    /// There is none.
    #[derive(Clone, Debug)]
    pub(crate) enum Runtime {}

    pub(crate) struct Tasks(Runtime);

    impl Tasks {
        pub fn new(runtime: Runtime, _: ThreadSetup) -> Self {
            Self(runtime)
        }

        pub fn spawn(&self, _: Task) {
            match self.0 {}
        }

        pub fn stop(&self) {
            match self.0 {}
        }
    }
}
