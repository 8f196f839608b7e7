"""Deadlocks with the GIL, many times: ``python deadlocks.py cuda:0 100``, or ``cpu``.

A thread holds the GIL and waits for a kernel that waits for a function of Python. Each such wait is to be named on the standard
error within a second, and to end at the deadline; here processes do it again and again, while this one reads what they say and when.
The orders, with each kind of function (one by one, batches, coroutines), are

- ``call``, on ``cpu``: a function of a library that was opened by ``ctypes.PyDLL`` runs the kernel,
- ``synchronize`` (numba-cuda#317): the driver's ``cuCtxSynchronize`` is called so behind the kernel's launch,
- ``full`` (TensorRT-LLM#15855): launches behind the kernel are, until the stream is full and the launch blocks,
- ``copy``: a copy of the kernel's result is.

It prints a line for each order, and ends with 1 where one was not named in time or did not end.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import hostcall

DEADLINE = 1.3
"""Seconds after which the device ends a call."""
MODES = ["single", "batch", "async"]
ORDERS = {"cpu": ["call"], "cuda": ["synchronize", "full", "copy"]}
PROCESSES = 4
"""Of each order, at a time."""

SOURCE = r"""
#include "hostcall_device.h"
extern "C" __global__ void asks(uint64_t context, uint64_t *out) {
    uint64_t x = 7;
    const uint64_t status = hostcall_call_words(context, HOSTCALL_METHOD(700, 0), &x, 1, &x, 1, 0);
    *out = status == HOSTCALL_CALL_OK ? x : 1000 + status;
}
extern "C" __global__ void nothing() {}
"""


def serve(device: Any, mode: str) -> None:
    if mode == "single":

        @device.service(number=700)
        def wanted(x: hostcall.u64) -> hostcall.u64:
            return x

    elif mode == "batch":
        device.service(number=700, name="python::wanted", batch={"x": hostcall.u64}, result=hostcall.u64)(lambda calls: calls["x"])
    else:

        @device.service(number=700, name="python::wanted")
        async def wanted_later(x: hostcall.u64) -> hostcall.u64:
            await asyncio.sleep(0)
            return x


def on_cpu(context: Any, library: str) -> Callable[[bool], int]:
    """Returns what runs the kernel, with the GIL held or not, and returns its result."""
    free, holding = ctypes.CDLL(library), ctypes.PyDLL(library)

    def run(holds: bool) -> int:
        words, out = (ctypes.c_uint64 * 1)(7), (ctypes.c_uint64 * 1)()
        call = (holding if holds else free).call
        call.restype = ctypes.c_uint64
        status = call(ctypes.c_uint64(int(context)), ctypes.c_uint64(700), words, 1, out, 1, 0)
        return int(out[0]) if status == 0 else 1000 + int(status)

    return run


def on_cuda(context: Any, order: str) -> Callable[[bool], int]:
    import cupy
    import hostcall.cupy
    import numpy as np

    module = hostcall.cupy.module(SOURCE)
    asks, nothing = module.get_function("asks"), module.get_function("nothing")
    driver = ctypes.PyDLL("libcuda.so.1")
    out = cupy.zeros(1, cupy.uint64)
    asks((1,), (1,), (np.uint64(int(context)), out))
    nothing((1,), (1,), ())
    cupy.cuda.get_current_stream().synchronize()
    function = ctypes.c_void_p(nothing.kernel.ptr)

    def check(code: int) -> None:
        assert code == 0, f"the driver's error {code}"

    def run(holds: bool) -> int:
        context.attend()
        asks((1,), (1,), (np.uint64(int(context)), out))
        if not holds:
            return int(out[0])
        if order == "synchronize":
            check(driver.cuCtxSynchronize())
        elif order == "full":
            for _ in range(3000):
                sizes = [ctypes.c_uint(1)] * 6
                check(driver.cuLaunchKernel(function, *sizes, ctypes.c_uint(0), None, None, None))
            check(driver.cuCtxSynchronize())
        else:
            host = ctypes.c_uint64()
            check(driver.cuMemcpyDtoH_v2(ctypes.byref(host), ctypes.c_uint64(out.data.ptr), ctypes.c_size_t(8)))
            return int(host.value)
        return int(out.get()[0])

    return run


def work(name: str, order: str, mode: str, count: int, library: str) -> None:
    """What a process does. It writes a line before and after each deadlock."""
    import warnings

    # Told of by the status.
    warnings.simplefilter("ignore", hostcall.LostCalls)
    with hostcall.Device(name, timeout=DEADLINE) as device:
        serve(device, mode)
        with device.context(f"{order}, {mode}") as context:
            run = on_cpu(context, library) if name == "cpu" else on_cuda(context, order)
            assert run(False) == 7, "it is answered where the GIL is free"
            left = count
            while left:
                os.write(2, b"begin\n")
                found = run(True)
                # Between two launches the interpreter may give the GIL to the function, which answers: no deadlock.
                is_none = order == "full" and found == 7
                os.write(2, b"none\n" if is_none else b"end %d\n" % found)
                left -= not is_none
                # A function of which the time was over may run still.
                while run(False) != 7:
                    pass


def watch(command: list[str], count: int) -> tuple[list[float], list[str]]:
    """Runs a process. Returns after how many seconds each deadlock was named, and what is wrong."""
    named: list[float] = []
    wrong: list[str] = []
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace")
    assert process.stderr is not None
    began, is_named, ended, last = 0.0, False, 0, ""
    for line in process.stderr:
        now = time.monotonic()
        last = line.strip() or last
        if line == "begin\n":
            began, is_named = now, False
        elif "no thread has got the GIL" in line:
            if is_named:
                wrong.append("one was named twice")
            is_named = True
            named.append(now - began)
        elif line == "none\n":
            if is_named:
                wrong.append("one was named that was none")
        elif line.startswith("end "):
            ended += 1
            # HOSTCALL_CALL_TIMED_OUT.
            if line != "end 1006\n":
                wrong.append(f"one ended with {line[4:].strip()}, and not at its deadline")
            if not is_named:
                wrong.append("one was not named")
            if now - began > DEADLINE + 2:
                wrong.append(f"one took {now - began:.1f} s")
    if process.wait() or ended != count:
        wrong.append(f"a process ended with code {process.returncode} after {ended} of {count}: {last}")
    return named, wrong


def run(name: str, count: int, library: str = "", modes: list[str] = MODES) -> bool:
    """Has each order and mode happen ``count`` times. Returns whether all were named in time and ended."""
    is_good = True
    # `timeout` ends what hangs.
    limit = ["timeout", "-k", "5", str(60 + int(3 * DEADLINE * count))]
    for order in ORDERS[name.partition(":")[0]]:
        commands, shares = [], []
        for mode in modes:
            left = count
            for process in range(PROCESSES):
                share = left // (PROCESSES - process)
                left -= share
                if share:
                    commands.append([*limit, sys.executable, __file__, "--work", name, order, mode, str(share), library])
                    shares.append(share)
        with ThreadPoolExecutor(len(commands)) as threads:
            results = list(threads.map(watch, commands, shares))
        named = [seconds for seconds, _ in results for seconds in seconds]
        wrong = [text for _, texts in results for text in texts]
        late = sum(seconds > 1 for seconds in named)
        if late:
            wrong.append(f"{late} were named after more than a second")
        longest = f"{max(named):.2f} s" if named else "none"
        print(f"{order:12} {len(named)} of {len(modes) * count} named, the slowest after {longest}; {'; '.join(wrong) or 'all ended'}", flush=True)
        is_good &= not wrong
    return is_good


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        name, order, mode, count, library = sys.argv[2:]
        work(name, order, mode, int(count), library)
        return 0
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    name, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    if name != "cpu":
        return int(not run(name, count))
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder, "kernels.so"))
        options = ["-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", "-I", hostcall.include()]
        subprocess.run([os.environ.get("CXX", "g++"), *options, str(Path(__file__).with_name("kernels.cpp")), "-o", library], check=True)
        return int(not run(name, count, library))


if __name__ == "__main__":
    sys.exit(main())
