//! Values in the device's own memory that only the slot's holder touches.

#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
use super::Ordering;
#[cfg(not(loom))]
use core::cell::UnsafeCell;
use hostcall_abi::layout::SlotPlaces;
#[cfg(loom)]
use loom::cell::UnsafeCell;

/// A value in the device's own memory that only the slot's holder touches (SLOT-OWNER), so that on a GPU it
/// may stay in the L1 cache, unlike an atomic. On the CPU lanes of one wave may run at the same instant, each on a
/// thread, and it is read and written as a relaxed atomic, which costs nothing there.
#[repr(transparent)]
pub struct Owned<T>(UnsafeCell<T>);

// SAFETY: SLOT-OWNER keeps accesses by several threads apart; the accessors are unsafe and say so.
unsafe impl<T: Send> Sync for Owned<T> {}

/// What an [`Owned`] can hold, and how the target reads and writes it.
pub(crate) trait OwnedWord: Copy {
    /// Reads the value at `at`.
    ///
    /// # Safety
    /// `at` is valid and aligned, and [`Owned::get`]'s conditions hold.
    #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
    unsafe fn read(at: *mut Self) -> Self;

    #[cfg(any(loom, target_arch = "nvptx64", target_arch = "amdgpu"))]
    #[inline(always)]
    unsafe fn read(at: *mut Self) -> Self {
        // SAFETY: the caller's promise: nobody writes now.
        unsafe { *at }
    }

    /// Writes the value at `at`.
    ///
    /// # Safety
    /// `at` is valid and aligned, and [`Owned::set`]'s conditions hold.
    #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
    unsafe fn write(at: *mut Self, value: Self);

    #[cfg(any(loom, target_arch = "nvptx64", target_arch = "amdgpu"))]
    #[inline(always)]
    unsafe fn write(at: *mut Self, value: Self) {
        // SAFETY: the caller's promise: nobody else accesses the value now.
        unsafe { *at = value }
    }
}

macro_rules! owned_word {
    ($($word:ty: $atomic:ident),*) => {$(
        impl OwnedWord for $word {
            #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
            #[inline(always)]
            unsafe fn read(at: *mut Self) -> Self {
                // SAFETY: the caller's promise; all accesses on this target are atomic.
                unsafe { core::sync::atomic::$atomic::from_ptr(at) }.load(Ordering::Relaxed)
            }

            #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
            #[inline(always)]
            unsafe fn write(at: *mut Self, value: Self) {
                // SAFETY: the caller's promise; all accesses on this target are atomic.
                unsafe { core::sync::atomic::$atomic::from_ptr(at) }.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

owned_word!(u32: AtomicU32, u64: AtomicU64);

impl OwnedWord for SlotPlaces {
    #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    unsafe fn read(at: *mut Self) -> Self {
        // SAFETY: the caller's promise; the type is so many `u32`s, all of whose values are good.
        unsafe {
            let words: [u32; PLACES_WORDS] = core::array::from_fn(|i| u32::read(at.cast::<u32>().add(i)));
            core::mem::transmute(words)
        }
    }

    #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    unsafe fn write(at: *mut Self, value: Self) {
        // SAFETY: as above.
        unsafe {
            let words: [u32; PLACES_WORDS] = core::mem::transmute(value);
            for (i, word) in words.into_iter().enumerate() {
                u32::write(at.cast::<u32>().add(i), word);
            }
        }
    }
}

#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
const PLACES_WORDS: usize = size_of::<SlotPlaces>() / 4;

impl<T: OwnedWord> Owned<T> {
    #[cfg(test)]
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Reads the value.
    ///
    /// # Safety
    /// SLOT-OWNER: the caller's wave holds the slot, and if another lane writes the value meanwhile, the caller makes
    /// nothing of it.
    #[inline(always)]
    pub(crate) unsafe fn get(&self) -> T {
        #[cfg(not(loom))]
        // SAFETY: the cell is valid and aligned, and the caller upholds SLOT-OWNER.
        return unsafe { T::read(self.0.get()) };
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        return self.0.with(|word| unsafe { T::read(word.cast_mut()) });
    }

    /// Writes the value.
    ///
    /// # Safety
    /// SLOT-OWNER: the caller's wave holds the slot, and no other lane makes anything of the value meanwhile, nor
    /// writes another.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, value: T) {
        #[cfg(not(loom))]
        // SAFETY: the cell is valid and aligned, and the caller upholds SLOT-OWNER.
        unsafe {
            T::write(self.0.get(), value);
        }
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        self.0.with_mut(|word| unsafe { T::write(word, value) });
    }
}

#[cfg(target_arch = "nvptx64")]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.isspacep.shared"]
    fn llvm_is_shared(pointer: *const u32) -> bool;
}

/// Reads four values that lie side by side, the first 16-byte aligned: on NVIDIA in one load.
///
/// # Safety
/// SLOT-OWNER, as for [`Owned::get`], for each.
#[inline(always)]
pub(crate) unsafe fn load_four(words: &[Owned<u32>; 4]) -> [u32; 4] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the array is valid for reads and aligned, and nobody writes now, by the caller's promise.
    unsafe {
        let (a, b, c, d);
        core::arch::asm!("ld.v4.b32 {{{a}, {b}, {c}, {d}}}, [{at}];",
            at = in(reg64) words.as_ptr(),
            a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
            options(nostack, readonly));
        [a, b, c, d]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        [words[0].get(), words[1].get(), words[2].get(), words[3].get()]
    }
}

/// Writes four values that lie side by side, the first 16-byte aligned: on NVIDIA in one store.
///
/// # Safety
/// SLOT-OWNER, as for [`Owned::set`], for each.
#[inline(always)]
pub(crate) unsafe fn store_four(words: &[Owned<u32>; 4], [a, b, c, d]: [u32; 4]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the array is valid for writes and aligned, and nobody else accesses it now, by the caller's promise.
    unsafe {
        core::arch::asm!("st.v4.b32 [{at}], {{{a}, {b}, {c}, {d}}};", at = in(reg64) words.as_ptr(),
            a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d, options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    for (word, value) in words.iter().zip([a, b, c, d]) {
        // SAFETY: the caller's promise.
        unsafe { word.set(value) };
    }
}

/// Reads two values that lie side by side, the first 16-byte aligned: on NVIDIA in one load.
///
/// # Safety
/// SLOT-OWNER, as for [`Owned::get`], for each.
#[inline(always)]
pub(crate) unsafe fn load_two(words: &[Owned<u64>; 2]) -> [u64; 2] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the array is valid for reads and aligned, and nobody writes now, by the caller's promise.
    unsafe {
        let (a, b);
        core::arch::asm!("ld.v2.b64 {{{a}, {b}}}, [{at}];", at = in(reg64) words.as_ptr(), a = out(reg64) a,
            b = out(reg64) b, options(nostack, readonly));
        [a, b]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        [words[0].get(), words[1].get()]
    }
}

/// An address in shared memory, of one there by addresses of any memory: an access by it takes a GPU less long and two
/// instructions fewer.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn shared_address<T>(here: &T) -> u32 {
    let shared;
    // SAFETY: computes an address.
    unsafe {
        core::arch::asm!("{{ .reg .u64 %at; cvta.to.shared.u64 %at, {at}; cvt.u32.u64 {shared}, %at; }}",
            at = in(reg64) core::ptr::from_ref(here), shared = out(reg32) shared,
            options(pure, nomem, nostack, preserves_flags));
    }
    shared
}

/// Does what [`load_four`] does, of a wave's record: on NVIDIA that is in shared memory.
///
/// # Safety
/// As for [`load_four`]; the values are a wave's record's.
#[inline(always)]
pub(crate) unsafe fn load_four_in_wave(words: &[Owned<u32>; 4]) -> [u32; 4] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        load_four_shared(shared_address(words))
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        load_four(words)
    }
}

/// Does what [`load_four_in_wave`] does, at an address in shared memory.
///
/// # Safety
/// As for [`load_four_in_wave`].
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) unsafe fn load_four_shared(at: u32) -> [u32; 4] {
    let (a, b, c, d);
    // SAFETY: the array is valid for reads and aligned, and nobody writes now, by the caller's promise.
    unsafe {
        core::arch::asm!("ld.shared.v4.b32 {{{a}, {b}, {c}, {d}}}, [{at}];", at = in(reg32) at,
            a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
            options(nostack, readonly));
    }
    [a, b, c, d]
}

/// Does what [`load_two`] does, of a wave's record: on NVIDIA that is in shared memory.
///
/// # Safety
/// As for [`load_two`]; the values are a wave's record's.
#[inline(always)]
pub(crate) unsafe fn load_two_in_wave(words: &[Owned<u64>; 2]) -> [u64; 2] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the array is valid for reads and aligned, and nobody writes now, by the caller's promise.
    unsafe {
        let (a, b);
        core::arch::asm!("ld.shared.v2.b64 {{{a}, {b}}}, [{at}];", at = in(reg32) shared_address(words), a = out(reg64) a,
            b = out(reg64) b, options(nostack, readonly));
        [a, b]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        load_two(words)
    }
}

/// Does what [`store_four`] does, to a wave's record: on NVIDIA that is in shared memory.
///
/// # Safety
/// As for [`store_four`]; the values are a wave's record's.
#[inline(always)]
pub(crate) unsafe fn store_four_in_wave(words: &[Owned<u32>; 4], [a, b, c, d]: [u32; 4]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the array is valid for writes and aligned, and nobody else accesses it now, by the caller's promise.
    unsafe {
        core::arch::asm!("st.shared.v4.b32 [{at}], {{{a}, {b}, {c}, {d}}};", at = in(reg32) shared_address(words),
            a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d, options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        store_four(words, [a, b, c, d]);
    }
}

/// Reads a slot's places. On NVIDIA in three loads; by [`Owned::get`] they would go through local memory, from which a lane
/// has those alone that it looks at.
///
/// # Safety
/// SLOT-OWNER, as for [`Owned::get`].
#[inline(always)]
pub(crate) unsafe fn load_places(places: &Owned<SlotPlaces>) -> SlotPlaces {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise; the places are three rows of four numbers.
    unsafe {
        let rows = &*(&raw const *places).cast::<[[Owned<u32>; 4]; 3]>();
        let [doorbell, request, reply, plane] = load_four(&rows[0]);
        let [area, area_bytes, ring, ring_entries] = load_four(&rows[1]);
        let [post_bell, ring_tail, owner, lanes] = load_four(&rows[2]);
        SlotPlaces {
            doorbell,
            request,
            reply,
            plane,
            area,
            area_bytes,
            ring,
            ring_entries,
            post_bell,
            ring_tail,
            owner,
            lanes,
        }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        places.get()
    }
}

/// Writes a slot's places into a wave's record. On NVIDIA in three stores.
///
/// # Safety
/// SLOT-OWNER, as for [`Owned::set`]; the places are a wave's record's.
#[inline(always)]
pub(crate) unsafe fn store_places_in_wave(places: &Owned<SlotPlaces>, value: SlotPlaces) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise; the places are three rows of four numbers.
    unsafe {
        let rows = &*(&raw const *places).cast::<[[Owned<u32>; 4]; 3]>();
        store_four_in_wave(&rows[0], [value.doorbell, value.request, value.reply, value.plane]);
        store_four_in_wave(&rows[1], [value.area, value.area_bytes, value.ring, value.ring_entries]);
        store_four_in_wave(&rows[2], [value.post_bell, value.ring_tail, value.owner, value.lanes]);
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        places.set(value);
    }
}

/// Four values that lie side by side, read together. On NVIDIA that is one load, which the compiler would take apart
/// again, and where they are known to lie in shared memory (or turn out to) accesses say so: one to what may be any memory
/// takes longer and two instructions more.
#[derive(Clone, Copy)]
pub(crate) struct OwnedFour<'m> {
    words: &'m [Owned<u32>; 4],
    /// The address in shared memory.
    #[cfg(target_arch = "nvptx64")]
    shared: Option<u32>,
}

impl<'m> OwnedFour<'m> {
    /// A view of the values. The first is 16-byte aligned.
    #[inline(always)]
    pub fn new(words: &'m [Owned<u32>; 4]) -> Self {
        Self {
            words,
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: looks at an address.
            shared: unsafe { llvm_is_shared(words.as_ptr().cast()) }.then(|| shared_address(words)),
        }
    }

    /// Reads the values.
    ///
    /// # Safety
    /// SLOT-OWNER, as for [`Owned::get`], for each.
    #[inline(always)]
    pub unsafe fn get(self) -> [u32; 4] {
        #[cfg(target_arch = "nvptx64")]
        if let Some(at) = self.shared {
            let (a, b, c, d);
            // SAFETY: the array is valid for reads and aligned, and nobody writes now, by the caller's promise.
            unsafe {
                core::arch::asm!("ld.shared.v4.b32 {{{a}, {b}, {c}, {d}}}, [{at}];",
                    at = in(reg32) at, a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                    options(nostack, readonly));
            }
            return [a, b, c, d];
        }
        // SAFETY: the caller's promise.
        unsafe { load_four(self.words) }
    }

    /// Writes value `I`.
    ///
    /// # Safety
    /// SLOT-OWNER, as for [`Owned::set`].
    #[inline(always)]
    pub unsafe fn set<const I: usize>(self, value: u32) {
        #[cfg(target_arch = "nvptx64")]
        if let Some(at) = self.shared {
            // SAFETY: the array is valid for writes, and nobody else accesses the value now, by the caller's promise.
            unsafe {
                core::arch::asm!("st.shared.b32 [{at}+{offset}], {value};", at = in(reg32) at,
                    offset = const 4 * I, value = in(reg32) value, options(nostack));
            }
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.words[I].set(value) }
    }
}
