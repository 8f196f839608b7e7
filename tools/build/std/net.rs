//! Sockets, which the host has, as far as it opens the network to the program.

use super::each_addr;
use crate::io::{self, BorrowedCursor, IoSlice, IoSliceMut};
use crate::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV6, ToSocketAddrs};
use crate::sys::pal::{abi, checked, checked_length, unsupported, whole};
use crate::time::Duration;
use crate::{fmt, vec};

/// The kinds of sockets, as the host has them.
const STREAM: u32 = 0;
const LISTENER: u32 = 1;
const DATAGRAMS: u32 = 2;

/// What may be set or asked of a socket, as the host has it. Times are nanoseconds, and 0 is none.
const NODELAY: u32 = 0;
const TTL: u32 = 1;
const READ_TIMEOUT: u32 = 2;
const WRITE_TIMEOUT: u32 = 3;
const NONBLOCKING: u32 = 4;
const BROADCAST: u32 = 5;
const ERROR: u32 = 6;
const SHUTDOWN: u32 = 7;

/// The `errno` of what took too long.
const TIMED_OUT: i32 = 110;

/// No address.
const NONE: abi::Address = [0; 3];

/// An address as it travels: its port, from bit 16 on 4 or 6, from bit 32 on an interface; and the two halves of its number, the
/// one that counts more first.
fn packed(address: &SocketAddr) -> abi::Address {
    let (family, scope, number) = match address {
        SocketAddr::V4(address) => (4, 0, u32::from(*address.ip()).into()),
        SocketAddr::V6(address) => (6, address.scope_id(), u128::from(*address.ip())),
    };
    [u64::from(address.port()) | family << 16 | u64::from(scope) << 32, (number >> 64) as u64, number as u64]
}

fn unpacked([head, high, low]: abi::Address) -> SocketAddr {
    let port = head as u16;
    match (head >> 16) as u16 {
        4 => SocketAddr::new(Ipv4Addr::from(low as u32).into(), port),
        _ => {
            let number = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
            SocketAddrV6::new(number, port, 0, (head >> 32) as u32).into()
        }
    }
}

/// The nanoseconds of a limit.
fn limit(timeout: Option<Duration>) -> io::Result<u64> {
    match timeout {
        None => Ok(0),
        Some(Duration::ZERO) => {
            Err(io::const_error!(io::ErrorKind::InvalidInput, "cannot set a 0 duration timeout"))
        }
        Some(timeout) => Ok(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
    }
}

/// A socket that is open until this is dropped.
struct Socket(u64);

impl Socket {
    fn open(kind: u32, at: &SocketAddr, timeout_ns: u64) -> io::Result<Self> {
        let (at, mut socket) = (packed(at), 0);
        // SAFETY: both are this function's until the call returns.
        checked(unsafe { abi::socket_open(kind, &at, timeout_ns, &mut socket) })?;
        Ok(Self(socket))
    }

    fn receive(&self, peek: bool, room: &mut [u8]) -> io::Result<(usize, abi::Address)> {
        let mut from = NONE;
        // SAFETY: the room is the caller's, and the address this function's, until the call returns.
        let len = unsafe { abi::socket_receive(self.0, peek, room.as_mut_ptr(), room.len(), &mut from) };
        Ok((checked_length(len)?, from))
    }

    fn send(&self, data: &[u8], to: abi::Address) -> io::Result<usize> {
        // SAFETY: the data is the caller's, and the address this function's, until the call returns.
        checked_length(unsafe { abi::socket_send(self.0, &to, data.as_ptr(), data.len()) })
    }

    fn address(&self, of_peer: bool) -> io::Result<SocketAddr> {
        let mut address = NONE;
        // SAFETY: what is written is this function's until the call returns.
        checked(unsafe { abi::socket_address(self.0, of_peer, &mut address) })?;
        Ok(unpacked(address))
    }

    fn set(&self, option: u32, value: u64) -> io::Result<()> {
        // SAFETY: any numbers may be given.
        checked(unsafe { abi::socket_set(self.0, option, value) })
    }

    fn get(&self, option: u32) -> io::Result<u64> {
        let mut value = 0;
        // SAFETY: what is written is this function's until the call returns.
        checked(unsafe { abi::socket_get(self.0, option, &mut value) })?;
        Ok(value)
    }

    fn timeout(&self, option: u32) -> io::Result<Option<Duration>> {
        Ok(Some(self.get(option)?).filter(|ns| *ns != 0).map(Duration::from_nanos))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: the socket is this value's alone.
        unsafe { abi::socket_close(self.0) };
    }
}

pub struct TcpStream(Socket);

pub struct TcpListener(Socket);

pub struct UdpSocket(Socket);

/// What all sockets do.
macro_rules! sockets {
    ($($name:ident)*) => {$(
        impl $name {
            pub fn socket_addr(&self) -> io::Result<SocketAddr> {
                self.0.address(false)
            }

            pub fn duplicate(&self) -> io::Result<Self> {
                let mut other = 0;
                // SAFETY: what is written is this function's until the call returns.
                checked(unsafe { abi::socket_duplicate(self.0.0, &mut other) })?;
                Ok(Self(Socket(other)))
            }

            pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
                self.0.set(TTL, ttl.into())
            }

            pub fn ttl(&self) -> io::Result<u32> {
                Ok(self.0.get(TTL)? as u32)
            }

            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                Ok(Some(self.0.get(ERROR)? as i32).filter(|error| *error != 0).map(io::Error::from_raw_os_error))
            }

            pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
                self.0.set(NONBLOCKING, on.into())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut told = f.debug_struct(stringify!($name));
                for (name, of_peer) in [("addr", false), ("peer", true)] {
                    if let Ok(address) = self.0.address(of_peer) {
                        told.field(name, &address);
                    }
                }
                told.field("handle", &self.0.0).finish()
            }
        }
    )*};
}

sockets!(TcpStream TcpListener UdpSocket);

/// What sockets do that have data.
macro_rules! of_data {
    ($($name:ident)*) => {$(
        impl $name {
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.0.address(true)
            }

            pub fn peek(&self, room: &mut [u8]) -> io::Result<usize> {
                Ok(self.0.receive(true, room)?.0)
            }

            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set(READ_TIMEOUT, limit(timeout)?)
            }

            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set(WRITE_TIMEOUT, limit(timeout)?)
            }

            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.0.timeout(READ_TIMEOUT)
            }

            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.0.timeout(WRITE_TIMEOUT)
            }
        }
    )*};
}

of_data!(TcpStream UdpSocket);

impl TcpStream {
    pub fn connect<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        each_addr(address, |address| Socket::open(STREAM, address, 0).map(Self))
    }

    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        match Socket::open(STREAM, address, limit(Some(timeout))?) {
            Err(error) if error.raw_os_error() == Some(TIMED_OUT) => {
                Err(io::const_error!(io::ErrorKind::TimedOut, "connection timed out"))
            }
            opened => opened.map(Self),
        }
    }

    pub fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.receive(false, room)?.0)
    }

    pub fn read_buf(&self, cursor: BorrowedCursor<'_>) -> io::Result<()> {
        io::default_read_buf(|room| self.read(room), cursor)
    }

    pub fn read_vectored(&self, room: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        io::default_read_vectored(|room| self.read(room), room)
    }

    pub fn is_read_vectored(&self) -> bool {
        false
    }

    pub fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.0.send(data, NONE)
    }

    pub fn write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        io::default_write_vectored(|data| self.write(data), data)
    }

    pub fn is_write_vectored(&self) -> bool {
        false
    }

    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => 0,
            Shutdown::Write => 1,
            Shutdown::Both => 2,
        };
        self.0.set(SHUTDOWN, how)
    }

    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.set(NODELAY, on.into())
    }

    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.0.get(NODELAY)? != 0)
    }

    pub fn set_linger(&self, _linger: Option<Duration>) -> io::Result<()> {
        unsupported()
    }

    pub fn linger(&self) -> io::Result<Option<Duration>> {
        unsupported()
    }
}

impl TcpListener {
    pub fn bind<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        each_addr(address, |address| Socket::open(LISTENER, address, 0).map(Self))
    }

    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (mut socket, mut from) = (0, NONE);
        // SAFETY: what is written is this function's until the call returns.
        checked(unsafe { abi::socket_accept(self.0.0, &mut socket, &mut from) })?;
        Ok((TcpStream(Socket(socket)), unpacked(from)))
    }

    pub fn set_only_v6(&self, _on: bool) -> io::Result<()> {
        unsupported()
    }

    pub fn only_v6(&self) -> io::Result<bool> {
        unsupported()
    }
}

impl UdpSocket {
    pub fn bind<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        each_addr(address, |address| Socket::open(DATAGRAMS, address, 0).map(Self))
    }

    pub fn connect<A: ToSocketAddrs>(&self, address: A) -> io::Result<()> {
        each_addr(address, |address| {
            let to = packed(address);
            // SAFETY: the address is this function's until the call returns.
            checked(unsafe { abi::socket_connect(self.0.0, &to) })
        })
    }

    pub fn recv(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.receive(false, room)?.0)
    }

    pub fn recv_from(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.receive(false, room).map(|(len, from)| (len, unpacked(from)))
    }

    pub fn peek_from(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.receive(true, room).map(|(len, from)| (len, unpacked(from)))
    }

    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.0.send(data, NONE)
    }

    pub fn send_to(&self, data: &[u8], to: &SocketAddr) -> io::Result<usize> {
        self.0.send(data, packed(to))
    }

    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.0.set(BROADCAST, on.into())
    }

    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(self.0.get(BROADCAST)? != 0)
    }
}

/// What the host does not do: it has no word for who may send to a group.
macro_rules! without_groups {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        impl UdpSocket {
            $(pub fn $name(&self, $(_: $argument),*) -> io::Result<$result> {
                unsupported()
            })*
        }
    };
}

without_groups! {
    set_multicast_loop_v4(bool) -> ();
    multicast_loop_v4() -> bool;
    set_multicast_ttl_v4(u32) -> ();
    multicast_ttl_v4() -> u32;
    set_multicast_loop_v6(bool) -> ();
    multicast_loop_v6() -> bool;
    join_multicast_v4(&Ipv4Addr, &Ipv4Addr) -> ();
    join_multicast_v6(&Ipv6Addr, u32) -> ();
    leave_multicast_v4(&Ipv4Addr, &Ipv4Addr) -> ();
    leave_multicast_v6(&Ipv6Addr, u32) -> ();
}

pub type LookupHost = vec::IntoIter<SocketAddr>;

pub fn lookup_host(name: &str, port: u16) -> io::Result<LookupHost> {
    let found = whole(|room| {
        // SAFETY: name and room are nobody else's until the call returns.
        checked_length(unsafe {
            abi::lookup(name.as_ptr(), name.len(), port.into(), room.as_mut_ptr(), room.len())
        })
    })?;
    let (words, _) = found.as_chunks::<8>();
    let (addresses, _) = words.as_chunks::<3>();
    let addresses = addresses.iter().map(|words| unpacked(words.map(u64::from_le_bytes)));
    Ok(addresses.collect::<vec::Vec<_>>().into_iter())
}
