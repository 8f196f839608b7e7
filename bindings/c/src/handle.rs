//! What crosses the border: handles, texts, memory and the caller's functions.

use crate::error::Failure;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// The function that frees a state which the caller gave with a function. It gets the state, on any thread, once. It may be
/// NULL.
pub type hostcall_free_function = Option<unsafe extern "C" fn(state: *mut c_void)>;

/// Where a function puts a handle.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<*mut T>>;

/// Returns what a handle or a pointer is of.
pub(crate) fn get<T>(pointer: Option<T>, what: &str) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::invalid(format!("`{what}` is NULL")))
}

/// Checks places for handles, which are NULL from now on.
pub(crate) mod place {
    use super::{Failure, Out, get, null_mut};

    /// A place that is needed.
    pub fn make<'a, T>(out: Out<'a, T>, what: &str) -> Result<Option<&'a mut *mut T>, Failure> {
        Ok(Some(get(out, what)?.write(null_mut())))
    }

    /// A place that may be NULL.
    pub fn begin<'a, T>(out: Out<'a, T>, _what: &str) -> Result<Option<&'a mut *mut T>, Failure> {
        Ok(out.map(|out| out.write(null_mut())))
    }
}

/// Gives the caller a handle, if there is a place for it.
pub(crate) fn put<T>(place: Option<&mut *mut T>, value: T) {
    if let Some(place) = place {
        *place = Box::into_raw(Box::new(value));
    }
}

/// Takes what a handle is of, which is NULL from now on.
pub(crate) fn take<T>(handle: Option<&mut *mut T>) -> Option<Box<T>> {
    let handle = std::mem::replace(handle?, null_mut());
    // SAFETY: CALLER: `put` made the handle, and nobody has freed it or uses it.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Returns a text's bytes.
///
/// # Safety
/// CALLER: it is NULL or ends with a zero byte, and lives while the function runs.
pub(crate) unsafe fn system_text<'a>(text: *const c_char, what: &str) -> Result<&'a OsStr, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("`{what}` is NULL")));
    }
    // SAFETY: CALLER, and it is not NULL.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// Returns a text.
///
/// # Safety
/// As for [`system_text`].
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let text = unsafe { system_text(text, what) }?;
    text.to_str().ok_or_else(|| Failure::invalid(format!("`{what}` is no UTF-8")))
}

/// Returns `len` values.
///
/// # Safety
/// CALLER: so many lie there while the function runs, and nobody writes them.
pub(crate) unsafe fn values<'a, T>(first: *const T, len: usize, what: &str) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::invalid(format!("`{what}` is NULL, not aligned, or longer than any memory")));
    }
    // SAFETY: CALLER, and it is a place of `T`s that memory can have.
    Ok(unsafe { std::slice::from_raw_parts(first, len) })
}

/// A state of the caller's, for functions that get it. It is freed with the caller's function when this is dropped.
pub(crate) struct State {
    pointer: *mut c_void,
    free: hostcall_free_function,
}

// SAFETY: CALLER: the caller's functions may be called with it on any thread, and at once where the header says so.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    pub fn new(pointer: *mut c_void, free: hostcall_free_function) -> Self {
        Self { pointer, free }
    }

    pub fn pointer(&self) -> *mut c_void {
        self.pointer
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: CALLER: the function takes this state, and it is the last that does.
            unsafe { free(self.pointer) }
        }
    }
}

/// Returns what a function answers, or this when there is a fault in it.
pub(crate) fn answer<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        otherwise
    })
}

/// Returns a duration's nanoseconds, as many as 64 bits have.
pub(crate) fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Checks that a number fits where it goes, an unsigned integer.
pub(crate) fn fits<T: TryFrom<u64>>(value: u64, what: &str) -> Result<T, Failure> {
    let failure = |_| {
        let most = u64::MAX >> (64 - 8 * size_of::<T>());
        Failure::invalid(format!("{value} is too large for {what}: pass at most {most}"))
    };
    T::try_from(value).map_err(failure)
}
