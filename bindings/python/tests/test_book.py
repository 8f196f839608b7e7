"""The book's chapter is a program that runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hostcall

CHAPTER = Path(__file__).parents[3] / "docs/book/src/python.md"


def test_the_chapters_code_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```([\w,]+)\n(.*?)^```$", CHAPTER.read_text(), re.MULTILINE | re.DOTALL)
    kernels = "\n".join(text for language, text in blocks if language == "cpp")
    (tmp_path / "kernels.cpp").write_text(kernels)
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", "-Wall", "-Werror", "-I", hostcall.include()]
    subprocess.run([*command, "kernels.cpp", "-o", "kernels.so"], cwd=tmp_path, check=True)
    program = "\n".join(text for language, text in blocks if language == "python")
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "raised for Prices::of, called by `shop`, block (" in ran.stdout
    assert re.search(r"also: KernelPanic: kernels.cpp:\d+: shop, block .* `status == HOSTCALL_CALL_OK` does not hold", ran.stdout)
    # What a worker imports is a file.
    (script,) = (text for language, text in blocks if language == "python,ignore" and "hostcall.Worker()" in text)
    (tmp_path / "script.py").write_text(script)
    ran = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.stdout.startswith("True exited [1, 2] None None [] ") and ran.stderr == "", ran
