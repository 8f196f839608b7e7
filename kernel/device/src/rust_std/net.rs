//! Sockets and names of the network.

use super::{bytes, code, length, put, room};
use crate::services::{Names, Sockets};

/// Bytes that one call sends or receives at most, as the host has it.
const MAX_BYTES: usize = 1 << 20;

/// An address as [`Sockets`] has it; the layer has the same.
type Address = [u64; 3];

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_socket_open(
    kind: u32,
    at: *const Address,
    timeout_ns: u64,
    socket: *mut u64,
) -> i32 {
    // SAFETY: ABI.
    unsafe { put(Sockets::open(kind, *at, timeout_ns), socket) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_socket_connect(socket: u64, to: *const Address) -> i32 {
    // SAFETY: ABI.
    code(Sockets::connect(socket, unsafe { *to }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_socket_accept(socket: u64, new: *mut u64, from: *mut Address) -> i32 {
    let accepted = Sockets::accept(socket).map(|(stream, address)| {
        // SAFETY: ABI.
        unsafe { from.write(address) };
        stream
    });
    // SAFETY: ABI.
    unsafe { put(accepted, new) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_socket_receive(
    socket: u64,
    peek: bool,
    data: *mut u8,
    len: usize,
    from: *mut Address,
) -> i64 {
    // SAFETY: ABI.
    let data = unsafe { room(data, len.min(MAX_BYTES)) };
    length(Sockets::receive(socket, peek, data).map(|(address, len)| {
        // SAFETY: ABI.
        unsafe { from.write(address) };
        len
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_socket_send(
    socket: u64,
    to: *const Address,
    data: *const u8,
    len: usize,
) -> i64 {
    // SAFETY: ABI.
    let (to, data) = unsafe { (*to, bytes(data, len.min(MAX_BYTES))) };
    length(Sockets::send(socket, to, data).map(|len| len as usize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_socket_address(socket: u64, of_peer: bool, address: *mut Address) -> i32 {
    // SAFETY: ABI.
    unsafe { put(Sockets::address(socket, of_peer), address) }
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_socket_set(socket: u64, option: u32, value: u64) -> i32 {
    code(Sockets::set(socket, option, value))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_socket_get(socket: u64, option: u32, value: *mut u64) -> i32 {
    // SAFETY: ABI.
    unsafe { put(Sockets::get(socket, option), value) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_socket_duplicate(socket: u64, other: *mut u64) -> i32 {
    // SAFETY: ABI.
    unsafe { put(Sockets::duplicate(socket), other) }
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_socket_close(socket: u64) {
    // Nobody is left to be told.
    let _ = Sockets::close(socket);
}

/// A name's addresses, as [`Names::lookup`] has them; the length says how many bytes all have.
#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_lookup(
    name: *const u8,
    len: usize,
    port: u32,
    data: *mut u8,
    data_len: usize,
) -> i64 {
    // SAFETY: ABI.
    let (name, data) = unsafe { (bytes(name, len), room(data, data_len)) };
    length(Names::lookup(name, port, data).map(|(len, _)| len as usize))
}
