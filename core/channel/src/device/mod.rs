//! The device's side: slots as waves claim, use and release them.
//!
//! | module | what |
//! |---|---|
//! | `wave` | a wave's record: claiming a slot, the end of its lanes, releasing the slot |
//! | `home` | home slots while no wave has them, and who has them |
//! | `kept` | what a home slot's next holder takes over, in one word |
//! | `state` | what a device remembers of a slot |
//! | `slot` | calls and posts through a slot |
//! | `stream` | when launches of a stream shall not begin, and whether they posted |
//! | `lent` | long replies in memory of the host |
//! | `mapped` | files of the host in place |
//! | `looks` | looks over the link at whether a launch is over, which waves share |
//! | `bitmap` | what lanes take one each: extra slots, large byte areas |

mod bitmap;
mod home;
mod kept;
#[cfg(not(loom))]
mod lent;
mod looks;
#[cfg(not(loom))]
mod mapped;
mod slot;
mod state;
#[cfg(not(loom))]
mod stream;
mod wave;

pub use crate::aside::wait as wait_for_copies;
pub use bitmap::Pool;
pub use home::{HomeSlot, Homes};
#[cfg(not(loom))]
pub use lent::take_lent;
pub(crate) use looks::LOOK_PERIOD_NS;
pub use looks::{Looks, Over};
#[cfg(not(loom))]
pub use mapped::{load_mapped, read_mapped, write_mapped};
pub use slot::{Glance, Laps, Slot, Turn};
pub use state::SlotState;
#[cfg(not(any(loom, target_arch = "nvptx64")))]
pub use stream::is_stopped;
#[cfg(target_arch = "nvptx64")]
pub use stream::{Begun, begin_launch, note_skipped};
#[cfg(not(loom))]
pub use stream::{note_posts, stop_from};
pub use wave::{Channel, WaveRecord};
