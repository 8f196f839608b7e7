//! Kernel descriptors: what the hardware is told before a kernel starts.

use crate::exec::wave::mode;

/// A kernel descriptor of 64 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Bytes of local memory that the kernel itself declares.
    pub group_bytes: u32,
    /// Bytes of scratch memory of a lane.
    pub private_bytes: u32,
    /// Bytes of kernel arguments, or 0 if only the metadata says it.
    pub kernarg_bytes: u32,
    /// From the descriptor to the code.
    pub entry_offset: i64,
    /// Vector and accumulation registers of a lane.
    pub vector_registers: u32,
    /// The first accumulation register.
    pub accumulation: u32,
    /// The MODE register at the start.
    pub mode: u32,
    /// Scalar registers that are filled in before those of the workgroup.
    pub user_registers: u32,
    /// Which of the user registers there are, as the bits of `kernel_code_properties`.
    pub properties: u16,
    /// Which of the workgroup's numbers are in scalar registers: x, y, z.
    pub workgroup_ids: [bool; 3],
    /// Whether a scalar register has information on the workgroup.
    pub workgroup_info: bool,
    /// Whether the stack's size is not known.
    pub dynamic_stack: bool,
    /// Kernel arguments that are loaded into user registers behind those of the properties.
    pub preloaded: Preloaded,
}

/// A part of the kernel arguments, in words of 32 bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preloaded {
    /// Words before it.
    pub offset: u32,
    /// Words of it.
    pub words: u32,
}

/// Bits of `kernel_code_properties`.
pub mod property {
    /// Four registers for the scratch buffer.
    pub const PRIVATE_BUFFER: u16 = 1;
    /// The address of the dispatch packet.
    pub const DISPATCH_POINTER: u16 = 1 << 1;
    /// The address of the queue.
    pub const QUEUE_POINTER: u16 = 1 << 2;
    /// The address of the kernel arguments.
    pub const KERNARG_POINTER: u16 = 1 << 3;
    /// The packet's number.
    pub const DISPATCH_ID: u16 = 1 << 4;
    /// The scratch memory's place.
    pub const FLAT_SCRATCH: u16 = 1 << 5;
    /// Bytes of scratch memory of a lane.
    pub const PRIVATE_SIZE: u16 = 1 << 6;
    /// Waves of 32 lanes.
    pub const WAVE_32: u16 = 1 << 10;
    /// The stack's size is not known.
    pub const DYNAMIC_STACK: u16 = 1 << 11;
}

/// The most bytes of local memory of a workgroup.
pub const MOST_GROUP_BYTES: u32 = 64 << 10;

/// The most bytes of scratch memory of a lane.
pub const MOST_PRIVATE_BYTES: u32 = 1 << 20;

impl Descriptor {
    /// Bytes of a descriptor.
    pub const BYTES: usize = 64;

    /// Returns the distance from the descriptor to the first instruction, if there is one. The code of a kernel with
    /// preloaded arguments begins with 256 bytes that load them where nobody else does (LLVM's guide for AMDGPU,
    /// "Preloaded Kernel Arguments").
    pub fn first_instruction(&self) -> Option<i64> {
        self.entry_offset.checked_add(if self.preloaded.words > 0 { 256 } else { 0 })
    }

    /// Reads a descriptor.
    ///
    /// # Errors
    ///
    /// Returns what cannot be true.
    pub fn read(raw: &[u8; Self::BYTES]) -> Result<Descriptor, String> {
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let (group_bytes, private_bytes, kernarg_bytes) = (word(0), word(4), word(8));
        if group_bytes > MOST_GROUP_BYTES {
            return Err(format!(
                "it declares {group_bytes} bytes of local memory; a workgroup has {MOST_GROUP_BYTES}"
            ));
        }
        if private_bytes > MOST_PRIVATE_BYTES {
            return Err(format!(
                "it declares {private_bytes} bytes of scratch; a lane has {MOST_PRIVATE_BYTES}"
            ));
        }
        let (rsrc3, rsrc1, rsrc2) = (word(44), word(48), word(52));
        let properties = word(56) as u16;
        if properties & property::WAVE_32 != 0 {
            return Err("it asks for waves of 32 lanes, which gfx942 does not have".to_owned());
        }
        let vector_registers = ((rsrc1 & 63) + 1) * 8;
        let accumulation = ((rsrc3 & 63) + 1) * 4;
        let mode = rsrc1 >> 12 & 255
            | if rsrc1 >> 21 & 1 != 0 { mode::DX10_CLAMP } else { 0 }
            | if rsrc1 >> 23 & 1 != 0 { mode::IEEE } else { 0 };
        if rsrc1 >> 26 & 1 != 0 {
            return Err(
                "it asks for 16-bit results that do not overflow, which the interpreter lacks".to_owned()
            );
        }
        if rsrc2 >> 24 & 127 != 0 {
            return Err("it asks for traps of exceptions, which the interpreter lacks".to_owned());
        }
        let user_registers = rsrc2 >> 1 & 31;
        let preloaded = Preloaded { offset: word(56) >> 23, words: word(56) >> 16 & 127 };
        if preloaded.words > user_registers {
            return Err(format!(
                "it asks for {} words of arguments in {user_registers} registers",
                preloaded.words
            ));
        }
        let bit = |number: u32| rsrc2 >> number & 1 != 0;
        Ok(Descriptor {
            group_bytes,
            private_bytes,
            kernarg_bytes,
            entry_offset: i64::from(word(16)) | i64::from(word(20) as i32) << 32,
            vector_registers,
            accumulation,
            mode,
            user_registers,
            properties,
            workgroup_ids: [bit(7), bit(8), bit(9)],
            workgroup_info: bit(10),
            dynamic_stack: properties & property::DYNAMIC_STACK != 0,
            preloaded,
        })
    }
}
