//! hostcall's own protocol: finding calls and posts, and having them handled.
//!
//! A call's hops: `consumer` finds it, `dispatch` looks its service up in the `registry` and runs an inline handler at
//! once, or makes a `job` that a worker thread or the executor answers. `bytes` does the same for calls with bytes;
//! `messages` puts such messages together, `reply` has where handlers put such replies. `posts` has the queues of posts to
//! handlers that may wait.
//!
//! What else a call may meet: `at_once` answers it without a worker thread, `turns` has it wait for another one, and
//! `unfinished` keeps it until all of its words have come. `inline` says what handlers consumers run. `launches` knows whose
//! calls are answered; `builder` starts a server, `control` steers and stops it, `registration` registers services while it
//! runs, and `shared` is what all of its threads have.

mod at_once;
mod builder;
mod bytes;
mod consumer;
mod control;
mod dispatch;
mod inline;
mod job;
mod launches;
mod messages;
mod posts;
mod registration;
mod registry;
mod reply;
mod shared;
mod turns;
mod unfinished;

pub use builder::{ByHand, ServerBuilder, ServerError};
pub use control::{ReadyPosts, Server, Statistics};
pub use launches::{CancelReason, LaunchRecord, LaunchReport, Launches, TooManyLaunches};
pub use registration::Registration;
pub use registry::{Handler, RegisterError};
pub use shared::Completion;
