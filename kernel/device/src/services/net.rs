use hostcall_abi::service::number;
use hostcall_macros::service;

/// Sockets of the host, as far as it opens the network to kernels. Fails with the codes of [`crate::io::Error`].
///
/// An address is three words: its port, from bit 16 on 4 or 6 for the version of the protocol, from bit 32 on the number of an
/// interface (version 6 alone); and the two halves of the address's number, the one that counts more first. Zeros are none.
#[service(number = number::NET, internal)]
pub trait Sockets {
    /// Opens a socket of one of [`socket_kinds`], to or at an address, and gives its handle. To connect takes at most
    /// `timeout_ns`, if that is not 0.
    fn open(kind: u32, at: [u64; 3], timeout_ns: u64) -> u64;
    /// Has a socket of datagrams send to an address, and receive from it alone.
    fn connect(socket: u64, to: [u64; 3]);
    /// Waits for somebody who connects to a listener. Gives the handle of the stream, and the other side's address.
    fn accept(socket: u64) -> (u64, [u64; 3]);
    /// Waits for data, which stays to be received again if `peek` is set. Gives a datagram's sender.
    fn receive(socket: u64, peek: bool, out: &mut [u8]) -> [u64; 3];
    /// Sends data, a datagram to this address if it is one. Gives the bytes sent, less than all at times.
    fn send(socket: u64, to: [u64; 3], data: &[u8]) -> u64;
    /// The socket's address, or that of the other side.
    fn address(socket: u64, of_peer: bool) -> [u64; 3];
    /// Sets one of [`socket_options`].
    fn set(socket: u64, option: u32, value: u64);
    /// Gives one of [`socket_options`].
    fn get(socket: u64, option: u32) -> u64;
    /// Gives another handle of the same socket, which closes with the last one.
    fn duplicate(socket: u64) -> u64;
    /// Closes a socket.
    fn close(socket: u64);
}

/// Names of the network. Fails with the codes of [`crate::io::Error`].
#[service(number = number::NET + 12, internal)]
pub trait Names {
    /// The bytes of a name's addresses, and the addresses if all fit `out`: three words of each as [`Sockets`] has them, of each
    /// of which the first byte counts least.
    fn lookup(name: &[u8], port: u32, out: &mut [u8]) -> u64;
}

/// What a socket is.
pub mod socket_kinds {
    /// A stream to another side.
    pub const STREAM: u32 = 0;
    /// Who waits for others that connect.
    pub const LISTENER: u32 = 1;
    /// Who sends and receives datagrams.
    pub const DATAGRAMS: u32 = 2;
}

/// What may be set or asked of a socket.
pub mod socket_options {
    /// Whether a stream sends small data at once.
    pub const NODELAY: u32 = 0;
    /// How many others pass on what it sends.
    pub const TTL: u32 = 1;
    /// Nanoseconds that data is waited for; 0 for as long as it takes.
    pub const READ_TIMEOUT: u32 = 2;
    /// Nanoseconds that room for data is waited for; 0 for as long as it takes.
    pub const WRITE_TIMEOUT: u32 = 3;
    /// Whether nothing is waited for.
    pub const NONBLOCKING: u32 = 4;
    /// Whether datagrams may go to all of a network.
    pub const BROADCAST: u32 = 5;
    /// The `errno` of what failed meanwhile, which is forgotten; it cannot be set.
    pub const ERROR: u32 = 6;
    /// Ends what is received (0), sent (1), or both (2); it cannot be asked.
    pub const SHUTDOWN: u32 = 7;
}
