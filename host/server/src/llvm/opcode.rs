//! What a client asks for, told by its port's header.

use hostcall_channel::llvm::Version;

/// An operation of LLVM's GPU libc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    /// One that needs the first packet only and never waits.
    OnePacket(OnePacket),
    Conversation(Conversation),
}

/// An operation whose answer goes where its packet came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnePacket {
    Noop,
    Malloc,
    Free,
    /// Of LLVM's tests: adds one to a number.
    Increment,
}

/// An operation that may wait, or takes several packets. They are named after what libc's functions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversation {
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
    /// Sends and receives in every order.
    TestInterface,
    /// Sends bytes back.
    TestStream,
    /// A function of one of Emissary's APIs; with `transfers` of the caller's memory there and back.
    Emissary {
        transfers: bool,
    },
    /// What a handler of the embedding program answers.
    Handler,
}

impl OnePacket {
    /// Returns the operation's name, as traces have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "llvm::noop",
            Self::Malloc => "llvm::malloc",
            Self::Free => "llvm::free",
            Self::Increment => "llvm::test_increment",
        }
    }
}

impl Conversation {
    /// Returns the operation's name, as traces have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exit => "llvm::exit",
            Self::Abort => "llvm::abort",
            Self::Write => "llvm::write_stdout",
            Self::WriteLine => "llvm::write_stdout_newline",
            Self::WriteError => "llvm::write_stderr",
            Self::WriteStream => "llvm::write_stream",
            Self::ReadStream => "llvm::read_stream",
            Self::ReadLine => "llvm::read_line",
            Self::Open => "llvm::open",
            Self::Close => "llvm::close",
            Self::HostCall => "llvm::host_call",
            Self::EndOfFile => "llvm::feof",
            Self::Error => "llvm::ferror",
            Self::ClearError => "llvm::clearerr",
            Self::Seek => "llvm::seek",
            Self::Tell => "llvm::tell",
            Self::Flush => "llvm::flush",
            Self::Unget => "llvm::ungetc",
            Self::Print { to: PrintTo::Stdout, .. } => "llvm::printf_stdout",
            Self::Print { to: PrintTo::Stderr, .. } => "llvm::printf_stderr",
            Self::Print { to: PrintTo::Stream, .. } => "llvm::printf_stream",
            Self::Remove => "llvm::remove",
            Self::Rename => "llvm::rename",
            Self::System => "llvm::system",
            Self::TestInterface => "llvm::test_interface",
            Self::TestStream => "llvm::test_stream",
            Self::Emissary { .. } => "llvm::emissary",
            Self::Handler => "llvm::handler",
        }
    }
}

/// Where a formatted line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrintTo {
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

/// Emissary's calls, since LLVM 23: alone, and with transfers.
const EMISSARY: u32 = (b'e' as u32) << 24 | 1;
const EMISSARY_TRANSFERS: u32 = EMISSARY + 1;

impl Opcode {
    /// The opcode of a header whose second word this is.
    pub fn of(version: Version, word: u64) -> Option<Self> {
        let code = word as u32 & version.opcode_mask();
        if version == Version::Llvm19 {
            // Its libc had no later ones.
            return Self::of_libc(code).filter(|_| !matches!(code, 28 | 29));
        }
        match code {
            OFFLOAD_HOST_CALL => Some(Self::Conversation(Conversation::HostCall)),
            EMISSARY | EMISSARY_TRANSFERS => {
                let transfers = code == EMISSARY_TRANSFERS;
                Some(Self::Conversation(Conversation::Emissary { transfers }))
            }
            // Before libc's own had a byte on top, tests did without.
            TESTS.. if code & 0xff00_0000 == 0 => Self::of_libc(code),
            _ if code & 0xff00_0000 == LIBC => Self::of_libc(code & 0x00ff_ffff),
            _ => None,
        }
    }

    fn of_libc(number: u32) -> Option<Self> {
        use Conversation as Talk;
        let print = |to, packed| Talk::Print { to, packed };
        Some(Self::Conversation(match number {
            0 | TESTS => return Some(Self::OnePacket(OnePacket::Noop)),
            10 => return Some(Self::OnePacket(OnePacket::Malloc)),
            11 => return Some(Self::OnePacket(OnePacket::Free)),
            0x8001 => return Some(Self::OnePacket(OnePacket::Increment)),
            1 => Talk::Exit,
            2 => Talk::Write,
            3 => Talk::WriteError,
            4 => Talk::WriteStream,
            5 => Talk::WriteLine,
            6 => Talk::ReadStream,
            7 => Talk::ReadLine,
            8 => Talk::Open,
            9 => Talk::Close,
            12 => Talk::HostCall,
            13 => Talk::Abort,
            14 => Talk::EndOfFile,
            15 => Talk::Error,
            16 => Talk::ClearError,
            17 => Talk::Seek,
            18 => Talk::Tell,
            19 => Talk::Flush,
            20 => Talk::Unget,
            21 => print(PrintTo::Stdout, false),
            22 => print(PrintTo::Stderr, false),
            23 => print(PrintTo::Stream, false),
            24 => print(PrintTo::Stdout, true),
            25 => print(PrintTo::Stderr, true),
            26 => print(PrintTo::Stream, true),
            27 => Talk::Remove,
            28 => Talk::Rename,
            29 => Talk::System,
            0x8002 => Talk::TestInterface,
            0x8003 => Talk::TestStream,
            _ => return None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_belong_to_versions() {
        let of = |version, word| Opcode::of(version, word);
        let talk = |what| Some(Opcode::Conversation(what));
        let increment = Some(Opcode::OnePacket(OnePacket::Increment));
        assert_eq!(of(Version::Llvm19, 0xabcd_0002), talk(Conversation::Write));
        assert_eq!(of(Version::Llvm19, 28), None);
        assert_eq!(of(Version::Llvm19, 0x8003), talk(Conversation::TestStream));
        for version in [Version::Llvm20, Version::Doorbell] {
            assert_eq!(of(version, 0xffff_ffff_6300_001d), talk(Conversation::System));
            assert_eq!(of(version, 0x6300_8001), increment);
            assert_eq!(of(version, 0x8001), increment);
            assert_eq!(of(version, 0x6f00_0000), talk(Conversation::HostCall));
            assert_eq!(of(version, 0x6500_0001), talk(Conversation::Emissary { transfers: false }));
            assert_eq!(of(version, 0x6500_0002), talk(Conversation::Emissary { transfers: true }));
            for unknown in [2, 0x6400_0002, 0x6300_001e, 0x6500_0000, 0x6f00_0001, 0xffff_ffff] {
                assert_eq!(of(version, unknown), None);
            }
        }
    }
}
