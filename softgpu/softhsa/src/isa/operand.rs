//! Kinds of operands: how their bits are read, what their immediates mean, and how they are printed.

/// What an inline constant or a literal means in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are LLVM's")]
pub enum OperandType {
    Immediate,
    Unknown,
    Register,
    PcRelative,
    InputModifiers,
    SdwaVopcDst,
    Kimm,
    Int16,
    Int32,
    Int64,
    Fp16,
    Fp32,
    Fp64,
    V2Int16,
    V2Fp16,
    V2Int32,
    V2Fp32,
}

impl OperandType {
    pub(super) fn parse(name: &str) -> OperandType {
        use OperandType::*;
        let name = name.strip_suffix("_DEFERRED").unwrap_or(name);
        match name.rsplit('_').next().unwrap_or(name) {
            "IMMEDIATE" => Immediate,
            "UNKNOWN" => Unknown,
            "REGISTER" => Register,
            "PCREL" => PcRelative,
            "MODS" => InputModifiers,
            "DST" => SdwaVopcDst,
            "KIMM16" | "KIMM32" => Kimm,
            "INT16" => Int16,
            "INT32" => Int32,
            "INT64" => Int64,
            "FP16" => Fp16,
            "FP32" => Fp32,
            "FP64" => Fp64,
            "V2INT16" => V2Int16,
            "V2FP16" => V2Fp16,
            "V2INT32" => V2Int32,
            "V2FP32" => V2Fp32,
            _ => panic!("the table names an unknown type of operand: {name}"),
        }
    }
}

/// How an operand's bits become a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// The bits are the value.
    Immediate,
    /// Eight bits are the number of the first register of a vector or accumulation tuple.
    VectorRegister {
        /// Whether the register is an accumulation register.
        accumulation: bool,
        /// Registers in the tuple.
        dwords: u16,
    },
    /// A source: the nine bits of an operand, and a tenth that selects accumulation registers.
    Source {
        /// Registers in a tuple.
        dwords: u16,
        /// Bits that are set before the source is read.
        set: u32,
        /// Width of a floating-point inline constant: 16, 32 or 64, or 0 if no constant is allowed.
        constant_bits: u8,
        /// Whether a literal is the upper half of a 64-bit floating-point number.
        literal_is_high: bool,
        /// Whether the literal is an operand of its own that the instruction always has.
        deferred: bool,
    },
    /// A vector or accumulation register of a memory operation; the tenth bit may be that of another operand.
    LoadStore {
        /// Registers in the tuple.
        dwords: u16,
    },
    /// A source of SDWA.
    SdwaSource {
        /// Width of an inline constant.
        constant_bits: u8,
    },
    /// The scalar result of an SDWA comparison.
    SdwaVopcDst,
    /// The literal that an instruction always has.
    Literal,
    /// A signed offset of 21 bits.
    SmemOffset,
    /// A branch target.
    BranchTarget,
}

impl Decoder {
    pub(super) fn parse(text: &str) -> Decoder {
        let parts: Vec<&str> = text.split(',').collect();
        let number = |index: usize| parts[index].parse::<u32>().expect("the table holds decimal widths");
        let dwords = |bits: u32| bits.div_ceil(32) as u16;
        let source = |set: u32, deferred: bool| Decoder::Source {
            dwords: dwords(number(1)),
            set,
            constant_bits: parts.get(2).map_or(0, |bits| bits.parse().expect("a width")),
            literal_is_high: parts.get(3) == Some(&"4"),
            deferred,
        };
        match parts[0] {
            "imm" => Decoder::Immediate,
            "reg" => parse_class(parts[1]),
            "decodeSrcRegOrImm9" | "decodeSrcReg9" | "decodeSrcAV10" => source(0, false),
            "decodeSrcRegOrImmA9" | "decodeSrcA9" => source(512, false),
            "decodeAV10" => source(256, false),
            "decodeSrcRegOrImmDeferred9" => source(0, true),
            "decodeOperand_VSrc_f64" => Decoder::Source {
                dwords: 2,
                set: 0,
                constant_bits: 64,
                literal_is_high: true,
                deferred: false,
            },
            "decodeBoolReg" => Decoder::Source {
                dwords: 2,
                set: 0,
                constant_bits: 0,
                literal_is_high: false,
                deferred: false,
            },
            "decodeAVLdSt" => Decoder::LoadStore { dwords: dwords(number(1)) },
            "decodeSDWASrc16" => Decoder::SdwaSource { constant_bits: 16 },
            "decodeSDWASrc32" => Decoder::SdwaSource { constant_bits: 32 },
            "decodeSDWAVopcDst" => Decoder::SdwaVopcDst,
            "decodeOperand_KImmFP" => Decoder::Literal,
            "decodeSMEMOffset" => Decoder::SmemOffset,
            "decodeSOPPBrTarget" => Decoder::BranchTarget,
            other => panic!("the table names an unknown decoder: {other}"),
        }
    }
}

fn parse_class(class: &str) -> Decoder {
    let bits = class.split('_').nth(1).and_then(|bits| bits.parse::<u32>().ok());
    let dwords = bits.expect("a register class says its width").div_ceil(32) as u16;
    match &class[..2] {
        "VG" | "VR" => Decoder::VectorRegister { accumulation: false, dwords },
        "AG" | "AR" => Decoder::VectorRegister { accumulation: true, dwords },
        "SR" => Decoder::Source { dwords, set: 0, constant_bits: 0, literal_is_high: false, deferred: false },
        _ => panic!("the table names an unknown register class: {class}"),
    }
}

macro_rules! printers {
    ($($printer:ident = $name:literal,)*) => {
        /// How an operand is printed, named as in LLVM's printer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names are LLVM's")]
        pub enum Printer {
            /// The word, after a space, if the bit is set.
            Bit(&'static str),
            $($printer,)*
        }

        impl Printer {
            pub(super) fn parse(name: &'static str) -> Printer {
                match name.split_once(',') {
                    Some((_, word)) => Printer::Bit(word),
                    None => match name {
                        $($name => Printer::$printer,)*
                        _ => panic!("the table names an unknown printer: {name}"),
                    },
                }
            }
        }
    };
}

printers! {
    Operand = "Operand", VopDst = "VOPDst", FpModifiers = "OperandAndFPInputMods",
    IntModifiers = "OperandAndIntInputMods", Offset = "Offset", Offset0 = "Offset0", Offset1 = "Offset1",
    FlatOffset = "FlatOffset", SmemOffset = "SMEMOffset", SmemOffsetMod = "SMEMOffsetMod", Cpol = "CPol",
    Swizzle = "Swizzle", U16 = "U16ImmOperand", U32 = "U32ImmOperand", Endpgm = "Endpgm", Hwreg = "Hwreg",
    SendMsg = "SendMsg", GprIdxMode = "GPRIdxMode", WaitCount = "SWaitCnt", Format = "FORMAT", DppCtrl = "DPPCtrl",
    DppRowMask = "DppRowMask", DppBankMask = "DppBankMask", DppBoundCtrl = "DppBoundCtrl",
    SdwaDstSel = "SDWADstSel", SdwaDstUnused = "SDWADstUnused", SdwaSrc0Sel = "SDWASrc0Sel",
    SdwaSrc1Sel = "SDWASrc1Sel", Omod = "OModSI", OpSel = "OpSel", OpSelHi = "OpSelHi", NegLo = "NegLo",
    NegHi = "NegHi", Cbsz = "CBSZ", Abid = "ABID", Blgp = "BLGP",
}
