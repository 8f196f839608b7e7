//! Functions of the embedding program that clients may call.

use crate::engine::functions::Functions;
use std::sync::Arc;

/// A function that clients call: it gets a copy of the caller's bytes, and its result goes back.
pub(super) type HostFunction = Arc<dyn Fn(&mut [u8]) -> u64 + Send + Sync>;

/// The registered functions.
pub(super) type HostFunctions = Functions<HostFunction>;
