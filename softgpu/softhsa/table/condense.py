#!/usr/bin/env python3
"""Makes gfx942.txt, the table of every instruction of gfx942, from LLVM's own description.

    apt-get source --download-only llvm-toolchain-19     # Debian's source package (enable deb-src)
    tar -xJf llvm-toolchain-19_*.orig.tar.xz --strip-components=1 --wildcards \\
        '*/llvm/lib/Target/AMDGPU' '*/llvm/include'
    llvm-tblgen-22 --dump-json -I llvm/include -I llvm/lib/Target/AMDGPU \\
        llvm/lib/Target/AMDGPU/AMDGPU.td -o amdgpu.json
    python3 condense.py amdgpu.json > gfx942.txt

Lines of the table, in the order in which a decoder tries them:
    kind NUMBER DECODER PRINTER OPERAND-TYPE REGISTER-CLASS
    inst NAME|FLAGS|SIZE|MASK|VALUE|ASM|OPERANDS
An operand is name:kind=PIECES; a piece a:b:n says that n bits from bit b of the instruction are the operand's
bits from bit a on. An operand without pieces is not encoded. A tie x=y (operand x is the register of operand y)
stands among the flags.
"""
import json
import re
import sys

# The order in which LLVM's disassembler asks its tables for gfx942.
ORDER = {
    8: ["GFX9_DL", "GFX940", "GFX90A", "GFX8", "GFX9"],
    4: ["GFX8", "AMDGPU", "GFX9", "GFX90A"],
}
# Bits of a record's TSFlags. Its fields of the same names are not always filled in.
TS_FLAGS = {
    "SALU": 0, "VALU": 1, "SOP1": 2, "SOP2": 3, "SOPC": 4, "SOPK": 5, "SOPP": 6, "VOP1": 7, "VOP2": 8, "VOPC": 9,
    "VOP3": 10, "VOP3P": 12, "SDWA": 14, "DPP": 15, "TRANS": 16, "MUBUF": 17, "MTBUF": 18, "SMRD": 19, "FLAT": 24,
    "DS": 25, "VOP3_OPSEL": 42, "FPClamp": 45, "IntClamp": 46, "IsPacked": 49, "FlatGlobal": 51, "IsMAI": 54,
    "FlatScratch": 56, "IsAtomicNoRet": 57, "IsAtomicRet": 58,
}
FLAGS = "IsSingle mayLoad mayStore".split()
# What LLVM 22 refuses on gfx942 and LLVM 19 accepts, and a second name of V_MUL_LO_U32.
REFUSED = {"BUFFER_WBINVL1_vi", "BUFFER_WBINVL1_VOL_vi", "V_MUL_LO_I32_e64_vi", "V_MUL_LO_I32_vi"}
# Dot products of whole registers: LLVM 22 demands that op_sel is 0 and ignores op_sel_hi.
WHOLE_DOTS = {"V_DOT4_I32_I8_vi", "V_DOT4_U32_U8_vi", "V_DOT8_I32_I4_vi", "V_DOT8_U32_U4_vi"}
OP_SEL = 7 << 11
MODIFIERS = (8, 9, 10, 59, 60, 61, 62, 63)
FREE = (1 << 59) - (1 << 32) | 15 << 11


def features(records, processor):
    """Returns the names of the features that the processor has, implied ones too."""
    for name in records["!instanceof"]["Processor"]:
        if records[name]["Name"] == processor:
            todo = [f["def"] for f in records[name]["Features"]]
            break
    found = set()
    while todo:
        feature = todo.pop()
        if feature not in found:
            found.add(feature)
            todo += [f["def"] for f in records[feature]["Implies"]]
    return found


def holds(dag, have):
    """Evaluates an assembler predicate's condition."""
    if "def" in dag:
        return dag["def"] in have
    args = [holds(arg, have) for arg, _ in dag["args"]]
    return {"all_of": all, "any_of": any, "not": lambda a: not a[0]}[dag["operator"]["def"]](args)


def enabled(record, records, have):
    for predicate in record["Predicates"]:
        predicate = records[predicate["def"]]
        if predicate.get("AssemblerMatcherPredicate") and not holds(predicate["AssemblerCondDag"], have):
            return False
    return True


def decoder(name, kind):
    method = kind.get("DecoderMethod") or ""
    if method:
        return re.sub(r"[<>, ]+", ",", method.replace("AMDGPUDisassembler::OPW", "")).strip(",")
    if "RegClass" in kind:
        return "reg," + kind["RegClass"]["def"]
    if "RegClass" in kind or kind.get("Type") is None or "MemberList" in kind:
        return "reg," + name
    return "imm"


def printer(kind):
    method = kind.get("PrintMethod") or "printOperand"
    bit = re.search(r'printNamedBit\(MI, OpNo, O, "(\w+)"\)', method)
    return "bit," + bit[1] if bit else re.sub("^print", "", method)


def pieces(bits, operand):
    """Returns the runs of an operand's bits as (first operand bit, first instruction bit, length)."""
    at = {}
    for index, bit in enumerate(bits):
        if isinstance(bit, dict):
            if bit["kind"] == "varbit" and bit["var"] == operand:
                at[bit["index"]] = index
            elif bit["kind"] == "var" and bit["var"] == operand:
                at[0] = index
    runs = []
    for a in sorted(at):
        if runs and a == runs[-1][0] + runs[-1][2] and at[a] == runs[-1][1] + runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([a, at[a], 1])
    return "+".join(":".join(map(str, run)) for run in runs)


def main():
    records = json.load(open(sys.argv[1]))
    have = features(records, "gfx942")
    rows, kinds, kind_lines = [], {}, []

    def kind_number(name):
        kind = records[name]
        register_class = kind["RegClass"]["def"] if "RegClass" in kind else "-"
        operand_type = kind.get("OperandType") or "OPERAND_REGISTER"
        if decoder(name, kind) == "reg," + name:
            register_class = name
        line = " ".join([decoder(name, kind), printer(kind), operand_type.replace("OPERAND_", ""), register_class])
        if line not in kinds:
            kinds[line] = len(kinds)
            kind_lines.append(f"kind {kinds[line]} {line}")
        return kinds[line]

    for name in records["!instanceof"]["Instruction"]:
        record = records[name]
        size, space = record.get("Size"), record.get("DecoderNamespace")
        if space not in ORDER.get(size, []) or record["isPseudo"] or record["isCodeGenOnly"]:
            continue
        if name in REFUSED or not enabled(record, records, have):
            continue
        bits = record["Inst"][: size * 8]
        mask = sum(1 << i for i, bit in enumerate(bits) if isinstance(bit, int))
        value = sum(bit << i for i, bit in enumerate(bits) if isinstance(bit, int))
        if size == 8 and record["TSFlags"][10] and not record["TSFlags"][12] and not record["TSFlags"][54]:
            # LLVM 22 demands that unused modifiers are 0, and nothing of unused sources and selections.
            mask &= ~FREE | value
            mask |= sum(1 << i for i in MODIFIERS if not isinstance(bits[i], dict))
        if name in WHOLE_DOTS:
            mask |= OP_SEL
            record["AsmString"] = record["AsmString"].replace("$op_sel$op_sel_hi", "")
        operands = []
        for group in ("OutOperandList", "InOperandList"):
            for kind, operand in record[group]["args"]:
                place = pieces(bits, operand)
                operands.append(f"{operand}:{kind_number(kind['def'])}" + ("=" + place if place else ""))
        flags = [flag for flag, bit in TS_FLAGS.items() if record["TSFlags"][bit]]
        flags += [flag for flag in FLAGS if record.get(flag)]
        defs = [d["def"] for d in record["Defs"]]
        uses = [d["def"] for d in record["Uses"]]
        flags += [f"def-{d}" for d in defs if d in ("VCC", "EXEC", "SCC", "M0")]
        flags += [f"use-{u}" for u in uses if u in ("VCC", "SCC", "M0")]
        for tie in filter(None, (record.get("Constraints") or "").split(",")):
            tied = re.match(r"\s*\$(\w+)\s*=\s*\$(\w+)", tie)
            if tied:
                flags.append(f"{tied[1]}={tied[2]}")
        asm = record["AsmString"].replace("|", "¦").strip()
        text = f"inst {name}|{','.join(flags)}|{size}|{mask:x}|{value:x}|{asm}|{' '.join(operands)}"
        rows.append(((-size, ORDER[size].index(space), -bin(mask).count("1"), name), text))
    rows.sort()
    print("# Made by condense.py from LLVM 19's AMDGPU.td; see there for the form.")
    print("# LLVM is under the Apache License v2.0 with LLVM Exceptions.")
    print("\n".join(kind_lines))
    print("\n".join(text for _, text in rows))


main()
