//! Futures in kernels: a lane that runs one.

use crate::lane::Lane;
use core::future::{Future, IntoFuture};
use core::pin::pin;
use core::task::{Context, Poll, Waker};

/// Rounds without progress after which the lane sleeps between rounds.
const ROUNDS_AWAKE: u32 = 32;

/// The longest sleep between two rounds, in ns: so much later a lane may learn of what it waits for.
const LONGEST_SLEEP_NS: u64 = 200_000;

impl Lane {
    /// Runs a future to its end. Each lane runs one of its own, and its calls go on side by side.
    ///
    /// [`Pending`](crate::call::Pending), which `start_…` gives, is a future. Combinators and executors of other crates work with
    /// it, such as those of `futures-util` and `embassy-futures`. The future is polled again and again until it is ready, also if
    /// nothing has woken it: it may wait for what another lane writes. A future that is always ready at once costs no wait.
    ///
    /// Where the launch is cancelled, the lane ends, as in [`Lane::pause`].
    ///
    /// ```
    /// use hostcall_device::{Global, Lane, kernel, service};
    ///
    /// #[service]
    /// trait Prices {
    ///     fn of(item: u64) -> u64;
    ///     fn count(item: u64) -> u64;
    /// }
    ///
    /// /// Asks for two numbers at once.
    /// #[kernel]
    /// fn total(lane: &Lane, out: &[Global<u64>]) {
    ///     let item = lane.global_id() as u64;
    ///     let total = lane.block_on(async {
    ///         let (price, count) = (Prices::start_of(lane, item), Prices::start_count(lane, item));
    ///         Ok::<_, hostcall_device::CallError>(price.await? * count.await?)
    ///     });
    ///     out[lane.global_id()].set(total.unwrap_or(0));
    /// }
    /// ```
    pub fn block_on<F: IntoFuture>(&self, future: F) -> F::Output {
        let mut future = pin!(future.into_future());
        let mut context = Context::from_waker(Waker::noop());
        let (mut rounds, began_ns) = (0, self.clock_ns());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            if rounds < ROUNDS_AWAKE {
                rounds += 1;
                self.pause();
            } else {
                // A lane that has waited for long learns of the end a part of that time later.
                let waited_ns = self.clock_ns().saturating_sub(began_ns);
                crate::target::sleep((waited_ns / 8).min(LONGEST_SLEEP_NS));
            }
        }
    }
}
