"""Traces of kernels that Python launches."""

from __future__ import annotations

import shutil
import subprocess
import sys
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


def test_what_is_no_open_tracer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="make one of the file"):
        hostcall.Device("cpu", trace="run.trace")  # type: ignore[arg-type]
    with hostcall.Tracer(tmp_path / "run.trace") as tracer:
        pass
    with pytest.raises(RuntimeError, match="has finished"):
        hostcall.Device("cpu", trace=tracer)


def test_an_exception_of_the_block_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(tracer: hostcall.Tracer) -> None:
        raise RuntimeError("no room on the disk")

    monkeypatch.setattr(hostcall.Tracer, "finish", fails)
    with pytest.raises(KeyError) as error, hostcall.Tracer(tmp_path / "run.trace"):
        raise KeyError("of the block")
    assert error.value.__notes__ == ["meanwhile: RuntimeError: no room on the disk"]
    with pytest.raises(RuntimeError, match="no room"), hostcall.Tracer(tmp_path / "other.trace"):
        pass


def test_a_child_leaves_the_file_to_its_parent(tmp_path: Path) -> None:
    program = """
import os, sys, hostcall
parent = os.getpid()
with hostcall.Tracer(sys.argv[1]) as tracer, hostcall.Device("cpu", trace=tracer) as device:
    context = device.context()
    child = os.fork()
    if child == 0:
        try:
            tracer.finish()
        except RuntimeError as error:
            print(error, flush=True)
        # Through both `with`, and the end of the interpreter.
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
"""
    line = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(tmp_path / "run.trace")]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "") and "its file is the parent's" in ran.stdout, ran


def test_points_are_recorded_while_somebody_wants_it(tmp_path: Path, kernels: Kernels) -> None:
    with hostcall.Device("cpu") as device, hostcall.Tracer(tmp_path / "run.trace") as tracer:
        context = device.context("of Python")
        kernels.free.traced(u64(context), 3)
        with device.record_points(tracer, "all*") as recording:
            with pytest.raises(RuntimeError, match="recorded already"):
                device.record_points(tracer)
            recording.pause()
            kernels.free.traced(u64(context), 3)
            recording.resume()
            kernels.free.traced(u64(context), 3)
        with pytest.raises(RuntimeError, match="has ended"):
            recording.pause()
        recording.end()
        context.flush()
        with pytest.raises(TypeError, match="make one of the file"):
            device.record_points("run.trace")  # type: ignore[arg-type]
        device.record_points(tracer, ["all*", "step"], kernels="*").end()
    assert tracer.finish().lost is None
    content = (tmp_path / "run.trace").read_bytes()
    assert b"all steps" in content


def test_metrics_are_numbers_and_a_text(kernels: Kernels) -> None:
    with hostcall.Device("cpu") as device:

        @device.service(number=700)
        def counted(value: hostcall.u64) -> hostcall.u64:
            return value

        context = device.context("of Python")
        assert kernels.call(context, 700, 21) == (OK, [21])
    calls = [of for of in hostcall.metrics() if of.name == "hostcall_calls_total" and "counted" in of.labels.values()]
    assert [of.value for of in calls] == [1], hostcall.metrics_text()
    assert calls[0].labels["status"] == "ok" and calls[0].labels["device"] == "cpu"
    assert 'method="counted",status="ok"} 1\n' in hostcall.metrics_text()
