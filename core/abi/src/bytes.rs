//! Structs as they lie in memory, which the host writes for devices: little-endian, without padding.
#![allow(unsafe_code, reason = "a struct without padding is read as its bytes")]

use crate::context::{ContextParams, PointsParams};
use crate::launch::{ChannelParams, LaunchId, LaunchParams};
use crate::layout::{HomeSlotWords, Layout, Places, RingEntries, Sizes, SlotPlaces};
use crate::raw::{ForeignRawParams, RawLayout, RawParams};
use crate::waits::WaitParams;

const _: () = assert!(cfg!(target_endian = "little"), "numbers lie in memory as devices read them");

/// A type all of whose bytes are values of its fields.
///
/// # Safety
/// It has no padding and nothing but numbers.
pub unsafe trait IntoBytes: Sized {
    /// Returns the bytes.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: so many bytes lie there, each a part of a number by the trait's promise, and they live as long as the borrow.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// Returns the bytes of a field's type.
const fn size_of_field<T, F: IntoBytes>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        // SAFETY: it is a number, or a `repr(transparent)` of one.
        unsafe impl IntoBytes for $number {}
    )*};
}

numbers!(u16 u32 u64 LaunchId);

// SAFETY: an array has no padding, and its values have none.
unsafe impl<T: IntoBytes, const N: usize> IntoBytes for [T; N] {}

macro_rules! structs {
    ($($of:ty { $($field:ident)* })*) => {$(
        const _: () = assert!(size_of::<$of>() == 0 $(+ size_of_field(|of: &$of| &of.$field))*, "it has padding");

        // SAFETY: its fields are of such types, and it is as long as they are.
        unsafe impl IntoBytes for $of {}
    )*};
}

structs! {
    RingEntries { first early other }
    Layout { home_slots extra_slots lanes area_bytes large_areas large_area_bytes ring_entries }
    Places {
        post_bells ring_tails owners replies requests line_stride plane areas area_stride large_areas large_area_stride rings
        ring_group_stride words reserved
    }
    Sizes { layout places }
    SlotPlaces {
        doorbell request reply plane area area_bytes ring ring_entries post_bell ring_tail owner lanes
    }
    HomeSlotWords { kept reserved places region region_words first request_laps reply_laps }
    RawLayout { pages_log2 page_bytes_log2 }
    RawParams { states ring shared data free layout }
    ForeignRawParams { shared data ring dropped stop_at sequence layout launch slot waits reserved }
    ChannelParams { abi_version epoch region homes extra_states extras areas waits sizes reserved }
    LaunchParams {
        channel stop_at sequence launch home_slots last_post workgroups workgroup_memory_bytes workgroup_size reserved wave_records
        list
    }
    ContextParams {
        magic major minor region homes home_slots lanes launch flags channel wake points waits reserved
    }
    WaitParams { table entries zero untold here reserved }
    PointsParams { raw states places reserved here sampled unused switch unused_switch unused_line }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device writes words where the host writes bytes.
    #[test]
    fn words_are_the_bytes() {
        let params = LaunchParams {
            channel: 1 << 60 | 2,
            stop_at: 3,
            sequence: 4,
            launch: LaunchId::from_bits(5),
            home_slots: 6,
            last_post: 7,
            workgroups: [8, 9, 10],
            workgroup_memory_bytes: 11,
            workgroup_size: [12, 13, 14],
            reserved: 15,
            wave_records: 16,
            list: 17,
        };
        let words: Vec<u8> = params.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(params.as_bytes(), words);
    }
}
