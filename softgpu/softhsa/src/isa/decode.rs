//! Words to instructions: agrees with LLVM's disassembler on what is an instruction and what is not.

use std::fmt;

use super::operand::Decoder;
use super::register::{File, Register, Special};
use super::table::{Flag, Operand, Row, TABLE};

/// Source numbers of the nine-bit operand field.
mod source {
    pub const LAST_SCALAR: u32 = 101;
    pub const FIRST_TRAP: u32 = 108;
    pub const LAST_TRAP: u32 = 123;
    pub const FIRST_INTEGER: u32 = 128;
    pub const LAST_POSITIVE: u32 = 192;
    pub const LAST_INTEGER: u32 = 208;
    pub const FIRST_FLOAT: u32 = 240;
    pub const LAST_FLOAT: u32 = 248;
    pub const LITERAL: u32 = 255;
    pub const FIRST_VECTOR: u32 = 256;
}

/// The value of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A register or a tuple.
    Register(Register),
    /// A number: a constant's bits, a literal, a field of the instruction.
    Immediate(i64),
    /// The operand is not encoded and tied to no other.
    Absent,
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The instruction's row of the table.
    pub row: &'static Row,
    /// Bytes, the literal's included.
    pub size: u32,
    /// The values of the row's operands.
    pub values: Vec<Value>,
}

impl Decoded {
    /// Returns the value of the operand of that name.
    pub fn value(&self, name: &str) -> Option<Value> {
        self.row.operand(name).map(|index| self.values[index])
    }

    /// Returns the number in the operand of that name, or 0.
    pub fn immediate(&self, name: &str) -> i64 {
        match self.value(name) {
            Some(Value::Immediate(number)) => number,
            _ => 0,
        }
    }
}

/// Words that are no instruction of gfx942.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// The first word.
    pub first: u32,
    /// The second word, or 0 at the end of the code.
    pub second: u32,
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} {:#010x} is not an instruction of gfx942", self.first, self.second)
    }
}

impl std::error::Error for Undecodable {}

/// Decodes the instruction at the start of the code, of which two words at most are read.
///
/// # Errors
///
/// The words are no instruction, or the code ends inside one.
pub fn decode(code: &[u32]) -> Result<Decoded, Undecodable> {
    let first = code.first().copied().unwrap_or(0);
    let second = code.get(1).copied();
    let refused = Undecodable { first, second: second.unwrap_or(0) };
    if code.is_empty() {
        return Err(refused);
    }
    let words = u64::from(first) | u64::from(second.unwrap_or(0)) << 32;
    TABLE
        .candidates(words)
        .filter(|row| row.size == 4 || second.is_some())
        .find_map(|row| Reader { row, words, second, literal: None, values: Vec::new() }.read())
        .ok_or(refused)
}

struct Reader {
    row: &'static Row,
    words: u64,
    second: Option<u32>,
    literal: Option<u32>,
    values: Vec<Value>,
}

impl Reader {
    fn read(mut self) -> Option<Decoded> {
        for operand in &self.row.operands {
            let value = match operand.bits(self.words) {
                Some(bits) => self.operand(operand, bits)?,
                None if operand.name == "cpol" => Value::Immediate(self.implied_bits(operand)),
                None => Value::Absent,
            };
            self.values.push(value);
        }
        for &(one, other) in &self.row.ties {
            self.tie(one, other);
            self.tie(other, one);
        }
        let literal_bytes = if self.literal.is_some() && self.row.size == 4 { 4 } else { 0 };
        Some(Decoded { row: self.row, size: self.row.size + literal_bytes, values: self.values })
    }

    /// Gives an operand that is not encoded the register of the one that it is tied to.
    fn tie(&mut self, to: &str, from: &str) {
        if let (Some(to), Some(from)) = (self.row.operand(to), self.row.operand(from))
            && self.values[to] == Value::Absent
        {
            self.values[to] = self.values[from];
        }
    }

    fn operand(&mut self, operand: &Operand, bits: u32) -> Option<Value> {
        match operand.kind.decoder {
            Decoder::Immediate | Decoder::BranchTarget => {
                legal_field(operand, bits).then(|| match operand.name {
                    // The processor has no global data share; its bit means nothing.
                    "gds" => Value::Immediate(0),
                    _ => Value::Immediate(i64::from(bits) | self.implied_bits(operand)),
                })
            }
            Decoder::SmemOffset => Some(Value::Immediate(i64::from((bits << 11) as i32 >> 11))),
            Decoder::Literal => {
                self.literal = Some(bits);
                Some(Value::Immediate(i64::from(bits)))
            }
            Decoder::VectorRegister { accumulation, dwords } => {
                let file = if accumulation { File::Accumulation } else { File::Vector };
                tuple(file, bits, dwords)
            }
            Decoder::LoadStore { dwords } => {
                let accumulation = bits & 512 != 0 || self.shares_accumulation(operand);
                let file = if accumulation { File::Accumulation } else { File::Vector };
                tuple(file, bits & 255, dwords)
            }
            Decoder::Source { dwords, set, constant_bits, literal_is_high, deferred } => {
                self.source(bits | set, dwords, constant_bits, literal_is_high, deferred)
            }
            Decoder::SdwaSource { constant_bits } => match bits {
                0..=255 => tuple(File::Vector, bits, 1),
                _ => match bits - 256 {
                    source::LITERAL => None,
                    scalar => self.scalar(scalar, 1, constant_bits, false, false),
                },
            },
            Decoder::SdwaVopcDst => match bits {
                0..=127 => Some(named(Special::Vcc, None)),
                _ => match bits & 127 {
                    scalar @ 0..=source::LAST_TRAP => self.scalar(scalar, 2, 0, false, false),
                    scalar => special64(scalar),
                },
            },
        }
    }

    /// Returns bits of a field that the instruction implies: an atomic with a result has `sc0`.
    fn implied_bits(&self, operand: &Operand) -> i64 {
        i64::from(operand.name == "cpol" && self.row.has(Flag::IsAtomicRet))
    }

    /// Returns whether the operand's file is that of an operand before it, which has the bit that selects the file.
    fn shares_accumulation(&self, operand: &Operand) -> bool {
        let is_accumulation = |name: &str| {
            let index = self.row.operand(name);
            let value = index.and_then(|index| self.values.get(index));
            matches!(value, Some(Value::Register(Register::Numbered { file: File::Accumulation, .. })))
        };
        match operand.name {
            "data0" if self.row.has(Flag::Ds) => is_accumulation("vdst"),
            "data1" if self.row.has(Flag::Ds) => is_accumulation("data0"),
            "vdata" => is_accumulation("vdst"),
            _ => false,
        }
    }

    fn source(&mut self, bits: u32, dwords: u16, constant: u8, high: bool, deferred: bool) -> Option<Value> {
        let accumulation = bits & 512 != 0;
        match bits & 511 {
            number @ source::FIRST_VECTOR.. => {
                let file = if accumulation { File::Accumulation } else { File::Vector };
                tuple(file, number - source::FIRST_VECTOR, dwords)
            }
            scalar => self.scalar(scalar, dwords, constant, high, deferred),
        }
    }

    fn scalar(&mut self, bits: u32, dwords: u16, constant: u8, high: bool, deferred: bool) -> Option<Value> {
        match bits {
            0..=source::LAST_SCALAR => scalar_tuple(File::Scalar, bits, dwords, 106),
            source::FIRST_TRAP..=source::LAST_TRAP => {
                scalar_tuple(File::Trap, bits - source::FIRST_TRAP, dwords, 16)
            }
            source::FIRST_INTEGER..=source::LAST_INTEGER => {
                let positive = i64::from(bits) - i64::from(source::FIRST_INTEGER);
                let negative = i64::from(source::LAST_POSITIVE) - i64::from(bits);
                Some(Value::Immediate(if bits <= source::LAST_POSITIVE { positive } else { negative }))
            }
            source::FIRST_FLOAT..=source::LAST_FLOAT => {
                Some(Value::Immediate(float_constant(bits - source::FIRST_FLOAT, constant)))
            }
            source::LITERAL if deferred => {
                // The literal is an operand of its own; `Reader::operand` reads it from the second word.
                Some(Value::Immediate(i64::from((self.words >> 32) as u32)))
            }
            source::LITERAL => {
                if self.row.size == 8 {
                    return None;
                }
                let literal = self.second?;
                self.literal = Some(literal);
                Some(Value::Immediate(if high {
                    (u64::from(literal) << 32) as i64
                } else {
                    i64::from(literal)
                }))
            }
            _ if dwords == 1 => special32(bits),
            _ if dwords == 2 => special64(bits),
            _ => None,
        }
    }
}

/// Returns whether a field of the instruction has a value that means something.
fn legal_field(operand: &Operand, bits: u32) -> bool {
    match operand.name {
        "dst_sel" | "src0_sel" | "src1_sel" => bits <= 6,
        "dst_unused" => bits <= 2,
        _ => true,
    }
}

/// Returns a tuple of vector registers. LLVM has a pair that begins at the last register, and no longer tuple beyond.
fn tuple(file: File, first: u32, dwords: u16) -> Option<Value> {
    let register = Register::Numbered { file, first: first as u16, dwords };
    (dwords == 2 || first + u32::from(dwords) <= 256).then_some(Value::Register(register))
}

/// Returns a tuple of scalar registers. Its first register is rounded down to a multiple of two or four.
fn scalar_tuple(file: File, first: u32, dwords: u16, registers: u32) -> Option<Value> {
    let align = match dwords {
        1 => 1,
        2 => 2,
        _ => 4,
    };
    let first = first / align * align;
    let register = Register::Numbered { file, first: first as u16, dwords };
    (first + u32::from(dwords) <= registers).then_some(Value::Register(register))
}

fn named(name: Special, half: Option<u8>) -> Value {
    Value::Register(Register::Special { name, half })
}

fn special32(bits: u32) -> Option<Value> {
    let half = Some((bits & 1) as u8);
    let low = Some(0);
    Some(match bits {
        102 | 103 => named(Special::FlatScratch, half),
        104 | 105 => named(Special::XnackMask, half),
        106 | 107 => named(Special::Vcc, half),
        124 => named(Special::M0, None),
        125 => named(Special::Null, None),
        126 | 127 => named(Special::Exec, half),
        230 | 231 => named(Special::FlatScratchBase, half),
        235 => named(Special::SharedBase, low),
        236 => named(Special::SharedLimit, low),
        237 => named(Special::PrivateBase, low),
        238 => named(Special::PrivateLimit, low),
        239 => named(Special::PopsExitingWaveId, None),
        251 => named(Special::Vccz, None),
        252 => named(Special::Execz, None),
        253 => named(Special::Scc, None),
        254 => named(Special::LdsDirect, None),
        _ => return None,
    })
}

fn special64(bits: u32) -> Option<Value> {
    Some(match bits {
        102 => named(Special::FlatScratch, None),
        104 => named(Special::XnackMask, None),
        106 => named(Special::Vcc, None),
        125 => named(Special::Null, None),
        126 => named(Special::Exec, None),
        230 => named(Special::FlatScratchBase, None),
        235 => named(Special::SharedBase, None),
        236 => named(Special::SharedLimit, None),
        237 => named(Special::PrivateBase, None),
        238 => named(Special::PrivateLimit, None),
        239 => named(Special::PopsExitingWaveId, None),
        251 => named(Special::Vccz, None),
        252 => named(Special::Execz, None),
        253 => named(Special::Scc, None),
        _ => return None,
    })
}

/// The floating-point inline constants: ±0.5, ±1, ±2, ±4 and 1/(2π).
fn float_constant(index: u32, bits: u8) -> i64 {
    const F16: [u16; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
    const F64: [f64; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    let index = index as usize;
    match (bits, F64.get(index)) {
        (16, _) => i64::from(F16[index]),
        (64, Some(value)) => value.to_bits() as i64,
        (64, None) => 0x3fc4_5f30_6dc9_c882,
        (_, Some(&value)) => i64::from((value as f32).to_bits()),
        (_, None) => 0x3e22_f983,
    }
}
