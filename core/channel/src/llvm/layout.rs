//! Sizes and places: of the shared memory, and of the client object that the device finds it by.

use core::fmt;

/// Words of a lane's buffer.
pub const BUFFER_WORDS: usize = 8;

/// Bytes of a lane's buffer.
pub const BUFFER_BYTES: usize = BUFFER_WORDS * 8;

/// Bytes of a stream that its first buffer carries, after the stream's length.
pub const FIRST_PIECE_BYTES: usize = BUFFER_BYTES - 8;

/// Bytes of a port's header: the lanes' mask and the opcode.
const HEADER_BYTES: usize = 16;

/// Bytes of the later client's doorbell. A client whose doorbell is all zero rings nobody, and the host polls.
const DOORBELL_BYTES: usize = 64;

/// What programs of LLVM's releases expect. They are told apart by the client's symbol and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// LLVM 19 and before: opcodes of 16 bits. The symbol is a pointer to the client object.
    Llvm19,
    /// LLVM 20 and later: opcodes of 32 bits. The symbol is the client object itself.
    Llvm20,
    /// Since 2026: as [`Version::Llvm20`], with a doorbell and more ports.
    Doorbell,
}

impl Version {
    /// Symbol of [`Version::Llvm19`]'s pointer.
    pub const POINTER_SYMBOL: &'static str = "__llvm_libc_rpc_client";

    /// Symbol of the later versions' client object.
    pub const OBJECT_SYMBOL: &'static str = "__llvm_rpc_client";

    /// All versions.
    pub const ALL: [Self; 3] = [Self::Llvm19, Self::Llvm20, Self::Doorbell];

    /// The version of an image that has a symbol of this name and size in bytes.
    pub fn of_symbol(name: &str, bytes: u64) -> Option<Self> {
        let is_it = |version: &Self| version.symbol() == name && version.symbol_bytes() as u64 == bytes;
        Self::ALL.into_iter().find(is_it)
    }

    /// The client's symbol in an image.
    pub const fn symbol(self) -> &'static str {
        if self.symbol_is_pointer() { Self::POINTER_SYMBOL } else { Self::OBJECT_SYMBOL }
    }

    /// Bytes of the symbol.
    pub const fn symbol_bytes(self) -> usize {
        if self.symbol_is_pointer() { 8 } else { self.object_bytes() }
    }

    /// Whether the symbol holds the client object's address instead of the object.
    pub const fn symbol_is_pointer(self) -> bool {
        matches!(self, Self::Llvm19)
    }

    /// Most ports that a client has lock bits for.
    pub const fn max_ports(self) -> u32 {
        match self {
            Self::Llvm19 | Self::Llvm20 => 4096,
            Self::Doorbell => 16384,
        }
    }

    /// Bits of an opcode; the rest of the header's second word means nothing.
    pub const fn opcode_mask(self) -> u32 {
        match self {
            Self::Llvm19 => 0xffff,
            Self::Llvm20 | Self::Doorbell => u32::MAX,
        }
    }

    /// Pointers in the client object, after the count of ports.
    const fn pointers(self) -> usize {
        match self {
            Self::Llvm19 | Self::Llvm20 => 4,
            Self::Doorbell => 5,
        }
    }

    /// Where the client object's lock bits begin.
    pub const fn locks_offset(self) -> usize {
        8 + 8 * self.pointers()
    }

    /// Bytes of the client object.
    pub const fn object_bytes(self) -> usize {
        self.locks_offset() + self.max_ports() as usize / 8
    }

    /// Where the client object's pointer to its inbox is; outbox, headers and buffers follow.
    pub const fn inbox_pointer_offset(self) -> usize {
        8 * self.pointers() - 24
    }
}

/// Why there is no such layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The client has lock bits for 1 to so many ports.
    Ports(u32),
    /// Waves have 1, 32 or 64 lanes.
    Lanes,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports(max) => write!(f, "the program's LLVM takes 1 to {max} ports"),
            Self::Lanes => f.write_str("waves of LLVM's protocol have 1, 32 or 64 lanes"),
        }
    }
}

impl core::error::Error for LayoutError {}

/// Places in the shared memory, in bytes from its start: those that LLVM's own client and server compute, so that either may
/// be given the memory. With a multiple of 16 ports no cache line has words of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    version: Version,
    ports: u32,
    lanes: u32,
}

impl Layout {
    /// The layout of so many ports for waves of so many lanes.
    ///
    /// # Errors
    /// When the version has no such sizes.
    pub const fn new(version: Version, ports: u32, lanes: u32) -> Result<Self, LayoutError> {
        if ports == 0 || ports > version.max_ports() {
            return Err(LayoutError::Ports(version.max_ports()));
        }
        match lanes {
            1 | 32 | 64 => Ok(Self { version, ports, lanes }),
            _ => Err(LayoutError::Lanes),
        }
    }

    /// The version.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Ports.
    pub const fn ports(&self) -> u32 {
        self.ports
    }

    /// Lanes of a wave.
    pub const fn lanes(&self) -> u32 {
        self.lanes
    }

    const fn mailbox_bytes(&self) -> usize {
        self.ports as usize * 4
    }

    /// Mailbox words that the server writes.
    pub const fn primary(&self) -> usize {
        match self.version {
            Version::Llvm19 | Version::Llvm20 => 0,
            Version::Doorbell => DOORBELL_BYTES,
        }
    }

    /// Mailbox words that the client writes.
    pub const fn secondary(&self) -> usize {
        self.primary() + self.mailbox_bytes()
    }

    /// The ports' headers.
    pub const fn headers(&self) -> usize {
        self.secondary() + self.mailbox_bytes()
    }

    /// The ports' buffers.
    pub const fn buffers(&self) -> usize {
        self.headers() + self.ports as usize * HEADER_BYTES
    }

    /// Bytes of it all.
    pub const fn bytes(&self) -> usize {
        self.buffers() + self.ports as usize * self.lanes as usize * BUFFER_BYTES
    }

    /// The client object, for shared memory that the device sees at `address`: its lock bits are zero.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    pub fn client_object(&self, address: u64) -> alloc::vec::Vec<u8> {
        let mut object = alloc::vec![0; self.version.object_bytes()];
        object[..4].copy_from_slice(&self.ports.to_le_bytes());
        // The doorbell, where there is one, comes first.
        let places = [0, self.primary(), self.secondary(), self.headers(), self.buffers()];
        let pointers = object[8..self.version.locks_offset()].chunks_exact_mut(8);
        for (pointer, place) in pointers.rev().zip(places.into_iter().rev()) {
            pointer.copy_from_slice(&(address + place as u64).to_le_bytes());
        }
        object
    }
}
