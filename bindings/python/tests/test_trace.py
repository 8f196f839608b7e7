"""Traces of kernels that Python launches."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import OK, Kernels, u64

import hostcall

command = pytest.mark.skipif(shutil.which("hostcall") is None, reason="the command `hostcall` is not on the PATH")


def traced(file: Path, kernels: Kernels) -> hostcall.TraceSummary:
    with hostcall.Tracer(file) as tracer, hostcall.Device("cpu", trace=tracer) as device:

        @device.service(number=700)
        def double(value: hostcall.u64) -> hostcall.u64:
            return 2 * value

        context = device.context("of Python")
        assert kernels.call(context, 700, 21) == (OK, [42])
        kernels.free.traced(u64(context), 3)
        context.flush()
    return tracer.finish()


def test_what_kernels_say_is_counted(tmp_path: Path, kernels: Kernels) -> None:
    counted = traced(tmp_path / "run.trace", kernels)
    assert (counted.lost, counted.lost_points, counted.dropped_calls) == (None, 0, 0)
    # Besides, the points have asked for the time and their numbers.
    assert counted.calls >= 1


@command
def test_the_command_shows_the_file(tmp_path: Path, kernels: Kernels) -> None:
    file = tmp_path / "run.trace"
    traced(file, kernels)
    shown = subprocess.run(["hostcall", "trace", "dump", str(file)], check=True, capture_output=True, text=True).stdout
    assert "all steps" in shown and shown.count("step") >= 3 and "double" in shown, shown


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="is not written"):
        hostcall.Tracer(tmp_path / "none" / "run.trace")
