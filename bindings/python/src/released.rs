//! Values whose drop may wait for a kernel, or for a thread that waits for the GIL.

use crate::interpreter;
use pyo3::prelude::*;
use std::ops::Deref;

/// A value that is dropped without the GIL, by whoever has it.
pub struct DropsFree<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DropsFree<T> {
    pub fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Returns the value, for a caller that has no GIL.
    pub fn into_inner(mut self) -> T {
        self.0.take().expect("the value is there until it is dropped")
    }
}

impl<T: Send + 'static> Deref for DropsFree<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the value is there until it is dropped")
    }
}

impl<T: Send + 'static> Drop for DropsFree<T> {
    fn drop(&mut self) {
        // What is waited for may wait for a function that this thread would call next.
        if interpreter::is_here()
            && let Some(value) = self.0.take()
        {
            let thread = std::thread::Builder::new().name("hostcall-drop".into());
            // Where there is no thread, it is dropped here.
            let _ = thread.spawn(move || drop(value));
            return;
        }
        // Where no interpreter runs any more there is no GIL, and the value is dropped behind this.
        Python::try_attach(|py| py.detach(|| drop(self.0.take())));
    }
}
