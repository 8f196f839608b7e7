//! Where async handlers run: an executor of the server's own, with a few threads that start with the first future.
//!
//! A future that computes or blocks holds up the others of its thread, as it does in every executor.

use super::caught::{Contained, Panicked, catch};
use super::handling::set_server;
use super::report;
use async_executor::Executor;
use futures_lite::future;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// An executor and its threads.
pub(crate) struct Futures {
    shared: Arc<Shared>,
    threads: usize,
    /// The server's, see [`set_server`].
    token: u64,
    started: Mutex<usize>,
}

#[derive(Default)]
struct Shared {
    executor: Executor<'static>,
    stopping: AtomicBool,
    /// One for each thread that waits.
    stopped: Mutex<Vec<Waker>>,
}

impl Futures {
    /// Makes an executor of at most so many threads, which start when there are futures for them.
    pub fn new(threads: usize, token: u64) -> Self {
        Self { shared: Arc::default(), threads: threads.max(1), token, started: Mutex::new(0) }
    }

    /// Runs a future to its end. When the executor has stopped, or no thread can be started, the future is dropped.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if self.shared.stopping.load(Ordering::Acquire) {
            return;
        }
        self.shared.executor.spawn(CaughtFuture(Some(Box::pin(future)))).detach();
        let mut started = self.started.lock();
        if *started < self.threads {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("hostcall-async".into());
            let token = self.token;
            match thread.spawn(move || shared.run(token)) {
                Ok(_) => *started += 1,
                Err(error) => report::line(format_args!("no thread for async handlers: {error}")),
            }
        }
    }

    /// Stops the threads, each after the future that it polls, and drops the futures. Does not wait for it.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        for waker in std::mem::take(&mut *self.shared.stopped.lock()) {
            waker.wake();
        }
    }
}

impl Shared {
    fn run(&self, token: u64) {
        set_server(token);
        // A future's panic is caught where it is polled; one in a waker of its own may arrive here.
        while catch(|| future::block_on(self.executor.run(self.stop()))).is_err() {}
    }

    /// Waits until the executor is to stop.
    fn stop(&self) -> impl Future<Output = ()> + '_ {
        future::poll_fn(|context| {
            let mut stopped = self.stopped.lock();
            if self.stopping.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            if !stopped.iter().any(|waker| waker.will_wake(context.waker())) {
                stopped.push(context.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// A future whose panics end it and nothing else, when it is polled and when it is dropped.
struct CaughtFuture(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Future for CaughtFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.0 else { return Poll::Ready(()) };
        match catch(|| future.as_mut().poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            _ => {
                drop(Contained::new(self.0.take()));
                Poll::Ready(())
            }
        }
    }
}

impl Drop for CaughtFuture {
    fn drop(&mut self) {
        drop(Contained::new(self.0.take()));
    }
}

/// Polls a future of a user's to its end, each time within `around`, and drops it.
///
/// # Errors
/// [`Panicked`] when it panics. A panic of its `Drop` ends here too.
pub(crate) async fn catch_future<T: 'static>(
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    around: impl Fn(&mut dyn FnMut()),
) -> Result<T, Panicked> {
    let mut future = Contained::new(future);
    future::poll_fn(|context| {
        let mut polled = Err(Panicked);
        around(&mut || polled = catch(|| future.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::super::caught::tests::PanicsInDrop;
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn futures_that_panic_leave_the_threads_alone() {
        std::panic::set_hook(Box::new(|_| ()));
        let futures = Futures::new(1, 0);
        let (ends, ended) = mpsc::channel();
        for _ in 0..10 {
            futures.spawn(async {
                let _held = PanicsInDrop(1);
                future::yield_now().await;
            });
            futures.spawn(async { std::panic::panic_any(PanicsInDrop(2)) });
        }
        let end = ends.clone();
        futures.spawn(async move { end.send(()).unwrap() });
        ended.recv_timeout(LONG).expect("the thread goes on");
        // What has not ended is dropped when the executor is, and may panic then.
        futures.spawn(async move {
            let _held = (PanicsInDrop(1), ends);
            future::pending::<()>().await;
        });
        futures.stop();
        drop(futures);
        assert_eq!(ended.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
        let _ = std::panic::take_hook();
    }
}
