//! Keys of thread-local variables. Each thread has a table of its values by their keys, whose address and length it has where
//! the device crate says.

use crate::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{Atomic, AtomicUsize};
use crate::sys::pal::abi;
use crate::{ptr, slice};

pub type Key = usize;
pub type Dtor = unsafe extern "C" fn(*mut u8);

/// The most variables, whose destructors are kept by their keys.
const MOST: usize = 1024;

/// The next key. 0 is none.
static NEXT: Atomic<usize> = AtomicUsize::new(1);

/// The destructors' addresses, or 0.
static DESTRUCTORS: [Atomic<usize>; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// Values that a thread's first table has room for.
const FIRST_LEN: usize = 16;

pub fn create(destructor: Option<Dtor>) -> Key {
    let key = NEXT.fetch_add(1, Relaxed);
    if key >= MOST {
        rtabort!("a program has more than {} thread-local variables", MOST - 1);
    }
    // Who gets the key knows of the destructor by the key's own store, which releases it.
    DESTRUCTORS[key].store(destructor.map_or(0, |destructor| destructor as usize), Relaxed);
    key
}

// SAFETY: none asked for: the key is given up.
pub unsafe fn destroy(_key: Key) {}

/// The thread's table.
fn table() -> &'static mut [*mut u8] {
    // SAFETY: the words are the thread's, and zeros or a table's that `grow` made. Nobody has a reference to it longer than the
    // functions below, which call nothing meanwhile.
    unsafe {
        let [address, len] = *abi::locals();
        match len {
            0 => &mut [],
            _ => slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(address), len),
        }
    }
}

fn layout(len: usize) -> Layout {
    Layout::array::<*mut u8>(len).expect("a table is small")
}

/// Gives the thread a table with room for a key.
#[cold]
fn grow(key: Key) {
    let len = (key + 1).next_power_of_two().max(FIRST_LEN);
    // SAFETY: the layout has bytes. All zeros are null pointers.
    let new = unsafe { System.alloc_zeroed(layout(len)) }.cast::<*mut u8>();
    if new.is_null() {
        handle_alloc_error(layout(len));
    }
    let old = table();
    // SAFETY: the new table is larger and nobody else's; the old one was allocated with this layout.
    unsafe {
        ptr::copy_nonoverlapping(old.as_ptr(), new, old.len());
        if !old.is_empty() {
            System.dealloc(old.as_mut_ptr().cast(), layout(old.len()));
        }
        *abi::locals() = [new.expose_provenance(), len];
    }
}

// SAFETY: none asked for: a key that was never made has room, too.
#[inline]
pub unsafe fn set(key: Key, value: *mut u8) {
    if key >= table().len() {
        if value.is_null() {
            return;
        }
        grow(key);
    }
    table()[key] = value;
}

// SAFETY: none asked for.
#[inline]
pub unsafe fn get(key: Key) -> *mut u8 {
    table().get(key).copied().unwrap_or(ptr::null_mut())
}

/// Rounds of destructors, which may set variables anew.
const ROUNDS: usize = 5;

/// Runs the destructors of the thread's values, and frees its table.
// SAFETY: the thread uses no thread-local value afterwards but anew.
#[inline(never)]
pub unsafe fn end_of_thread() {
    for _ in 0..ROUNDS {
        let mut has_run = false;
        for key in 1..table().len() {
            let (value, destructor) = (table()[key], DESTRUCTORS[key].load(Relaxed));
            if value.is_null() || destructor == 0 {
                continue;
            }
            table()[key] = ptr::null_mut();
            has_run = true;
            // SAFETY: `create` stored what was a destructor, and the value is of its key.
            unsafe {
                crate::mem::transmute::<*const (), Dtor>(ptr::with_exposed_provenance(destructor))(value);
            }
        }
        if !has_run {
            break;
        }
    }
    let old = table();
    if !old.is_empty() {
        // SAFETY: `grow` allocated it with this layout.
        unsafe {
            System.dealloc(old.as_mut_ptr().cast(), layout(old.len()));
            *abi::locals() = [0; 2];
        }
    }
}
