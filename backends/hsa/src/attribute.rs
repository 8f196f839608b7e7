//! Properties that a runtime tells, each with the type that the headers give it.

use crate::sys;
use std::marker::PhantomData;

/// What a property may be: numbers and texts, of which every bit pattern is a value.
pub(crate) trait Answer: Copy {
    /// What is there before the runtime writes it.
    const EMPTY: Self;
}

impl Answer for u8 {
    const EMPTY: Self = 0;
}

impl Answer for u32 {
    const EMPTY: Self = 0;
}

impl Answer for u64 {
    const EMPTY: Self = 0;
}

impl Answer for [u8; 64] {
    const EMPTY: Self = [0; 64];
}

/// A text of at most 64 bytes.
pub(crate) type Text = [u8; 64];

/// A property of an `Of` (invariant ATTRIBUTE).
pub(crate) struct Attribute<Of, T> {
    number: u32,
    kind: PhantomData<fn(Of) -> T>,
}

impl<Of, T> Attribute<Of, T> {
    /// The headers' number for it.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Agents.
pub(crate) enum Agent {}
/// Memory pools.
pub(crate) enum Pool {}
/// Symbols of executables.
pub(crate) enum Symbol {}

macro_rules! attributes {
    ($($name:ident: $of:ident, $type:ty = $number:expr;)*) => {$(
        pub(crate) const $name: Attribute<$of, $type> = Attribute { number: $number, kind: PhantomData };
    )*};
}

attributes! {
    DEVICE: Agent, u32 = sys::HSA_AGENT_INFO_DEVICE;
    NAME: Agent, Text = sys::HSA_AGENT_INFO_NAME;
    WAVEFRONT_SIZE: Agent, u32 = sys::HSA_AGENT_INFO_WAVEFRONT_SIZE;
    WORKGROUP_MAX_SIZE: Agent, u32 = sys::HSA_AGENT_INFO_WORKGROUP_MAX_SIZE;
    QUEUE_MAX_SIZE: Agent, u32 = sys::HSA_AGENT_INFO_QUEUE_MAX_SIZE;
    BDFID: Agent, u32 = sys::HSA_AMD_AGENT_INFO_BDFID;
    DOMAIN: Agent, u32 = sys::HSA_AMD_AGENT_INFO_DOMAIN;
    PRODUCT_NAME: Agent, Text = sys::HSA_AMD_AGENT_INFO_PRODUCT_NAME;
    COMPUTE_UNIT_COUNT: Agent, u32 = sys::HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT;
    MAX_WAVES_PER_CU: Agent, u32 = sys::HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU;
    // Younger than the oldest headers.
    TIMESTAMP_FREQUENCY: Agent, u64 = 0xa016;

    POOL_SEGMENT: Pool, u32 = sys::HSA_AMD_MEMORY_POOL_INFO_SEGMENT;
    POOL_GLOBAL_FLAGS: Pool, u32 = sys::HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS;
    POOL_SIZE: Pool, u64 = sys::HSA_AMD_MEMORY_POOL_INFO_SIZE;
    // A C `bool`.
    POOL_ALLOC_ALLOWED: Pool, u8 = sys::HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED;

    SYMBOL_TYPE: Symbol, u32 = sys::HSA_EXECUTABLE_SYMBOL_INFO_TYPE;
    VARIABLE_ADDRESS: Symbol, u64 = sys::HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS;
    VARIABLE_SIZE: Symbol, u32 = sys::HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE;
    KERNEL_OBJECT: Symbol, u64 = sys::HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT;
    KERNEL_GROUP_SEGMENT_SIZE: Symbol, u32 = sys::HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE;
    KERNEL_PRIVATE_SEGMENT_SIZE: Symbol, u32 = sys::HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE;
}
