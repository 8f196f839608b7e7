//! What a client asks for, told by its port's header.

use hostcall_channel::llvm::Version;

/// An operation of LLVM's GPU libc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // they are named after what libc's functions do
pub enum Opcode {
    Noop,
    Exit,
    Abort,
    /// To standard output.
    Write,
    /// To standard output, and then a newline.
    WriteLine,
    WriteError,
    WriteStream,
    ReadStream,
    ReadLine,
    Open,
    Close,
    Malloc,
    Free,
    HostCall,
    EndOfFile,
    Error,
    ClearError,
    Seek,
    Tell,
    Flush,
    Unget,
    Print {
        to: PrintTo,
        packed: bool,
    },
    Remove,
    Rename,
    System,
    /// Adds one to a number.
    TestIncrement,
    /// Sends and receives in every order.
    TestInterface,
    /// Sends bytes back.
    TestStream,
}

/// Where a formatted line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum PrintTo {
    Stdout,
    Stderr,
    Stream,
}

/// First opcode of LLVM's own tests.
const TESTS: u32 = 0x8000;

/// The byte on top of libc's opcodes since LLVM 20.
const LIBC: u32 = (b'c' as u32) << 24;

/// The offload runtime's host call, since LLVM 20.
const OFFLOAD_HOST_CALL: u32 = (b'o' as u32) << 24;

impl Opcode {
    /// The opcode of a header whose second word this is.
    pub fn of(version: Version, word: u64) -> Option<Self> {
        let code = word as u32 & version.opcode_mask();
        if version == Version::Llvm19 {
            return Self::of_libc(code).filter(|opcode| !matches!(opcode, Self::Rename | Self::System));
        }
        match code {
            OFFLOAD_HOST_CALL => Some(Self::HostCall),
            // Before libc's own had a byte on top, tests did without.
            TESTS.. if code & 0xff00_0000 == 0 => Self::of_libc(code),
            _ if code & 0xff00_0000 == LIBC => Self::of_libc(code & 0x00ff_ffff),
            _ => None,
        }
    }

    fn of_libc(number: u32) -> Option<Self> {
        let print = |to, packed| Self::Print { to, packed };
        Some(match number {
            0 | TESTS => Self::Noop,
            1 => Self::Exit,
            2 => Self::Write,
            3 => Self::WriteError,
            4 => Self::WriteStream,
            5 => Self::WriteLine,
            6 => Self::ReadStream,
            7 => Self::ReadLine,
            8 => Self::Open,
            9 => Self::Close,
            10 => Self::Malloc,
            11 => Self::Free,
            12 => Self::HostCall,
            13 => Self::Abort,
            14 => Self::EndOfFile,
            15 => Self::Error,
            16 => Self::ClearError,
            17 => Self::Seek,
            18 => Self::Tell,
            19 => Self::Flush,
            20 => Self::Unget,
            21 => print(PrintTo::Stdout, false),
            22 => print(PrintTo::Stderr, false),
            23 => print(PrintTo::Stream, false),
            24 => print(PrintTo::Stdout, true),
            25 => print(PrintTo::Stderr, true),
            26 => print(PrintTo::Stream, true),
            27 => Self::Remove,
            28 => Self::Rename,
            29 => Self::System,
            0x8001 => Self::TestIncrement,
            0x8002 => Self::TestInterface,
            0x8003 => Self::TestStream,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_belong_to_versions() {
        let of = |version, word| Opcode::of(version, word);
        assert_eq!(of(Version::Llvm19, 0xabcd_0002), Some(Opcode::Write));
        assert_eq!(of(Version::Llvm19, 28), None);
        assert_eq!(of(Version::Llvm19, 0x8003), Some(Opcode::TestStream));
        for version in [Version::Llvm20, Version::Doorbell] {
            assert_eq!(of(version, 0xffff_ffff_6300_001d), Some(Opcode::System));
            assert_eq!(of(version, 0x6300_8001), Some(Opcode::TestIncrement));
            assert_eq!(of(version, 0x8001), Some(Opcode::TestIncrement));
            assert_eq!(of(version, 0x6f00_0000), Some(Opcode::HostCall));
            for unknown in [2, 0x6400_0002, 0x6300_001e, 0x6f00_0001, 0xffff_ffff] {
                assert_eq!(of(version, unknown), None);
            }
        }
    }
}
