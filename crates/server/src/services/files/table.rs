//! Handles: numbers that a device cannot make up.

use super::bound::Permit;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use parking_lot::Mutex;
use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;

/// An open file. It closes when the operations on it are done and it is in no table.
pub(super) struct OpenFile {
    pub file: File,
    /// The turn of writes; `None` for what is no file with a place for each byte, such as a pipe: to write to that may wait for
    /// others that write.
    pub turn: Option<u64>,
    /// The launch that opened it.
    pub owner: LaunchId,
    pub _permit: Permit,
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// A place in the table. The upper half of its handle is the generation, the lower half its index.
#[derive(Default)]
struct Place {
    /// Changes when the file is closed, so that handles to it are known to be old.
    generation: u32,
    file: Option<Arc<OpenFile>>,
}

impl Place {
    /// Takes the file out and makes handles to it void.
    fn take(&mut self) -> Option<Arc<OpenFile>> {
        let file = self.file.take()?;
        self.generation = self.generation.wrapping_add(1).max(1);
        Some(file)
    }
}

#[derive(Default)]
struct Places {
    places: Vec<Place>,
    free: Vec<u32>,
}

/// The open files.
#[derive(Default)]
pub(super) struct Table(Mutex<Places>);

fn split(handle: u64) -> (usize, u32) {
    (handle as u32 as usize, (handle >> 32) as u32)
}

impl Table {
    /// Adds a file and gives its handle, which is never 0.
    pub fn insert(&self, file: OpenFile) -> u64 {
        let mut table = self.0.lock();
        let index = table.free.pop().unwrap_or_else(|| {
            table.places.push(Place { generation: 1, file: None });
            table.places.len() as u32 - 1
        });
        let place = &mut table.places[index as usize];
        place.file = Some(Arc::new(file));
        u64::from(place.generation) << 32 | u64::from(index)
    }

    /// The file of a handle.
    pub fn get(&self, handle: u64) -> Result<Arc<OpenFile>, CallError> {
        let (index, generation) = split(handle);
        let table = self.0.lock();
        let place = table.places.get(index).filter(|place| place.generation == generation);
        place.and_then(|place| place.file.clone()).ok_or(Error::Closed.into())
    }

    /// Takes a file out.
    pub fn remove(&self, handle: u64) -> Result<(), CallError> {
        let (index, generation) = split(handle);
        let mut table = self.0.lock();
        let place = table.places.get_mut(index).filter(|place| place.generation == generation);
        let file = place.and_then(Place::take).ok_or(Error::Closed)?;
        table.free.push(index as u32);
        // Closing may take a while.
        drop(table);
        drop(file);
        Ok(())
    }

    /// Takes out the files of the owners that `is_one` accepts.
    pub fn remove_of(&self, is_one: impl Fn(LaunchId) -> bool) {
        let mut table = self.0.lock();
        let Places { places, free } = &mut *table;
        let mut removed = Vec::new();
        for (index, place) in (0..).zip(places) {
            if place.file.as_ref().is_some_and(|file| is_one(file.owner)) {
                removed.extend(place.take());
                free.push(index);
            }
        }
        drop(table);
        drop(removed);
    }

    /// Files open now.
    pub fn len(&self) -> usize {
        let table = self.0.lock();
        table.places.len() - table.free.len()
    }
}
