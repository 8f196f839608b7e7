//! Stands for `hostcall_device::__private`: a transport that calls the handler on the spot.
#![allow(dead_code, unused_imports, reason = "no test uses all of it")]

// What computes nothing but constants and types is the real thing. The test itself has the crate's name.
extern crate hostcall_device as device;
pub use device::__private::*;
use std::cell::RefCell;
use std::marker::PhantomData;

#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    pub timeout_us: u32,
}

impl CallOptions {
    pub const DEFAULT: Self = Self { timeout_us: 0 };
}

/// Stands for a lane.
pub struct Lane;

pub struct Pending<'launch, R>(Result<R, CallError>, PhantomData<&'launch Lane>);

impl<R> Pending<'_, R> {
    pub fn wait(self) -> Result<R, CallError> {
        self.0
    }
}

pub const fn within_us(timeout_us: u32) -> CallOptions {
    CallOptions { timeout_us }
}

pub fn slice_len(len: usize) -> Result<u32, CallError> {
    u32::try_from(len).map_err(|_| CallError::TooLarge)
}

pub fn call<A: Wire, R: Wire>(method: &Method, options: CallOptions, arguments: &A) -> Result<R, CallError> {
    call_with_bytes(method, options, arguments, &[], &mut []).map(|(result, _)| result)
}

pub fn call_with_bytes<A: Wire, R: Wire>(
    method: &Method,
    options: CallOptions,
    arguments: &A,
    input: &[&[u8]],
    output: &mut [u8],
) -> Result<(R, usize), CallError> {
    let mut words = vec![0; A::WORDS];
    arguments.to_words(&mut words);
    let (words, bytes) = transport(method, options.timeout_us, &words, &input.concat(), output.len())?;
    output[..bytes.len()].copy_from_slice(&bytes);
    Ok((R::from_words(&words).ok_or(CallError::Malformed)?, bytes.len()))
}

pub fn start<'launch, A: Wire, R: Wire>(
    _lane: &'launch Lane,
    method: &Method,
    options: CallOptions,
    arguments: &A,
) -> Pending<'launch, R> {
    Pending(call(method, options, arguments), PhantomData)
}

pub fn post<A: Wire>(method: &Method, arguments: &A) -> Result<(), CallError> {
    call(method, CallOptions::DEFAULT, arguments)
}

pub mod builtin {
    pub use super::{call, call_with_bytes, post, start};
    pub mod rare {
        pub use super::{call, call_with_bytes, post, start};
    }
}

thread_local! {
    pub static SERVICE: RefCell<Option<Arc<dyn Service>>> = const { RefCell::new(None) };
    pub static TIMEOUT_US: RefCell<u32> = const { RefCell::new(0) };
}

#[derive(Default)]
pub struct Buffer {
    pub words: Vec<u64>,
    pub bytes: Vec<u8>,
    pub capacity: usize,
}

impl Reply for Buffer {
    fn words(&mut self, words: &[u64]) {
        self.words = words.to_vec();
    }
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        if self.bytes.len() + bytes.len() > self.capacity {
            return Err(CallError::TooLarge);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

fn transport(
    method: &Method,
    timeout_us: u32,
    words: &[u64],
    bytes: &[u8],
    reply_capacity: usize,
) -> Result<(Vec<u64>, Vec<u8>), CallError> {
    TIMEOUT_US.set(timeout_us);
    let service = SERVICE.with_borrow(|service| service.clone()).ok_or(CallError::NoSuchService)?;
    let index = service.methods().iter().position(|m| m == method).ok_or(CallError::NoSuchService)?;
    let mut reply = Buffer { capacity: reply_capacity, ..Buffer::default() };
    service.call(index, Request { words, bytes, reply_capacity, caller: Caller::default() }, &mut reply)?;
    Ok((reply.words, reply.bytes))
}
