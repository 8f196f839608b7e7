//! The table of instructions, parsed once from `table/gfx942.txt`.
//!
//! `table/condense.py` makes that file from LLVM's description and says what its lines mean. Rows stand in the
//! order in which LLVM's disassembler tries them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::operand::{Decoder, OperandType, Printer};

/// The gfx942 table.
pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("../../table/gfx942.txt")));

/// How a kind of operand is decoded and printed.
#[derive(Clone, Debug)]
pub struct Kind {
    /// How the bits become a value.
    pub decoder: Decoder,
    /// How the value becomes text.
    pub printer: Printer,
    /// What an immediate in this place means.
    pub operand_type: OperandType,
    /// LLVM's register class, without the suffix for aligned tuples.
    pub class: &'static str,
}

/// A run of an operand's bits.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    operand_bit: u32,
    instruction_bit: u32,
    length: u32,
}

/// One operand of an instruction.
#[derive(Clone, Debug)]
pub struct Operand {
    /// LLVM's name of the operand, for example `src0_modifiers`.
    pub name: &'static str,
    /// How it is decoded and printed.
    pub kind: &'static Kind,
    pieces: Vec<Piece>,
}

impl Operand {
    /// Returns the operand's bits out of the instruction, or `None` if the operand is not encoded.
    pub fn bits(&self, words: u64) -> Option<u32> {
        if self.pieces.is_empty() {
            return None;
        }
        Some(self.pieces.iter().fold(0, |bits, piece| {
            let field = (words >> piece.instruction_bit) & ((1 << piece.length) - 1);
            bits | (field as u32) << piece.operand_bit
        }))
    }
}

macro_rules! flags {
    ($($flag:ident = $name:literal,)*) => {
        /// A property of an instruction, named as in LLVM's description.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names are LLVM's")]
        pub enum Flag { $($flag,)* }

        impl Flag {
            fn parse(name: &str) -> Option<Flag> {
                match name {
                    $($name => Some(Flag::$flag),)*
                    _ => None,
                }
            }
        }
    };
}

flags! {
    Salu = "SALU", Valu = "VALU", Sop1 = "SOP1", Sop2 = "SOP2", Sopc = "SOPC", Sopk = "SOPK", Sopp = "SOPP",
    Vop1 = "VOP1", Vop2 = "VOP2", Vopc = "VOPC", Vop3 = "VOP3", Vop3p = "VOP3P", Sdwa = "SDWA", Dpp = "DPP",
    Trans = "TRANS", Mubuf = "MUBUF", Mtbuf = "MTBUF", Smrd = "SMRD", Flat = "FLAT", Ds = "DS",
    IsSingle = "IsSingle", Vop3OpSel = "VOP3_OPSEL", IsPacked = "IsPacked", FlatGlobal = "FlatGlobal",
    FlatScratch = "FlatScratch", IsAtomicRet = "IsAtomicRet", IsAtomicNoRet = "IsAtomicNoRet", IsMai = "IsMAI", FpClamp = "FPClamp", IntClamp = "IntClamp",
    MayLoad = "mayLoad", MayStore = "mayStore", DefVcc = "def-VCC", DefExec = "def-EXEC", DefScc = "def-SCC",
    DefM0 = "def-M0", UseVcc = "use-VCC", UseScc = "use-SCC", UseM0 = "use-M0",
}

/// One instruction in one encoding.
#[derive(Clone, Debug)]
pub struct Row {
    /// LLVM's name of the record, for example `V_ADD_F32_e64_vi`.
    pub name: &'static str,
    flags: u64,
    /// Bytes without a literal.
    pub size: u32,
    mask: u64,
    value: u64,
    /// The assembly text with `$operand` in the places of operands.
    pub asm: &'static str,
    /// The operands, results first.
    pub operands: Vec<Operand>,
    /// Pairs of operands that name the same register.
    pub ties: Vec<(&'static str, &'static str)>,
}

impl Row {
    /// Returns whether the instruction has the property.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags & 1 << flag as u64 != 0
    }

    /// Returns the mnemonic without the suffix of its encoding, for example `v_add_f32`.
    pub fn mnemonic(&self) -> &'static str {
        self.asm.split([' ', '$']).next().unwrap_or(self.asm)
    }

    /// Returns whether the result or a source is a pair of registers: of the patterns of DPP these have
    /// `row_newbcast` alone.
    pub fn has_pairs(&self) -> bool {
        let is_pair = |operand: &Operand| operand.kind.class.ends_with("_64");
        self.operands
            .iter()
            .any(|operand| matches!(operand.name, "vdst" | "src0" | "src1") && is_pair(operand))
    }

    /// Returns the index of the operand of that name.
    pub fn operand(&self, name: &str) -> Option<usize> {
        self.operands.iter().position(|operand| operand.name == name)
    }
}

/// Every instruction of the processor.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Row>,
    /// For each value of bits 23 to 31 of the first word the rows that can match, in order.
    buckets: Vec<Vec<u16>>,
}

const BUCKET_SHIFT: u32 = 23;
const BUCKETS: u64 = 512;

impl Table {
    fn parse(text: &'static str) -> Table {
        let mut kinds: HashMap<&str, &'static Kind> = HashMap::new();
        let mut rows = Vec::new();
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("kind ") {
                let columns: Vec<&str> = kind.split(' ').collect();
                let kind = Kind {
                    decoder: Decoder::parse(columns[1]),
                    printer: Printer::parse(columns[2]),
                    operand_type: OperandType::parse(columns[3]),
                    class: columns[4],
                };
                kinds.insert(columns[0], Box::leak(Box::new(kind)));
            } else if let Some(row) = line.strip_prefix("inst ") {
                rows.push(parse_row(row, &kinds));
            }
        }
        let mut buckets = vec![Vec::new(); BUCKETS as usize];
        for (number, row) in rows.iter().enumerate() {
            let (mask, value) = (row.mask >> BUCKET_SHIFT, row.value >> BUCKET_SHIFT);
            for bucket in 0..BUCKETS {
                if bucket & mask == value & mask & (BUCKETS - 1) {
                    buckets[bucket as usize].push(number as u16);
                }
            }
        }
        Table { rows, buckets }
    }

    /// Returns every row.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the rows whose fixed bits are those of the instruction, in the order of trial.
    pub fn candidates(&self, words: u64) -> impl Iterator<Item = &Row> {
        let bucket = (words as u32 >> BUCKET_SHIFT) as usize;
        self.buckets[bucket]
            .iter()
            .map(|&number| &self.rows[usize::from(number)])
            .filter(move |row| words & row.mask == row.value)
    }
}

fn parse_row(line: &'static str, kinds: &HashMap<&str, &'static Kind>) -> Row {
    let columns: Vec<&'static str> = line.split('|').collect();
    let mut flags = 0;
    let mut ties = Vec::new();
    for flag in columns[1].split(',').filter(|flag| !flag.is_empty()) {
        if let Some(flag) = Flag::parse(flag) {
            flags |= 1 << flag as u64;
        } else if let Some(tie) = flag.split_once('=') {
            ties.push(tie);
        }
    }
    let hex = |column: &str| u64::from_str_radix(column, 16).expect("the table holds hexadecimal masks");
    Row {
        name: columns[0],
        flags,
        size: columns[2].parse().expect("the table holds decimal sizes"),
        mask: hex(columns[3]),
        value: hex(columns[4]),
        asm: columns[5],
        operands: columns[6].split(' ').filter(|o| !o.is_empty()).map(|o| parse_operand(o, kinds)).collect(),
        ties,
    }
}

fn parse_operand(text: &'static str, kinds: &HashMap<&str, &'static Kind>) -> Operand {
    let (head, pieces) = text.split_once('=').unwrap_or((text, ""));
    let (name, kind) = head.split_once(':').expect("an operand of the table has a kind");
    let pieces = pieces.split('+').filter(|piece| !piece.is_empty()).map(|piece| {
        let mut numbers = piece.split(':').map(|n| n.parse().expect("the table holds decimal places"));
        let mut next = || numbers.next().expect("a piece has three numbers");
        Piece { operand_bit: next(), instruction_bit: next(), length: next() }
    });
    Operand { name, kind: kinds[kind], pieces: pieces.collect() }
}
