//! Functions that threads of a pool run for futures.

use super::super::caught::{Panicked, catch};
use super::{Pool, Work};
use hostcall_locks::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A function that a thread runs for a future.
struct Once<F, T>(Mutex<State<F, T>>);

struct State<F, T> {
    run: Option<F>,
    result: Option<Result<T, Panicked>>,
    waker: Option<Waker>,
    /// The future is gone.
    unwanted: bool,
}

impl<F: FnOnce() -> T + Send, T: Send> Work for Once<F, T> {
    fn run_next(self: Arc<Self>) {
        let Some(run) = self.0.lock().run.take() else { return };
        let result = catch(run);
        let mut state = self.0.lock();
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_wanted(&self) -> bool {
        !self.0.lock().unwanted
    }
}

/// The result of a function that runs on a thread of a pool.
pub(crate) struct Later<F, T>(Arc<Once<F, T>>);

impl<F, T> Future for Later<F, T> {
    type Output = Result<T, Panicked>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.lock();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<F, T> Drop for Later<F, T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.unwanted = true;
        let unused = (state.run.take(), state.result.take());
        drop(state);
        drop(unused);
    }
}

impl Pool {
    /// Runs a function on a thread of the pool.
    pub fn run<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(&self, run: F) -> Later<F, T> {
        let running = State { run: Some(run), result: None, waker: None, unwanted: false };
        let once = Arc::new(Once(Mutex::new(running)));
        self.submit(once.clone(), 1);
        Later(once)
    }
}
