//! Bitmaps in memory of the device, by which lanes take what there are several of.

use crate::primitive::{AtomicU64, Ordering};

/// Things of which each is one lane's at a time (extra slots, large areas): a bitmap in the device's own memory, set bits
/// are taken.
#[derive(Clone, Copy)]
pub struct Pool<'m> {
    bitmap: &'m [AtomicU64],
    count: u32,
}

impl<'m> Pool<'m> {
    /// A pool of `count` things. `bitmap` has a bit for each.
    #[inline(always)]
    pub fn new(bitmap: &'m [AtomicU64], count: u32) -> Self {
        Self { bitmap, count }
    }

    /// The pool whose bitmap lies at `address`.
    ///
    /// # Safety
    /// `count` bits, rounded up to words, lie there for `'m`, and only pools access them.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn from_address(address: u64, count: u32) -> Self {
        let words = count.div_ceil(64) as usize;
        // SAFETY: the caller promises so; `AtomicU64` has `u64`'s layout.
        let bitmap = unsafe { core::slice::from_raw_parts(address as usize as *const AtomicU64, words) };
        Self { bitmap, count }
    }

    /// Takes a free thing's index, or `None` when all are taken.
    ///
    /// `hint` spreads waves over the bitmap; any number does.
    pub fn claim(&self, hint: u32) -> Option<u32> {
        let words = self.bitmap.len();
        for i in 0..words {
            let at = (hint as usize + i) % words;
            let word = &self.bitmap[at];
            let mut taken = word.load(Ordering::Relaxed);
            loop {
                let bit = taken.trailing_ones();
                let index = at as u32 * 64 + bit;
                if bit == 64 || index >= self.count {
                    break;
                }
                // Acquire pairs with `release`: the thing is as its last holder left it.
                match word.compare_exchange(taken, taken | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(index),
                    Err(now) => taken = now,
                }
            }
        }
        None
    }

    /// Gives a claimed thing back.
    pub fn release(&self, index: u32) {
        let Some(word) = self.bitmap.get((index / 64) as usize) else { return };
        let mut taken = word.load(Ordering::Relaxed);
        // A compare-exchange because LLVM drops the order of NVPTX's other read-modify-writes.
        while let Err(now) =
            word.compare_exchange(taken, taken & !(1 << (index % 64)), Ordering::Release, Ordering::Relaxed)
        {
            taken = now;
        }
    }

    /// Whether somebody has the thing. A hint.
    pub fn is_taken(&self, index: u32) -> bool {
        let word = self.bitmap.get((index / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (index % 64) & 1 != 0)
    }
}
