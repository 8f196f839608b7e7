//! Code of a user's that may panic. It runs and is dropped here, so that a panic of it ends no thread of the server.
//!
//! A handler, a callback, a writer or a future can panic when it runs, when it is dropped, and once more when the payload
//! of its panic is dropped. The server's threads touch such values through [`catch`] and [`Contained`] only.

use super::drop_elsewhere;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Code of a user's panicked. The process's panic hook has told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Runs code of a user's.
#[inline(always)]
pub(crate) fn catch<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Ok(value),
        Err(payload) => {
            drop_caught(payload);
            Err(Panicked)
        }
    }
}

/// Drops a value of a user's. A panic of its `Drop` ends here.
#[cold]
pub(crate) fn drop_caught<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // Its `Drop` could panic again, and so on: what is left of such a value is leaked.
        std::mem::forget(payload);
    }
}

/// A value of a user's that is dropped with [`drop_elsewhere`], whoever has it last.
pub(crate) struct Contained<T: Send + 'static>(Option<T>);

impl<T: Send> Contained<T> {
    pub fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send> Deref for Contained<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("the value is there until it is dropped")
    }
}

impl<T: Send> DerefMut for Contained<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the value is there until it is dropped")
    }
}

impl<T: Send> Drop for Contained<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            drop_elsewhere(value);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Panics when it is dropped, with a payload that does the same.
    pub(crate) struct PanicsInDrop(pub u32);

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(PanicsInDrop(self.0 - 1));
            }
        }
    }

    #[test]
    fn payloads_that_panic_in_drop_are_contained() {
        for depth in 0..4 {
            assert_eq!(catch(|| std::panic::panic_any(PanicsInDrop(depth))), Err::<(), _>(Panicked));
            drop(Contained::new(PanicsInDrop(depth)));
            drop_caught(Box::new(PanicsInDrop(depth)));
        }
        assert_eq!(catch(|| 1), Ok(1));
    }
}
