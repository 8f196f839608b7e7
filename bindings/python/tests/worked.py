"""Functions that tests run in a worker's process, and their kernels."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import hostcall

kept: list[Any] = []


def kernels(library: str) -> Any:
    return ctypes.CDLL(library)


def adds(a: int, b: int) -> tuple[int, int]:
    return a + b, os.getpid()


def prints(library: str) -> None:
    print("from Python")
    print("beside", file=sys.stderr)
    subprocess.run(["echo", "of a child"], check=True)
    ctypes.CDLL(None).printf(b"of libc\n")
    with hostcall.Device("cpu") as device:
        kernels(library).says(ctypes.c_uint64(int(device.context())), 3)
        # Nobody serves 999.
        word = (ctypes.c_uint64 * 1)()
        kernels(library).call(ctypes.c_uint64(int(device.context())), ctypes.c_uint64(999), word, 1, word, 1, 0)


def raises() -> None:
    raise KeyError("no such key")


def checks(library: str) -> None:
    """A kernel's check fails, and the function does not wait."""
    kept.append(hostcall.Device("cpu"))
    kernels(library).checks(ctypes.c_uint64(int(kept[-1].context("checked"))), 4, 2)


def checks_in_a_helper(library: str) -> None:
    """A kernel's check fails, and nobody has its device any more when the function ends."""
    helps(library)
    gc.collect()


def helps(library: str) -> None:
    device = hostcall.Device("cpu")
    kernels(library).checks(ctypes.c_uint64(int(device.context("checked"))), 4, 2)


def version(library: str) -> int:
    return int(ctypes.CDLL(library).version())


def forks_with_a_device() -> int:
    """A child comes back from the function, with the parent's device. Returns its exit code."""
    kept.append(hostcall.Device("cpu"))
    kept.append(kept[-1].context("of the parent"))
    child = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else -1


def ignores_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def spins(library: str) -> None:
    kernels(library).spins()


def holds(library: str) -> None:
    """The kernel never ends, and its thread has the GIL."""
    ctypes.PyDLL(library).spins()


def waits_for_ever(library: str) -> int:
    """A kernel calls a function that does not return."""
    device = hostcall.Device("cpu", timeout=None)

    @device.service(number=700)
    def never(x: hostcall.u64) -> hostcall.u64:
        time.sleep(1000)
        return x

    word = (ctypes.c_uint64 * 1)(5)
    return int(kernels(library).call(ctypes.c_uint64(int(device.context("asks"))), ctypes.c_uint64(700), word, 1, word, 1, 0))


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def refuses_to_end(path: str) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    with open(path, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    while True:
        try:
            time.sleep(1000)
        except KeyboardInterrupt:
            pass


def ends(code: int) -> None:
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def exits(code: object) -> None:
    sys.exit(code)  # type: ignore[arg-type]


def closes_outputs() -> None:
    print("before")
    sys.stdout.close()
    os.close(1)
    os.close(2)
    kept.append(open(os.devnull, "w"))


def replaces_outputs() -> None:
    sys.stdout = sys.stderr = None


def closes_everything() -> None:
    os.closerange(3, 1000)


def writes_garbage() -> None:
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                os.write(int(descriptor), b"garbage" * 100)
        except OSError:
            pass


def leaves_threads(is_daemon: bool) -> None:
    def say() -> None:
        while True:
            print("still here")
            time.sleep(0.01)

    threading.Thread(target=say, daemon=is_daemon).start()


def dies_later() -> None:
    threading.Timer(0.1, os._exit, [3]).start()


def forks() -> str:
    return "child" if os.fork() == 0 else "parent"


def forks_and_dies() -> None:
    """A child has all pipes open for longer than the process lives."""
    if os.fork() == 0:
        time.sleep(1000)
    os.kill(os.getpid(), signal.SIGKILL)


def gives(size: int, data: bytes) -> tuple[int, bytes]:
    return len(data), bytes(size)


def gives_no_pickle() -> object:
    return threading.Lock()


class Bad:
    """Its pickle cannot be read."""

    def __reduce__(self) -> Any:
        return raises, ()


class Slow:
    """Its pickle takes long to read."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __reduce__(self) -> Any:
        return time.sleep, (self.seconds,)


def gives_bad() -> Bad:
    return Bad()


def floods() -> None:
    os.write(2, b"x")
    for _ in range(20):
        sys.stdout.write("y" * (1 << 20))


def nests() -> int:
    return int(hostcall.run(adds, [1, 2]).value[0])
