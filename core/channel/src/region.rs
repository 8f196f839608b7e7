//! The shared memory of a channel, as words.

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
use crate::primitive::copy_shared;
use crate::primitive::{AtomicU64, Ordering, load_pair, store_pair};
#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
use crate::primitive::{prefetch, prefetch_for_write};
#[cfg(not(loom))]
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;
use hostcall_abi::launch::LaunchId;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
use hostcall_abi::layout::LINE_WORDS;
use hostcall_abi::layout::{Layout, Places, Sizes, header};

/// Pairs that a GPU's lane loads before it uses the first of them: a load over the link takes 1 µs, others a third of that
/// if they are on their way meanwhile.
const BLOCK_PAIRS: usize = 8;

/// Bytes from which on the processor's own copy takes less time than words one by one.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const LEAST_COPY: usize = 512;

/// A view of a channel's shared memory as words (invariant REGION).
#[derive(Clone, Copy)]
pub struct Words<'m> {
    #[cfg(not(loom))]
    start: *const AtomicU64,
    #[cfg(not(loom))]
    #[cfg_attr(
        any(target_arch = "nvptx64", target_arch = "amdgpu"),
        expect(dead_code, reason = "the host checks places")
    )]
    count: usize,
    #[cfg(not(loom))]
    lifetime: PhantomData<&'m [AtomicU64]>,
    #[cfg(loom)]
    words: &'m [AtomicU64],
}

// SAFETY: a view is as good as a slice of atomics, which is both.
#[cfg(not(loom))]
unsafe impl Send for Words<'_> {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for Words<'_> {}

impl<'m> Words<'m> {
    /// A view of the `count` words at `address`; of no words, the address may be any.
    ///
    /// # Safety
    /// REGION: the words at `address` (a multiple of 64) are mapped for `'m` and accessed only atomically.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn from_address(address: u64, count: u32) -> Self {
        Self { start: address as usize as *const AtomicU64, count: count as usize, lifetime: PhantomData }
    }

    /// A view of a slice.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub(crate) fn of(words: &'m [AtomicU64]) -> Self {
        #[cfg(not(loom))]
        return Self { start: words.as_ptr(), count: words.len(), lifetime: PhantomData };
        #[cfg(loom)]
        Self { words }
    }

    /// The address of the first word, and how many there are.
    #[cfg(test)]
    pub(crate) fn address(&self) -> (u64, u64) {
        #[cfg(not(loom))]
        return (self.start as usize as u64, self.count as u64);
        #[cfg(loom)]
        (0, self.words.len() as u64)
    }

    /// `N` words from word `at` on.
    #[inline(always)]
    fn words_at<const N: usize>(&self, at: u32) -> &'m [AtomicU64; N] {
        #[cfg(loom)]
        return self.words[at as usize..at as usize + N].try_into().expect("the range has N words");
        #[cfg(not(loom))]
        {
            // A device computes `at` from its own slot, rank and pair, which the layout covers; the check would cost
            // registers in every kernel.
            #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
            assert!(at as usize + N <= self.count, "a place outside of the channel");
            // SAFETY: REGION; the words are there, as checked or computed.
            unsafe { &*self.start.add(at as usize).cast::<[AtomicU64; N]>() }
        }
    }

    /// `count` bytes from word `at` on.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    fn bytes_at(&self, at: u32, count: usize) -> *const u8 {
        assert!(at as usize + count.div_ceil(8) <= self.count, "a place outside of the channel");
        self.start.wrapping_add(at as usize).cast()
    }

    #[inline(always)]
    pub(crate) fn word(&self, at: u32) -> &'m AtomicU64 {
        &self.words_at::<1>(at)[0]
    }

    #[inline(always)]
    pub(crate) fn pair(&self, at: u32) -> &'m [AtomicU64; 2] {
        self.words_at(at)
    }

    /// Asks for the cache line of a word that will be read soon.
    #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: u32) {
        prefetch(self.start.wrapping_add(at as usize));
    }

    /// Asks for the cache line of a word that will be stored to soon.
    #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub(crate) fn prefetch_for_write(&self, at: u32) {
        prefetch_for_write(self.start.wrapping_add(at as usize));
    }

    #[cfg(loom)]
    pub(crate) fn prefetch(&self, _: u32) {}

    #[cfg(loom)]
    pub(crate) fn prefetch_for_write(&self, _: u32) {}

    /// Pair `pair` of those from word `at` on.
    #[inline(always)]
    pub(crate) fn pair_of(&self, at: u32, pair: u32) -> &'m [AtomicU64; 2] {
        #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
        // SAFETY: as for `words_at`. In two steps, of which a loop keeps the first.
        return unsafe { &*self.start.add(at as usize).cast::<[AtomicU64; 2]>().add(pair as usize) };
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        self.pair(at + 2 * pair)
    }

    /// `count` pairs from word `at` on.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub(crate) fn pairs(&self, at: u32, count: usize) -> &'m [[AtomicU64; 2]] {
        #[cfg(loom)]
        return self.words[at as usize..][..2 * count].as_chunks().0;
        #[cfg(not(loom))]
        {
            assert!(at as usize + 2 * count <= self.count, "a place outside of the channel");
            // SAFETY: REGION; the words are there, as checked.
            unsafe { core::slice::from_raw_parts(self.start.add(at as usize).cast(), count) }
        }
    }

    /// `count` words from word `at` on.
    #[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub(crate) fn slice(&self, at: u32, count: usize) -> &'m [AtomicU64] {
        assert!(at as usize + count <= self.count, "a place outside of the channel");
        // SAFETY: REGION; the words are there, as checked.
        unsafe { core::slice::from_raw_parts(self.start.add(at as usize), count) }
    }

    /// Whether the host serves no more.
    #[inline(always)]
    pub fn stopped(&self) -> bool {
        self.word(header::STOP as u32).load(Ordering::Relaxed) != 0
    }

    /// Whether a consumer sleeps, so that the device should hint to it. Looked at only by devices for which
    /// this is no read over a link.
    #[inline(always)]
    pub fn consumers_sleep(&self) -> bool {
        self.word(header::ASLEEP as u32).load(Ordering::Relaxed) != 0
    }

    /// Whether launch `launch` was cancelled.
    #[inline(always)]
    pub fn cancelled(&self, launch: LaunchId) -> bool {
        let index = launch.index();
        self.word(header::CANCEL as u32 + index / 64).load(Ordering::Relaxed) >> (index % 64) & 1 != 0
    }

    /// Copies `bytes` into the region's words from word `at` on.
    #[cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), inline(never))]
    pub(crate) fn write_bytes(&self, at: u32, bytes: &[u8]) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        if bytes.len() >= LEAST_COPY {
            let to = self.bytes_at(at, bytes.len()).cast_mut();
            // SAFETY: REGION; the bytes are there, to be written, and `bytes` are nobody's to write.
            return unsafe { copy_shared(bytes.as_ptr(), to, bytes.len()) };
        }
        let (words, rest) = bytes.as_chunks::<8>();
        // SAFETY: any bytes are words.
        match unsafe { words.as_flattened().align_to::<u64>() } {
            ([], words, []) => self.write_words(at, words, |word| u64::from_le(*word)),
            // Where a GPU would fault at a load of more than a byte.
            _ => self.write_words(at, words, |word| u64::from_le_bytes(*word)),
        }
        if !rest.is_empty() {
            let mut word = 0;
            for (i, byte) in rest.iter().enumerate() {
                word |= u64::from(*byte) << (8 * i);
            }
            self.word(at + words.len() as u32).store(word, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn write_words<T>(&self, mut at: u32, mut words: &[T], value: impl Fn(&T) -> u64) {
        if !at.is_multiple_of(2)
            && let [first, others @ ..] = words
        {
            self.word(at).store(value(first), Ordering::Relaxed);
            (at, words) = (at + 1, others);
        }
        let (pairs, last) = words.as_chunks::<2>();
        for [a, b] in pairs {
            store_pair(self.pair(at), [value(a), value(b)]);
            at += 2;
        }
        if let [last] = last {
            self.word(at).store(value(last), Ordering::Relaxed);
        }
    }

    /// Copies into `bytes` from the region's words from word `at` on.
    pub(crate) fn read_bytes(&self, at: u32, bytes: &mut [u8]) {
        // SAFETY: initialised bytes may be looked at as ones that may not be, and `read_uninit` writes
        // initialised ones.
        self.read_uninit(at, unsafe { &mut *(core::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) });
    }

    /// Copies into `bytes`, all of which are initialised then, from the region's words from word `at` on.
    #[cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), inline(never))]
    fn read_uninit(&self, at: u32, bytes: &mut [MaybeUninit<u8>]) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        if bytes.len() >= LEAST_COPY {
            let from = self.bytes_at(at, bytes.len());
            // SAFETY: REGION; the bytes are there, and `bytes` are nobody else's.
            return unsafe { copy_shared(from, bytes.as_mut_ptr().cast(), bytes.len()) };
        }
        if bytes.is_empty() {
            return;
        }
        let (words, rest) = bytes.as_chunks_mut::<8>();
        let last = self.word(at + (words.len() as u32).saturating_sub(u32::from(rest.is_empty())));
        // First, so that it is on its way with the others.
        let last = last.load(Ordering::Relaxed).to_le();
        // SAFETY: any words are bytes.
        match unsafe { words.as_flattened_mut().align_to_mut::<MaybeUninit<u64>>() } {
            ([], words, []) => self.read_words(at, words, |to, word| *to = MaybeUninit::new(word.to_le())),
            _ => self.read_words(at, words, |to, word| *to = word.to_le_bytes().map(MaybeUninit::new)),
        }
        // By shifts, which stay in registers: an array of bytes would lie in memory.
        for (i, to) in rest.iter_mut().enumerate() {
            *to = MaybeUninit::new((last >> (8 * i)) as u8);
        }
    }

    /// Appends `count` bytes of the region's words from word `at` on to `bytes`.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub(crate) fn append_bytes(&self, at: u32, count: usize, bytes: &mut alloc::vec::Vec<u8>) {
        bytes.reserve(count);
        self.read_uninit(at, &mut bytes.spare_capacity_mut()[..count]);
        // SAFETY: the capacity was reserved, and `read_uninit` has initialised as many bytes.
        unsafe { bytes.set_len(bytes.len() + count) };
    }

    #[inline(always)]
    fn read_words<T>(&self, mut at: u32, mut words: &mut [T], put: impl Fn(&mut T, u64)) {
        if !at.is_multiple_of(2)
            && let [first, others @ ..] = words
        {
            put(first, self.word(at).load(Ordering::Relaxed));
            (at, words) = (at + 1, others);
        }
        let (pairs, last) = words.as_chunks_mut::<2>();
        for block in pairs.chunks_mut(BLOCK_PAIRS) {
            let most = block.len() as u32 - 1;
            // Without a loop, whose array would lie in memory: each load would wait for the one before. A load past the end is
            // one of the last pair.
            macro_rules! read {
                ($($i:literal)*) => {{
                    let loaded = [$(load_pair(self.pair(at + 2 * u32::min($i, most)))),*];
                    $(if let Some([a, b]) = block.get_mut($i) {
                        put(a, loaded[$i][0]);
                        put(b, loaded[$i][1]);
                    })*
                }};
            }
            if cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu")) {
                read!(0 1 2 3 4 5 6 7);
            } else {
                for ([a, b], at) in block.iter_mut().zip((at..).step_by(2)) {
                    let pair = load_pair(self.pair(at));
                    put(a, pair[0]);
                    put(b, pair[1]);
                }
            }
            at += 2 * block.len() as u32;
        }
        if let [last] = last {
            put(last, self.word(at).load(Ordering::Relaxed));
        }
    }
}

/// A view of a channel's shared memory with its sizes, as the host has it.
#[derive(Clone, Copy)]
pub struct Region<'m> {
    words: Words<'m>,
    sizes: &'m Sizes,
}

impl<'m> Deref for Region<'m> {
    type Target = Words<'m>;

    #[inline(always)]
    fn deref(&self) -> &Words<'m> {
        &self.words
    }
}

impl<'m> Region<'m> {
    /// The view without its sizes.
    #[inline(always)]
    pub fn words(&self) -> Words<'m> {
        self.words
    }

    /// The channel's sizes and the places that follow from them.
    #[inline(always)]
    pub fn sizes(&self) -> &'m Sizes {
        self.sizes
    }

    /// The channel's sizes.
    #[inline(always)]
    pub fn layout(&self) -> &'m Layout {
        &self.sizes.layout
    }

    /// Where the slots' places are.
    #[inline(always)]
    pub fn places(&self) -> &'m Places {
        &self.sizes.places
    }

    /// Whose a slot is, as the device wrote last, or is writing: for reports, which may be wrong.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub fn alleged_owner(&self, slot: u32) -> Option<hostcall_abi::word::Owner> {
        hostcall_abi::word::Owner::from_pair(load_pair(self.pair(self.places().owner(slot))))
    }

    /// Overwrites the doorbell of a slot that was used with one that has rung and is none, as a device's errors in memory do.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[doc(hidden)]
    pub fn break_doorbell(&self, slot: u32) {
        let bell = self.word(self.places().doorbell(slot));
        let last = bell.load(Ordering::Relaxed);
        if last != 0 {
            bell.store(
                hostcall_abi::word::with_lap(u64::MAX, !hostcall_abi::word::lap_of(last)),
                Ordering::Relaxed,
            );
        }
    }

    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub(crate) fn first_call_line(&self, line: usize) -> &'m [AtomicU64; LINE_WORDS] {
        self.words_at((header::FIRST_CALLS + line * LINE_WORDS) as u32)
    }

    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub(crate) fn post_bell_line(&self, line: usize) -> &'m [AtomicU64; LINE_WORDS] {
        self.words_at(self.sizes.places.post_bell((line * LINE_WORDS) as u32))
    }

    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub(crate) fn doorbell_line(&self, line: usize) -> &'m [AtomicU64; LINE_WORDS] {
        self.words_at(self.sizes.places.doorbell((line * LINE_WORDS) as u32))
    }
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod shared_memory {
    use super::*;
    #[cfg(not(loom))]
    use {alloc::boxed::Box, core::ptr::NonNull};

    /// A channel's shared memory, owned by the host, with its header written.
    pub struct SharedMemory {
        #[cfg(not(loom))]
        words: NonNull<AtomicU64>,
        #[cfg(loom)]
        words: alloc::vec::Vec<AtomicU64>,
        sizes: Sizes,
        #[cfg(not(loom))]
        owner: Owner,
    }

    /// Alignment of memory from the heap. Not asked of the allocator, which writes zeros to each page if it has to
    /// align more than it does anyway.
    #[cfg(not(loom))]
    const HEAP_ALIGN: usize = 64;

    #[cfg(not(loom))]
    enum Owner {
        /// An allocation that begins here.
        Heap(NonNull<u8>),
        Other(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Send + Sync>),
    }

    // SAFETY: the words are atomics (REGION) and the owner is Send and Sync.
    #[cfg(not(loom))]
    unsafe impl Send for SharedMemory {}
    // SAFETY: as above.
    #[cfg(not(loom))]
    unsafe impl Sync for SharedMemory {}

    impl SharedMemory {
        /// Ordinary memory of this process, for a device that is this process. Pages that nobody touches
        /// cost nothing.
        ///
        /// # Panics
        /// When the layout's sizes are not [good](Layout::check).
        #[cfg(not(loom))]
        pub fn allocate(layout: Layout) -> Self {
            let layout = layout.check().expect("a channel's sizes are checked before");
            let size = Self::heap_layout(&layout);
            // SAFETY: the size is not zero, since every layout has a header.
            let start = unsafe { alloc::alloc::alloc_zeroed(size) };
            let Some(start) = NonNull::new(start) else { alloc::alloc::handle_alloc_error(size) };
            // SAFETY: the memory has `HEAP_ALIGN` bytes more than the words.
            let words = unsafe { start.add(start.align_offset(HEAP_ALIGN)) }.cast();
            Self { words, sizes: layout.into(), owner: Owner::Heap(start) }
        }

        #[cfg(not(loom))]
        fn heap_layout(layout: &Layout) -> core::alloc::Layout {
            core::alloc::Layout::from_size_align(layout.words() * 8 + HEAP_ALIGN, 8)
                .expect("a layout is less than 2^63 bytes")
        }

        /// Memory that `owner` keeps, such as pages pinned for a GPU.
        ///
        /// # Safety
        /// `words` points to `layout.words()` zeroed words, 64-byte aligned, that stay mapped until `owner`
        /// is dropped, and nothing but channels accesses them. `layout` passed [`Layout::check`].
        #[cfg(not(loom))]
        pub unsafe fn from_parts(words: NonNull<u64>, layout: Layout, owner: Box<dyn Send + Sync>) -> Self {
            let owner = Owner::Other(owner);
            Self { words: words.cast(), sizes: layout.into(), owner }
        }

        /// Memory of loom's.
        #[cfg(loom)]
        pub fn allocate(layout: Layout) -> Self {
            let words = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
            Self { words, sizes: layout.into() }
        }

        /// The view of the memory.
        #[inline]
        pub fn region(&self) -> Region<'_> {
            #[cfg(not(loom))]
            // SAFETY: the words were made with `layout.words()` words and live as long as `self`.
            let words =
                unsafe { core::slice::from_raw_parts(self.words.as_ptr(), self.sizes.places.words as usize) };
            #[cfg(loom)]
            let words = &self.words[..];
            Region { words: Words::of(words), sizes: &self.sizes }
        }

        /// The memory's address in this process.
        #[cfg(not(loom))]
        pub fn address(&self) -> u64 {
            self.words.as_ptr() as usize as u64
        }
    }

    #[cfg(not(loom))]
    impl Drop for SharedMemory {
        fn drop(&mut self) {
            if let Owner::Heap(start) = self.owner {
                // SAFETY: `allocate` made it with this layout.
                unsafe { alloc::alloc::dealloc(start.as_ptr(), Self::heap_layout(&self.sizes.layout)) };
            }
        }
    }
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use shared_memory::SharedMemory;

/// What the host writes for the device besides replies.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
impl Region<'_> {
    /// Tells the device that nobody serves the channel any more. For good, unless [`Region::resume`] is called.
    pub fn stop(&self) {
        self.word(header::STOP as u32).store(1, Ordering::Release);
    }

    /// Tells the device that somebody serves the channel again, of which [`Region::stop`] said that nobody does. For channels whose
    /// waves learn of it by nothing but waiting.
    pub fn resume(&self) {
        self.word(header::STOP as u32).store(0, Ordering::Release);
    }

    /// Tells the device that a consumer is about to sleep, or is awake again.
    pub fn count_sleeper(&self, asleep: bool) {
        let change = if asleep { 1 } else { u64::MAX };
        self.word(header::ASLEEP as u32).fetch_add(change, Ordering::SeqCst);
    }

    /// Tells the device that the launch with this index is cancelled, or that a new one has its index.
    pub fn set_cancelled(&self, launch: LaunchId, cancelled: bool) {
        let (index, word) = (launch.index(), self.word(header::CANCEL as u32 + launch.index() / 64));
        let bit = 1 << (index % 64);
        if cancelled {
            word.fetch_or(bit, Ordering::Release);
        } else {
            word.fetch_and(!bit, Ordering::Release);
        }
    }
}
