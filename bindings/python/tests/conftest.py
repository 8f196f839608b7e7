"""What tests share: kernels that the system's C++ compiler made, by the header that the package has."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest

import hostcall

SOURCE = Path(__file__).parent / "kernels.cpp"
OK, NO_SUCH_SERVICE, FAILED, PANICKED, CANCELLED, TOO_LARGE, TIMED_OUT, TYPE_MISMATCH, MALFORMED = range(9)


class Kernels:
    """The kernels, which give the GIL up while they run, or keep it."""

    def __init__(self, library: Path) -> None:
        self.free: Any = ctypes.CDLL(str(library))
        self.holding: Any = ctypes.PyDLL(str(library))
        for kernels in (self.free, self.holding):
            for name in ("call", "call_bytes", "chain", "posts", "sends"):
                getattr(kernels, name).restype = ctypes.c_uint64
            kernels.post.restype = kernels.message.restype = ctypes.c_bool

    def call(
        self, context: object, method: int, *words: int, results: int = 1, timeout_us: int = 0, holds_gil: bool = False
    ) -> tuple[int, list[int]]:
        """Calls once. Returns the status and the result's words."""
        given, got = (ctypes.c_uint64 * 8)(*words), (ctypes.c_uint64 * 8)()
        call = (self.holding if holds_gil else self.free).call
        status = call(u64(context), u64(method), given, len(words), got, results, timeout_us)
        return status, list(got[:results])

    def call_bytes(
        self, context: object, method: int, words: list[int], data: bytes, *, results: int = 0, capacity: int = 4096
    ) -> tuple[int, list[int], bytes]:
        given, got = (ctypes.c_uint64 * 64)(*words), (ctypes.c_uint64 * 64)()
        reply, filled = ctypes.create_string_buffer(max(capacity, 1)), ctypes.c_uint64()
        status = self.free.call_bytes(
            u64(context), u64(method), given, len(words), data, u64(len(data)), got, results, reply, u64(capacity), ctypes.byref(filled)
        )
        return status, list(got[:results]), reply.raw[: filled.value]

    def chain(self, context: object, method: int, lanes: int, rounds: int) -> tuple[int, list[int]]:
        """Returns how many calls failed, and where each lane ended."""
        out = (ctypes.c_uint64 * lanes)()
        return self.free.chain(u64(context), u64(method), lanes, rounds, out), list(out)

    def posts(self, context: object, method: int, lanes: int, rounds: int) -> int:
        return int(self.free.posts(u64(context), u64(method), lanes, rounds))

    def checks(self, context: object, lanes: int, limit: int) -> None:
        self.free.checks(u64(context), lanes, limit)

    def says(self, context: object, lane: int) -> None:
        self.free.says(u64(context), lane)


def u64(value: object) -> ctypes.c_uint64:
    return ctypes.c_uint64(value.__index__())  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror", "-I", hostcall.include()]
    subprocess.run([*command, str(SOURCE), "-o", str(library)], check=True)
    return Kernels(library)


@pytest.fixture
def device() -> Iterator[hostcall.Device]:
    with hostcall.Device("cpu") as device:
        yield device
