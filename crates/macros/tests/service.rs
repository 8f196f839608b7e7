//! A service from a kernel's function to the handler and back, without a channel between them.

#![allow(missing_docs, reason = "a service needs public types, and these are nobody's interface")]

extern crate self as hostcall_device;

use double::{Buffer, SERVICE, TIMEOUT_US};
use hostcall_abi::CallError;
use hostcall_abi::service::{
    AsyncService, Caller, Output, OwnedReply, OwnedRequest, Reply, Request, Service,
};
use hostcall_macros::{Wire, service};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

#[path = "double/mod.rs"]
pub mod __private;
use __private as double;

#[derive(Clone, Copy, Debug, PartialEq, Wire)]
pub enum Event {
    Started,
    Moved { from: u32, to: (u8, i64) },
    Failed(NotFound, f32),
}

#[derive(Clone, Copy, Debug, PartialEq, Wire)]
pub struct NotFound;

/// A shop's inventory.
#[service(number = 300)]
pub trait Inventory {
    /// What the shop has of `key`.
    fn lookup(key: u64) -> Result<u64, NotFound>;
    fn note(event: Event);
    fn name_of(key: u64, out: &mut [u8]) -> u32;
    fn insert(request: u64, name: &str, reply: &[u8]) -> bool;
    fn timeout() -> u32;
}

#[service]
trait Unnumbered {
    fn nothing();
}

struct Shop;

impl InventoryHandler for Shop {
    fn lookup(&self, key: u64) -> Result<Result<u64, NotFound>, CallError> {
        match key {
            0 => Err(CallError::Failed(-7)),
            1..10 => Ok(Ok(key * 10)),
            _ => Ok(Err(NotFound)),
        }
    }
    fn note(&self, event: Event) -> Result<(), CallError> {
        if event == Event::Started { Ok(()) } else { Err(CallError::Failed(1)) }
    }
    fn name_of(&self, key: u64, out: &mut Output<'_>) -> Result<u32, CallError> {
        let name = format!("item {key}");
        out.push(name.as_bytes())?;
        Ok(out.capacity() as u32)
    }
    fn insert(&self, request: u64, name: &str, reply: &[u8]) -> Result<bool, CallError> {
        Ok(request == 5 && name == "fünf" && reply == [1, 2])
    }
    fn timeout(&self) -> Result<u32, CallError> {
        Ok(TIMEOUT_US.with_borrow(|timeout_us| *timeout_us))
    }
}

struct AsyncShop;

impl InventoryAsyncHandler for AsyncShop {
    async fn lookup(&self, key: u64) -> Result<Result<u64, NotFound>, CallError> {
        std::future::ready(()).await;
        Shop.lookup(key)
    }
    async fn note(&self, event: Event) -> Result<(), CallError> {
        Shop.note(event)
    }
    async fn name_of(&self, key: u64, out_capacity: usize) -> Result<(u32, Vec<u8>), CallError> {
        let name = format!("item {key}").into_bytes();
        Ok((out_capacity.saturating_sub(name.len()) as u32, name))
    }
    async fn insert(&self, request: u64, name: String, reply: Vec<u8>) -> Result<bool, CallError> {
        Shop.insert(request, &name, &reply)
    }
    async fn timeout(&self) -> Result<u32, CallError> {
        Shop.timeout()
    }
}

/// Runs an async service's futures to their end on the spot.
struct Blocking<S>(S);

impl<S: AsyncService> Service for Blocking<S> {
    fn methods(&self) -> &[__private::Method] {
        self.0.methods()
    }
    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        let Request { words, bytes, reply_capacity, caller } = request;
        let (words, bytes) = (words.to_vec(), bytes.to_vec());
        let mut future = pin!(self.0.call(method, OwnedRequest { words, bytes, reply_capacity, caller }));
        let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the test's handlers do not wait");
        };
        let OwnedReply { words, bytes } = answer?;
        reply.words(&words);
        reply.bytes(&bytes)
    }
}

fn use_inventory() {
    assert_eq!(Inventory::lookup(4), Ok(Ok(40)));
    assert_eq!(Inventory::lookup(44), Ok(Err(NotFound)));
    assert_eq!(Inventory::lookup(0), Err(CallError::Failed(-7)));
    assert_eq!(Inventory::start_lookup(2).wait(), Ok(Ok(20)));
    assert_eq!(Inventory::note(Event::Started), Ok(()));
    assert_eq!(Inventory::start_note(Event::Started).wait(), Ok(()));
    assert_eq!(Inventory::post_note(Event::Moved { from: 1, to: (2, 3) }), Err(CallError::Failed(1)));
    let mut name = [0; 10];
    assert_eq!(Inventory::name_of(33, &mut name), Ok((3, 7)));
    assert_eq!(&name[..7], b"item 33");
    assert_eq!(Inventory::name_of(33, &mut name[..3]).unwrap_err(), CallError::TooLarge);
    assert_eq!(Inventory::insert(5, "fünf", &[1, 2]), Ok(true));
    assert_eq!(Inventory::insert(5, "fünf", &[1, 3]), Ok(false));
    assert_eq!(Inventory::timeout(), Ok(0));
    assert_eq!(Inventory::within_us(250).timeout(), Ok(250));
}

#[test]
fn a_service_answers() {
    SERVICE.set(Some(Arc::new(Inventory::serve(Shop))));
    use_inventory();
}

#[test]
fn numbers_names_and_schemas() {
    let numbers = Inventory::METHODS.map(|method| method.number);
    assert_eq!(numbers, [300, 301, 302, 303, 304]);
    assert_eq!(Inventory::METHODS[2].name, "Inventory::name_of");
    let [nothing] = Unnumbered::METHODS;
    assert!(nothing.number >= hostcall_abi::service::number::DERIVED && nothing.number % 16 == 0);
    let mut schemas: Vec<u64> = Inventory::METHODS.iter().map(|method| method.schema).collect();
    schemas.push(nothing.schema);
    schemas.sort_unstable();
    schemas.dedup();
    assert_eq!(schemas.len(), 6);
}

#[test]
fn garbage_from_a_device_is_refused() {
    let service = Inventory::serve(Shop);
    let call = |method, words: &[u64], bytes: &[u8]| {
        let request = Request { words, bytes, reply_capacity: 0, caller: Caller::default() };
        service.call(method, request, &mut Buffer::default())
    };
    let malformed = Err(CallError::Malformed);
    assert_eq!(call(0, &[], &[]), malformed);
    assert_eq!(call(0, &[1, 2], &[]), malformed);
    assert_eq!(call(0, &[1], &[0]), malformed);
    assert_eq!(call(1, &[3, 0, 0, 0], &[]), malformed, "an unknown variant");
    assert_eq!(call(1, &[1, 0, 256, 0], &[]), malformed, "a u8 of 256");
    assert_eq!(call(3, &[5, 5, 2], "fünf".as_bytes()), malformed, "too few bytes");
    assert_eq!(call(3, &[5, 1 << 33, 2], "fünf".as_bytes()), malformed, "a length past u32");
    assert_eq!(call(3, &[5, 2, 2], &[0xff; 4]), malformed, "no UTF-8");
    assert_eq!(call(3, &[5, 2, 2], b"abcde"), malformed, "too many bytes");
    assert_eq!(call(5, &[], &[]), Err(CallError::NoSuchService));
}

#[test]
fn an_async_service_answers() {
    SERVICE.set(Some(Arc::new(Blocking(Inventory::serve_async(AsyncShop)))));
    use_inventory();
}

#[test]
fn derived_wire_types() {
    use hostcall_abi::wire::Wire;
    assert_eq!((NotFound::WORDS, Event::WORDS), (0, 4));
    for event in [Event::Started, Event::Moved { from: 7, to: (8, -9) }, Event::Failed(NotFound, 1.5)] {
        let mut words = [u64::MAX; 4];
        event.to_words(&mut words);
        assert_eq!(Event::from_words(&words), Some(event));
    }
    assert_ne!(NotFound::SCHEMA, <()>::SCHEMA);
}
