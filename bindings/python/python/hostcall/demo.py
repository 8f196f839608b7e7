"""Draws where Newton's method ends from each point of a plane: ``python -m hostcall.demo ["z**3 - 1"] [--out newton.png]``.

The kernel is C, compiled into the package. It runs on threads of the device ``cpu``, and asks Python for the function, which it does
not know: a row of points goes there and comes back as bytes. What it posts moves the progress bar.
"""

from __future__ import annotations

import argparse
import cmath
import ctypes
import struct
import sys
import zlib
from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import hostcall

from . import _hostcall

THREADS = 4


@hostcall.service(number=700)
class Function:
    """What the kernel asks for, of a function of one complex number."""

    def __init__(self, function: Callable[[complex], complex], rows: int, show: bool) -> None:
        self._function = function
        self._rows, self._show = rows, show
        self.calls = self.done = 0

    def steps(self, points: bytes) -> bytes:
        """Returns f(z) / f'(z) of each point."""
        self.calls += 1
        numbers, steps, f, near = array("d", points), array("d"), self._function, 1e-6
        for x, y in zip(numbers[::2], numbers[1::2]):
            z = complex(x, y)
            try:
                step = 2 * near * f(z) / (f(z + near) - f(z - near))
            except (ZeroDivisionError, OverflowError):
                step = complex(0)
            steps.append(step.real)
            steps.append(step.imag)
        return steps.tobytes()

    def row_done(self, row: hostcall.u32, rounds: hostcall.u32) -> None:
        """Is posted: no lane waits for it."""
        self.done += 1
        if self._show:
            bar = "#" * (40 * self.done // self._rows)
            print(f"\r[{bar:40}] row {row:4}: {rounds:2} rounds", end="", file=sys.stderr, flush=True)


class Picture(ctypes.Structure):
    """``struct picture`` of ``kernels/newton.c``."""

    _fields_ = [
        ("context", ctypes.c_uint64),
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
        ("left", ctypes.c_double),
        ("top", ctypes.c_double),
        ("step", ctypes.c_double),
        ("rgb", ctypes.c_void_p),
    ]


def draw(function: Callable[[complex], complex], width: int, height: int, show: bool = False) -> tuple[bytes, Function]:
    """Returns the picture, three bytes a point, and what was asked for it."""
    kernel = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(Picture), ctypes.c_uint32, ctypes.c_void_p)(
        _hostcall.demo_kernel()
    )
    rgb = ctypes.create_string_buffer(3 * width * height)
    served = Function(function, height, show)
    with hostcall.Device("cpu", served) as device, device.context("newton") as context:
        step = 4 / width
        picture = Picture(int(context), width, height, -2, step * height / 2, step, ctypes.addressof(rgb))

        def lane(first: int) -> None:
            scratch = (ctypes.c_double * (4 * width))()
            for row in range(first, height, THREADS):
                status = kernel(ctypes.byref(picture), row, scratch)
                if status:
                    # `close` says why.
                    break

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lane, range(THREADS)))
        context.flush()
    return rgb.raw, served


def png(rgb: bytes, width: int, height: int) -> bytes:
    """Returns a picture as the bytes of a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + rgb[3 * width * row : 3 * width * (row + 1)] for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def text(rgb: bytes, width: int, height: int) -> str:
    """Returns a picture for a terminal with colours, two rows a line."""
    lines = []
    for row in range(0, height - 1, 2):
        line = ""
        for column in range(width):
            upper, lower = (3 * ((row + below) * width + column) for below in (0, 1))
            (r, g, b), (s, h, c) = rgb[upper : upper + 3], rgb[lower : lower + 3]
            line += f"\x1b[38;2;{r};{g};{b};48;2;{s};{h};{c}m\u2580"
        lines.append(line + "\x1b[0m")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostcall.demo", description="Draws where Newton's method ends from each point.")
    parser.add_argument("function", nargs="?", default="z**3 - 1", help="of z, in Python; functions of cmath have their names")
    parser.add_argument("--out", default="newton.png", help="the PNG file (default: newton.png)")
    parser.add_argument("--width", type=int, default=480)
    parser.add_argument("--height", type=int, default=300)
    arguments = parser.parse_args()
    if not (1 <= arguments.width <= 4096 and 1 <= arguments.height <= 4096):
        parser.error("a picture has up to 4096 points in each direction")
    try:
        code = compile(arguments.function, "<function>", "eval")
    except SyntaxError as error:
        parser.error(f"`{arguments.function}` is no expression of Python's: {error.msg}")
    names = dict(vars(cmath))
    is_terminal = sys.stderr.isatty()
    if sys.stdout.isatty():
        small, _ = draw(lambda z: complex(eval(code, names, {"z": z})), 78, 48)
        print(text(small, 78, 48))
    rgb, served = draw(lambda z: complex(eval(code, names, {"z": z})), arguments.width, arguments.height, is_terminal)
    if is_terminal:
        print(file=sys.stderr)
    with open(arguments.out, "wb") as file:
        file.write(png(rgb, arguments.width, arguments.height))
    print(f"{arguments.out}: f(z) = {arguments.function}, {served.calls} calls of a kernel by {THREADS} threads, {served.done} posts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
