//! The text of fields that are no registers and no numbers: offsets, cache bits, lane patterns, messages.

use std::fmt::{self, Write};

use crate::isa::decode::Decoded;
use crate::isa::operand::Printer;
use crate::isa::table::{Flag, Operand};

/// Writes a field of the instruction.
pub fn write(f: &mut impl Write, decoded: &Decoded, operand: &Operand, number: i64) -> fmt::Result {
    match operand.kind.printer {
        Printer::Bit(word) if number != 0 => write!(f, " {word}"),
        Printer::Offset | Printer::Offset0 | Printer::Offset1 if number != 0 => {
            write!(f, " {}:{number}", operand.name)
        }
        Printer::FlatOffset if number != 0 => {
            let signed = decoded.row.has(Flag::FlatGlobal) || decoded.row.has(Flag::FlatScratch);
            let offset = if signed { i64::from((number as i32) << 19 >> 19) } else { number };
            write!(f, " offset:{offset}")
        }
        Printer::SmemOffset => write_hex(f, number),
        Printer::SmemOffsetMod => {
            f.write_str(" offset:")?;
            write_hex(f, number)
        }
        Printer::Cpol => {
            let scalar = decoded.row.has(Flag::Smrd);
            for (bit, name) in [(1, if scalar { " glc" } else { " sc0" }), (2, " nt"), (16, " sc1")] {
                f.write_str(if number & bit != 0 { name } else { "" })?;
            }
            Ok(())
        }
        Printer::Swizzle if number != 0 => write_swizzle(f, number as u16),
        Printer::U16 => write!(f, "{:#x}", number as u32),
        Printer::U32 => write!(f, "{:#x}", number as u32),
        Printer::Endpgm if number != 0 => write!(f, " {number}"),
        Printer::Hwreg => write_hwreg(f, number),
        Printer::SendMsg => write_message(f, number),
        Printer::GprIdxMode => write_index_mode(f, number),
        Printer::WaitCount => write_wait_count(f, number),
        Printer::DppCtrl => write_dpp(f, decoded, number),
        Printer::DppRowMask => write!(f, " row_mask:{number:#x}"),
        Printer::DppBankMask => write!(f, " bank_mask:{number:#x}"),
        Printer::DppBoundCtrl if number != 0 => f.write_str(" bound_ctrl:1"),
        Printer::SdwaDstSel => write!(f, "dst_sel:{}", selection(number)),
        Printer::SdwaSrc0Sel => write!(f, "src0_sel:{}", selection(number)),
        Printer::SdwaSrc1Sel => write!(f, "src1_sel:{}", selection(number)),
        Printer::SdwaDstUnused => {
            let names = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"];
            write!(f, "dst_unused:{}", names.get(number as usize).unwrap_or(&"?"))
        }
        Printer::Omod if number != 0 => f.write_str([" mul:2", " mul:4", " div:2"][number as usize - 1]),
        Printer::Cbsz if number != 0 => write!(f, " cbsz:{number}"),
        Printer::Abid if number != 0 => write!(f, " abid:{number}"),
        Printer::Blgp if number != 0 => {
            if decoded.row.mnemonic().starts_with("v_mfma_f64") {
                return write!(f, " neg:[{},{},{}]", number & 1, number >> 1 & 1, number >> 2 & 1);
            }
            write!(f, " blgp:{number}")
        }
        _ => Ok(()),
    }
}

fn write_hex(f: &mut impl Write, number: i64) -> fmt::Result {
    f.write_str(if number < 0 { "-" } else { "" })?;
    write!(f, "{:#x}", number.unsigned_abs())
}

fn selection(number: i64) -> &'static str {
    ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"].get(number as usize).unwrap_or(&"?")
}

/// Writes the format of a typed buffer access, unless it is the usual one.
pub fn write_format(f: &mut impl Write, number: i64) -> fmt::Result {
    const DATA: [&str; 16] = [
        "INVALID",
        "8",
        "16",
        "8_8",
        "32",
        "16_16",
        "10_11_11",
        "11_11_10",
        "10_10_10_2",
        "2_10_10_10",
        "8_8_8_8",
        "32_32",
        "16_16_16_16",
        "32_32_32",
        "32_32_32_32",
        "RESERVED_15",
    ];
    const NUMBER: [&str; 8] = ["UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT"];
    let (data, kind) = (number as usize & 15, number as usize >> 4 & 7);
    let mut parts = Vec::new();
    if data != 1 {
        parts.push(format!("BUF_DATA_FORMAT_{}", DATA[data]));
    }
    if kind != 0 {
        parts.push(format!("BUF_NUM_FORMAT_{}", NUMBER[kind]));
    }
    if parts.is_empty() { Ok(()) } else { write!(f, " format:[{}]", parts.join(",")) }
}

fn write_swizzle(f: &mut impl Write, bits: u16) -> fmt::Result {
    f.write_str(" offset:")?;
    if bits >= 0xe000 {
        return write!(f, "swizzle(FFT,{})", bits & 31);
    }
    if bits >= 0xc000 {
        return write!(f, "swizzle(ROTATE,{},{})", bits >> 10 & 1, bits >> 5 & 31);
    }
    if bits & 0xff00 == 0x8000 {
        let lanes: Vec<String> = (0..4).map(|lane| (bits >> (2 * lane) & 3).to_string()).collect();
        return write!(f, "swizzle(QUAD_PERM,{})", lanes.join(","));
    }
    if bits & 0x8000 != 0 {
        return write!(f, "{bits}");
    }
    let (and, or, xor) = (bits & 31, bits >> 5 & 31, bits >> 10 & 31);
    if and == 31 && or == 0 && xor.count_ones() == 1 {
        return write!(f, "swizzle(SWAP,{xor})");
    }
    if and == 31 && or == 0 && xor > 0 && (xor + 1).is_power_of_two() {
        return write!(f, "swizzle(REVERSE,{})", xor + 1);
    }
    let group = 32 - and;
    if group > 1 && group.is_power_of_two() && or < group && xor == 0 {
        return write!(f, "swizzle(BROADCAST,{group},{or})");
    }
    let zeros = or ^ xor;
    let ones = (and | or) ^ xor;
    let digits: String = (0..5)
        .rev()
        .map(|bit| match (zeros >> bit & 1, ones >> bit & 1) {
            (0, 0) => '0',
            (1, 1) => '1',
            (0, _) => 'p',
            _ => 'i',
        })
        .collect();
    write!(f, "swizzle(BITMASK_PERM,\"{digits}\")")
}

fn write_hwreg(f: &mut impl Write, number: i64) -> fmt::Result {
    let (id, offset, width) = (number & 63, number >> 6 & 31, (number >> 11 & 31) + 1);
    let name = match id {
        1 => "HW_REG_MODE",
        2 => "HW_REG_STATUS",
        3 => "HW_REG_TRAPSTS",
        4 => "HW_REG_HW_ID",
        5 => "HW_REG_GPR_ALLOC",
        6 => "HW_REG_LDS_ALLOC",
        7 => "HW_REG_IB_STS",
        15 => "HW_REG_SH_MEM_BASES",
        16 => "HW_REG_TBA_LO",
        17 => "HW_REG_TBA_HI",
        18 => "HW_REG_TMA_LO",
        19 => "HW_REG_TMA_HI",
        20 => "HW_REG_XCC_ID",
        21 => "HW_REG_SQ_PERF_SNAPSHOT_DATA",
        22 => "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
        23 => "HW_REG_SQ_PERF_SNAPSHOT_PC_LO",
        24 => "HW_REG_SQ_PERF_SNAPSHOT_PC_HI",
        _ => "",
    };
    f.write_str("hwreg(")?;
    if name.is_empty() {
        write!(f, "{id}")?
    } else {
        f.write_str(name)?
    }
    if (offset, width) != (0, 32) {
        write!(f, ", {offset}, {width}")?;
    }
    f.write_char(')')
}

fn write_message(f: &mut impl Write, number: i64) -> fmt::Result {
    let (id, operation, stream) = (number & 15, number >> 4 & 7, number >> 8 & 3);
    let plain = |name: &str| (operation == 0 && stream == 0).then(|| format!("sendmsg({name})"));
    let gs_operation = ["GS_OP_NOP", "GS_OP_CUT", "GS_OP_EMIT", "GS_OP_EMIT_CUT"].get(operation as usize);
    let text = match id {
        1 => plain("MSG_INTERRUPT"),
        2 | 3 => gs_operation.and_then(|operation_name| {
            let name = if id == 2 { "MSG_GS" } else { "MSG_GS_DONE" };
            match operation {
                0 if id == 2 || stream != 0 => None,
                0 => Some(format!("sendmsg({name}, {operation_name})")),
                _ => Some(format!("sendmsg({name}, {operation_name}, {stream})")),
            }
        }),
        4 => plain("MSG_SAVEWAVE"),
        5 => plain("MSG_STALL_WAVE_GEN"),
        6 => plain("MSG_HALT_WAVES"),
        7 => plain("MSG_ORDERED_PS_DONE"),
        8 => plain("MSG_EARLY_PRIM_DEALLOC"),
        9 => plain("MSG_GS_ALLOC_REQ"),
        10 => plain("MSG_GET_DOORBELL"),
        15 => match (operation, stream) {
            (1, 0) => Some("sendmsg(MSG_SYSMSG, SYSMSG_OP_ECC_ERR_INTERRUPT)".to_owned()),
            (2, 0) => Some("sendmsg(MSG_SYSMSG, SYSMSG_OP_REG_RD)".to_owned()),
            (4, 0) => Some("sendmsg(MSG_SYSMSG, SYSMSG_OP_TTRACE_PC)".to_owned()),
            _ => None,
        },
        _ => None,
    };
    match text {
        Some(text) => f.write_str(&text),
        None if number == id | operation << 4 | stream << 8 => {
            write!(f, "sendmsg({id}, {operation}, {stream})")
        }
        None => write!(f, "{number}"),
    }
}

fn write_index_mode(f: &mut impl Write, number: i64) -> fmt::Result {
    if number > 15 {
        return write!(f, "{number:#x}");
    }
    let names = ["SRC0", "SRC1", "SRC2", "DST"].iter().enumerate();
    let names: Vec<&str> = names.filter(|(bit, _)| number >> bit & 1 != 0).map(|(_, name)| *name).collect();
    write!(f, "gpr_idx({})", names.join(","))
}

fn write_wait_count(f: &mut impl Write, number: i64) -> fmt::Result {
    let vector = number & 15 | (number >> 14 & 3) << 4;
    let counts = [("vmcnt", vector, 63), ("expcnt", number >> 4 & 7, 7), ("lgkmcnt", number >> 8 & 15, 15)];
    let all = counts.iter().all(|(_, count, most)| count == most);
    let mut space = "";
    for (name, count, most) in counts {
        if count != most || all {
            write!(f, "{space}{name}({count})")?;
            space = " ";
        }
    }
    Ok(())
}

fn write_dpp(f: &mut impl Write, decoded: &Decoded, number: i64) -> fmt::Result {
    let low = number & 15;
    if decoded.row.has_pairs() && !(0x150..=0x15f).contains(&number) {
        return f.write_str(" /* DP ALU dpp only supports row_newbcast */");
    }
    match number {
        0..=0xff => {
            let [a, b, c, d] = [0, 2, 4, 6].map(|shift| number >> shift & 3);
            write!(f, "quad_perm:[{a},{b},{c},{d}]")
        }
        0x101..=0x10f => write!(f, "row_shl:{low}"),
        0x111..=0x11f => write!(f, "row_shr:{low}"),
        0x121..=0x12f => write!(f, "row_ror:{low}"),
        0x130 => f.write_str("wave_shl:1"),
        0x134 => f.write_str("wave_rol:1"),
        0x138 => f.write_str("wave_shr:1"),
        0x13c => f.write_str("wave_ror:1"),
        0x140 => f.write_str("row_mirror"),
        0x141 => f.write_str("row_half_mirror"),
        0x142 => f.write_str("row_bcast:15"),
        0x143 => f.write_str("row_bcast:31"),
        0x150..=0x15f => write!(f, "row_newbcast:{low}"),
        0x160..=0x16f => f.write_str("/* row_xmask is not supported on ASICs earlier than GFX10 */"),
        _ => f.write_str("/* Invalid dpp_ctrl value */"),
    }
}
