//! The text of an instruction, as LLVM's disassembler prints it.

mod fields;
mod immediate;

use std::fmt::{self, Write};

use super::decode::{Decoded, Value};
use super::operand::{OperandType, Printer};
use super::register::{File, Register, Special};
use super::table::{Flag, Operand};

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut asm = self.row.asm;
        while let Some(dollar) = asm.find('$') {
            f.write_str(&asm[..dollar])?;
            asm = &asm[dollar + 1..];
            let end = asm.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(asm.len());
            self.write_operand(f, &asm[..end])?;
            asm = &asm[end..];
        }
        f.write_str(asm)
    }
}

/// Bits of the operands called `src0_modifiers` and so on.
mod modifier {
    pub const NEGATE: i64 = 1;
    pub const ABSOLUTE: i64 = 2;
    pub const SIGN_EXTEND: i64 = 1;
    pub const NEGATE_HIGH: i64 = 2;
    pub const SELECT_LOW: i64 = 4;
    pub const SELECT_HIGH: i64 = 8;
}

impl Decoded {
    fn write_operand(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let Some(index) = self.row.operand(name) else {
            return write!(f, "${name}");
        };
        let operand = &self.row.operands[index];
        let number = match self.values[index] {
            Value::Immediate(number) => number,
            _ => 0,
        };
        match operand.kind.printer {
            Printer::Operand => self.write_plain_operand(f, index),
            Printer::VopDst => {
                if index == 0 {
                    self.write_suffix(f)?;
                }
                self.write_value(f, index)
            }
            Printer::FpModifiers => self.write_fp_modifiers(f, index, number),
            Printer::IntModifiers => {
                let extend = number & modifier::SIGN_EXTEND != 0;
                f.write_str(if extend { "sext(" } else { "" })?;
                self.write_value(f, index + 1)?;
                f.write_str(if extend { ")" } else { "" })
            }
            Printer::OpSel => self.write_op_sel(f),
            Printer::OpSelHi => self.write_packed(f, "op_sel_hi", modifier::SELECT_HIGH),
            Printer::NegLo => self.write_packed(f, "neg_lo", modifier::NEGATE),
            Printer::NegHi => self.write_packed(f, "neg_hi", modifier::NEGATE_HIGH),
            _ => fields::write(f, self, operand, number),
        }
    }

    /// Writes the suffix of the encoding after the mnemonic.
    fn write_suffix(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row;
        let single = row.has(Flag::IsSingle);
        f.write_str(if row.has(Flag::Vop3) {
            if single { "" } else { "_e64" }
        } else if row.has(Flag::Dpp) {
            "_dpp"
        } else if row.has(Flag::Sdwa) {
            "_sdwa"
        } else if (row.has(Flag::Vop1) || row.has(Flag::Vop2)) && !single {
            "_e32"
        } else {
            ""
        })?;
        f.write_char(' ')
    }

    fn write_plain_operand(&self, f: &mut fmt::Formatter<'_>, index: usize) -> fmt::Result {
        let row = self.row;
        if index == 0 && row.has(Flag::Vopc) && row.has(Flag::DefVcc) {
            f.write_str("vcc, ")?;
        }
        self.write_value(f, index)?;
        let name = row.operands[index].name;
        if name == "src1" && row.name == "V_CNDMASK_B32_e32_vi" {
            f.write_str(", vcc")?;
        }
        if name == "soffset" && row.has(Flag::Mtbuf) {
            fields::write_format(f, self.immediate("format"))?;
        }
        Ok(())
    }

    fn write_fp_modifiers(&self, f: &mut fmt::Formatter<'_>, index: usize, bits: i64) -> fmt::Result {
        let absolute = bits & modifier::ABSOLUTE != 0;
        // `-1` and `neg(1)` are different numbers.
        let in_words = !absolute && matches!(self.values[index + 1], Value::Immediate(_));
        if bits & modifier::NEGATE != 0 {
            f.write_str(if in_words { "neg(" } else { "-" })?;
        }
        f.write_str(if absolute { "|" } else { "" })?;
        self.write_value(f, index + 1)?;
        f.write_str(if absolute { "|" } else { "" })?;
        f.write_str(if bits & modifier::NEGATE != 0 && in_words { ")" } else { "" })
    }

    fn write_value(&self, f: &mut fmt::Formatter<'_>, index: usize) -> fmt::Result {
        let operand = &self.row.operands[index];
        match self.values[index] {
            Value::Absent => f.write_str("/*Missing*/"),
            Value::Register(register) => {
                write!(f, "{register}")?;
                if register_fits(register, operand) {
                    return Ok(());
                }
                let class = self.class_name(operand, register);
                write!(f, "/*Invalid register, operand has '{class}' register class*/")
            }
            Value::Immediate(number) => {
                immediate::write(f, operand.kind.operand_type, number)?;
                if operand.kind.operand_type == OperandType::Register {
                    f.write_str("/*Invalid immediate*/")?;
                }
                Ok(())
            }
        }
    }

    /// Returns the operand's register class as LLVM names it for processors whose tuples begin at even registers.
    fn class_name(&self, operand: &Operand, register: Register) -> String {
        let class = operand.kind.class;
        let wide = class.split('_').nth(1).is_some_and(|bits| bits != "32");
        let Some(bits) = class.strip_prefix("AV").filter(|_| self.shares_file(operand)) else {
            let vector = matches!(&class[..2], "VR" | "AR" | "AV" | "VS");
            return if wide && vector { format!("{class}_Align2") } else { class.to_owned() };
        };
        let accumulation = matches!(register, Register::Numbered { file: File::Accumulation, .. });
        format!("{}{bits}_Align2", if accumulation { "AReg" } else { "VReg" })
    }

    /// Returns whether the memory operation has two operands whose registers must be of one file.
    fn shares_file(&self, operand: &Operand) -> bool {
        let names: &[&str] = match operand.name {
            _ if self.row.has(Flag::Ds) => &["vdst", "data0", "data1"],
            _ => &["vdst", "vdata"],
        };
        names.contains(&operand.name)
            && names.iter().filter(|name| self.row.operand(name).is_some()).count() > 1
    }

    fn write_op_sel(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.row.mnemonic(), "v_cvt_f32_fp8" | "v_cvt_f32_bf8") {
            let bits = self.immediate("src0_modifiers");
            let (low, high) = (bits >> 2 & 1, bits >> 3 & 1);
            return if low | high != 0 { write!(f, " op_sel:[{low},{high}]") } else { Ok(()) };
        }
        self.write_packed(f, "op_sel", modifier::SELECT_LOW)
    }

    /// Writes one bit of each source's modifiers, if not all are as they are by default.
    fn write_packed(&self, f: &mut fmt::Formatter<'_>, name: &str, bit: i64) -> fmt::Result {
        let default = bit == modifier::SELECT_HIGH;
        let mut bits = Vec::with_capacity(4);
        for source in 0..3 {
            if self.row.operand(&format!("src{source}")).is_none() {
                break;
            }
            bits.push(match self.value(&format!("src{source}_modifiers")) {
                Some(Value::Immediate(number)) => number & bit != 0,
                Some(_) => false,
                None => default,
            });
        }
        let usual = default && self.row.has(Flag::IsPacked);
        let mut all_usual = bits.iter().all(|&bit| bit == usual);
        if bit == modifier::SELECT_LOW && self.row.has(Flag::Vop3OpSel) {
            let result = self.immediate("src0_modifiers") & modifier::SELECT_HIGH != 0;
            all_usual &= !result;
            bits.push(result);
        }
        if all_usual {
            return Ok(());
        }
        let bits: Vec<&str> = bits.iter().map(|&bit| if bit { "1" } else { "0" }).collect();
        write!(f, " {name}:[{}]", bits.join(","))
    }
}

/// Returns whether the register belongs to the operand's class. The decoder accepts more than the class holds.
fn register_fits(register: Register, operand: &Operand) -> bool {
    let class = operand.kind.class;
    match register {
        Register::Numbered { file, first, dwords } => {
            let aligned = dwords == 1 || first % 2 == 0;
            match &class[..2] {
                "VG" => file == File::Vector,
                "VR" if class == "VRegOrLds_32" => file == File::Vector,
                "VR" => file == File::Vector && aligned,
                "AG" => file == File::Accumulation,
                "AR" => file == File::Accumulation && aligned,
                "AV" => matches!(file, File::Vector | File::Accumulation) && aligned,
                "VS" => match file {
                    File::Vector => aligned,
                    File::Accumulation => false,
                    _ => true,
                },
                "SR" => matches!(file, File::Scalar | File::Trap),
                _ => true,
            }
        }
        Register::Special { name, half } => match class {
            "VGPR_32" | "AGPR_32" => false,
            "VRegOrLds_32" => name == Special::LdsDirect,
            "SReg_32" => name != Special::LdsDirect,
            "SReg_32_XM0_XEXEC" => name != Special::M0 && name != Special::Exec,
            "SReg_32_XEXEC_HI" => (name, half) != (Special::Exec, Some(1)),
            "SReg_64_XEXEC" | "SReg_1_XEXEC" => name != Special::Exec,
            _ => true,
        },
    }
}
