//! Who runs a script: lanes of the software device, or a thread that is a wave of one lane.

use crate::scripts::Script;
use hostcall::device::RawArg;
use hostcall::hostcall_device::llvm::{Client, Port};
use hostcall::hostcall_device::{Global, Lane, kernel};
use hostcall::llvm::Version;
use hostcall::{Device, Grid, LaunchKernel};
use hostcall_channel::llvm::client::{self, Alone};
use std::io::Write;

/// What a lane noted, in its order.
pub type Record = Vec<u64>;

/// Most words of a lane's record.
const RECORD_WORDS: usize = 4096;

/// A client's port.
pub trait Talk {
    /// Sends words.
    fn send(&mut self, words: &[u64]);
    /// Receives words.
    fn receive(&mut self, words: &mut [u64]);
    /// Sends bytes.
    fn send_bytes(&mut self, bytes: &[u8]);
    /// Receives bytes, and how many were sent.
    fn receive_bytes(&mut self, into: &mut [u8]) -> u64;
    /// Whether `yes` holds for some lane.
    fn any(&self, yes: bool) -> bool;
    /// Gives the port back.
    fn close(self);
}

/// A lane that runs a script.
pub trait Caller {
    /// Its ports.
    type Port: Talk;
    /// Opens a port for the lanes that come here together.
    fn open(&self, opcode: u32) -> Self::Port;
    /// The lane's index in the wave.
    fn lane(&self) -> u64;
    /// Host function that writes its argument to stdout.
    fn host_function(&self) -> u64;
    /// Notes a word.
    fn note(&mut self, word: u64);
}

/// What the function for host calls does.
pub fn write_argument(bytes: &[u8]) {
    let mut stdout = std::io::stdout();
    // The tests see what is missing.
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

struct LanePort<'l>(Port<'l>, &'l Lane);

impl Talk for LanePort<'_> {
    fn send(&mut self, words: &[u64]) {
        self.0.send(words);
    }
    fn receive(&mut self, words: &mut [u64]) {
        self.0.receive(words);
    }
    fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.send_bytes(bytes);
    }
    fn receive_bytes(&mut self, into: &mut [u8]) -> u64 {
        self.0.receive_bytes(into)
    }
    fn any(&self, yes: bool) -> bool {
        self.1.ballot(yes) != 0
    }
    fn close(self) {
        self.0.close();
    }
}

struct DeviceCaller<'a> {
    lane: &'a Lane,
    client: Client<'a>,
    host_function: u64,
    record: &'a [Global<u64>],
}

impl<'a> Caller for DeviceCaller<'a> {
    type Port = LanePort<'a>;
    fn open(&self, opcode: u32) -> LanePort<'a> {
        LanePort(self.client.open(opcode), self.lane)
    }
    fn lane(&self) -> u64 {
        self.lane.index().into()
    }
    fn host_function(&self) -> u64 {
        self.host_function
    }
    fn note(&mut self, word: u64) {
        let count = self.record[0].get() + 1;
        self.record[count as usize].set(word);
        self.record[0].set(count);
    }
}

#[kernel]
fn run_script(
    lane: &Lane,
    client: Client,
    script: u32,
    base: u32,
    host_function: u64,
    lanes: u64,
    records: &[Global<u64>],
) {
    if lanes >> lane.index() & 1 != 0 {
        let record = &records[lane.index() as usize * RECORD_WORDS..][..RECORD_WORDS];
        let mut caller = DeviceCaller { lane, client, host_function, record };
        crate::scripts::run(script as usize, &mut caller, base);
    }
}

struct AlonePort<'c>(client::Port<'c, Alone<fn()>>);

impl Talk for AlonePort<'_> {
    fn send(&mut self, words: &[u64]) {
        self.0.send(words);
    }
    fn receive(&mut self, words: &mut [u64]) {
        self.0.receive(words);
    }
    fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.send_bytes(bytes);
    }
    fn receive_bytes(&mut self, into: &mut [u8]) -> u64 {
        self.0.receive_bytes(into)
    }
    fn any(&self, yes: bool) -> bool {
        yes
    }
    fn close(self) {
        self.0.close();
    }
}

struct ThreadCaller {
    client: client::Client<'static>,
    host_function: u64,
    record: Record,
}

impl Caller for ThreadCaller {
    type Port = AlonePort<'static>;
    fn open(&self, opcode: u32) -> AlonePort<'static> {
        AlonePort(self.client.open(Alone(std::thread::yield_now), opcode, 0))
    }
    fn lane(&self) -> u64 {
        0
    }
    fn host_function(&self) -> u64 {
        self.host_function
    }
    fn note(&mut self, word: u64) {
        self.record.push(word);
    }
}

/// First opcode of libc's services.
fn base(version: Version) -> u32 {
    if version == Version::Llvm19 { 0 } else { 0x6300_0000 }
}

/// Runs a script on one wave: on the lanes of the mask, or on a thread when waves have one lane.
///
/// # Panics
/// When the software device does not run it.
///
/// # Safety
/// The client is one of the version, for waves of so many lanes. Its server may call the function at
/// `host_function` as [`LlvmRpcServer::host_function`](crate::LlvmRpcServer::host_function) is called.
pub unsafe fn run(
    script: &Script,
    lanes: u32,
    version: Version,
    client: &RawArg<Client<'static>>,
    host_function: u64,
) -> Vec<Record> {
    if lanes == 1 {
        let address = client.raw() & !7;
        // SAFETY: by the caller's promise; the argument, which outlives the script's run, keeps the object.
        let client = unsafe { client::Client::from_address(address, version, 1) };
        let mut caller = ThreadCaller { client, host_function, record: Record::new() };
        crate::scripts::run(script.index(), &mut caller, base(version));
        return vec![caller.record];
    }
    let device = Device::builder("cpu").wave_size(lanes).open().expect("the software device opens");
    let stream = device.stream().expect("it has streams");
    let records = device.alloc_zeroed::<u64>(RECORD_WORDS * lanes as usize).expect("there is memory");
    let arguments = (
        client,
        script.index() as u32,
        base(version),
        host_function,
        if script.one_lane { 1 } else { u64::MAX },
        &records,
    );
    run_script.launch(&stream, Grid::new(1, lanes), arguments).expect("it launches");
    stream.synchronize().expect("every lane ends well");
    let words = records.read().expect("the records are there");
    words.chunks(RECORD_WORDS).map(|record| record[1..=record[0] as usize].to_vec()).collect()
}
