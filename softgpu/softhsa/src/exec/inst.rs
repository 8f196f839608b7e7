//! Decoded instructions made ready to run.

use super::rounding::Rounded;
use super::wave::{Env, Wave, scalar};
use crate::isa::decode::{Decoded, Value};
use crate::isa::operand::OperandType;
use crate::isa::table::{Flag, Row};
use crate::isa::{File, Register, Special};

/// What happens after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// The next instruction follows, which is the one that the program counter names.
    Next,
    /// Another wave may run first.
    Yield,
    /// The wave waits for the others of its workgroup.
    Barrier,
    /// The wave is at its end.
    End,
    /// The wave cannot go on; `Wave::fault` says why.
    Fault,
}

/// A semantic function.
pub type Handler = fn(&mut Wave, &Inst, &mut Env<'_>) -> Flow;

/// A source operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Src {
    /// A vector register, or the first of several, by its place in [`Wave::v`].
    Vector(u16),
    /// A scalar register, or the first of several.
    Scalar(u8),
    /// An inline constant or a literal.
    Constant(u64),
    /// A value that reads as a register.
    Special(Special),
}

impl Src {
    /// Returns the register so many on.
    pub fn plus(self, registers: u16) -> Src {
        match self {
            Src::Vector(register) => Src::Vector(register.saturating_add(registers)),
            Src::Scalar(register) => Src::Scalar(register.saturating_add(registers as u8)),
            src => src,
        }
    }
}

/// Modifiers of sources and results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Modifiers {
    /// Negated sources, a bit each.
    pub neg: u8,
    /// Sources whose absolute value is used; in packed operations sources whose high half is negated.
    pub abs: u8,
    /// Sources whose high half is used (for the low result); bit 3 is for the result.
    pub op_sel: u8,
    /// Sources whose high half is used for the high result.
    pub op_sel_hi: u8,
    /// The result is clamped.
    pub clamp: bool,
    /// The result is multiplied by 2, 4 or one half.
    pub omod: u8,
    /// Whether there are no modifiers of numbers at all: no negation, absolute value, clamp or multiplication.
    pub plain: bool,
}

/// How 16-bit results change a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfResult {
    /// The upper half becomes 0.
    Zero,
    /// The upper half stays.
    Low,
    /// The result goes into the upper half, and the lower half stays.
    High,
}

/// Parts of registers that SDWA instructions use.
#[derive(Clone, Copy, Debug)]
pub struct Sdwa {
    /// Selections of source 0 and 1: bytes 0 to 3, words 4 and 5, all of the register 6.
    pub select: [u8; 2],
    /// Whether the selected part is extended with its sign.
    pub extend: [bool; 2],
    /// The part of the result's register.
    pub result: u8,
    /// The rest of that register: 0 becomes zero, 1 the sign, 2 stays.
    pub unused: u8,
}

/// How DPP instructions take source 0 from other lanes.
#[derive(Clone, Copy, Debug)]
pub struct Dpp {
    /// The pattern.
    pub control: u16,
    /// Rows of 16 lanes that are written.
    pub rows: u8,
    /// Banks of 4 lanes in each row that are written.
    pub banks: u8,
    /// Whether a lane without a source reads 0 instead of not being written.
    pub bound_zero: bool,
}

/// An extension of the plain vector encodings.
#[derive(Clone, Copy, Debug)]
pub enum Extension {
    /// Parts of registers.
    Sdwa(Sdwa),
    /// Other lanes' values.
    Dpp(Dpp),
}

/// An instruction that is ready to run.
#[derive(Clone, Debug)]
pub struct Inst {
    /// Its semantic function.
    pub run: Handler,
    /// Its row of the table.
    pub row: &'static Row,
    /// Bytes.
    pub size: u32,
    /// Vector result, or vector data of a memory operation.
    pub dst: u16,
    /// The scalar result.
    pub sdst: u8,
    /// The sources. Of memory operations: address, data, and second data or the scalar offset.
    pub src: [Src; 3],
    /// The scalar base of an address, or the indices of a sparse matrix, if there are any.
    pub base: Option<Src>,
    /// An immediate: offsets, `simm16`, lane patterns.
    pub imm: i64,
    /// A second immediate: `offset1`, `cbsz`, cache bits.
    pub imm2: i64,
    /// How lanes of a matrix take each other's elements, `blgp`.
    pub pattern: u8,
    /// Whether a comparison also writes EXEC.
    pub writes_exec: bool,
    /// Whether an atomic returns the old value.
    pub returns: bool,
    /// Modifiers of numbers.
    pub modifiers: Modifiers,
    /// How 16-bit results are written.
    pub half: HalfResult,
    /// SDWA or DPP.
    pub extension: Option<Extension>,
    /// What happens while MODE asks for another rounding than to the nearest even number.
    pub rounded: Rounded,
}

impl Inst {
    /// Makes the instruction ready for waves whose accumulation registers begin at that register. Returns `None`
    /// if the interpreter lacks the instruction, or the processor lacks what its operands name.
    pub fn new(decoded: &Decoded, accumulation: usize) -> Option<Inst> {
        let run = super::handler(decoded.row)?;
        if !decoded.values.iter().all(is_there) || !has_pattern(decoded) {
            return None;
        }
        Some(Inst::with_handler(decoded, accumulation, run))
    }

    fn with_handler(decoded: &Decoded, accumulation: usize, run: Handler) -> Inst {
        let row = decoded.row;
        let place = VectorOperands { decoded, accumulation };
        let sources = if row.operand("src0").is_some() {
            [place.src("src0"), place.src("src1"), place.src("src2")]
        } else {
            let address = if row.has(Flag::Ds) { "addr" } else { "vaddr" };
            let data = ["data0", "vdata", "sdata"].into_iter().find(|name| row.operand(name).is_some());
            let third = if row.operand("soffset").is_some() { "soffset" } else { "data1" };
            [place.src(address), place.src(data.unwrap_or("vdst")), place.src(third)]
        };
        let vector_result = ["vdst", "vdata"].into_iter().find_map(|name| place.vector(name));
        let scalar_result = ["sdst", "vdst", "sdata"].into_iter().find_map(|name| place.scalar(name));
        let base = ["saddr", "sbase", "srsrc", "idx"].into_iter().find(|name| row.operand(name).is_some());
        let imm = ["offset", "simm16", "offset0", "imm", "cbsz"]
            .into_iter()
            .find(|name| row.operand(name).is_some());
        let imm2 = ["offset1", "abid", "cpol", "imm"].into_iter().find(|name| row.operand(name).is_some());
        let modifiers = modifiers(decoded);
        Inst {
            run,
            row,
            size: decoded.size,
            dst: vector_result.unwrap_or(u16::MAX),
            sdst: scalar_result.unwrap_or(scalar::VCC),
            src: sources,
            base: base.map(|name| place.src(name)),
            imm: imm.map_or(0, |name| decoded.immediate(name)),
            imm2: imm2.map_or(0, |name| decoded.immediate(name)),
            pattern: decoded.immediate("blgp") as u8,
            writes_exec: row.mnemonic().starts_with("v_cmpx"),
            returns: row.has(Flag::IsAtomicRet) || row.has(Flag::Ds) && vector_result.is_some(),
            modifiers,
            half: half_result(row, modifiers),
            extension: extension(decoded),
            rounded: Rounded::of(row),
        }
    }

    /// Returns the instruction with the registers that M0 indexes (`s_set_gpr_idx_on`).
    pub fn indexed(&self, mode: u8, index: u16) -> Inst {
        let mut indexed = self.clone();
        for (source, src) in indexed.src.iter_mut().enumerate() {
            if let (Src::Vector(register), true) = (*src, mode >> source & 1 != 0) {
                *src = Src::Vector(register.saturating_add(index));
            }
        }
        if mode & 8 != 0 && indexed.dst != u16::MAX {
            indexed.dst = indexed.dst.saturating_add(index);
        }
        indexed
    }
}

/// Returns whether the processor has the register that an operand names, if it names one.
fn is_there(value: &Value) -> bool {
    match value {
        Value::Register(Register::Special { name, .. }) => name.is_there(),
        _ => true,
    }
}

/// Returns whether the pattern by which a DPP instruction reads other lanes, if it is one, is one that it
/// has.
fn has_pattern(decoded: &Decoded) -> bool {
    if !decoded.row.has(Flag::Dpp) {
        return true;
    }
    match decoded.immediate("dpp_ctrl") {
        0x150..=0x15f => true,
        _ if decoded.row.has_pairs() => false,
        0..=0xff | 0x101..=0x10f | 0x111..=0x11f | 0x121..=0x12f | 0x140..=0x143 => true,
        0x130 | 0x134 | 0x138 | 0x13c => true,
        _ => false,
    }
}

struct VectorOperands<'a> {
    decoded: &'a Decoded,
    accumulation: usize,
}

impl VectorOperands<'_> {
    fn vector(&self, name: &str) -> Option<u16> {
        match self.decoded.value(name)? {
            Value::Register(Register::Numbered { file: File::Vector, first, .. }) => Some(first),
            Value::Register(Register::Numbered { file: File::Accumulation, first, .. }) => {
                Some(first + self.accumulation as u16)
            }
            _ => None,
        }
    }

    fn scalar(&self, name: &str) -> Option<u8> {
        match self.decoded.value(name)? {
            Value::Register(register) => scalar_number(register),
            _ => None,
        }
    }

    fn src(&self, name: &str) -> Src {
        match self.decoded.value(name) {
            Some(Value::Register(register)) => match (self.vector(name), scalar_number(register), register) {
                (Some(vector), ..) => Src::Vector(vector),
                (_, Some(scalar), _) => Src::Scalar(scalar),
                (_, _, Register::Special { name, .. }) => Src::Special(name),
                _ => Src::Constant(0),
            },
            // A literal, of which LLVM's text has no more than its 32 bits.
            Some(Value::Immediate(number @ 0x8000_0000..=0xffff_ffff)) if self.is_signed64(name) => {
                Src::Constant(i64::from(number as i32) as u64)
            }
            Some(Value::Immediate(number)) => Src::Constant(number as u64),
            Some(Value::Absent) | None => Src::Constant(0),
        }
    }

    /// Returns whether the operand of that name is an integer of 64 bits with a sign.
    fn is_signed64(&self, name: &str) -> bool {
        let row = self.decoded.row;
        let operand = row.operand(name).map(|index| &row.operands[index]);
        row.mnemonic().contains("_i64")
            && operand.is_some_and(|operand| operand.kind.operand_type == OperandType::Int64)
    }
}

fn scalar_number(register: Register) -> Option<u8> {
    Some(match register {
        Register::Numbered { file: File::Scalar, first, .. } => first as u8,
        Register::Numbered { file: File::Trap, first, .. } => 108 + first as u8,
        Register::Numbered { .. } => return None,
        Register::Special { name, half } => {
            let half = half.unwrap_or(0);
            match name {
                Special::FlatScratch => 102 + half,
                Special::XnackMask => 104 + half,
                Special::Vcc => scalar::VCC + half,
                Special::Tba => 108 + half,
                Special::Tma => 110 + half,
                Special::M0 => scalar::M0,
                Special::Null => scalar::NULL,
                Special::Exec => scalar::EXEC + half,
                _ => return None,
            }
        }
    })
}

fn modifiers(decoded: &Decoded) -> Modifiers {
    let mut modifiers = Modifiers::default();
    let sdwa = decoded.row.has(Flag::Sdwa);
    for (source, name) in ["src0_modifiers", "src1_modifiers", "src2_modifiers"].into_iter().enumerate() {
        let bits = decoded.immediate(name);
        // SDWA's operations on integers use bit 0 to extend the sign; `extension` reads it.
        if !(sdwa && extends_sign(decoded, name)) {
            modifiers.neg |= ((bits & 1) as u8) << source;
            modifiers.abs |= ((bits >> 1 & 1) as u8) << source;
        }
        modifiers.op_sel |= ((bits >> 2 & 1) as u8) << source;
        modifiers.op_sel_hi |= ((bits >> 3 & 1) as u8) << source;
    }
    let vop3p = decoded.row.has(Flag::Vop3p);
    if !vop3p && modifiers.op_sel_hi & 1 != 0 && decoded.row.operand("op_sel").is_some() {
        modifiers.op_sel |= 8;
    }
    modifiers.clamp = decoded.immediate("clamp") != 0;
    modifiers.omod = decoded.immediate("omod") as u8;
    modifiers.plain = modifiers.neg | modifiers.abs | modifiers.omod == 0 && !modifiers.clamp;
    modifiers
}

/// Returns whether the modifiers' bit 0 extends the sign of a selected part.
fn extends_sign(decoded: &Decoded, modifiers: &str) -> bool {
    use crate::isa::operand::Printer;
    let operand = decoded.row.operand(modifiers).map(|index| &decoded.row.operands[index]);
    operand.is_some_and(|operand| operand.kind.printer == Printer::IntModifiers)
}

/// Returns how a 16-bit result is written. The instructions that gfx9 brought, which can select halves, keep the rest of
/// the register; older ones make it 0.
fn half_result(row: &Row, modifiers: Modifiers) -> HalfResult {
    if row.mnemonic() == "v_fma_mixhi_f16" || modifiers.op_sel & 8 != 0 && !row.has(Flag::Vop3p) {
        HalfResult::High
    } else if row.mnemonic() == "v_fma_mixlo_f16" || row.has(Flag::Vop3OpSel) {
        HalfResult::Low
    } else {
        HalfResult::Zero
    }
}

fn extension(decoded: &Decoded) -> Option<Extension> {
    let number = |name: &str| decoded.immediate(name);
    if decoded.row.has(Flag::Sdwa) {
        let select = |name: &str| match decoded.row.operand(name) {
            Some(_) => number(name) as u8,
            None => 6,
        };
        let extend = |name: &str| extends_sign(decoded, name) && number(name) & 1 != 0;
        return Some(Extension::Sdwa(Sdwa {
            select: [select("src0_sel"), select("src1_sel")],
            extend: [extend("src0_modifiers"), extend("src1_modifiers")],
            result: select("dst_sel"),
            unused: number("dst_unused") as u8,
        }));
    }
    decoded.row.has(Flag::Dpp).then(|| {
        Extension::Dpp(Dpp {
            control: number("dpp_ctrl") as u16,
            rows: number("row_mask") as u8,
            banks: number("bank_mask") as u8,
            bound_zero: number("bound_ctrl") != 0,
        })
    })
}
