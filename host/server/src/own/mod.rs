//! hostcall's own protocol: finding calls and posts, and having them handled.
//!
//! A call's hops: `consumer` finds it, `dispatch` looks its service up in the `registry` and runs an inline
//! handler at once, or makes a `job` that a worker thread or the executor does, with a `ticket` to answer it.
//! `bytes` does the same for calls with bytes, and its `run` runs the handler of any call of one lane; `messages` puts such messages together, `reply` has where handlers put such replies.
//! `posts` has the queues of posts to handlers that may wait.
//!
//! What else a call may meet: `turns` has it wait for another one, and `unfinished` keeps it until all of its words have come. `inline` says what handlers consumers
//! run. `launches` knows whose calls are answered, `unserved` counts calls that reached no service; `builder` starts a server, `control` steers and stops it,
//! `registration` registers services while it runs, and `shared` is what all of its threads have.
//!
//! # How a handler runs
//! - *Inline*: on the consumer that found the call. To find, hand over and answer a call of words alone takes
//!   no allocation, no lock and no system call, where nobody records it. Calls of one line of doorbells that
//!   ask the same are handled together and then answered. Such a handler must not wait: it holds its
//!   consumer. Each consumer says by three stores what it runs, and the watchdog looks at that every
//!   100 ms while launches run.
//! - *Blocking* (the default): on a worker thread of the device (`engine::workers`). Built-in services have
//!   pools of their own: one for files and the like, one thread for lanes that read the standard input, one
//!   pool for lanes that write to the outputs by calls.
//! - *Deferred*: by whoever takes the calls out of a queue of his own (`deferred`): an interpreter's thread.
//! - *Async*: as a future on the server's executor, or on a runtime of the user's. It is dropped once its lane
//!   has its answer, whoever gives it.
//! - *Gathered*: as such a future for all calls of a method that wait (`gather`).
//!
//! # The life of a call whose handler may wait
//! 1. *Rung.* The consumer sees a doorbell change (`Scanner::rung`).
//! 2. *Taken.* It copies the packet's lines and checks them.
//! 3. *Detached.* The slot's `busy` bit is set, which keeps the consumer from looking at the slot again. The
//!    consumer makes a `ticket::Ticket`: the right to answer the packet, with what each lane asked. It puts the
//!    ticket under the watchdog's watch, and then looks whether the launch was cancelled meanwhile. (Whoever
//!    cancels marks the launch and then gives up what is watched; so one of the two answers the call.)
//! 4. *Handled.* A worker thread, or the executor, takes a lane's call out of the ticket, copies its bytes,
//!    and runs the handler.
//! 5. *Answered.* Handler, the lane's deadline and a cancellation race for each lane, under the ticket's
//!    lock. The first one writes the lane's reply; bytes are copied under that lock, since a lane has its
//!    memory to itself once it is answered. Consumers and the watchdog never wait for such a copy
//!    (`engine::answers`).
//! 6. *Busy cleared.* When every lane has its answer, `DetachedAnswer` is dropped, and the slot may be looked
//!    at again. The device is told after each answer (`on_answer`); after the last one consumers are woken:
//!    the wave may have rung again before the bit was cleared.
//!
//! A call that waits for its turn (`turns`) stays a job whose deadline counts.
//!
//! # What never happens on these threads
//! A consumer waits for no handler, writer or kernel. Posts to handlers that may wait, and output, go through
//! bounded queues. Nothing of a user's (a handler, its drop, a panic's payload, a writer and its error, a
//! report, a subscriber of `tracing`, a future) runs uncaught on the server's threads or under a lock of
//! theirs. A thread that dies all the same stops the server with an error. A handler that waits for the
//! kernel that waits for it (`synchronize`, a buffer's `read`) gets an error that names both.

mod builder;
mod bytes;
mod consumer;
mod control;
mod counts;
mod deferred;
mod dispatch;
mod gather;
mod inline;
mod job;
mod launch_watch;
mod launches;
mod messages;
mod post_reader;
mod posts;
mod registration;
mod registry;
mod reply;
mod shared;
mod ticket;
mod turns;
mod unfinished;
mod unserved;

pub use builder::{ByHand, ServerBuilder, ServerError};
pub use control::{ReadyPosts, Server, Statistics};
pub use counts::{Durations, MethodStatistics, bucket_end_ns};
pub use deferred::{DeferredCall, DeferredCalls, DeferredPost, DeferredPosts, DeferredService, OpenCalls};
pub use launch_watch::LaunchWatch;
pub use launches::{CancelReason, LaunchRecord, Launches, OpenLaunch, TooManyLaunches};
pub use post_reader::{PostBatch, PostQueueStatistics, PostReader};
pub use registration::Registration;
pub use registry::{Handler, RegisterError, static_name};
pub use shared::Completion;
pub use unserved::Unserved;
