//! A client of LLVM's RPC protocol, for kernels that talk to a server of it: the host's `llvm::LlvmServer`, or
//! LLVM's own. Kernels have calls of hostcall's own for what libc's opcodes do.

use crate::group::Group;
use crate::kernel::KernelArg;
use crate::{packet, target};
use core::marker::PhantomData;
use core::panic::Location;
use hostcall_abi::schema;
use hostcall_channel::llvm::{Version, client};

/// Polls between looks at whether the launch was cancelled: one read over the link each.
const POLLS_A_LOOK: u32 = 256;

/// A client that a kernel got as an argument, whose ports' memory lives until the launch has ended.
#[derive(Clone, Copy)]
pub struct Client<'launch>(client::Client<'launch>, PhantomData<*const ()>);

/// A port that the lanes of a wave which came together opened. They call its functions together.
pub struct Port<'launch>(client::Port<'launch, Lanes>);

struct Lanes(Group);

impl client::Wave for Lanes {
    #[inline(always)]
    fn mask(&self) -> u64 {
        target::bits(self.0.mask)
    }

    #[inline(always)]
    fn lane(&self) -> u32 {
        self.0.here.lane_index()
    }

    #[inline(always)]
    fn is_leader(&self) -> bool {
        self.0.is_leader()
    }

    #[inline(always)]
    fn of_leader(&self, value: u64) -> u64 {
        self.0.of_leader(value)
    }

    #[inline(always)]
    fn any(&self, yes: bool) -> bool {
        self.0.here.ballot(self.0.mask, yes) != 0
    }

    #[inline(always)]
    fn sync(&self) {
        self.0.sync();
    }

    #[inline(always)]
    fn wait(&self, mut poll: impl FnMut() -> bool) {
        let here = self.0.here;
        let (mut polls, mut cancelled) = (0u32, false);
        here.wait(|| {
            polls = polls.wrapping_add(1);
            cancelled = polls.is_multiple_of(POLLS_A_LOOK) && packet::is_over(here);
            poll() || cancelled
        });
        if cancelled && !here.unwinding() {
            target::exit_lane();
        }
    }
}

impl<'launch> Client<'launch> {
    /// Opens a port for the lanes that come here together, all with the same opcode.
    #[inline(always)]
    #[track_caller]
    pub fn open(&self, opcode: u32) -> Port<'launch> {
        let group = Group::converge(core::ptr::from_ref(Location::caller()) as usize as u64);
        Port(self.0.open(Lanes(group), opcode, group.here.hardware_place()))
    }
}

impl Port<'_> {
    /// Sends up to 8 words of this lane.
    #[inline(always)]
    pub fn send(&mut self, words: &[u64]) {
        self.0.send(words);
    }

    /// Receives up to 8 words for this lane.
    #[inline(always)]
    pub fn receive(&mut self, words: &mut [u64]) {
        self.0.receive(words);
    }

    /// Sends bytes, of any number in each lane.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.send_bytes(bytes);
    }

    /// Receives bytes for this lane, as many as `into` takes. How many were sent.
    pub fn receive_bytes(&mut self, into: &mut [u8]) -> u64 {
        self.0.receive_bytes(into)
    }

    /// Gives the port back.
    #[inline(always)]
    pub fn close(self) {
        self.0.close();
    }
}

/// The raw argument of a client whose object of this version lies at `address`, a multiple of 8.
#[doc(hidden)]
pub const fn raw(address: u64, version: Version) -> u64 {
    address | version as u64
}

// SAFETY: an address is a `u64` on every target.
unsafe impl KernelArg for Client<'_> {
    type Raw = u64;
    type Value<'launch> = Client<'launch>;
    const SCHEMA: u64 = schema::of("LLVM's client");
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: u64) -> Client<'launch> {
        let version = match raw & 7 {
            0 => Version::Llvm19,
            1 => Version::Llvm20,
            _ => Version::Doorbell,
        };
        // SAFETY: by this function's contract the host has put a client object of the version there, for waves of
        // this device, and keeps its memory while the kernel runs.
        Client(
            unsafe { client::Client::from_address(raw & !7, version, target::here().wave_size()) },
            PhantomData,
        )
    }
    fn write(raw: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&raw.to_ne_bytes());
    }
}
