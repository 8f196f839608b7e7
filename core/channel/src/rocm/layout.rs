//! Sizes and places of a buffer of packets.

use core::fmt;

/// Lanes of a packet's payload, whatever the device's waves have.
pub const LANES: u32 = 64;

/// Words of a lane.
pub const SLOT_WORDS: usize = 8;

/// A buffer's alignment in bytes, and that of each of its parts.
pub const ALIGN: usize = 64;

/// Most packets of a buffer, whose payloads are 4 GiB then.
pub const MAX_PACKETS: u32 = 1 << 20;

/// Bytes of a packet's payload.
const PAYLOAD_BYTES: usize = LANES as usize * SLOT_WORDS * 8;

/// Where the buffer's own signal lies: behind the root, whose fields are 48 or 56 bytes.
const SIGNAL: usize = 64;

/// What the packets lie behind: root and signal.
const HEAD_BYTES: usize = 128;

/// How waves find free packets and submit them. Nothing in a buffer tells the versions apart: what the kernels were
/// compiled with decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Two stacks, of free and of ready packets: all releases until 2026.
    Stacks,
    /// Two phases a packet, which differ while the packet waits for the host: since 2026.
    Phases,
}

impl Version {
    /// All versions.
    pub const ALL: [Self; 2] = [Self::Stacks, Self::Phases];

    /// Bytes of a packet's header.
    const fn header_bytes(self) -> usize {
        match self {
            Self::Stacks => 24,
            Self::Phases => 16,
        }
    }
}

/// A buffer has 1 to [`MAX_PACKETS`] packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutError(pub u32);

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a hostcall buffer has 1 to {MAX_PACKETS} packets, and not {}", self.0)
    }
}

impl core::error::Error for LayoutError {}

/// Places in a buffer, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    version: Version,
    packets: u32,
}

impl Layout {
    /// The layout of so many packets. There should be as many as waves can be resident: a wave that finds none free waits.
    ///
    /// # Errors
    /// When a buffer cannot have so many.
    pub const fn new(version: Version, packets: u32) -> Result<Self, LayoutError> {
        match packets {
            1..=MAX_PACKETS => Ok(Self { version, packets }),
            _ => Err(LayoutError(packets)),
        }
    }

    /// The version.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Packets.
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// What a pointer of the stacks has for an index; the rest is its tag.
    pub const fn index_mask(&self) -> u64 {
        self.packets.next_power_of_two() as u64 - 1
    }

    /// A signal of 64 bytes that raises no interrupt, as the device's doorbell unless another is given.
    pub const fn signal(&self) -> usize {
        SIGNAL
    }

    const fn words(&self) -> usize {
        (self.packets as usize * 4).next_multiple_of(ALIGN)
    }

    /// The device's phases, of [`Version::Phases`].
    pub const fn device_phases(&self) -> usize {
        HEAD_BYTES
    }

    /// The host's phases, of [`Version::Phases`].
    pub const fn host_phases(&self) -> usize {
        self.device_phases() + self.words()
    }

    /// A bit for each packet that a wave has, of [`Version::Phases`], unless they lie in the device's own memory.
    pub const fn occupied(&self) -> usize {
        self.host_phases() + self.words()
    }

    /// Words of [`Layout::occupied`].
    pub const fn occupied_words(&self) -> usize {
        (self.packets as usize).div_ceil(32)
    }

    /// Headers.
    pub const fn headers(&self) -> usize {
        match self.version {
            Version::Stacks => HEAD_BYTES,
            Version::Phases => self.occupied() + (self.occupied_words() * 4).next_multiple_of(ALIGN),
        }
    }

    /// Payloads.
    pub const fn payloads(&self) -> usize {
        (self.headers() + self.packets as usize * self.version.header_bytes()).next_multiple_of(ALIGN)
    }

    /// Bytes of the buffer.
    pub const fn bytes(&self) -> usize {
        self.payloads() + self.packets as usize * PAYLOAD_BYTES
    }
}
