//! The atomics, once: `core`'s, or loom's for the model checker.
//!
//! On NVIDIA, `core`'s relaxed loads and stores become `ld.relaxed.sys` and `st.relaxed.sys`: posted writes
//! and reads that the link keeps coherent. Read-modify-writes other than compare-exchange lose their order
//! there: those that are used are assembly.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use hostcall_abi::layout::SlotPlaces;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// A value in the device's own memory that only the slot's holder touches (SLOT-OWNER), so that on a GPU it
/// may stay in the L1 cache, unlike an atomic. On the CPU lanes of one wave may run at the same instant, each on a
/// thread, and it is read and written as a relaxed atomic, which costs nothing there.
#[repr(transparent)]
pub struct Owned<T>(UnsafeCell<T>);

#[cfg(not(loom))]
use core::cell::UnsafeCell;
#[cfg(loom)]
use loom::cell::UnsafeCell;

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

/// Writes a slot's places. On NVIDIA in three stores.
///
/// # Safety
/// SLOT-OWNER, as for [`Owned::set`].
#[inline(always)]
pub(crate) unsafe fn store_places(places: &Owned<SlotPlaces>, value: SlotPlaces) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise; the places are three rows of four numbers.
    unsafe {
        let rows = &*(&raw const *places).cast::<[[Owned<u32>; 4]; 3]>();
        store_four(&rows[0], [value.doorbell, value.request, value.reply, value.plane]);
        store_four(&rows[1], [value.area, value.area_bytes, value.ring, value.ring_entries]);
        store_four(&rows[2], [value.post_bell, value.ring_tail, value.owner, value.lanes]);
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
            shared: {
                let at = words.as_ptr().cast();
                // SAFETY: looks at an address.
                unsafe { llvm_is_shared(at) }.then(|| {
                    let shared;
                    // SAFETY: computes an address.
                    unsafe {
                        core::arch::asm!(
                            "{{ .reg .u64 %at; cvta.to.shared.u64 %at, {at}; cvt.u32.u64 {shared}, %at; }}",
                            at = in(reg64) at, shared = out(reg32) shared,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    shared
                })
            },
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

// Atomics in memory of the device. On NVIDIA they are written out: those of `core` are the whole system's, and a release
// would wait for every store that is on its way to the host; and LLVM drops the order of read-modify-writes other than
// compare-exchange there.

/// Takes a home slot's word and leaves `held`. Acquire for all that is accessed through the slot, and for nothing else.
///
/// On NVIDIA the exchange is relaxed: an acquire empties the multiprocessor's cache, which has nothing of a slot, since shared
/// memory is read by `.sys` accesses that pass it by, and what else goes with a slot either never changes (its places) or is read
/// behind [`fence_on_device`] (a state beside the word, those of raw channels). Accesses through the slot come after the exchange
/// because a branch on its result decides whether there are any, and a GPU issues none before it knows.
#[inline(always)]
pub(crate) fn take_word(word: &AtomicU64, held: u64) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the word is valid, aligned and in global memory, where addresses are the generic ones, and accessed atomically.
    unsafe {
        let old: u64;
        core::arch::asm!("atom.relaxed.gpu.global.exch.b64 {old}, [{at}], {held};",
            at = in(reg64) word, held = in(reg64) held, old = out(reg64) old, options(nostack));
        old
    }
    #[cfg(target_arch = "amdgpu")]
    {
        // Compare-exchange is what AMD's lanes do to memory, here as everywhere.
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) = word.compare_exchange(old, held, Ordering::Acquire, Ordering::Relaxed) {
            old = now;
        }
        old
    }
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    word.swap(held, Ordering::Acquire)
}

/// Gives a home slot's word back. Release for accesses through the slot that are settled: what was stored, the host has seen, and
/// what was looked at is there.
///
/// On NVIDIA that leaves nothing to wait for, and it is an exchange, so that what an earlier holder released reaches a later one
/// that acquires it.
#[inline(always)]
pub(crate) fn put_word(word: &AtomicU64, new: u64) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as in `take_word`.
    unsafe {
        core::arch::asm!("{{ .reg .b64 %hostcall_old; atom.relaxed.gpu.global.exch.b64 %hostcall_old, [{at}], {new}; }}",
            at = in(reg64) word, new = in(reg64) new, options(nostack));
    }
    #[cfg(target_arch = "amdgpu")]
    word.store(new, Ordering::Release);
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    word.swap(new, Ordering::Release);
}

/// A fence among the lanes of the device.
pub(crate) fn fence_on_device(ordering: Ordering) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: orders accesses.
    unsafe {
        let _ = ordering;
        core::arch::asm!("fence.acq_rel.gpu;", options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fence(ordering);
}

/// Compare-exchange in memory of the device. Relaxed.
#[inline(always)]
pub(crate) fn cas_on_device(word: &AtomicU64, old: u64, new: u64) -> Result<u64, u64> {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the word is valid and aligned, and accessed atomically.
    unsafe {
        let now: u64;
        core::arch::asm!("atom.relaxed.gpu.cas.b64 {now}, [{at}], {old}, {new};",
            at = in(reg64) word, old = in(reg64) old, new = in(reg64) new, now = out(reg64) now, options(nostack));
        if now == old { Ok(now) } else { Err(now) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
}

/// Adds in memory of the device, and returns what was there. Relaxed.
#[inline(always)]
pub(crate) fn add_on_device(word: &AtomicU64, value: u64) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `cas_on_device`.
    unsafe {
        let old: u64;
        core::arch::asm!("atom.relaxed.gpu.add.u64 {old}, [{at}], {value};",
            at = in(reg64) word, value = in(reg64) value, old = out(reg64) old, options(nostack));
        old
    }
    #[cfg(not(target_arch = "nvptx64"))]
    word.fetch_add(value, Ordering::Relaxed)
}

/// Between two looks at a word that is about to change.
#[inline(always)]
pub(crate) fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}

macro_rules! cas_in_wave {
    ($(#[doc = $docs:literal] $name:ident $instruction:literal $success:ident $failure:ident;)*) => {$(
        #[doc = $docs]
        #[inline(always)]
        pub(crate) fn $name(word: &AtomicU32, old: u32, new: u32) -> Result<u32, u32> {
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: as for `cas_on_device`.
            unsafe {
                let now: u32;
                core::arch::asm!(concat!($instruction, " {now}, [{at}], {old}, {new};"), at = in(reg64) word,
                    old = in(reg32) old, new = in(reg32) new, now = out(reg32) now, options(nostack));
                if now == old { Ok(now) } else { Err(now) }
            }
            #[cfg(not(target_arch = "nvptx64"))]
            word.compare_exchange(old, new, Ordering::$success, Ordering::$failure)
        }
    )*};
}

// A GPU's lane waits for what it stored where a release is.
cas_in_wave! {
    /// Compare-exchange among the lanes of a wave. Relaxed.
    cas_in_wave "atom.relaxed.cta.cas.b32" Relaxed Relaxed;
    /// Compare-exchange among the lanes of a wave. Acquire.
    acquire_in_wave "atom.acquire.cta.cas.b32" Acquire Acquire;
    /// Compare-exchange among the lanes of a wave. Release; relaxed where it fails.
    release_in_wave "atom.release.cta.cas.b32" Release Relaxed;
}

/// Acquire, among the lanes of a wave.
#[inline(always)]
pub(crate) fn load_in_wave(word: &AtomicU32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `cas_on_device`.
    unsafe {
        let value: u32;
        core::arch::asm!("ld.acquire.cta.b32 {value}, [{at}];",
            at = in(reg64) word, value = out(reg32) value, options(nostack));
        value
    }
    #[cfg(not(target_arch = "nvptx64"))]
    word.load(Ordering::Acquire)
}

/// Release, among the lanes of a wave.
#[inline(always)]
pub(crate) fn store_in_wave(word: &AtomicU32, value: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `cas_on_device`.
    unsafe {
        core::arch::asm!("st.release.cta.b32 [{at}], {value};",
            at = in(reg64) word, value = in(reg32) value, options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    word.store(value, Ordering::Release);
}

/// Sets bits among the lanes of a wave and returns those before. Acquire and release.
#[inline(always)]
pub(crate) fn or_in_wave(word: &AtomicU64, bits: u64) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `cas_on_device`.
    unsafe {
        let old: u64;
        core::arch::asm!("atom.acq_rel.cta.or.b64 {old}, [{at}], {bits};",
            at = in(reg64) word, bits = in(reg64) bits, old = out(reg64) old, options(nostack));
        old
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) = word.compare_exchange(old, old | bits, Ordering::AcqRel, Ordering::Relaxed) {
            old = now;
        }
        old
    }
}

/// Adds among the lanes of a wave. Relaxed.
#[inline(always)]
pub(crate) fn add_in_wave(word: &AtomicU32, value: u32) {
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) = cas_in_wave(word, old, old.wrapping_add(value)) {
        old = now;
    }
}

/// Copies bytes from or to memory that host and device share. The bytes that others write meanwhile are old,
/// new, or some of both: bytes of messages have no laps.
///
/// # Safety
/// `from` is valid for reads of `count` bytes, `to` for writes, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
pub(crate) unsafe fn copy_shared(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: by the caller's promise; `asm!` may access memory that others write, and the direction flag is
    // clear.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") count => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
}

/// Stores the two words of a pair. Each word is stored whole; the pair may be seen half.
#[inline(always)]
pub(crate) fn store_pair(at: &[AtomicU64; 2], pair: [u64; 2]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: `at` is 16-byte aligned (pairs lie at even words of a 64-byte aligned region) and valid for
    // writes of two words; a relaxed vector store is two relaxed stores of a word each.
    unsafe {
        core::arch::asm!("st.relaxed.sys.global.v2.b64 [{at}], {{{a}, {b}}};",
            at = in(reg64) at.as_ptr(), a = in(reg64) pair[0], b = in(reg64) pair[1], options(nostack));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        at[0].store(pair[0], Ordering::Relaxed);
        at[1].store(pair[1], Ordering::Relaxed);
    }
}

/// Loads the words of a pair by an instruction of NVIDIA's, or relaxed.
macro_rules! load_pair_by {
    ($instruction:literal, $at:expr) => {{
        let at: &[AtomicU64; 2] = $at;
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as for `store_pair`, for reads.
        unsafe {
            let (a, b);
            core::arch::asm!(concat!($instruction, " {{{a}, {b}}}, [{at}];"),
                at = in(reg64) at.as_ptr(), a = out(reg64) a, b = out(reg64) b, options(nostack));
            [a, b]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        [at[0].load(Ordering::Relaxed), at[1].load(Ordering::Relaxed)]
    }};
}

/// Loads the two words of a pair, each whole.
#[inline(always)]
pub(crate) fn load_pair(at: &[AtomicU64; 2]) -> [u64; 2] {
    load_pair_by!("ld.relaxed.sys.global.v2.b64", at)
}

/// Does what [`load_pair`] does. What the host wrote before it wrote the pair is visible after this and
/// [`end_acquire`].
#[inline(always)]
pub(crate) fn acquire_pair(at: &[AtomicU64; 2]) -> [u64; 2] {
    load_pair_by!("ld.acquire.sys.global.v2.b64", at)
}

/// Comes once after an [`acquire_pair`] that has loaded what is new. A fence of NVIDIA's takes a thousand cycles; for others a
/// load that acquires is no cheaper, and there are many before the last.
#[inline(always)]
pub(crate) fn end_acquire() {
    #[cfg(not(target_arch = "nvptx64"))]
    fence(Ordering::Acquire);
}

/// The top bits of eight words, each loaded whole and relaxed; bit `i` is word `i`'s.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn signs(line: &[AtomicU64; 8]) -> u8 {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: the line is 64 readable bytes at a multiple of 16 (doorbell lines lie at multiples of eight
    // words of a 64-byte aligned region); SSE2 is part of x86-64, and its aligned 16-byte loads do not tear
    // an aligned word. `asm!` may read memory that others write.
    unsafe {
        let (a, b, c, d): (u32, u32, u32, u32);
        core::arch::asm!(
            "movapd {x}, [{line}]", "movapd {y}, [{line} + 16]",
            "movmskpd {a:e}, {x}", "movmskpd {b:e}, {y}",
            "movapd {x}, [{line} + 32]", "movapd {y}, [{line} + 48]",
            "movmskpd {c:e}, {x}", "movmskpd {d:e}, {y}",
            line = in(reg) line.as_ptr(), x = out(xmm_reg) _, y = out(xmm_reg) _,
            a = out(reg) a, b = out(reg) b, c = out(reg) c, d = out(reg) d,
            options(nostack, preserves_flags, readonly));
        (a | b << 2 | c << 4 | d << 6) as u8
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    line.iter()
        .enumerate()
        .fold(0, |mask, (i, word)| mask | ((word.load(Ordering::Relaxed) >> 63) as u8) << i)
}

/// The lowest bits of the first 16 words, each loaded whole and relaxed; bit `i` is word `i`'s. Words that do not exist
/// have none.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn low_bits(words: &[AtomicU32]) -> u16 {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    if let Some(line) = words.first_chunk::<16>() {
        let bits: u32;
        // SAFETY: the line is 64 readable bytes; SSE2 is part of x86-64, and its loads do not tear words that
        // are aligned to four bytes. `asm!` may read memory that others write.
        unsafe {
            core::arch::asm!(
                "movdqu {a}, [{line}]", "movdqu {b}, [{line} + 16]",
                "movdqu {c}, [{line} + 32]", "movdqu {d}, [{line} + 48]",
                "pslld {a}, 31", "pslld {b}, 31", "pslld {c}, 31", "pslld {d}, 31",
                "packssdw {a}, {b}", "packssdw {c}, {d}", "packsswb {a}, {c}",
                "pmovmskb {bits:e}, {a}",
                line = in(reg) line.as_ptr(), bits = lateout(reg) bits,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack, preserves_flags, readonly));
        }
        return bits as u16;
    }
    let bit = |word: &AtomicU32| (word.load(Ordering::Relaxed) & 1) as u16;
    words.iter().take(16).enumerate().fold(0, |bits, (i, word)| bits | bit(word) << i)
}

/// Eight words of the host's own, aligned as a line of shared ones.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Line(pub [u64; 8]);

/// Whether eight words, each loaded whole and relaxed, are these.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn are_equal(line: &[AtomicU64; 8], other: &Line) -> bool {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: both are 64 readable bytes at a multiple of 16; the rest as for `signs`.
    unsafe {
        let equal: u32;
        core::arch::asm!(
            "movdqa {a}, [{line}]", "pcmpeqd {a}, [{other}]",
            "movdqa {b}, [{line} + 16]", "pcmpeqd {b}, [{other} + 16]", "pand {a}, {b}",
            "movdqa {b}, [{line} + 32]", "pcmpeqd {b}, [{other} + 32]", "pand {a}, {b}",
            "movdqa {b}, [{line} + 48]", "pcmpeqd {b}, [{other} + 48]", "pand {a}, {b}",
            "pmovmskb {equal:e}, {a}",
            line = in(reg) line.as_ptr(), other = in(reg) other.0.as_ptr(), a = out(xmm_reg) _, b = out(xmm_reg) _,
            equal = out(reg) equal, options(nostack, preserves_flags, readonly));
        equal == 0xffff
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    line.iter().zip(&other.0).all(|(word, other)| word.load(Ordering::Relaxed) == *other)
}

/// Asks for a cache line that will be read soon. Any address will do.
#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn prefetch(line: *const AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch accesses nothing.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Asks for a cache line that will be stored to soon, for this processor alone. Any address will do.
#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub(crate) fn prefetch_for_write(line: *const AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch accesses nothing; processors that do not know this one do nothing.
    unsafe {
        core::arch::asm!("prefetchw [{at}]", at = in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
