//! Kernel descriptors: what the hardware is told before a kernel starts (LLVM's guide for AMDGPU, "Kernel Descriptor").

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
    /// Whether lanes have scratch memory.
    pub has_scratch: bool,
    /// Which of the workgroup's numbers are in scalar registers: x, y, z.
    pub workgroup_ids: [bool; 3],
    /// Whether a scalar register has information on the workgroup.
    pub workgroup_info: bool,
    /// Of how many dimensions v0 holds a lane's number in its workgroup, from 1 to 3. The bits of the others are 0.
    pub workitem_dimensions: usize,
    /// Whether the waves of a workgroup may run on different compute units, which share no local memory.
    pub is_split: bool,
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
    /// The address of the dispatch packet.
    pub const DISPATCH_POINTER: u16 = 1 << 1;
    /// The address of the queue.
    pub const QUEUE_POINTER: u16 = 1 << 2;
    /// The address of the kernel arguments.
    pub const KERNARG_POINTER: u16 = 1 << 3;
    /// The packet's number.
    pub const DISPATCH_ID: u16 = 1 << 4;
    /// Bytes of scratch memory of a lane.
    pub const PRIVATE_SIZE: u16 = 1 << 6;
    /// The stack's size is not known.
    pub const DYNAMIC_STACK: u16 = 1 << 11;

    /// Returns how many user registers the bits ask for.
    pub fn registers(properties: u16) -> u32 {
        let pairs = properties & (DISPATCH_POINTER | QUEUE_POINTER | KERNARG_POINTER | DISPATCH_ID);
        pairs.count_ones() * 2 + u32::from(properties & PRIVATE_SIZE != 0)
    }
}

/// Where the words of a descriptor are that hold fields of several bits.
const RSRC3: usize = 44;
const RSRC1: usize = 48;
const RSRC2: usize = 52;
const PROPERTIES: usize = 56;

/// What is 0 in every descriptor for this processor: a word's place, its bits, and what they are.
const ZERO: &[(usize, u32, &str)] = &[
    (12, !0, "the reserved bytes 12 to 15"),
    (24, !0, "the reserved bytes 24 to 43"),
    (28, !0, "the reserved bytes 24 to 43"),
    (32, !0, "the reserved bytes 24 to 43"),
    (36, !0, "the reserved bytes 24 to 43"),
    (40, !0, "the reserved bytes 24 to 43"),
    (RSRC3, 0xfffe_ffc0, "reserved bits of COMPUTE_PGM_RSRC3"),
    (RSRC1, 3 << 10, "PRIORITY"),
    (RSRC1, 1 << 20, "PRIV"),
    (RSRC1, 1 << 22, "DEBUG_MODE"),
    (RSRC1, 1 << 24, "BULKY"),
    (RSRC1, 1 << 25, "CDBG_USER"),
    (RSRC1, 31 << 27, "reserved bits of COMPUTE_PGM_RSRC1"),
    (RSRC2, 1 << 6, "ENABLE_TRAP_HANDLER"),
    (RSRC2, 1 << 13, "ENABLE_EXCEPTION_ADDRESS_WATCH"),
    (RSRC2, 1 << 14, "ENABLE_EXCEPTION_MEMORY"),
    (RSRC2, 0x1ff << 15, "GRANULATED_LDS_SIZE"),
    (RSRC2, 1 << 31, "the reserved bit of COMPUTE_PGM_RSRC2"),
    (PROPERTIES, 1, "ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER"),
    (PROPERTIES, 1 << 5, "ENABLE_SGPR_FLAT_SCRATCH_INIT"),
    (PROPERTIES, 7 << 7 | 15 << 12, "reserved bits of the kernel code properties"),
    (60, !0, "the reserved bytes 60 to 63"),
];

/// A field that says that the kernel needs what the processor, or the interpreter, does not have.
const LACKED: &[(usize, u32, &str)] = &[
    (PROPERTIES, 1 << 10, "waves of 32 lanes, which gfx942 does not have"),
    (RSRC1, 1 << 26, "16-bit results that do not overflow, which the interpreter lacks"),
    (RSRC2, 127 << 24, "traps of exceptions, which the interpreter lacks"),
];

/// The most bytes of local memory of a workgroup.
const MOST_GROUP_BYTES: u32 = 64 << 10;

/// The most bytes of scratch memory of a lane.
const MOST_PRIVATE_BYTES: u32 = 1 << 20;

/// The most registers that are filled in before those of the workgroup.
const MOST_USER_REGISTERS: u32 = 16;

/// The most scalar registers of a wave, VCC and what else lies behind the numbered ones included.
const MOST_SCALAR_REGISTERS: u32 = 112;

impl Descriptor {
    /// Bytes of a descriptor.
    pub const BYTES: usize = 64;

    /// What a descriptor's address is a multiple of.
    pub const ALIGNMENT: u64 = 64;

    /// What the address of a kernel's code is a multiple of.
    pub const CODE_ALIGNMENT: u64 = 256;

    /// Returns the distance from the descriptor to the first instruction, if there is one. The code of a kernel with
    /// preloaded arguments begins with 256 bytes that load them where nobody else does (LLVM's guide for AMDGPU,
    /// "Preloaded Kernel Arguments").
    pub fn first_instruction(&self) -> Option<i64> {
        self.entry_offset.checked_add(if self.preloaded.words > 0 { 256 } else { 0 })
    }

    /// Returns the bytes of local memory of a workgroup, and of scratch memory of a lane, in a dispatch that asks for so
    /// many.
    ///
    /// # Errors
    ///
    /// Returns what there is not.
    pub fn memory(&self, group_bytes: u32, private_bytes: u32) -> Result<(u32, u32), String> {
        let group_bytes = group_bytes.max(self.group_bytes);
        let private_bytes = private_bytes.max(self.private_bytes);
        if group_bytes > MOST_GROUP_BYTES {
            return Err(format!(
                "it is to have {group_bytes} bytes of local memory; a workgroup has {MOST_GROUP_BYTES}"
            ));
        }
        if private_bytes > MOST_PRIVATE_BYTES {
            return Err(format!(
                "it is to have {private_bytes} bytes of scratch; a lane has {MOST_PRIVATE_BYTES}"
            ));
        }
        if self.is_split && group_bytes > 0 {
            return Err(format!(
                "it is to have {group_bytes} bytes of local memory and waves on different compute units (TG_SPLIT), which share \
                 none: compile it without -mtgsplit"
            ));
        }
        // A kernel that does not use scratch has none, whatever is asked for.
        let private_bytes = if self.has_scratch { private_bytes.next_multiple_of(4) } else { 0 };
        Ok((group_bytes, private_bytes))
    }

    /// Reads a descriptor.
    ///
    /// # Errors
    ///
    /// Returns what cannot be true.
    pub fn read(raw: &[u8; Self::BYTES]) -> Result<Descriptor, String> {
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        if let Some((_, _, what)) = ZERO.iter().find(|(at, bits, _)| word(*at) & bits != 0) {
            return Err(format!(
                "its descriptor has bits set that are 0 for gfx942 ({what}): compile it again"
            ));
        }
        if let Some((_, _, what)) = LACKED.iter().find(|(at, bits, _)| word(*at) & bits != 0) {
            return Err(format!("it asks for {what}"));
        }
        let (rsrc3, rsrc1, rsrc2) = (word(RSRC3), word(RSRC1), word(RSRC2));
        let bit = |number: u32| rsrc2 >> number & 1 != 0;
        let properties = word(PROPERTIES) as u16;
        let mode = rsrc1 >> 12 & 255
            | if rsrc1 >> 21 & 1 != 0 { mode::DX10_CLAMP } else { 0 }
            | if rsrc1 >> 23 & 1 != 0 { mode::IEEE } else { 0 };
        let descriptor = Descriptor {
            group_bytes: word(0),
            private_bytes: word(4),
            kernarg_bytes: word(8),
            entry_offset: i64::from(word(16)) | i64::from(word(20) as i32) << 32,
            vector_registers: ((rsrc1 & 63) + 1) * 8,
            accumulation: ((rsrc3 & 63) + 1) * 4,
            mode,
            user_registers: rsrc2 >> 1 & 31,
            properties,
            has_scratch: bit(0),
            workgroup_ids: [bit(7), bit(8), bit(9)],
            workgroup_info: bit(10),
            workitem_dimensions: (rsrc2 >> 11 & 3) as usize + 1,
            is_split: rsrc3 >> 16 & 1 != 0,
            dynamic_stack: properties & property::DYNAMIC_STACK != 0,
            preloaded: Preloaded { offset: word(PROPERTIES) >> 23, words: word(PROPERTIES) >> 16 & 127 },
        };
        descriptor.check((rsrc1 >> 6 & 15) / 2 * 16 + 16)?;
        Ok(descriptor)
    }

    /// Refuses what contradicts itself, of a kernel with so many scalar registers.
    fn check(&self, scalar_registers: u32) -> Result<(), String> {
        let Descriptor { vector_registers, accumulation, user_registers, .. } = *self;
        self.memory(0, 0)?;
        if self.private_bytes > 0 && !self.has_scratch {
            return Err(format!("it declares {} bytes of scratch without enabling it", self.private_bytes));
        }
        if accumulation > vector_registers {
            return Err(format!(
                "its accumulation registers begin at {accumulation}, and it has {vector_registers} registers in all"
            ));
        }
        if self.workitem_dimensions > 3 {
            return Err("it asks for work-item ids in a way that is not defined".to_owned());
        }
        let asked = property::registers(self.properties) + self.preloaded.words;
        if asked > user_registers || user_registers > MOST_USER_REGISTERS {
            return Err(format!(
                "it asks for {asked} user registers (preloaded arguments: {}) and says that there are {user_registers}; \
                 {MOST_USER_REGISTERS} are the most",
                self.preloaded.words
            ));
        }
        let of_workgroup = self.workgroup_ids.iter().filter(|wanted| **wanted).count() as u32;
        let filled = user_registers + of_workgroup + u32::from(self.workgroup_info);
        if filled > scalar_registers || scalar_registers > MOST_SCALAR_REGISTERS {
            return Err(format!(
                "{filled} of its scalar registers are filled in, and it has {scalar_registers}; {MOST_SCALAR_REGISTERS} are \
                 the most"
            ));
        }
        Ok(())
    }
}
