//! What is checked in models: `tests/models.rs` compiles the modules that use this with loom's of the same names.

pub(crate) use hostcall_locks::{Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
