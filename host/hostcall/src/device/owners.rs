//! Who gave a stream its operations: nodes of graphs' replays, which are told how these end.

use super::error::{Error, NodeFailure};
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_locks::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who gave a stream an operation.
pub(crate) trait Owner: Any + Send + Sync {
    /// Notes that the operation failed. Returns the error that tells of it.
    fn fail(&self, cause: NodeFailure) -> Error;
    /// Keeps for good what the operation uses: lanes of it were ended by force.
    fn leak(&self);
}

/// Who gave a stream the launches of a list.
pub(crate) trait ListOwner: Send + Sync {
    /// Returns the kernel's name and the owner of the launch with this place.
    fn owner(&self, place: u32) -> Option<(Arc<str>, Arc<dyn Owner>)>;
    /// Lets go of what it keeps, now that the launches are settled. Returns what keeps values of the user's, if nobody else has
    /// it any more.
    fn release(self: Arc<Self>) -> Option<Box<dyn Any + Send>>;
}

/// What a unit of operations keeps until all of them are settled.
pub(crate) trait UnitHold: Send {
    /// Notes that the unit is over. Returns what keeps values of the user's, if nobody else has it any more.
    fn release(self: Box<Self>) -> Option<Box<dyn Any + Send>>;
}

enum Entry {
    One(Arc<dyn Owner>),
    List(Arc<dyn ListOwner>),
}

/// The launches of a device that have an owner, and have not ended: by the bits of the first's id.
#[derive(Default)]
pub(crate) struct Owners(Mutex<BTreeMap<u32, (LaunchIds, Entry)>>);

impl Owners {
    /// Returns the owner of a launch.
    pub fn get(&self, launch: LaunchId) -> Option<Arc<dyn Owner>> {
        let table = self.0.lock();
        let (_, (launches, entry)) = table.range(..=launch.to_bits()).next_back()?;
        let place = launches.place_of(launch)?;
        match entry {
            Entry::One(owner) => Some(owner.clone()),
            Entry::List(list) => Some(list.owner(place)?.1),
        }
    }

    pub fn enter(&self, launch: LaunchId, owner: Arc<dyn Owner>) {
        self.0.lock().insert(launch.to_bits(), (launch.into(), Entry::One(owner)));
    }

    pub fn enter_list(&self, launches: LaunchIds, owner: Arc<dyn ListOwner>) {
        self.0.lock().insert(launches.first().to_bits(), (launches, Entry::List(owner)));
    }

    pub fn leave(&self, launches: impl Into<LaunchIds>) {
        let left = self.0.lock().remove(&launches.into().first().to_bits());
        drop(left);
    }
}
