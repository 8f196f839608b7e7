//! Where a lane's memory operation goes: device memory, the workgroup's local memory or the lane's scratch memory.

use super::fault::Fault;
use super::wave::{APERTURE, Env, PRIVATE_BASE, SHARED_BASE, Wave};

/// A place in one of the memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address of device memory.
    Global(u64),
    /// An offset in local memory.
    Local(u64),
    /// An offset in the lane's scratch memory.
    Scratch(u64),
}

impl Place {
    /// Returns where a flat address points.
    #[inline]
    pub fn of_flat(address: u64) -> Place {
        match address {
            SHARED_BASE.. if address < SHARED_BASE + APERTURE => Place::Local(address - SHARED_BASE),
            PRIVATE_BASE.. if address < PRIVATE_BASE + APERTURE => Place::Scratch(address - PRIVATE_BASE),
            _ => Place::Global(address),
        }
    }

    /// Returns whether two registers can be accessed at once here. Device memory that is aligned to one register is
    /// accessed register by register, so that no register is torn.
    #[inline]
    pub fn allows_pair(self) -> bool {
        !matches!(self, Place::Global(address) if address % 8 == 4)
    }

    /// Returns the place so many bytes on.
    #[inline]
    pub fn plus(self, bytes: u64) -> Place {
        match self {
            Place::Global(address) => Place::Global(address.wrapping_add(bytes)),
            Place::Local(offset) => Place::Local(offset + bytes),
            Place::Scratch(offset) => Place::Scratch(offset + bytes),
        }
    }
}

/// Returns a part of local memory.
///
/// # Errors
///
/// The workgroup has less local memory.
#[inline]
pub fn local(lds: &mut [u8], offset: u64, bytes: usize) -> Result<&mut [u8], Fault> {
    let fault = Fault::Aperture { space: "local", offset, bytes: lds.len() as u64 };
    let first = usize::try_from(offset).map_err(|_| fault.clone())?;
    lds.get_mut(first..first.saturating_add(bytes)).ok_or(fault)
}

/// Returns a part of a lane's scratch memory.
///
/// # Errors
///
/// The lane has less scratch memory.
#[inline]
pub fn scratch(wave: &mut Wave, lane: usize, offset: u64, bytes: usize) -> Result<&mut [u8], Fault> {
    if offset.checked_add(bytes as u64).is_none_or(|end| end > wave.scratch_bytes as u64) {
        return Err(Fault::Aperture { space: "scratch", offset, bytes: wave.scratch_bytes as u64 });
    }
    let first = lane * wave.scratch_bytes + offset as usize;
    Ok(&mut wave.scratch[first..first + bytes])
}

macro_rules! accesses {
    ($($load:ident, $store:ident, $type:ty;)*) => {$(
        /// Loads a number.
        ///
        /// # Errors
        ///
        /// The place is outside of its memory.
        #[inline]
        pub fn $load(wave: &mut Wave, env: &mut Env<'_>, lane: usize, place: Place) -> Result<$type, Fault> {
            const BYTES: usize = size_of::<$type>();
            let bytes = match place {
                Place::Global(address) => return env.memory.$load(address),
                Place::Local(offset) => local(env.lds, offset, BYTES)?,
                Place::Scratch(offset) => scratch(wave, lane, offset, BYTES)?,
            };
            let mut number = [0; BYTES];
            number.copy_from_slice(bytes);
            Ok(<$type>::from_le_bytes(number))
        }

        /// Stores a number.
        ///
        /// # Errors
        ///
        /// The place is outside of its memory.
        #[inline]
        pub fn $store(
            wave: &mut Wave,
            env: &mut Env<'_>,
            lane: usize,
            place: Place,
            value: $type,
        ) -> Result<(), Fault> {
            const BYTES: usize = size_of::<$type>();
            let bytes = match place {
                Place::Global(address) => return env.memory.$store(address, value),
                Place::Local(offset) => local(env.lds, offset, BYTES)?,
                Place::Scratch(offset) => scratch(wave, lane, offset, BYTES)?,
            };
            bytes.copy_from_slice(&value.to_le_bytes());
            Ok(())
        }
    )*};
}

accesses! {
    load_u8, store_u8, u8;
    load_u16, store_u16, u16;
    load_u32, store_u32, u32;
    load_u64, store_u64, u64;
}

/// Checks the place of an atomic in local or scratch memory. Device memory checks its own.
fn check_alignment(place: Place, alignment: u64) -> Result<(), Fault> {
    let (space, address) = match place {
        Place::Global(address) => ("device", address),
        Place::Local(offset) => ("local", offset),
        Place::Scratch(offset) => ("scratch", offset),
    };
    match address.is_multiple_of(alignment) {
        true => Ok(()),
        false => Err(Fault::Misaligned { space, address, alignment }),
    }
}

/// Changes 32 bits atomically and returns the old ones.
///
/// # Errors
///
/// The place is outside of its memory or no multiple of 4.
pub fn update_u32(
    wave: &mut Wave,
    env: &mut Env<'_>,
    lane: usize,
    place: Place,
    f: impl Fn(u32) -> u32,
) -> Result<u32, Fault> {
    if let Place::Global(address) = place {
        return env.memory.update_u32(address, f);
    }
    check_alignment(place, 4)?;
    // One thread runs all waves of a workgroup, so nothing comes between.
    let old = load_u32(wave, env, lane, place)?;
    store_u32(wave, env, lane, place, f(old))?;
    Ok(old)
}

/// Changes 64 bits atomically and returns the old ones.
///
/// # Errors
///
/// The place is outside of its memory or no multiple of 8.
pub fn update_u64(
    wave: &mut Wave,
    env: &mut Env<'_>,
    lane: usize,
    place: Place,
    f: impl Fn(u64) -> u64,
) -> Result<u64, Fault> {
    if let Place::Global(address) = place {
        return env.memory.update_u64(address, f);
    }
    check_alignment(place, 8)?;
    let old = load_u64(wave, env, lane, place)?;
    store_u64(wave, env, lane, place, f(old))?;
    Ok(old)
}
