//! The device's side: slots as waves claim, use and release them.
//!
//! | module | what |
//! |---|---|
//! | `wave` | a wave's record: claiming a slot, the end of its lanes, releasing the slot |
//! | `slot` | calls and posts through a slot |
//! | `stream` | when launches of a stream shall not begin, and whether they posted |
//! | `lent` | long replies in memory of the host |
//! | `mapped` | files of the host in place |
//! | `bitmap` | what lanes take one each: extra slots, large byte areas |

mod bitmap;
#[cfg(not(loom))]
mod lent;
#[cfg(not(loom))]
mod mapped;
mod slot;
#[cfg(not(loom))]
mod stream;
mod wave;

pub use bitmap::Pool;
#[cfg(not(loom))]
pub use lent::{see_put, take_lent};
#[cfg(not(loom))]
pub use mapped::{load_mapped, read_mapped, write_mapped};
pub use slot::{Glance, Laps, Slot, SlotState, Turn};
#[cfg(not(any(loom, target_arch = "nvptx64")))]
pub use stream::is_stopped;
#[cfg(target_arch = "nvptx64")]
pub use stream::{begin_launch, note_skipped};
#[cfg(not(loom))]
pub use stream::{note_posts, stop_from};
pub use wave::{Channel, Claims, WaveRecord};
