//! Calls of LLVM's protocol with one packet allocate nothing on the host.
#![allow(unsafe_code, reason = "counts in the global allocator, and where the heap's memory is allocated")]

use hostcall::hostcall_device::llvm::Client;
use hostcall::hostcall_device::{Lane, kernel};
use hostcall::llvm::{LlvmClient, LlvmServer, Options, Version};
use hostcall::services::{Block, Builtins, HeapMemory, ProcessMemory};
use hostcall::{Device, Grid, LaunchKernel};
use std::alloc::{GlobalAlloc, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Allocations of threads that count theirs.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

#[global_allocator]
static GLOBAL: Counting = Counting;

// SAFETY: everything is the system allocator's, which keeps the trait's promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: the caller's promise; `alloc` gave the memory.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Sizes for which the memory below begins and ends to count.
const BEGIN: u64 = 1001;
const END: u64 = 1002;

/// Memory whose allocation runs on the server's thread, and tells it to count.
struct Switch;

// SAFETY: the memory is the process's, as the software device's kernels need it.
unsafe impl HeapMemory for Switch {
    fn allocate(&self, bytes: u64, align: u64) -> Option<Block> {
        COUNTS.set(false);
        let block = ProcessMemory.allocate(bytes, align);
        COUNTS.set(bytes == BEGIN);
        block
    }
}

fn ask(client: Client, opcode: u32, word: u64) -> u64 {
    let mut port = client.open(opcode);
    port.send(&[word]);
    let mut answer = [0];
    port.receive(&mut answer);
    port.close();
    answer[0]
}

fn calls(client: Client) {
    for i in 0..200 {
        assert_eq!(ask(client, 0x8001, i), i + 1);
        assert_eq!(ask(client, 14, 2), 0);
        let mut noop = client.open(0);
        noop.send(&[]);
        noop.close();
        let mut stream = client.open(0x8003);
        stream.send_bytes(&[7; 40]);
        assert_eq!(stream.receive_bytes(&mut [0; 40]), 40);
        stream.close();
    }
}

#[kernel]
fn counted(lane: &Lane, client: Client) {
    calls(client);
    lane.barrier();
    // The heap's table has room for a few from its first entry on.
    for size in [1000, BEGIN] {
        lane.once_per_workgroup(|| ask(client, 10, size));
    }
    calls(client);
    lane.barrier();
    lane.once_per_workgroup(|| ask(client, 10, END));
}

#[test]
fn calls_of_one_packet_allocate_nothing() {
    let device = Device::open("cpu").unwrap();
    let client = LlvmClient::new(&device, Version::Llvm19, 64).unwrap();
    let builtins = Builtins::builder().heap(Switch, 1 << 30).build().unwrap();
    let server = LlvmServer::start(client.memory(), &builtins, Options::default()).unwrap();
    let stream = device.stream().unwrap();
    counted.launch(&stream, Grid::new(1, 100), (&client,)).unwrap();
    stream.synchronize().unwrap();
    drop(server);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
}
