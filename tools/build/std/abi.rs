//! The functions that reach the host. The device crate says what they return, and what is promised of their arguments.

use crate::sync::atomic::Atomic;

/// What is said of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Metadata {
    pub len: u64,
    pub modified_ns: i64,
    pub kind: u32,
    pub mode: u32,
}

/// An address of the network; the layer's `net` says how it is packed.
pub type Address = [u64; 3];

macro_rules! functions {
    ($($symbol:literal $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $(
                #[link_name = $symbol]
                pub fn $name($($argument: $type),*) $(-> $result)?;
            )*
        }
    };
}

functions! {
    "__hostcall_std_write" write(stream: u32, data: *const u8, len: usize) -> i32;
    "__hostcall_std_flush" flush() -> i32;
    "__hostcall_std_read" read(data: *mut u8, len: usize) -> i64;
    "__hostcall_std_arg" arg(index: u32, data: *mut u8, len: usize) -> i64;
    "__hostcall_std_var_at" var_at(index: u32, data: *mut u8, len: usize) -> i64;
    "__hostcall_std_current_dir" current_dir(data: *mut u8, len: usize) -> i64;
    "__hostcall_std_random" random(data: *mut u8, len: usize) -> i32;
    "__hostcall_std_wall_ns" wall_ns() -> i64;
    "__hostcall_std_clock_ns" clock_ns() -> u64;
    "__hostcall_std_sleep" sleep(ns: u64);
    "__hostcall_std_spawn" spawn(start: *mut u8, stack_bytes: usize) -> i32;
    "__hostcall_std_ended" ended();
    "__hostcall_std_waves" waves() -> usize;
    "__hostcall_std_thread_number" thread_number() -> u32;
    "__hostcall_std_locals" locals() -> *mut [usize; 2];
    "__hostcall_std_wait" wait(word: *const Atomic<u32>, expected: u32, timeout_ns: u64) -> bool;
    "__hostcall_std_alloc" alloc(size: usize, align: usize) -> *mut u8;
    "__hostcall_std_dealloc" dealloc(data: *mut u8);
    "__hostcall_std_exit" exit(code: i32) -> !;
    "__hostcall_std_panicked" panicked(
        message: *const u8,
        message_len: usize,
        file: *const u8,
        file_len: usize,
        line: u32,
        column: u32
    );
    "__hostcall_std_end" end() -> !;
    "__hostcall_std_open" open(path: *const u8, len: usize, flags: u32, file: *mut u64) -> i32;
    "__hostcall_std_close" close(file: u64);
    "__hostcall_std_file_read" file_read(file: u64, data: *mut u8, len: usize) -> i64;
    "__hostcall_std_file_write" file_write(file: u64, data: *const u8, len: usize) -> i64;
    "__hostcall_std_file_seek" file_seek(file: u64, whence: u32, offset: i64, at: *mut u64) -> i32;
    "__hostcall_std_file_set_len" file_set_len(file: u64, len: u64) -> i32;
    "__hostcall_std_file_sync" file_sync(file: u64) -> i32;
    "__hostcall_std_file_metadata" file_metadata(file: u64, to: *mut Metadata) -> i32;
    "__hostcall_std_metadata" metadata(path: *const u8, len: usize, follow: bool, to: *mut Metadata) -> i32;
    "__hostcall_std_set_permissions" set_permissions(path: *const u8, len: usize, mode: u32) -> i32;
    "__hostcall_std_entries" entries(path: *const u8, len: usize, data: *mut u8, data_len: usize) -> i64;
    "__hostcall_std_canonicalize" canonicalize(path: *const u8, len: usize, data: *mut u8, data_len: usize) -> i64;
    "__hostcall_std_remove" remove(path: *const u8, len: usize) -> i32;
    "__hostcall_std_create_dir" create_dir(path: *const u8, len: usize) -> i32;
    "__hostcall_std_remove_dir" remove_dir(path: *const u8, len: usize) -> i32;
    "__hostcall_std_remove_dir_all" remove_dir_all(path: *const u8, len: usize) -> i32;
    "__hostcall_std_rename" rename(from: *const u8, from_len: usize, to: *const u8, to_len: usize) -> i32;
    "__hostcall_std_copy" copy(from: *const u8, from_len: usize, to: *const u8, to_len: usize) -> i64;
    "__hostcall_std_socket_open" socket_open(kind: u32, at: *const Address, timeout_ns: u64, socket: *mut u64) -> i32;
    "__hostcall_std_socket_connect" socket_connect(socket: u64, to: *const Address) -> i32;
    "__hostcall_std_socket_accept" socket_accept(socket: u64, new: *mut u64, from: *mut Address) -> i32;
    "__hostcall_std_socket_receive" socket_receive(
        socket: u64,
        peek: bool,
        data: *mut u8,
        len: usize,
        from: *mut Address
    ) -> i64;
    "__hostcall_std_socket_send" socket_send(socket: u64, to: *const Address, data: *const u8, len: usize) -> i64;
    "__hostcall_std_socket_address" socket_address(socket: u64, of_peer: bool, address: *mut Address) -> i32;
    "__hostcall_std_socket_set" socket_set(socket: u64, option: u32, value: u64) -> i32;
    "__hostcall_std_socket_get" socket_get(socket: u64, option: u32, value: *mut u64) -> i32;
    "__hostcall_std_socket_duplicate" socket_duplicate(socket: u64, other: *mut u64) -> i32;
    "__hostcall_std_socket_close" socket_close(socket: u64);
    "__hostcall_std_lookup" lookup(name: *const u8, len: usize, port: u32, data: *mut u8, data_len: usize) -> i64;
}
