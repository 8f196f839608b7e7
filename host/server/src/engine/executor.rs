//! Where async handlers run: an executor of the server's own, with a few threads that start with the first futures; or a runtime
//! of the user's.
//!
//! A future that computes or blocks holds up the others of its thread, as it does in every executor.

use super::caught::{Contained, Panicked, catch, drop_caught};
use super::handling::ThreadSetup;
use super::report;
use super::runtime::{Runtime, Tasks};
use super::workers::RETRY_AFTER;
use async_executor::Executor;
use futures_lite::future;
use hostcall_locks::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long futures wait for the first thread while the system starts none.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// An executor and its threads.
pub(crate) struct Futures {
    shared: Arc<StopSignal>,
    threads: usize,
    setup: ThreadSetup,
    starting: Mutex<Starting>,
    /// The futures of a runtime that runs them in place of the threads.
    of_runtime: Option<Tasks>,
    /// Called when [`Futures::grow`] should be: there are futures, and fewer threads than there may be.
    on_hungry: Box<dyn Fn() + Send + Sync>,
}

pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Starting {
    /// `None` once it was stopped. Its threads have it too, and the last of them that leaves drops the
    /// futures: these may keep whoever has the [`Futures`].
    executor: Option<Arc<Executor<'static>>>,
    /// Threads that were started.
    threads: usize,
    /// Another one is wanted.
    is_wanted: bool,
    /// Futures that wait for the first thread. None of them has begun.
    waiting: Vec<Task>,
    /// Since when the system has started no thread, and when it refused one last.
    refused: Option<(Instant, Instant)>,
}

#[derive(Default)]
struct StopSignal {
    stopping: AtomicBool,
    /// One for each thread that waits.
    stopped: Mutex<Vec<Waker>>,
}

impl Futures {
    /// Makes an executor of at most so many threads, which start when there are futures for them.
    /// `on_hungry` is called when [`Futures::grow`] should be. With a `runtime` no thread starts.
    pub fn new(
        threads: usize,
        setup: ThreadSetup,
        runtime: Option<Runtime>,
        on_hungry: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let on_hungry = Box::new(on_hungry);
        let starting = Mutex::new(Starting {
            executor: Some(Arc::default()),
            threads: 0,
            is_wanted: false,
            waiting: Vec::new(),
            refused: None,
        });
        let of_runtime = runtime.map(|runtime| Tasks::new(runtime, setup.clone()));
        Self { shared: Arc::default(), threads: threads.max(1), setup, starting, of_runtime, on_hungry }
    }

    /// Runs a future to its end. When the executor has stopped, or the system starts no thread for [`LONGEST_WAIT`], the future
    /// is dropped before it has begun. Starts no thread itself, so that it does not take the time of that.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let future: Task = Box::pin(future);
        if let Some(tasks) = &self.of_runtime {
            return tasks.spawn(Box::pin(CaughtFuture(Some(future))));
        }
        let mut starting = self.starting.lock();
        let Some(executor) = &starting.executor else {
            drop(starting);
            return drop_caught(future);
        };
        let threads = starting.threads;
        if threads == 0 {
            starting.waiting.push(future);
        } else {
            executor.spawn(CaughtFuture(Some(future))).detach();
        }
        let is_refused = starting.refused.is_some_and(|(_, last)| last.elapsed() < RETRY_AFTER);
        let hungry = threads < self.threads && !is_refused;
        starting.is_wanted |= hungry;
        drop(starting);
        if hungry {
            (self.on_hungry)();
        }
    }

    /// Starts a thread if one is wanted. Returns when to look again, if futures still wait for one.
    pub fn grow(&self, now: Instant) -> Option<Instant> {
        let executor = {
            let mut starting = self.starting.lock();
            std::mem::take(&mut starting.is_wanted).then(|| starting.executor.clone()).flatten()?
        };
        let (shared, setup) = (self.shared.clone(), self.setup.clone());
        let thread = std::thread::Builder::new().name("hostcall-async".into());
        let started = thread.spawn(move || shared.run(executor, &setup));
        let mut guard = self.starting.lock();
        let starting = &mut *guard;
        let error = match started {
            Ok(_) => {
                starting.threads += 1;
                starting.refused = None;
                // Once it was stopped none waits.
                if let Some(executor) = &starting.executor {
                    for future in starting.waiting.drain(..) {
                        executor.spawn(CaughtFuture(Some(future))).detach();
                    }
                }
                return None;
            }
            Err(error) => error,
        };
        let first = starting.refused.map_or(now, |(first, _)| first);
        if starting.refused.replace((first, now)).is_none() {
            let threads = starting.threads;
            report::line(format_args!(
                "the system starts no thread for async handlers ({error}): {threads} go on"
            ));
        }
        if starting.threads > 0 {
            return None;
        }
        if now - first < LONGEST_WAIT {
            starting.is_wanted = true;
            return Some(now + RETRY_AFTER);
        }
        starting.refused = None;
        let waiting = std::mem::take(&mut starting.waiting);
        drop(guard);
        waiting.into_iter().for_each(drop_caught);
        None
    }

    /// Returns how many futures wait for a thread.
    pub fn waiting(&self) -> usize {
        self.starting.lock().waiting.len()
    }

    /// Stops the threads, each after the future that it polls, and drops the futures. Does not wait for it.
    pub fn stop(&self) {
        if let Some(tasks) = &self.of_runtime {
            tasks.stop();
        }
        let (executor, waiting) = {
            let mut starting = self.starting.lock();
            (starting.executor.take(), std::mem::take(&mut starting.waiting))
        };
        // While the threads have theirs, so that futures that began are dropped by one of these.
        drop(executor);
        self.shared.stopping.store(true, Ordering::Release);
        waiting.into_iter().for_each(drop_caught);
        for waker in std::mem::take(&mut *self.shared.stopped.lock()) {
            waker.wake();
        }
    }
}

impl StopSignal {
    fn run(&self, executor: Arc<Executor<'static>>, setup: &ThreadSetup) {
        setup.enter();
        // A future's panic is caught where it is polled; one in a waker of its own may arrive here.
        while catch(|| future::block_on(executor.run(self.stop()))).is_err() {}
        drop_caught(executor);
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
struct CaughtFuture(Option<Task>);

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

/// What a future that has not begun will do. Where it is dropped before, since the system starts no thread for futures,
/// `refuse` gets it.
pub(crate) struct BeginsLater<T> {
    work: Option<T>,
    refuse: fn(T),
}

impl<T> BeginsLater<T> {
    pub fn new(work: T, refuse: fn(T)) -> Self {
        Self { work: Some(work), refuse }
    }

    /// Takes what is to be done: the future has begun.
    pub fn begin(mut self) -> T {
        self.work.take().expect("a future begins once")
    }
}

impl<T> Drop for BeginsLater<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            (self.refuse)(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::caught::tests::PanicsInDrop;
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn futures_that_panic_leave_the_threads_alone() {
        std::panic::set_hook(Box::new(|_| ()));
        let futures = Arc::new(Futures::new(1, ThreadSetup::default(), None, || ()));
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
        assert_eq!((futures.waiting(), futures.grow(Instant::now()), futures.waiting()), (21, None, 0));
        ended.recv_timeout(LONG).expect("the thread goes on");
        // What has not ended is dropped when the executor stops, and may panic then. It may keep the
        // executor.
        let kept = futures.clone();
        futures.spawn(async move {
            let _held = (PanicsInDrop(1), ends, kept);
            future::pending::<()>().await;
        });
        futures.stop();
        drop(futures);
        assert_eq!(ended.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
        let _ = std::panic::take_hook();
    }
}
