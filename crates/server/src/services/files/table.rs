//! Handles: numbers that a device cannot make up.

use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use parking_lot::Mutex;
use std::fs::File;
use std::sync::Arc;

/// A place in the table. The upper half of its handle is the generation, the lower half its index.
#[derive(Default)]
struct Place {
    /// Changes when the file is closed, so that handles to it are known to be old.
    generation: u32,
    file: Option<Arc<File>>,
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
    /// Most files open at a time.
    pub const MAX_OPEN: usize = 4096;

    /// Adds a file and gives its handle, which is never 0.
    pub fn insert(&self, file: File) -> Result<u64, CallError> {
        let mut table = self.0.lock();
        let index = match table.free.pop() {
            Some(index) => index,
            None if table.places.len() == Self::MAX_OPEN => return Err(Error::TooManyOpen.into()),
            None => {
                table.places.push(Place { generation: 1, file: None });
                table.places.len() as u32 - 1
            }
        };
        let place = &mut table.places[index as usize];
        place.file = Some(Arc::new(file));
        Ok(u64::from(place.generation) << 32 | u64::from(index))
    }

    /// Whether another file may be opened.
    pub fn has_room(&self) -> bool {
        let table = self.0.lock();
        !table.free.is_empty() || table.places.len() < Self::MAX_OPEN
    }

    /// The file of a handle.
    pub fn get(&self, handle: u64) -> Result<Arc<File>, CallError> {
        let (index, generation) = split(handle);
        let table = self.0.lock();
        let place = table.places.get(index).filter(|place| place.generation == generation);
        place.and_then(|place| place.file.clone()).ok_or(Error::Closed.into())
    }

    /// Takes a file out. It closes when the operations on it are done.
    pub fn remove(&self, handle: u64) -> Result<(), CallError> {
        let (index, generation) = split(handle);
        let mut table = self.0.lock();
        let place = table.places.get_mut(index).filter(|place| place.generation == generation);
        let place = place.ok_or(Error::Closed)?;
        let file = place.file.take().ok_or(Error::Closed)?;
        place.generation = place.generation.wrapping_add(1).max(1);
        table.free.push(index as u32);
        // Closing may take a while.
        drop(table);
        drop(file);
        Ok(())
    }

    /// Takes all files out.
    pub fn clear(&self) {
        let mut table = self.0.lock();
        let Places { places, free } = &mut *table;
        free.clear();
        free.extend(0..places.len() as u32);
        for place in places {
            if place.file.take().is_some() {
                place.generation = place.generation.wrapping_add(1).max(1);
            }
        }
    }

    /// Files open now.
    pub fn len(&self) -> usize {
        let table = self.0.lock();
        table.places.len() - table.free.len()
    }
}
