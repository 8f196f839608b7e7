//! A socket, which waits as a future: no thread is held by a peer that never sends.

use super::bounds::Rules;
use async_io::{Async, Timer};
use futures_lite::future;
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_device::services::socket_options as options;
use hostcall_locks::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What a `read` on Linux ends with after its time.
const WOULD_BLOCK: i32 = 11;

/// There is no memory for what comes.
const NO_MEMORY: i32 = 12;

/// What took too long.
const TIMED_OUT: i32 = 110;

/// Bytes that no datagram has more of.
const MOST_OF_A_DATAGRAM: usize = 1 << 16;

/// Those who sent to a listening socket of datagrams that are kept, the latest ones: it may answer them.
const MOST_SENDERS: usize = 256;

pub(super) enum Kind {
    Stream(Async<TcpStream>),
    Listener(Async<TcpListener>),
    Datagrams {
        socket: Async<UdpSocket>,
        /// Who sent, where anybody may: the latest ones, without doubles. `None` where only those are heard who may be sent to.
        senders: Option<Mutex<VecDeque<SocketAddr>>>,
    },
}

/// An open socket, with what the program set.
pub(super) struct Socket {
    kind: Kind,
    read_timeout_ns: AtomicU64,
    write_timeout_ns: AtomicU64,
    is_nonblocking: AtomicBool,
}

/// Waits as long as `limit_ns` says, if it is not 0, and fails with `error` then.
async fn within<T>(limit_ns: u64, error: i32, wait: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    if limit_ns == 0 {
        return wait.await;
    }
    let late = async {
        Timer::after(Duration::from_nanos(limit_ns)).await;
        Err(io::Error::from_raw_os_error(error))
    };
    future::or(wait, late).await
}

/// What a socket of another kind does.
fn no_such_thing<T>() -> io::Result<T> {
    Err(io::ErrorKind::InvalidInput.into())
}

macro_rules! on_each {
    ($self:expr, $socket:ident => $result:expr) => {
        match &$self.kind {
            Kind::Stream($socket) => $result,
            Kind::Listener($socket) => $result,
            Kind::Datagrams { socket: $socket, .. } => $result,
        }
    };
}

impl Socket {
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            read_timeout_ns: AtomicU64::new(0),
            write_timeout_ns: AtomicU64::new(0),
            is_nonblocking: AtomicBool::new(false),
        }
    }

    /// Connects, which takes at most `limit_ns` if that is not 0.
    pub async fn connect_stream(to: SocketAddr, limit_ns: u64) -> io::Result<Self> {
        let stream = within(limit_ns, TIMED_OUT, Async::<TcpStream>::connect(to)).await?;
        Ok(Self::new(Kind::Stream(stream)))
    }

    /// Listens for those who connect.
    pub fn listen(at: SocketAddr) -> io::Result<Self> {
        Ok(Self::new(Kind::Listener(Async::<TcpListener>::bind(at)?)))
    }

    /// Sends and receives datagrams, of anybody if `listens` is set.
    pub fn bind(at: SocketAddr, listens: bool) -> io::Result<Self> {
        let socket = Async::<UdpSocket>::bind(at)?;
        Ok(Self::new(Kind::Datagrams { socket, senders: listens.then(Mutex::default) }))
    }

    fn is_nonblocking(&self) -> bool {
        self.is_nonblocking.load(Ordering::Relaxed)
    }

    /// Has datagrams sent to one address, and received from it.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match &self.kind {
            Kind::Datagrams { socket, .. } => socket.get_ref().connect(to),
            _ => no_such_thing(),
        }
    }

    /// Whether a datagram may go to an address by what was received before.
    pub fn answers(&self, to: SocketAddr) -> bool {
        match &self.kind {
            Kind::Datagrams { senders: Some(senders), .. } => senders.lock().contains(&to),
            _ => false,
        }
    }

    /// Waits for somebody who connects.
    pub async fn accept(&self) -> io::Result<(Self, SocketAddr)> {
        let Kind::Listener(listener) = &self.kind else { return no_such_thing() };
        let (stream, from) = match self.is_nonblocking() {
            true => {
                let (stream, from) = listener.get_ref().accept()?;
                (Async::new(stream)?, from)
            }
            false => listener.accept().await?,
        };
        Ok((Self::new(Kind::Stream(stream)), from))
    }

    /// Waits for data or a datagram, of which there is memory for `room` bytes only once it is there. Returns it, and a datagram's
    /// sender; of those only who may be heard.
    pub async fn receive(
        &self,
        peek: bool,
        room: usize,
        open: &Rules,
    ) -> io::Result<(Vec<u8>, Option<SocketAddr>)> {
        let limit_ns = self.read_timeout_ns.load(Ordering::Relaxed);
        match &self.kind {
            Kind::Stream(stream) => {
                let once = |mut stream: &TcpStream| {
                    let mut bytes = zeros(room)?;
                    let len = if peek { stream.peek(&mut bytes)? } else { stream.read(&mut bytes)? };
                    // The rest is not kept as long as the lane has not read these.
                    bytes.truncate(len);
                    bytes.shrink_to_fit();
                    Ok((bytes, None))
                };
                match self.is_nonblocking() {
                    true => once(stream.get_ref()),
                    false => within(limit_ns, WOULD_BLOCK, stream.read_with(once)).await,
                }
            }
            Kind::Datagrams { socket, senders } => {
                let once = |socket: &UdpSocket| {
                    let mut bytes = zeros(room.min(MOST_OF_A_DATAGRAM))?;
                    let (len, from) = match peek {
                        true => socket.peek_from(&mut bytes)?,
                        false => socket.recv_from(&mut bytes)?,
                    };
                    match senders {
                        Some(senders) => note(&mut senders.lock(), from),
                        None if open.allow(from) => {}
                        None => {
                            if peek {
                                socket.recv_from(&mut [])?;
                            }
                            // As if nothing had come: the next one is waited for, so that many of them hold nobody up.
                            return Err(io::Error::from_raw_os_error(WOULD_BLOCK));
                        }
                    }
                    bytes.truncate(len);
                    bytes.shrink_to_fit();
                    Ok((bytes, Some(from)))
                };
                match self.is_nonblocking() {
                    true => once(socket.get_ref()),
                    false => within(limit_ns, WOULD_BLOCK, socket.read_with(once)).await,
                }
            }
            Kind::Listener(_) => no_such_thing(),
        }
    }

    /// Waits for room for data, and sends it.
    pub async fn send(&self, to: Option<SocketAddr>, data: &[u8]) -> io::Result<usize> {
        let limit_ns = self.write_timeout_ns.load(Ordering::Relaxed);
        match &self.kind {
            Kind::Stream(stream) => {
                let once = |mut stream: &TcpStream| stream.write(data);
                match self.is_nonblocking() {
                    true => once(stream.get_ref()),
                    false => within(limit_ns, WOULD_BLOCK, stream.write_with(once)).await,
                }
            }
            Kind::Datagrams { socket, .. } => {
                let once = |socket: &UdpSocket| match to {
                    Some(to) => socket.send_to(data, to),
                    None => socket.send(data),
                };
                match self.is_nonblocking() {
                    true => once(socket.get_ref()),
                    false => within(limit_ns, WOULD_BLOCK, socket.write_with(once)).await,
                }
            }
            Kind::Listener(_) => no_such_thing(),
        }
    }

    /// Returns its own address, or the other side's.
    pub fn address(&self, of_peer: bool) -> io::Result<SocketAddr> {
        match (&self.kind, of_peer) {
            (_, false) => on_each!(self, socket => socket.get_ref().local_addr()),
            (Kind::Stream(stream), true) => stream.get_ref().peer_addr(),
            (Kind::Datagrams { socket, .. }, true) => socket.get_ref().peer_addr(),
            (Kind::Listener(_), true) => no_such_thing(),
        }
    }

    /// Sets an option of [`options`].
    ///
    /// # Errors
    /// [`CallError::Malformed`] for what is no such option, and what the system reports.
    pub fn set(&self, option: u32, value: u64) -> Result<io::Result<()>, CallError> {
        let is_on = || match value {
            0 | 1 => Ok(value == 1),
            _ => Err(CallError::Malformed),
        };
        Ok(match (option, &self.kind) {
            (options::NODELAY, Kind::Stream(stream)) => stream.get_ref().set_nodelay(is_on()?),
            (options::TTL, _) => {
                let ttl = u32::try_from(value).map_err(|_| Error::InvalidInput)?;
                on_each!(self, socket => socket.get_ref().set_ttl(ttl))
            }
            (options::READ_TIMEOUT, _) => {
                self.read_timeout_ns.store(value, Ordering::Relaxed);
                Ok(())
            }
            (options::WRITE_TIMEOUT, _) => {
                self.write_timeout_ns.store(value, Ordering::Relaxed);
                Ok(())
            }
            (options::NONBLOCKING, _) => {
                self.is_nonblocking.store(is_on()?, Ordering::Relaxed);
                Ok(())
            }
            (options::BROADCAST, Kind::Datagrams { socket, .. }) => socket.get_ref().set_broadcast(is_on()?),
            (options::SHUTDOWN, Kind::Stream(stream)) => {
                let how = match value {
                    0 => Shutdown::Read,
                    1 => Shutdown::Write,
                    2 => Shutdown::Both,
                    _ => return Err(CallError::Malformed),
                };
                stream.get_ref().shutdown(how)
            }
            (options::NODELAY | options::BROADCAST | options::SHUTDOWN, _) => no_such_thing(),
            _ => return Err(CallError::Malformed),
        })
    }

    /// Returns an option of [`options`].
    ///
    /// # Errors
    /// As for [`Socket::set`].
    pub fn get(&self, option: u32) -> Result<io::Result<u64>, CallError> {
        Ok(match (option, &self.kind) {
            (options::NODELAY, Kind::Stream(stream)) => stream.get_ref().nodelay().map(u64::from),
            (options::TTL, _) => on_each!(self, socket => socket.get_ref().ttl()).map(u64::from),
            (options::READ_TIMEOUT, _) => Ok(self.read_timeout_ns.load(Ordering::Relaxed)),
            (options::WRITE_TIMEOUT, _) => Ok(self.write_timeout_ns.load(Ordering::Relaxed)),
            (options::NONBLOCKING, _) => Ok(self.is_nonblocking().into()),
            (options::BROADCAST, Kind::Datagrams { socket, .. }) => {
                socket.get_ref().broadcast().map(u64::from)
            }
            (options::ERROR, _) => on_each!(self, socket => socket.get_ref().take_error()).map(|error| {
                let number = error.and_then(|error| error.raw_os_error()).unwrap_or(0);
                u64::from(number.unsigned_abs())
            }),
            (options::NODELAY | options::BROADCAST, _) => no_such_thing(),
            _ => return Err(CallError::Malformed),
        })
    }
}

/// Memory to receive into.
fn zeros(len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| io::Error::from_raw_os_error(NO_MEMORY))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Notes who sent.
fn note(senders: &mut VecDeque<SocketAddr>, from: SocketAddr) {
    if senders.back() == Some(&from) {
        return;
    }
    senders.retain(|sender| *sender != from);
    if senders.len() == MOST_SENDERS {
        senders.pop_front();
    }
    senders.push_back(from);
}
