//! Sockets of the host, as far as it opens the network to kernels.
//!
//! What a device says is checked here: where a socket leads to ([`bounds`]), whose it is, and how long a message is. Calls are
//! futures, so that one that waits holds neither a thread nor other calls, and ends with its launch. Names are looked up on
//! threads of their own, since the system's resolver waits as it likes.

mod address;
mod bounds;
mod socket;
#[cfg(test)]
mod tests;

use super::SharedHandler;
use super::error::status;
use super::files::{OpenFiles, Permit};
use crate::engine::LaunchSet;
use address::{NONE, Words, packed, unpacked};
use bounds::{Bounds, Rules};
pub use bounds::{NetRule, NetRuleError};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_device::services::{NamesHandler, SocketsAsyncHandler, socket_kinds};
use hostcall_locks::Mutex;
use hostcall_service::Output;
use socket::Socket;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes that one call receives or sends.
const MAX_BYTES: usize = 1 << 20;

/// A handle's socket. It closes when the calls on it are done and no handle is left.
struct Handle {
    socket: Arc<Socket>,
    /// The launch that opened it: nobody else may use it.
    owner: LaunchId,
    _permit: Permit,
}

/// The sockets that kernels have open. All of a launch close when it ends, however it does. Together with open files they
/// are as many as [`BuiltinsBuilder::open_files`](super::BuiltinsBuilder::open_files) says.
pub struct OpenSockets {
    bounds: Bounds,
    table: Mutex<HashMap<u64, Handle>>,
    /// Who knows of launches, and how many files are open.
    files: Arc<OpenFiles>,
}

impl OpenSockets {
    /// Sockets that connect and send as the first rules say, and listen as the second ones do.
    pub(super) fn new(connect: Vec<NetRule>, listen: Vec<NetRule>, files: Arc<OpenFiles>) -> Self {
        let bounds = Bounds { connect: Rules::new(connect), listen: Rules::new(listen) };
        Self { bounds, table: Mutex::default(), files }
    }

    /// Returns whether anything is open to kernels.
    fn has_any(&self) -> bool {
        !(self.bounds.connect.is_empty() && self.bounds.listen.is_empty())
    }

    /// Closes the sockets that launches opened, of which none of their lanes is left; their handles are void. The launches must
    /// have ended for the function of [`OpenFiles::set_launches`].
    pub fn close_of(&self, launches: &LaunchSet) {
        if self.has_any() {
            self.remove(|handle| launches.contains(handle.owner));
        }
    }

    /// Closes all sockets; their handles are void. For the end of a device's session.
    pub fn close_all(&self) {
        self.remove(|_| true);
    }

    fn remove(&self, is_one: impl Fn(&Handle) -> bool) {
        let removed: Vec<_> = self.table.lock().extract_if(|_, handle| is_one(handle)).collect();
        // Closing is done without the lock.
        drop(removed);
    }

    /// Sockets that are open, each as often as it has handles.
    pub fn open_count(&self) -> usize {
        self.table.lock().len()
    }

    /// Adds a socket of the calling launch and gives its handle.
    fn insert(&self, socket: Arc<Socket>, permit: Permit) -> Result<u64, CallError> {
        /// The next handle, which none has had before it in this process, above the small numbers that memory often has.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
        let owner = self.files.owner();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.table.lock().insert(number, Handle { socket, owner, _permit: permit });
        // A launch that ended while this ran may have had its sockets closed before this one was among them.
        if self.files.has_ended(owner) {
            self.table.lock().remove(&number);
            return Err(CallError::Cancelled);
        }
        Ok(number)
    }

    /// The socket of a handle, which must be the calling launch's.
    fn get(&self, number: u64) -> Result<Arc<Socket>, CallError> {
        let owner = self.files.owner();
        let table = self.table.lock();
        let handle = table.get(&number).filter(|handle| handle.owner == owner);
        handle.map(|handle| handle.socket.clone()).ok_or(Error::Closed.into())
    }

    /// The address of words to which a socket of datagrams may send.
    fn target(&self, socket: &Socket, words: Words) -> Result<SocketAddr, CallError> {
        let to = unpacked(words)?;
        let is_open = self.bounds.connect.allow(to) || socket.answers(to);
        if is_open { Ok(to) } else { Err(Error::NetDenied.into()) }
    }
}

/// What a call returns of what the system does.
fn told<T>(result: io::Result<T>) -> Result<T, CallError> {
    result.map_err(|error| status(&error))
}

impl SocketsAsyncHandler for SharedHandler<OpenSockets> {
    async fn open(&self, kind: u32, at: Words, timeout_ns: u64) -> Result<u64, CallError> {
        let bounds = &self.0.bounds;
        let at = unpacked(at)?;
        let (connects, listens) = (bounds.connect.allow(at), bounds.listen.allow(at));
        let is_open = match kind {
            socket_kinds::STREAM => connects,
            socket_kinds::LISTENER => listens,
            // Who only sends needs a socket too, of any port. It hears those alone whom it may send to.
            socket_kinds::DATAGRAMS => listens || (at.port() == 0 && !bounds.connect.is_empty()),
            _ => return Err(CallError::Malformed),
        };
        if !is_open {
            return Err(Error::NetDenied.into());
        }
        let permit = self.0.files.permit()?;
        let socket = match kind {
            socket_kinds::STREAM => Socket::connect_stream(at, timeout_ns).await,
            socket_kinds::LISTENER => Socket::listen(at),
            _ => Socket::bind(at, listens),
        };
        self.0.insert(Arc::new(told(socket)?), permit)
    }

    async fn connect(&self, socket: u64, to: Words) -> Result<(), CallError> {
        let socket = self.0.get(socket)?;
        told(socket.connect(self.0.target(&socket, to)?))
    }

    async fn accept(&self, socket: u64) -> Result<(u64, Words), CallError> {
        let socket = self.0.get(socket)?;
        // Before somebody is accepted, who could not be kept.
        let permit = self.0.files.permit()?;
        let (stream, from) = told(socket.accept().await)?;
        Ok((self.0.insert(Arc::new(stream), permit)?, packed(from)))
    }

    async fn receive(&self, socket: u64, peek: bool, room: usize) -> Result<(Words, Vec<u8>), CallError> {
        let socket = self.0.get(socket)?;
        let received = socket.receive(peek, room.min(MAX_BYTES), &self.0.bounds.connect).await;
        let (bytes, from) = told(received)?;
        Ok((from.map_or(NONE, packed), bytes))
    }

    async fn send(&self, socket: u64, to: Words, data: Vec<u8>) -> Result<u64, CallError> {
        let socket = self.0.get(socket)?;
        let to = match to {
            NONE => None,
            to => Some(self.0.target(&socket, to)?),
        };
        let data = &data[..data.len().min(MAX_BYTES)];
        Ok(told(socket.send(to, data).await)? as u64)
    }

    async fn address(&self, socket: u64, of_peer: bool) -> Result<Words, CallError> {
        told(self.0.get(socket)?.address(of_peer)).map(packed)
    }

    async fn set(&self, socket: u64, option: u32, value: u64) -> Result<(), CallError> {
        told(self.0.get(socket)?.set(option, value)?)
    }

    async fn get(&self, socket: u64, option: u32) -> Result<u64, CallError> {
        told(self.0.get(socket)?.get(option)?)
    }

    async fn duplicate(&self, socket: u64) -> Result<u64, CallError> {
        let socket = self.0.get(socket)?;
        self.0.insert(socket, self.0.files.permit()?)
    }

    async fn close(&self, socket: u64) -> Result<(), CallError> {
        self.0.get(socket)?;
        let removed = self.0.table.lock().remove(&socket);
        removed.map(drop).ok_or(Error::Closed.into())
    }
}

impl NamesHandler for SharedHandler<OpenSockets> {
    fn lookup(&self, name: &[u8], port: u32, out: &mut Output<'_>) -> Result<u64, CallError> {
        let port = u16::try_from(port).map_err(|_| CallError::Malformed)?;
        let resolve = |name: &str, port| (name, port).to_socket_addrs().ok().map(Iterator::collect);
        let found = self.0.bounds.look_up(name, port, resolve)?;
        let bytes: Vec<u8> = found.into_iter().flat_map(packed).flat_map(u64::to_le_bytes).collect();
        if bytes.len() <= out.capacity() {
            out.push(&bytes)?;
        }
        Ok(bytes.len() as u64)
    }
}
