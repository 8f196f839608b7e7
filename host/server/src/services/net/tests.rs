//! Sockets of the loopback.

use super::*;
use crate::services::testing::collect;
use futures_lite::future::{self, block_on};
use hostcall_device::services::socket_kinds::{DATAGRAMS, LISTENER, STREAM};
use hostcall_device::services::socket_options as options;
use hostcall_service::{Caller, called_by};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

type Sockets = SharedHandler<OpenSockets>;

const LOCAL: &str = "127.0.0.1:0";

/// Sockets with these rules, of which so many may be open.
fn sockets(connect: &[&str], listen: &[&str], most: usize) -> Sockets {
    let [connect, listen] =
        [connect, listen].map(|rules| rules.iter().map(|rule| rule.parse().unwrap()).collect());
    let files = Arc::new(OpenFiles::none().with_bound(most));
    SharedHandler(Arc::new(OpenSockets::new(connect, listen, files)))
}

fn local() -> Sockets {
    sockets(&["127.0.0.1"], &["127.0.0.1"], 100)
}

fn at(address: &str) -> Words {
    packed(address.parse().unwrap())
}

fn error<T>(result: Result<T, CallError>) -> Option<Error> {
    result.err().map(Error::from)
}

fn open(sockets: &Sockets, kind: u32, at: Words) -> Result<u64, CallError> {
    block_on(sockets.open(kind, at, 0))
}

/// A listener of the test's own, and the address of words by which it is reached.
fn peer() -> (TcpListener, Words) {
    let peer = TcpListener::bind(LOCAL).unwrap();
    let at = packed(peer.local_addr().unwrap());
    (peer, at)
}

/// A stream to a peer of the test's own.
fn connected(sockets: &Sockets) -> (u64, TcpStream) {
    let (peer, at) = peer();
    let stream = open(sockets, STREAM, at).unwrap();
    (stream, peer.accept().unwrap().0)
}

#[test]
fn a_stream_connects_receives_and_sends() {
    let sockets = local();
    let (stream, mut peer) = connected(&sockets);
    assert_eq!(block_on(sockets.send(stream, NONE, b"hello".to_vec())), Ok(5));
    let mut read = [0; 5];
    peer.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"hello");
    peer.write_all(b"answer").unwrap();
    assert_eq!(block_on(sockets.receive(stream, true, 3)), Ok((NONE, b"ans".to_vec())));
    assert_eq!(block_on(sockets.receive(stream, false, usize::MAX)), Ok((NONE, b"answer".to_vec())));
    assert_eq!(block_on(sockets.address(stream, true)), Ok(packed(peer.local_addr().unwrap())));
    assert_eq!(block_on(sockets.address(stream, false)), Ok(packed(peer.peer_addr().unwrap())));
    block_on(sockets.set(stream, options::SHUTDOWN, 1)).unwrap();
    assert_eq!(peer.read(&mut read).unwrap(), 0);
    drop(peer);
    assert_eq!(block_on(sockets.receive(stream, false, 10)), Ok((NONE, Vec::new())));
}

#[test]
fn a_listener_accepts() {
    let sockets = local();
    let listener = open(&sockets, LISTENER, at(LOCAL)).unwrap();
    let address = unpacked(block_on(sockets.address(listener, false)).unwrap()).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    let (stream, from) = block_on(sockets.accept(listener)).unwrap();
    assert_eq!(unpacked(from), Ok(peer.local_addr().unwrap()));
    peer.write_all(b"hi").unwrap();
    assert_eq!(block_on(sockets.receive(stream, false, 10)), Ok((NONE, b"hi".to_vec())));
    block_on(sockets.set(listener, options::NONBLOCKING, 1)).unwrap();
    assert_eq!(error(block_on(sockets.accept(listener))), Some(Error::Os(11)));
    assert_eq!(sockets.0.open_count(), 2);
}

#[test]
fn nothing_is_reached_but_what_is_open() {
    let (_peer, there) = peer();
    let denied = Some(Error::NetDenied);
    for (sockets, kind) in [
        (sockets(&[], &[], 100), STREAM),
        (sockets(&[], &[], 100), LISTENER),
        (sockets(&[], &[], 100), DATAGRAMS),
        (sockets(&["127.0.0.1:1", "127.0.0.2"], &["127.0.0.1"], 100), STREAM),
        (sockets(&["127.0.0.1"], &["127.0.0.1:1"], 100), LISTENER),
        (sockets(&["127.0.0.1"], &[], 100), DATAGRAMS),
        (sockets(&["localhost"], &[], 100), STREAM),
    ] {
        assert_eq!(error(open(&sockets, kind, there)), denied);
        assert_eq!(sockets.0.open_count(), 0);
    }
    let sockets = sockets(&["localhost"], &[], 100);
    let (found, bytes) = collect(1000, |out| sockets.lookup(b"localhost", 80, out));
    assert_eq!(found.unwrap() as usize, bytes.len());
    assert!(!bytes.is_empty() && bytes.len().is_multiple_of(24));
    // Now that the name has been looked up, what it stands for is open.
    open(&sockets, STREAM, there).unwrap();
    assert_eq!(error(collect(1000, |out| sockets.lookup(b"example.com", 80, out)).0), denied);
    assert_eq!(collect(10, |out| sockets.lookup(b"localhost", 80, out)).1, b"");
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let sockets = local();
    let listener = open(&sockets, LISTENER, at(LOCAL)).unwrap();
    let (stream, _peer) = connected(&sockets);
    let malformed = Some(Error::Call(CallError::Malformed));
    assert_eq!(error(open(&sockets, 3, at(LOCAL))), malformed);
    assert_eq!(error(open(&sockets, STREAM, [7 << 16, 0, 0])), malformed);
    for (option, value) in
        [(8, 0), (u32::MAX, 0), (options::ERROR, 0), (options::NONBLOCKING, 2), (options::SHUTDOWN, 3)]
    {
        assert_eq!(error(block_on(sockets.set(stream, option, value))), malformed, "{option} {value}");
    }
    assert_eq!(error(block_on(sockets.get(stream, options::SHUTDOWN))), malformed);
    assert_eq!(error(block_on(sockets.set(stream, options::TTL, u64::MAX))), Some(Error::InvalidInput));
    // What only other kinds do.
    let no = Some(Error::InvalidInput);
    assert_eq!(error(block_on(sockets.accept(stream))), no);
    assert_eq!(error(block_on(sockets.connect(stream, at("127.0.0.1:1")))), no);
    assert_eq!(error(block_on(sockets.receive(listener, false, 1))), no);
    assert_eq!(error(block_on(sockets.send(listener, NONE, vec![1]))), no);
    assert_eq!(error(block_on(sockets.set(listener, options::NODELAY, 1))), no);
    assert_eq!(error(collect(9, |out| sockets.lookup(b"localhost", 1 << 16, out)).0), malformed);
}

#[test]
fn handles_are_their_launchs_and_void_once_it_ended() {
    let sockets = local();
    let as_of = |launch| Caller { launch, ..Caller::default() };
    let [first, second] = [1, 2].map(LaunchId::from_bits);
    let (stream, mut peer) = called_by(as_of(first), || connected(&sockets));
    let closed = Some(Error::Closed);
    for launch in [second, LaunchId::NONE] {
        called_by(as_of(launch), || {
            assert_eq!(error(block_on(sockets.receive(stream, false, 1))), closed);
            assert_eq!(error(block_on(sockets.close(stream))), closed);
            assert_eq!(error(block_on(sockets.duplicate(stream))), closed);
        });
    }
    for handle in [0, 1, u64::MAX] {
        assert_eq!(error(block_on(sockets.receive(handle, false, 1))), closed);
    }
    let other = called_by(as_of(first), || block_on(sockets.duplicate(stream)).unwrap());
    called_by(as_of(first), || block_on(sockets.close(stream)).unwrap());
    called_by(as_of(first), || {
        assert_eq!(error(block_on(sockets.close(stream))), closed);
        assert_eq!(block_on(sockets.send(other, NONE, vec![1])), Ok(1));
    });
    sockets.0.close_of(&second.into());
    assert_eq!(sockets.0.open_count(), 1);
    sockets.0.close_of(&first.into());
    assert_eq!(sockets.0.open_count(), 0);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert_eq!(all, [1]);
    // One that connects while its launch ends is closed too.
    sockets.0.files.set_launches(move |launch| launch != first);
    let (_peer, there) = self::peer();
    let late = called_by(as_of(first), || open(&sockets, STREAM, there));
    assert_eq!((late, sockets.0.open_count()), (Err(CallError::Cancelled), 0));
}

#[test]
fn there_are_at_most_so_many() {
    let sockets = sockets(&["127.0.0.1"], &["127.0.0.1"], 2);
    let listener = open(&sockets, LISTENER, at(LOCAL)).unwrap();
    let stream = open(&sockets, STREAM, block_on(sockets.address(listener, false)).unwrap()).unwrap();
    let too_many = Some(Error::TooManyOpen);
    assert_eq!(error(open(&sockets, DATAGRAMS, at(LOCAL))), too_many);
    assert_eq!(error(block_on(sockets.duplicate(stream))), too_many);
    assert_eq!(error(block_on(sockets.accept(listener))), too_many);
    block_on(sockets.close(stream)).unwrap();
    block_on(sockets.accept(listener)).unwrap();
}

#[test]
fn waits_end_after_their_time_and_not_before_somebody_sends() {
    let sockets = local();
    let (stream, mut peer) = connected(&sockets);
    let never = block_on(future::or(async { sockets.receive(stream, false, 1).await.map(Some) }, async {
        async_io::Timer::after(Duration::from_millis(20)).await;
        Ok(None)
    }));
    assert_eq!(never, Ok(None));
    block_on(sockets.set(stream, options::READ_TIMEOUT, 1_000_000)).unwrap();
    assert_eq!(error(block_on(sockets.receive(stream, false, 1))), Some(Error::Os(11)));
    block_on(sockets.set(stream, options::READ_TIMEOUT, u64::MAX)).unwrap();
    // What was given up took nothing with it.
    peer.write_all(b"x").unwrap();
    assert_eq!(block_on(sockets.receive(stream, false, 1)), Ok((NONE, b"x".to_vec())));
    block_on(sockets.set(stream, options::WRITE_TIMEOUT, 1_000_000)).unwrap();
    let sent = loop {
        if let Err(error) = block_on(sockets.send(stream, NONE, vec![0; MAX_BYTES])) {
            break Error::from(error);
        }
    };
    assert_eq!(sent, Error::Os(11));
}

#[test]
fn who_only_sends_hears_those_alone_whom_it_may_send_to() {
    let [friend, stranger] = [(); 2].map(|()| UdpSocket::bind(LOCAL).unwrap());
    let friends = friend.local_addr().unwrap();
    let sockets = sockets(&[&friends.to_string()], &[], 100);
    assert_eq!(error(open(&sockets, DATAGRAMS, at("127.0.0.1:9"))), Some(Error::NetDenied));
    let socket = open(&sockets, DATAGRAMS, at(LOCAL)).unwrap();
    let address = unpacked(block_on(sockets.address(socket, false)).unwrap()).unwrap();
    let strange = packed(stranger.local_addr().unwrap());
    for peek in [true, false] {
        stranger.send_to(b"strange", address).unwrap();
        friend.send_to(b"friendly", address).unwrap();
        let heard = block_on(sockets.receive(socket, peek, 100));
        assert_eq!(heard, Ok((packed(friends), b"friendly".to_vec())));
    }
    assert_eq!(error(block_on(sockets.send(socket, strange, vec![1]))), Some(Error::NetDenied));
    assert_eq!(error(block_on(sockets.connect(socket, strange))), Some(Error::NetDenied));
    assert_eq!(block_on(sockets.send(socket, packed(friends), vec![1])), Ok(1));
}

#[test]
fn who_listens_answers_those_who_sent() {
    let [first, second] = [(); 2].map(|()| UdpSocket::bind(LOCAL).unwrap());
    let sockets = sockets(&[], &["127.0.0.1"], 100);
    let socket = open(&sockets, DATAGRAMS, at(LOCAL)).unwrap();
    let address = unpacked(block_on(sockets.address(socket, false)).unwrap()).unwrap();
    let [to_first, to_second] = [&first, &second].map(|peer| packed(peer.local_addr().unwrap()));
    first.send_to(b"question", address).unwrap();
    assert_eq!(block_on(sockets.receive(socket, false, 100)), Ok((to_first, b"question".to_vec())));
    assert_eq!(block_on(sockets.send(socket, to_first, b"answer".to_vec())), Ok(6));
    assert_eq!(error(block_on(sockets.send(socket, to_second, vec![1]))), Some(Error::NetDenied));
    let mut room = [0; 10];
    assert_eq!(first.recv(&mut room).unwrap(), 6);
}
