"""Kernels in Triton, compiled by itself for AMD's GPUs and run on the one in software."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostcall

if sys.platform != "linux":
    pytest.skip("Triton needs Linux", allow_module_level=True)
triton: Any = pytest.importorskip("triton")
command = pytest.mark.skipif(shutil.which("hostcall") is None, reason="the command `hostcall` is not on the PATH")

import triton_kernels as kernels  # noqa: E402
import hostcall.triton as ht  # noqa: E402

TYPES = {"x": "*fp32", "out": "*fp32", "context": "i64", "n": "i32"}


def compiled(kernel: Any, **constants: Any) -> ht.Compiled:
    return ht.compile(kernel, {name: kind for name, kind in TYPES.items() if name in kernel.arg_names}, **constants)


def test_blocks_call_post_check_and_print(capfd: pytest.CaptureFixture[str]) -> None:
    with hostcall.Device("gfx942", timeout=60) as device:
        asked, posts = kernels.serve(device)
        context = device.context("triton")
        x, out = (device.buffer(600, "f4") for _ in range(2))
        np.asarray(x)[:] = np.arange(600) / 4
        np.asarray(x)[[5, 300]] = np.nan
        kernel = compiled(kernels.everything, BLOCK=256)
        assert kernel.threads == 256
        kernel.launch(device, 3, x, out, context, np.int32(600)).wait(timeout=60)
        with pytest.raises(KeyError) as raised:
            context.flush()
        notes = "\n".join(getattr(raised.value, "__notes__", []))
        assert "x is a number" in notes and "triton_kernels.py:" in notes and "1 more" in notes
        expected = 2 * np.asarray(x) + np.arange(600) - np.repeat([0, 100, 200], 256)[:600]
        expected[7] = -1
        np.testing.assert_array_equal(np.asarray(out), expected)
        # What a program does once, it does once.
        assert sorted(asked) == [0, 1, 2] and sorted(posts) == [600, 1600, 2600]
        device.synchronize()
    lines = sorted(line for line in capfd.readouterr().out.splitlines() if line.startswith("program"))
    assert lines == [f"program {program} of 600: {program * 0.5:.2f}" for program in range(3)]


def test_other_processes_know_the_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run kernels from Triton's cache, which have numbers alone: one imported the package before these were compiled."""
    program = """
import json, sys, numpy as np, hostcall, hostcall.triton
print("ready", flush=True)
path, name = input().split()
with hostcall.Device("gfx942", timeout=60) as device:
    context, x = device.context("other"), device.buffer(256, "f4")
    np.asarray(x)[9] = -1
    nothing = np.uint64(0)
    device.load(path).launch(name, 1, 256, x, context, np.int32(256), nothing, nothing).wait(timeout=60)
    try:
        context.flush()
    except hostcall.KernelPanic as panic:
        print(json.dumps([panic.message, panic.file, panic.thread]))
"""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    folder = Path(triton.knobs.cache.dir, "hostcall-texts")
    folder.mkdir(parents=True)
    for number, spoiled in enumerate([b"", b"5", b"null", b"\xff", b'["","a","f",null]', b'["","a","f",-1]', b'["p",1,2']):
        Path(folder, f"{number:08x}.json").write_bytes(spoiled)

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    before = start()
    kernel = compiled(kernels.checks_all, BLOCK=256)
    path = tmp_path / "checks.co"
    path.write_bytes(kernel.made.asm["hsaco"])
    for process in (before, start()):
        out, err = process.communicate(f"{path} {kernel.name}\n", timeout=120)
        assert process.returncode == 0, err
        message, file, thread = json.loads(out)
        assert message == "`x is positive` does not hold" and Path(file).name == "triton_kernels.py" and thread == [9, 0, 0]
    # This one had the texts from the beginning, and tells at once what it is.
    assert "triton_kernels.py:" in err and "`x is positive` does not hold" in err


@pytest.mark.parametrize(
    "kernel, sentence",
    [
        ("too_many", "a post has up to 4 values, not 5"),
        ("wrong_text", "has 2 places, and 1 values"),
        ("printed_too_many", "a line has up to 3 values"),
        ("too_few_places", "has 1 places, and 2 values"),
        ("no_text", "the text of a check is a string"),
        ("swapped", "the context is `int(context)`"),
        ("no_number", "the number of a method is from 256 to 65535"),
        ("no_type", "`result` is a type of Triton's"),
        ("counts_a_block", "a counter shows a scalar"),
    ],
)
def test_what_cannot_be_is_told_where_it_is_compiled(kernel: str, sentence: str) -> None:
    with pytest.raises(triton.CompilationError) as raised:
        compiled(getattr(kernels, kernel), BLOCK=256)
    assert sentence in str(raised.value)


def test_a_kernel_is_loaded_once_for_a_device() -> None:
    kernel = compiled(kernels.checks_all, BLOCK=256)
    for _ in range(2):
        with hostcall.Device("gfx942", timeout=60) as device:
            context, x = device.context("twice"), device.buffer(512, "f4")
            np.asarray(x)[[5, 300]] = -1
            for _ in range(2):
                kernel.launch(device, 2, x, context, np.int32(512)).wait(timeout=60)
                with pytest.raises(hostcall.KernelPanic, match="x is positive") as raised:
                    context.flush()
                assert raised.value.count == 2
            assert len(kernel._codes) >= 1
    with pytest.raises(ValueError, match="checks_all takes n, BLOCK: say what type it has"):
        ht.compile(kernels.checks_all, {"x": "*fp32", "context": "i64"})


def test_programs_say_what_they_wait_for() -> None:
    with hostcall.Device("gfx942", timeout=60) as device:
        seen: list[hostcall.Wait] = []

        @device.service(number=700)
        def is_set(n: hostcall.i32) -> hostcall.i64:
            seen.extend(wait for wait in device.waiting() if wait.polled is not None)
            return int(len(seen) > 0)

        context, x = device.context("waits"), device.buffer(600, "f4")
        compiled(kernels.waits, BLOCK=256).launch(device, 1, x, context, np.int32(7)).wait(timeout=60)
        polled = seen[0].polled
        assert polled is not None and (polled.peer, polled.sequence, seen[0].service) == (3, 7, "a signal that is")
        assert polled.address != 0 and all(wait.polled is None for wait in device.waiting())


@command
def test_programs_are_traced(tmp_path: Path) -> None:
    file = tmp_path / "triton.trace"
    with hostcall.Tracer(file) as tracer, hostcall.Device("gfx942", timeout=60, trace=tracer) as device:
        context, x = device.context("traced"), device.buffer(4, "f4")
        compiled(kernels.traced, BLOCK=256).launch(device, 5, x, context, np.int32(3)).wait(timeout=60)
    counted = tracer.finish()
    assert (counted.lost, counted.lost_points) == (None, 0)
    shown = subprocess.run(["hostcall", "trace", "dump", str(file)], check=True, capture_output=True, text=True).stdout
    said = [line for line in shown.splitlines() if " launch 2 traced, " in line and "TracePoints" not in line]
    count = {what: sum(what in line for line in said) for what in ("a step whose name is too", "sum = ", "steps = 3", "program")}
    assert count == {"a step whose name is too": 2 * 5 * 3, "sum = ": 5 * 3, "steps = 3": 5, "program": 2 * 5}, shown
    assert sum("sum = 4.5" in line for line in said) == 1 and ", triton_kernels:" in shown, shown


def test_programs_are_not_traced_without_a_tracer() -> None:
    with hostcall.Device("gfx942", timeout=60) as device:
        context, x = device.context("untraced"), device.buffer(4, "f4")
        compiled(kernels.traced, BLOCK=256).launch(device, 5, x, context, np.int32(3)).wait(timeout=60)
        context.flush()


def test_lines_go_to_the_devices_output() -> None:
    lines: list[str] = []
    with hostcall.Device("gfx942", timeout=60, output=lines.append) as device:
        kernels.serve(device)
        context, x, out = device.context("lines"), device.buffer(600, "f4"), device.buffer(600, "f4")
        compiled(kernels.everything, BLOCK=256).launch(device, 3, x, out, context, np.int32(600)).wait(timeout=60)
        with pytest.raises(KeyError):
            device.synchronize()
    assert sorted(lines) == [f"program {program} of 600: {program * 0.5:.2f}" for program in range(3)]
