//! Lookups in a store that is far away: a lane has many of them on their way.

use futures_util::stream::{self, StreamExt};
use hostcall_device::{CallError, Global, Lane, kernel, service};

// ANCHOR: kernel
/// A store whose answers take their time.
#[service]
pub trait Store {
    /// What the store has for a key, if it has it.
    fn get(key: u64) -> Option<u64>;
}

/// Looks up keys, of which each lane has `open` on their way at a time. Writes what the store has for each, or 0.
#[kernel]
pub fn probe(lane: &Lane, keys: &[u64], open: usize, found: &[Global<u64>]) {
    let mine = lane.strided(keys.len());
    let lookup = async |i: usize| -> Result<(), CallError> {
        let value = Store::start_get(lane, keys[i]).await?;
        found[i].set(value.unwrap_or(0));
        Ok(())
    };
    lane.block_on(async {
        let mut lookups = stream::iter(mine).map(lookup).buffer_unordered(open);
        while let Some(result) = lookups.next().await {
            result.expect("the store answers");
        }
    });
}
// ANCHOR_END: kernel
