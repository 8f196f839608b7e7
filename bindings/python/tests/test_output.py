"""What kernels print, and calls that were lost, where Python wants them."""

from __future__ import annotations

import io
import logging
import shutil
import subprocess
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import NO_SUCH_SERVICE, TIMED_OUT, TYPE_MISMATCH, Kernels

import hostcall


def said(to: Any, kernels: Kernels, lanes: int = 3) -> None:
    with hostcall.Device("cpu", output=to) as device:
        context = device.context("says")
        for lane in range(lanes):
            kernels.says(context, lane)
        device.synchronize()


def test_prints_go_to_a_logger(kernels: Kernels, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("kernels")
    with caplog.at_level(logging.INFO):
        said(logger, kernels)
        said(logging.LoggerAdapter(logger, {}), kernels, 1)
    expected = [("kernels", logging.INFO, f"lane {lane} is here") for lane in (0, 1, 2, 0)]
    assert caplog.record_tuples == expected
    assert capfd.readouterr().out == ""


def test_formats_are_compared_with_values(tmp_path: Path) -> None:
    clang = shutil.which("clang++-22") or shutil.which("clang-22")
    if clang is None:
        pytest.skip("there is no clang-22")
    source = tmp_path / "prints.cpp"
    command = [clang, "-std=c++17", "-Wall", "-Werror", "-fsyntax-only", "-I", hostcall.include(), str(source)]
    for arguments, is_good in [('"%u of %s\\n", 3u, "a"', True), ('"%s\\n", 5', False), ('"%d %d\\n", 5', False)]:
        source.write_text(f'#include "hostcall_device.h"\nvoid f(uint64_t context) {{ hostcall_printf(context, {arguments}); }}\n')
        compiled = subprocess.run(command, capture_output=True, text=True)
        assert (compiled.returncode == 0) is is_good and ("-Wformat" in compiled.stderr) is not is_good, compiled.stderr


def test_prints_go_to_functions_and_files(kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    said(lines.append, kernels)
    assert lines == [f"lane {lane} is here" for lane in range(3)]
    file = io.StringIO()
    said(file, kernels)
    assert file.getvalue() == "lane 0 is here\nlane 1 is here\nlane 2 is here\n"
    # As a notebook has it: what `print` writes to is the cell that runs now.
    said(print, kernels, 1)
    assert capsys.readouterr().out == "lane 0 is here\n"
    with pytest.raises(TypeError, match="is no output"):
        hostcall.Device("cpu", output=5)  # type: ignore[arg-type]


def test_pieces_of_lines_and_characters_are_put_together() -> None:
    from hostcall._output import Output

    lines: list[str] = []
    output = Output(lines.append)
    data = "zwei Gänge\nnächster".encode()
    for place in range(len(data)):
        output(False, data[place : place + 1])
    output(True, b"error\n")
    assert lines == ["zwei Gänge", "error"]
    output(False, "ü".encode()[:1])
    output.end()
    assert lines[2:] == ["nächster�"]


def test_what_an_output_raises_is_raised_where_one_waits(kernels: Kernels) -> None:
    def broken(line: str) -> None:
        raise OSError(f"no room for {line!r}")

    with hostcall.Device("cpu", output=broken) as device:
        kernels.says(device.context("says"), 4)
        with pytest.raises(OSError, match="no room for 'lane 4 is here'"):
            device.synchronize()
        # Kernels and the device go on.
        assert kernels.call(device.context("more"), 799, 1)[0] == NO_SUCH_SERVICE


def test_an_output_that_waits_for_itself_is_told(kernels: Kernels) -> None:
    devices: list[hostcall.Device] = []
    with hostcall.Device("cpu", output=lambda line: devices[0].synchronize()) as device:
        devices.append(device)
        kernels.says(device.context("says"), 0)
        with pytest.raises(RuntimeError, match="waits for itself"):
            device.synchronize()


def test_an_output_that_does_not_return_keeps_no_device_open(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr("hostcall._device._LONGEST_OUTPUT", 0.3)
    device = hostcall.Device("cpu", output=lambda line: release.wait(60))
    kernels.says(device.context("says"), 0)
    began = time.monotonic()
    with pytest.warns(UserWarning, match="has not taken it for 0.3 s"):
        device.close()
    assert time.monotonic() - began < 30
    release.set()


def warned(wait: Callable[[], None]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        wait()
    for warning in found:
        assert warning.category is hostcall.LostCalls
        # It is at the line of who waits.
        assert Path(warning.filename) == Path(__file__)
    return [str(warning.message) for warning in found]


def test_calls_that_time_out_are_told_where_one_waits(kernels: Kernels) -> None:
    release = threading.Event()
    with hostcall.Device("cpu", timeout=0.2) as device:

        @device.service(number=710)
        def stuck(x: hostcall.u64) -> hostcall.u64:
            release.wait(20)
            return x

        context, other = device.context("training"), device.context("other")
        assert [kernels.call(context, 710, 1)[0] for _ in range(2)] == [TIMED_OUT] * 2
        release.set()
        assert warned(other.check) == []
        text = "2 calls of `training` to 710 (python::stuck) timed out: the function did not answer before the deadline"
        (message,) = warned(lambda: context.flush())
        assert message.startswith(text)
        # Once.
        assert warned(context.check) == []


def test_calls_without_a_service_are_told_where_one_waits(device: hostcall.Device, kernels: Kernels) -> None:
    @hostcall.service(number=800, typed=True)
    class Store:
        def find(self, key: hostcall.u64) -> hostcall.u64:
            return key

    device.serve(Store())
    context = device.context("lost")
    failed, _ = kernels.chain(context, 799, 5, 1)
    assert failed == 5 and kernels.call(context, 800, 1)[0] == TYPE_MISMATCH
    assert kernels.posts(context, 799, 1, 2) == 0 and kernels.posts(context, 798, 3, 1) == 0
    (message,) = warned(context.flush)
    assert message == (
        "3 posts of `lost` to 798 found no service of this number: serve it, or correct the number in the kernel; "
        "5 calls and 2 posts of `lost` to 799 found no service of this number: serve it, or correct the number in the kernel; "
        "1 call of `lost` to 800 had other types than the typed service: name methods by `hostcall.header`"
    )
    # With what was lost before it was renewed, and when it is closed.
    kernels.call(context, 799, 1)
    context.renew()
    kernels.call(context, 799, 1)
    assert len(warned(context.close)) == 1
    again = device.context("again")
    kernels.call(again, 799, 1)
    assert len(warned(device.synchronize)) == 1
    kernels.call(again, 799, 1)
    assert len(warned(device.close)) == 1


def test_lost_calls_may_be_raised(device: hostcall.Device, kernels: Kernels) -> None:
    context = device.context("raises")

    @device.service(number=711)
    def fails(x: hostcall.u64) -> hostcall.u64:
        raise KeyError(x)

    with warnings.catch_warnings():
        warnings.simplefilter("error", hostcall.LostCalls)
        kernels.call(context, 799, 1)
        with pytest.raises(hostcall.LostCalls, match="1 call of `raises` to 799 found no service"):
            context.flush()
        kernels.call(context, 799, 1)
        kernels.call(context, 711, 1)
        # A function's exception comes first.
        with pytest.raises(KeyError) as raised:
            context.flush()
        assert "also: LostCalls: 1 call of `raises` to 799" in "\n".join(raised.value.__notes__)
    context.check()


def test_calls_that_are_refused_since_too_many_wait_are_told() -> None:
    from hostcall._errors import lost_text

    # It takes more lanes than a test has: 262,144 that wait.
    assert lost_text([("busy", 700, "a::b", 7, 0)], "k") == "7 calls of `k` to 700 (a::b) ended with BUSY: more calls waited than there may"
