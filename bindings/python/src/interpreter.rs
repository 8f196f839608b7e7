//! The thread that calls functions of Python: it takes the GIL once for all that waits.

use crate::handling::{self, Handling, Work};
use crate::queue::{Item, Queue};
use crate::service::{Mode, Served};
use hostcall_abi::launch::LaunchId;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::Arc;
use std::thread;

/// Most posts of a service that are handled before calls have their turn.
const POSTS_IN_A_TURN: usize = 4096;

/// Calls of one function that takes many at once.
struct Batch {
    served: Arc<Served>,
    method: usize,
    all: Vec<Work>,
}

thread_local! {
    static CALLS_FUNCTIONS: Cell<bool> = const { Cell::new(false) };
}

/// Says whether the calling thread is one of these. It must not wait for kernels, which may wait for the functions that it calls.
pub fn is_here() -> bool {
    CALLS_FUNCTIONS.get()
}

pub fn start(queue: Arc<Queue>, handling: Arc<Handling>) -> std::io::Result<thread::JoinHandle<()>> {
    /// Whoever waits for the thread learns of its end, however it ends.
    struct Ends(Arc<Queue>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let ends = Ends(queue.clone());
    thread::Builder::new().name("hostcall-python".into()).spawn(move || {
        let ends = ends;
        CALLS_FUNCTIONS.set(true);
        handling::enter(handling.place_of.clone());
        // The thread keeps its state of Python's for as long as it runs.
        let attached = Python::try_attach(|py| {
            while let Some(items) = py.detach(|| ends.0.take()) {
                // What a panic leaves is dropped, which ends it; of calls of functions it is told with their launches.
                let turn = || handle(py, &ends.0, &handling, items);
                handling.guarded(&[LaunchId::NONE], "functions", turn);
            }
            py.detach(|| drop(ends));
        });
        debug_assert!(attached.is_some(), "a device is opened by an interpreter that runs");
    })
}

fn handle(py: Python<'_>, queue: &Queue, handling: &Arc<Handling>, items: Vec<Item>) {
    let (mut batches, mut coroutines) = (Vec::<Batch>::new(), Vec::new());
    let mut give = |served: &Arc<Served>, method: usize, work: Work| {
        let function = &served.functions[method];
        let caller = work.caller().launch;
        match function.mode {
            Mode::Single => {
                handling.guarded(&[caller], function.name, || handling.single(py, function, work))
            }
            Mode::Async => handling.guarded(&[caller], function.name, || {
                coroutines.extend(handling.start(py, served, method, work));
            }),
            Mode::Batch => {
                let is_same =
                    |batch: &&mut Batch| Arc::ptr_eq(&batch.served, served) && batch.method == method;
                match batches.iter_mut().find(is_same) {
                    Some(batch) => batch.all.push(work),
                    None => batches.push(Batch { served: served.clone(), method, all: vec![work] }),
                }
            }
        }
    };
    for item in items {
        match item {
            Item::Calls(served, calls) => {
                let method = calls.method();
                calls.into_calls().for_each(|call| give(&served, method, Work::Call(call)));
            }
            Item::Posts(served, mut posts) => {
                let mut left = POSTS_IN_A_TURN;
                loop {
                    if queue.is_full_of_posts(&served) {
                        queue.park_posts(served, posts);
                        break;
                    }
                    if left == 0 {
                        queue.push_posts(served, posts);
                        break;
                    }
                    let Some(post) = posts.next() else { break };
                    left -= 1;
                    give(&served, post.method(), Work::Post(post));
                }
            }
        }
    }
    for Batch { served, method, all } in batches {
        let function = &served.functions[method];
        let mut callers: Vec<_> = all.iter().map(|work| work.caller().launch).collect();
        callers.dedup();
        handling.guarded(&callers, function.name, || handling.batch(py, function, all));
    }
    if !coroutines.is_empty()
        && let Err(error) = handling.submit.bind(py).call1((coroutines,))
    {
        error.write_unraisable(py, None);
    }
}
