"""Kernels of other compilers, launched from here."""

from __future__ import annotations

from typing import Any

from . import _hostcall


def _extent(extent: int | tuple[int, ...], what: str) -> tuple[int, int, int]:
    sizes = (extent,) if isinstance(extent, int) else tuple(extent)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"{what} are one to three numbers, not {extent!r}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _argument(value: Any, place: int) -> Any:
    if hasattr(value, "_argument"):
        return value._argument()
    if hasattr(value, "tobytes") and getattr(value, "shape", None) == ():
        return value.tobytes()
    try:
        # Of ctypes: numbers and structures.
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(
            f"argument {place} is {value!r}: pass a hostcall.Context, Buffer, Channel or PostQueue, or a value whose type says how many bytes "
            "it has, as numpy.uint32(3) or ctypes.c_float(0.5)"
        ) from None


class Launch:
    """A launch of a kernel."""

    def __init__(self, raw: _hostcall.RawLaunch) -> None:
        self._raw = raw

    def is_done(self) -> bool:
        """Returns whether the kernel has ended: ``wait`` does not wait then, and says whether it failed."""
        return self._raw.is_done()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the kernel has ended, and raises ``RuntimeError`` where it failed, ``TimeoutError`` after ``timeout`` s."""
        self._raw.wait(timeout)


class Code:
    """A code object. Its launches run one after the other."""

    def __init__(self, raw: _hostcall.RawCode) -> None:
        self._raw = raw

    def launch(self, kernel: str, blocks: int | tuple[int, ...], threads: int | tuple[int, ...], *arguments: Any, shared: int = 0) -> Launch:
        """Launches a kernel with so many blocks of so many threads, and ``shared`` bytes of shared memory more than it declares.

        Arguments are contexts, buffers, channels, post queues, and values of NumPy's and ctypes' types. They must be those that the kernel takes: nobody
        can check what it does with addresses.
        """
        passed = [_argument(argument, place) for place, argument in enumerate(arguments)]
        return Launch(self._raw.launch(kernel, _extent(blocks, "blocks"), _extent(threads, "threads"), shared, passed))
