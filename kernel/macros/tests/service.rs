//! A service from a kernel's function to the handler and back, without a channel between them.

#![allow(missing_docs, reason = "a service needs public types, and these are nobody's interface")]

extern crate self as hostcall_device;

use double::{Buffer, Lane, SERVICE, TIMEOUT_US};
use hostcall_abi::wire::Wire as _;
use hostcall_abi::word::{Doorbell, Kind, Line, MAX_PAIRS, PostHead, Rung, pairs_for};
use hostcall_abi::{CallError, MAX_LANES, MAX_WORDS, Status};
use hostcall_macros::{Wire, service};
use hostcall_service::{
    AsyncService, Caller, Calls, Lines, Output, OwnedReply, OwnedRequest, Planes, Posts, Replies, Reply,
    Request, Service,
};
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
    assert_eq!(Inventory::start_lookup(&Lane, 2).wait(), Ok(Ok(20)));
    assert_eq!(Inventory::note(Event::Started), Ok(()));
    assert_eq!(Inventory::start_note(&Lane, Event::Started).wait(), Ok(()));
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
    let numbers = Inventory::METHODS.map(|method| method.number());
    assert_eq!(numbers, [300, 301, 302, 303, 304]);
    assert_eq!(Inventory::METHODS[2].name(), "Inventory::name_of");
    let [nothing] = Unnumbered::METHODS;
    assert!(nothing.number() >= hostcall_abi::service::number::DERIVED && nothing.number() % 16 == 0);
    let mut schemas: Vec<u64> = Inventory::METHODS.iter().map(|method| method.schema()).collect();
    schemas.push(nothing.schema());
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

/// A packet of lanes with these argument words each.
fn packet<const N: usize>(lanes: &[[u64; N]]) -> (Rung, Planes) {
    let doorbell = Doorbell {
        service: 300,
        lanes: lanes.len() as u8,
        first_lane: 0,
        argument_words: N as u8,
        result_words: 2,
        check: 0,
        kind: Kind::Words,
        after_posts: false,
        lines: true,
    };
    let mut planes = [[[0; 2]; MAX_LANES]; MAX_PAIRS];
    for (rank, words) in lanes.iter().enumerate() {
        let mut line = Line { words: [0; MAX_WORDS], tag: 0 };
        line.words[..N].copy_from_slice(words);
        for (pair, plane) in planes.iter_mut().enumerate().take(pairs_for(N)) {
            plane[rank] = line.pair(pair, N);
        }
    }
    (Rung::from_word(doorbell.to_word(false), 32).expect("a doorbell"), planes)
}

#[test]
fn a_packets_lanes_are_answered_each() {
    let service = Inventory::serve(Shop);
    let answers = |method, (rung, planes): (Rung, Planes)| {
        let mut replies = Replies::EMPTY;
        let callers = [Caller::default()];
        service.calls(method, &mut Calls::new(Lines::new(rung, &planes, &callers), &mut replies));
        let lane = |rank| {
            let mut line = Line::default();
            for pair in 0..rung.reply_pairs() {
                line.set_pair(pair, replies.planes()[pair][rank]);
            }
            line.restore(rung.result_words());
            line
        };
        (0..rung.lanes() as usize).map(lane).collect::<Vec<_>>()
    };
    let lookups = answers(0, packet(&[[4], [0], [44], [2]]));
    let results: Vec<_> = lookups
        .iter()
        .map(|reply| {
            let status = Status::from_bits(reply.tag);
            status.into_result().map(|()| Result::<u64, NotFound>::from_words(&reply.words))
        })
        .collect();
    let expected = [Ok(Some(Ok(40))), Err(CallError::Failed(-7)), Ok(Some(Err(NotFound))), Ok(Some(Ok(20)))];
    assert_eq!(results, expected);
    let error = |error| Status::Error(error).to_bits();
    assert!(
        answers(0, packet(&[[4, 4], [5, 5]])).iter().all(|reply| reply.tag == error(CallError::Malformed))
    );
    assert_eq!(answers(1, packet(&[[3, 0, 0, 0]]))[0].tag, error(CallError::Malformed), "an unknown variant");
    // Methods with bytes are handled one by one, and these lanes have no room for any.
    assert_eq!(answers(2, packet(&[[4]]))[0].tag, error(CallError::TooLarge));
    assert_eq!(answers(5, packet(&[[4]]))[0].tag, error(CallError::NoSuchService));
}

#[test]
fn a_run_of_posts_is_handled_and_garbage_counted() {
    let service = Inventory::serve(Shop);
    let refused = |method, posts: &[[u64; 4]]| {
        let entries: Vec<_> = posts
            .iter()
            .flat_map(|words| {
                let head = PostHead { service: 300, lane: 0, words: 4, extra: 0 }.to_word(words);
                [[words[0], head], [words[1], words[2]], [words[3], 0]]
            })
            .collect();
        let (_, mut posts) = Posts::new(&entries).expect("a head");
        let refused = service.posts(method, &mut posts);
        assert_eq!(posts.left(), 0);
        refused
    };
    assert_eq!(refused(1, &[[0, 0, 0, 0], [1, 7, 8, 9]]), 0);
    assert_eq!(refused(1, &[[0, 0, 0, 0], [3, 0, 0, 0], [1, 0, 256, 0]]), 2);
    assert_eq!(refused(0, &[[0, 0, 0, 0]]), 1, "a lookup has one word");
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
