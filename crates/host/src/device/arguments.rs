//! Kernel arguments: what the host passes for each parameter type, checked at compile time.
#![allow(unsafe_code)] // raw arguments are copied as bytes

use super::buffer::{DeviceBuffer, PinnedBuffer};
use hostcall_abi::launch::RawSlice;
use hostcall_device::kernel::{KernelArg, Plain, Ref, Slice};
use hostcall_device::{Global, Word};
use std::any::Any;
use std::sync::Arc;

/// A host value that can be passed for the kernel parameter `P`.
pub trait IntoArg<P: KernelArg> {
    /// What lies in the argument block.
    fn raw(&self) -> P::Raw;
    /// What must live until the launch has ended.
    fn keep_alive(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

fn keep<T: Plain>(buffer: &DeviceBuffer<T>) -> Option<Arc<dyn Any + Send + Sync>> {
    Some(Arc::new(buffer.memory.clone()))
}

impl<T: Plain> IntoArg<Slice<T>> for &DeviceBuffer<T> {
    fn raw(&self) -> RawSlice {
        RawSlice { address: self.address(), len: self.len() as u64 }
    }
    fn keep_alive(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        keep(self)
    }
}

impl<T: Plain + Word> IntoArg<Slice<Global<T>>> for &DeviceBuffer<T> {
    fn raw(&self) -> RawSlice {
        RawSlice { address: self.address(), len: self.len() as u64 }
    }
    fn keep_alive(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        keep(self)
    }
}

impl<T: Plain + Word> IntoArg<Slice<Global<T>>> for &PinnedBuffer<T> {
    fn raw(&self) -> RawSlice {
        RawSlice { address: self.address(), len: self.len() as u64 }
    }
    fn keep_alive(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(self.memory.clone()))
    }
}

/// The first value of a buffer that has at least one.
impl<T: Plain> IntoArg<Ref<T>> for &DeviceBuffer<T> {
    fn raw(&self) -> u64 {
        assert!(!self.is_empty(), "a reference parameter needs a buffer of at least one value");
        self.address()
    }
    fn keep_alive(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        keep(self)
    }
}

macro_rules! scalars {
    ($($t:ty),*) => {$(
        impl IntoArg<$t> for $t {
            fn raw(&self) -> $t {
                *self
            }
        }
    )*};
}

scalars!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64);

/// An argument block and what it refers to.
#[derive(Default)]
pub struct Packed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) keep_alive: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Packed {
    fn push<P: KernelArg>(&mut self, argument: &impl IntoArg<P>) {
        let raw = argument.raw();
        self.bytes.resize(self.bytes.len().next_multiple_of(align_of::<P::Raw>()), 0);
        // SAFETY: a `KernelArg::Raw` is a number or a `repr(C)` struct of numbers without padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const raw).cast::<u8>(), size_of::<P::Raw>()) };
        self.bytes.extend_from_slice(bytes);
        self.keep_alive.extend(argument.keep_alive());
    }
}

/// A tuple of host values for the tuple `P` of a kernel's parameters.
pub trait Arguments<P> {
    /// The argument block, as the `repr(C)` struct that the kernel takes.
    #[doc(hidden)]
    fn pack(&self) -> Packed;
}

macro_rules! tuples {
    ($($p:ident $a:ident $i:tt),*) => {
        impl<$($p: KernelArg, $a: IntoArg<$p>),*> Arguments<($($p,)*)> for ($($a,)*) {
            #[allow(unused_mut)] // the empty tuple pushes nothing
            fn pack(&self) -> Packed {
                let mut packed = Packed::default();
                $(packed.push::<$p>(&self.$i);)*
                packed.bytes.resize(packed.bytes.len().next_multiple_of(8), 0);
                packed
            }
        }
    };
}

tuples!();
tuples!(P0 A0 0);
tuples!(P0 A0 0, P1 A1 1);
tuples!(P0 A0 0, P1 A1 1, P2 A2 2);
tuples!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3);
tuples!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4);
tuples!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5);
tuples!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6);
tuples!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7);
