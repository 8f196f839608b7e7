#!/usr/bin/env python3
"""Makes gfx942.tsv.gz: every encoding of LLVM's decoder tests for gfx9 processors, and llvm-mc-22's text of it.

    python3 make.py llvm/test/MC/Disassembler/AMDGPU | gzip -9 -n > gfx942.tsv.gz

The folder is that of Debian's source package llvm-toolchain-19. A line is the bytes in hexadecimal, a tab, and the
text, which is empty if llvm-mc-22 -mcpu=gfx942 refuses the bytes.
"""
import os
import re
import subprocess
import sys

MARK = "s_nop 0xffff"
MARK_BYTES = "[0xff,0xff,0x80,0xbf]"


def main():
    encodings = set()
    for name in sorted(os.listdir(sys.argv[1])):
        if name.startswith("gfx9"):
            for line in open(os.path.join(sys.argv[1], name), errors="replace"):
                line = line.split("#")[0].strip()
                if re.fullmatch(r"(\[?0x[0-9a-fA-F]{2}\]?[, ]*)+", line):
                    encodings.add(bytes(int(byte, 16) for byte in re.findall(r"0x([0-9a-fA-F]{2})", line)))
    encodings = sorted(encodings)
    lines = (f"{MARK_BYTES}\n[{','.join(f'0x{byte:02x}' for byte in e)}]\n" for e in encodings)
    tool = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-disassemble"]
    printed = subprocess.run(tool, input="".join(lines), capture_output=True, text=True).stdout
    texts = []
    for line in map(str.strip, printed.splitlines()):
        if line == MARK:
            texts.append("")
        elif line and not line.startswith("."):
            texts[-1] = line
    assert len(texts) == len(encodings)
    for encoding, text in zip(encodings, texts):
        print(f"{encoding.hex()}\t{text}")


main()
