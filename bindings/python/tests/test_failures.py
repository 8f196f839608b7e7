"""Exceptions, failed checks, deadlines, and threads that hold the GIL: nothing hangs, and everything is told once."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import CANCELLED, NO_SUCH_SERVICE, OK, PANICKED, TIMED_OUT, Kernels

import hostcall


@hostcall.service(number=700)
class Table:
    """Fails for odd keys."""

    def find(self, key: hostcall.u64) -> hostcall.u64:
        if key % 2:
            raise KeyError(key)
        return key // 2


def test_what_a_function_raises_is_raised_where_one_waits(device: hostcall.Device, kernels: Kernels) -> None:
    device.serve(Table())
    context, other = device.context("step"), device.context("other")
    assert kernels.call(context, 700, 4) == (OK, [2])
    assert [kernels.call(context, 700, key)[0] for key in (5, 7, 9)] == [PANICKED] * 3
    other.flush()
    with pytest.raises(KeyError) as raised:
        context.flush()
    assert raised.value.args == (5,)
    assert raised.traceback[-1].name == "find", "the traceback is that of the function"
    first, *others = raised.value.__notes__
    assert "raised for Table::find, called by `step`, block (" in first and "lane 0: the lane got the status PANICKED" in first
    assert others == ["also: KeyError: 7", "also: KeyError: 9"]
    # Told once; process and device go on.
    context.flush()
    assert kernels.call(context, 700, 4) == (OK, [2])
    with pytest.raises(KeyError):
        kernels.call(other, 700, 1)
        device.synchronize()


def test_many_exceptions_are_counted(device: hostcall.Device, kernels: Kernels) -> None:
    device.serve(Table())
    context = device.context("many")
    for _ in range(100):
        kernels.call(context, 700, 1)
    with pytest.raises(KeyError) as raised:
        context.check()
    assert len(raised.value.__notes__) == 9
    assert raised.value.__notes__[-1] == "100 calls got no result because a function raised"


def test_any_exception_ends_one_call(device: hostcall.Device, kernels: Kernels) -> None:
    class Odd(BaseException):
        def __setattr__(self, name: str, value: object) -> None:
            raise RuntimeError("this takes no note")

        def __str__(self) -> str:
            raise RuntimeError("this has no text")

    gone: list[str] = []

    class Falls:
        def __index__(self) -> int:
            raise Odd

        def __del__(self) -> None:
            gone.append("dropped")

    raised: list[BaseException] = [SystemExit(3), KeyboardInterrupt(), Odd(), RecursionError(), StopIteration(), MemoryError()]

    @device.service(number=710)
    def fail(which: hostcall.u64) -> hostcall.u64:
        if which == len(raised):
            return Falls()  # type: ignore[return-value]
        if which > len(raised):
            return "no number"  # type: ignore[return-value]
        raise raised[which]

    context = device.context("odd")
    for which in range(len(raised) + 2):
        assert kernels.call(context, 710, which)[0] == PANICKED, which
        with pytest.raises(BaseException):
            context.check()
    context.check()


def test_a_failed_check_is_a_kernel_panic(device: hostcall.Device, kernels: Kernels) -> None:
    with device.context("checked") as context:
        kernels.checks(context, 10, 10)
        context.flush()
        kernels.checks(context, 10, 7)
        with pytest.raises(hostcall.KernelPanic) as raised:
            context.flush()
        panic = raised.value
        assert panic.message == "`lane < limit` does not hold" and panic.kernel == "checked" and panic.count == 3
        assert Path(panic.file).name == "kernels.cpp" and panic.line > 0 and panic.place.endswith(f":{panic.line}")
        assert len(panic.block) == len(panic.thread) == 3
        assert "nor for 2 more" in str(panic)
        context.flush()


def test_prints_arrive(kernels: Kernels, capfd: pytest.CaptureFixture[str]) -> None:
    with hostcall.Device("cpu") as device:
        kernels.says(device.context("prints"), 7)
        device.synchronize()
        assert "lane 7 is here" in capfd.readouterr().out


def test_with_does_not_hide_the_bodys_exception(kernels: Kernels) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        with hostcall.Device("cpu", Table()) as device:
            kernels.call(device.context("body"), 700, 1)
            raise ZeroDivisionError
    assert "meanwhile: KeyError: 1" in raised.value.__notes__


def test_cancel_renew_and_what_comes_after_the_context(kernels: Kernels) -> None:
    device = hostcall.Device("cpu", Table())
    context, other = device.context("first"), device.context("second")
    context.attend()
    context.cancel()
    assert kernels.call(context, 700, 2)[0] == CANCELLED
    assert kernels.call(other, 700, 2)[0] == OK
    context.renew()
    assert kernels.call(context, 700, 2)[0] == OK
    other.close()
    other.close()
    assert kernels.call(other, 700, 2)[0] == CANCELLED
    with pytest.raises(RuntimeError, match="the context was closed"):
        other.flush()
    device.close()
    device.close()
    assert kernels.call(context, 700, 2)[0] in (CANCELLED, NO_SUCH_SERVICE)
    for use in (device.statistics, lambda: device.context("late"), lambda: device.serve(Table())):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_a_call_that_nobody_answers_ends_at_its_deadline(kernels: Kernels) -> None:
    release = threading.Event()
    with hostcall.Device("cpu", timeout=0.3) as device:

        @device.service(number=710)
        def stuck() -> None:
            release.wait(20)

        @device.service(number=711)
        def behind() -> None:
            pass

        @device.service(number=712, timeout=None)
        def later() -> None:
            pass

        context = device.context("stuck")
        threads = [threading.Thread(target=kernels.call, args=(context, 711)) for _ in range(3)]
        first = threading.Thread(target=lambda: found.append(kernels.call(context, 710, results=0)[0]))
        found: list[int] = []
        first.start()
        time.sleep(0.05)
        for thread in threads:
            thread.start()
        for thread in [first, *threads]:
            thread.join(10)
        assert found == [TIMED_OUT]
        # A time limit of the kernel's own.
        assert kernels.call(context, 711, results=0, timeout_us=20_000)[0] == TIMED_OUT
        assert device.statistics().timed_out_calls == 4
        release.set()
        context.flush()
        assert kernels.call(context, 712, results=0)[0] == OK


def test_posts_whose_function_never_returns_do_not_hang_a_flush(kernels: Kernels) -> None:
    release = threading.Event()
    with hostcall.Device("cpu") as device:

        @device.on_post(number=710)
        def stuck(lane: hostcall.u64, round: hostcall.u64) -> None:
            release.wait(20)

        context = device.context("stuck")
        assert kernels.posts(context, 710, 1, 3) == 0
        with pytest.raises(TimeoutError):
            context.flush(timeout=0.2)
        context.cancel()
        context.renew()
        release.set()


def test_closing_does_not_wait_for_ever(kernels: Kernels) -> None:
    release = threading.Event()
    device = hostcall.Device("cpu", timeout=None)

    @device.service(number=710)
    def stuck() -> None:
        release.wait(30)

    context = device.context("stuck")
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(kernels.call(context, 710, results=0)[0]))
    thread.start()
    time.sleep(0.1)
    with pytest.warns(UserWarning, match="has not returned after 5 s"):
        device.close()
    thread.join(10)
    assert found == [CANCELLED]
    release.set()


def test_functions_that_wait_for_themselves_are_told(device: hostcall.Device, kernels: Kernels) -> None:
    context = device.context("self")

    @device.service(number=710)
    def waits() -> None:
        context.flush()

    assert kernels.call(context, 710, results=0)[0] == PANICKED
    with pytest.raises(RuntimeError, match="waits for such functions"):
        context.check()


def test_a_function_may_use_its_device(device: hostcall.Device, kernels: Kernels) -> None:
    contexts: list[hostcall.Context] = []

    @device.service(number=710)
    def more() -> None:
        contexts.append(device.context("inner"))
        device.service(number=711)(lambda: None)
        contexts[0].cancel()

    assert kernels.call(device.context("outer"), 710, results=0)[0] == OK
    assert kernels.call(contexts[0], 711, results=0)[0] == CANCELLED


def test_a_device_that_is_dropped_ends(kernels: Kernels) -> None:
    device = hostcall.Device("cpu", Table())
    context = int(device.context("dropped"))
    del device
    gc.collect()
    assert kernels.call(context, 700, 2)[0] in (CANCELLED, NO_SUCH_SERVICE)


needs_gil = pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this Python has no GIL to hold")


@needs_gil
@pytest.mark.parametrize("how", ["single", "batch", "async", "inside"])
def test_a_thread_that_holds_the_gil_is_named(kernels: Kernels, capfd: pytest.CaptureFixture[str], how: str) -> None:
    """The orders of TensorRT-LLM#15855 and numba-cuda#317: a launch blocks with the GIL held, and its kernel waits for Python."""
    with hostcall.Device("cpu", timeout=2.0) as device:
        if how == "single":

            @device.service(number=710)
            def wanted(x: hostcall.u64) -> hostcall.u64:
                return x

        elif how == "batch":
            device.service(number=710, name="python::wanted", batch={"x": hostcall.u64}, result=hostcall.u64)(lambda calls: calls["x"])
        elif how == "async":

            @device.service(number=710, name="python::wanted")
            async def wanted_later(x: hostcall.u64) -> hostcall.u64:
                return x

        else:
            # The function has begun, and gave the GIL up inside.
            @device.service(number=710, name="python::wanted")
            def waits(x: hostcall.u64) -> hostcall.u64:
                time.sleep(0.05)
                return x

        context = device.context("launched with the GIL")
        assert kernels.call(context, 710, 1) == (OK, [1])
        capfd.readouterr()
        status, _ = kernels.call(context, 710, 1, holds_gil=True)
        said = capfd.readouterr().err
        assert status == TIMED_OUT
        assert "no thread has got the GIL for " in said, said
        assert "python::wanted: 1 lane of `launched with the GIL`" in said
        assert "conftest.py" in said and "in call" in said, "the stack of the thread that holds it"
        assert said.count("no thread has got the GIL") == 1
        # All go on. A deadline may pass where the machine is busy.
        while kernels.call(context, 710, 1) != (OK, [1]):
            pass
        assert "GIL" not in capfd.readouterr().err


def test_a_long_function_is_not_called_a_deadlock(kernels: Kernels, capfd: pytest.CaptureFixture[str]) -> None:
    with hostcall.Device("cpu") as device:

        @device.service(number=710)
        def long(x: hostcall.u64) -> hostcall.u64:
            end = time.monotonic() + 0.8
            while time.monotonic() < end:
                x += 0
            time.sleep(0.4)
            return x

        assert kernels.call(device.context("long"), 710, 1) == (OK, [1])
    assert "GIL" not in capfd.readouterr().err


@pytest.mark.parametrize("ends", ["returns", "raises", "exits", "daemon"])
def test_a_process_ends_with_an_open_device(kernels: Kernels, ends: str, tmp_path: Path) -> None:
    program = f"""
import sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
import hostcall
from conftest import Kernels
kernels = Kernels({kernels.free._name!r})
device = hostcall.Device("cpu")
@device.service(number=710)
def fail(x: hostcall.u64) -> hostcall.u64:
    if {ends!r} == "daemon":
        threading.Event().wait(0.3)
    raise KeyError("nobody asked")
context = device.context("open")
if {ends!r} == "daemon":
    threading.Thread(target=kernels.call, args=(context, 710, 1), daemon=True).start()
else:
    kernels.call(context, 710, 1)
print("done", flush=True)
if {ends!r} == "raises":
    raise SystemExit(7)
if {ends!r} == "exits":
    import os
    os._exit(8)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "done\n", ran.stderr
    assert ran.returncode == {"returns": 0, "raises": 7, "exits": 8, "daemon": 0}[ends], ran.stderr
    if ends in ("returns", "raises"):
        assert "nobody was told of what functions raised" in ran.stderr and "nobody asked" in ran.stderr


def test_a_coroutine_ends_with_its_call(kernels: Kernels) -> None:
    ended = threading.Event()
    with hostcall.Device("cpu", timeout=0.3) as device:

        @device.service(number=710)
        async def never() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        context = device.context("never")
        assert kernels.call(context, 710, results=0)[0] in (TIMED_OUT, CANCELLED)
        assert ended.wait(60)
        context.flush()


def test_a_coroutine_that_exits_ends_its_call_alone(kernels: Kernels) -> None:
    raised: list[BaseException] = [SystemExit(3), KeyboardInterrupt()]
    with hostcall.Device("cpu", timeout=20) as device:

        @device.service(number=710)
        async def leaves(which: hostcall.u64) -> hostcall.u64:
            if which < len(raised):
                raise raised[which]
            return which

        context = device.context("leaves")
        for error in raised:
            assert kernels.call(context, 710, raised.index(error))[0] == PANICKED
            with pytest.raises(type(error)):
                context.flush()
            assert kernels.call(context, 710, 7) == (OK, [7])


def test_what_comes_to_a_loop_that_was_closed_is_ended() -> None:
    from hostcall._loop import Loop

    async def never() -> None:
        raise AssertionError

    before, loop = threading.active_count(), Loop(None)
    loop.close()
    coroutine = never()
    loop.submit([(coroutine, lambda task: None, None)])
    assert coroutine.cr_frame is None and threading.active_count() == before
    loop.close()


def test_an_interrupt_while_the_loop_ends_leaves_nothing_open(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    device = hostcall.Device("cpu")
    context = device.context("interrupted")

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(device._loop, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.close()
    with pytest.raises(RuntimeError, match="closed"):
        device.statistics()
    assert kernels.call(context, 700, 1)[0] in (CANCELLED, NO_SUCH_SERVICE)


def test_what_functions_raised_before_and_after_renew_is_told(device: hostcall.Device, kernels: Kernels) -> None:
    device.serve(Table())
    context = device.context("renewed")
    for key in (1, 3):
        assert kernels.call(context, 700, key)[0] == PANICKED
        context.cancel()
        context.renew()
    assert kernels.call(context, 700, 5)[0] == PANICKED
    with pytest.raises(KeyError) as raised:
        context.flush()
    assert raised.value.args == (1,) and raised.value.__notes__[1:] == ["also: KeyError: 3", "also: KeyError: 5"]


def test_synchronize_has_one_deadline_and_is_interrupted(device: hostcall.Device, kernels: Kernels) -> None:
    release = threading.Event()

    @device.on_post(number=710)
    def stuck(lane: hostcall.u64, round: hostcall.u64) -> None:
        release.wait(60)

    contexts = [device.context(f"{i}") for i in range(8)]
    for context in contexts:
        assert kernels.posts(context, 710, 1, 1) == 0
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        device.synchronize(timeout=0.5)
    assert time.monotonic() - began < 3
    with pytest.raises(ValueError, match="above 0"):
        device.synchronize(timeout=0)

    def interrupted(timeout: object) -> None:
        raise KeyboardInterrupt

    for context in contexts:
        context.flush = interrupted  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        device.synchronize()
    release.set()


def test_a_result_of_which_no_annotation_tells_is_not_lost_silently(device: hostcall.Device, kernels: Kernels) -> None:
    @device.service(number=710)
    def untold(x: hostcall.u64):  # type: ignore[no-untyped-def]
        return 1.5

    @device.service(number=711, batch={"x": hostcall.u64})
    def many(calls: Any) -> Any:
        return calls["x"]

    context = device.context("results")
    assert kernels.call(context, 710, 1, results=0)[0] == PANICKED
    with pytest.raises(TypeError, match="it returned 1.5, and its annotation says no result: write `-> hostcall.f32`, say, or return None"):
        context.flush()
    assert kernels.call(context, 711, 1, results=0)[0] == PANICKED
    with pytest.raises(TypeError, match="python::many returned a `ndarray`, and has no `result`"):
        context.flush()


def test_a_coroutine_past_its_deadline_has_timed_out(kernels: Kernels) -> None:
    with hostcall.Device("cpu", timeout=0.2) as device:

        @device.service(number=710)
        async def late(x: hostcall.u64) -> hostcall.u64:
            await asyncio.Event().wait()
            return x

        context = device.context("late")
        assert [kernels.call(context, 710, 1)[0] for _ in range(5)] == [TIMED_OUT] * 5
        assert device.statistics().timed_out_calls == 5


def test_a_process_ends_beside_a_function_that_does_not_return(kernels: Kernels) -> None:
    program = """
import ctypes, sys, time, hostcall
device = hostcall.Device("cpu", timeout=0.5)
@device.service(number=700)
def forever(x: hostcall.u64) -> hostcall.u64:
    while True:
        time.sleep(0.01)
words = (ctypes.c_uint64 * 8)(1)
context = ctypes.c_uint64(int(device.context("ends")))
print(ctypes.CDLL(sys.argv[1]).call(context, ctypes.c_uint64(700), words, 1, words, 1, 0))
"""
    command = [sys.executable, "-c", program, kernels.free._name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == f"{TIMED_OUT}\n"
    assert "a function that kernels called has not returned: the process ends without it" in done.stderr


def test_a_check_has_one_number() -> None:
    number = hostcall.check_number("x < limit", "kernel.py", 7)
    assert number == hostcall.check_number("x < limit", file="kernel.py", line=7)
    assert len({number, hostcall.check_number("x < limit"), hostcall.check_number("x > 0", "kernel.py", 7)}) == 3


def test_a_child_of_fork_does_not_end_what_its_parent_has() -> None:
    program = """
import gc, os, sys, hostcall
device = hostcall.Device("cpu")
buffer, context = device.buffer(4, "u8"), device.context("parent")
child = os.fork()
if child == 0:
    del device, buffer, context
    gc.collect()
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
context.flush(timeout=60)
"""
    ran = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("3\n", "", 0)


def test_a_child_of_fork_ends_and_leaves_the_device_to_its_parent(kernels: Kernels) -> None:
    program = """
import os, sys, hostcall
device = hostcall.Device("cpu")
context = device.context("parent")
child = os.fork()
if child == 0:
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
context.flush(timeout=60)
"""
    ran = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("3\n", "", 0)


def test_from_torch_asks_torch_which_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, a module in torch's place says which one it uses."""

    class Torch(type(sys)):  # type: ignore[misc]
        class device:
            def __init__(self, kind: Any, index: Any = None) -> None:
                kind, index = (kind.type, kind.index) if isinstance(kind, Torch.device) else (kind, index)
                self.type, _, number = kind.partition(":")
                self.index = int(number) if number else index

        class cuda:
            @staticmethod
            def is_available() -> bool:
                return False

            @staticmethod
            def current_device() -> int:
                return 3

        class version:
            hip = None

    monkeypatch.setitem(sys.modules, "torch", Torch("torch"))
    with hostcall.Device.from_torch() as device:
        assert device.name == "cpu"
    with pytest.raises(ValueError, match="not `mps`"):
        hostcall.Device.from_torch("mps")
    for name, opened in [("cuda:1", "cuda:1"), ("cuda", "cuda:3")]:
        with pytest.raises(RuntimeError, match=opened):
            hostcall.Device.from_torch(name)


def test_devices_say_why_they_cannot_be_used() -> None:
    names = {found.name: found for found in hostcall.devices()}
    assert names["cpu"].unavailable is None
    with pytest.raises(RuntimeError, match="there is no device `abacus`"):
        hostcall.Device("abacus")


@needs_gil
def test_deadlocks_are_named_and_end_one_after_the_other(kernels: Kernels, capfd: pytest.CaptureFixture[str]) -> None:
    import deadlocks

    # A busy machine may take longer than a second to name it.
    deadlocks.run("cpu", 3, kernels.free._name, ["single"])
    said = capfd.readouterr().out
    assert said.startswith("call         3 of 3 named") and "not named" not in said and "took" not in said and "code" not in said, said
