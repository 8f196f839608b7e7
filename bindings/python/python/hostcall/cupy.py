"""Kernels of CuPy that call.

::

    import cupy
    import hostcall.cupy

    device, progress = hostcall.Device("cuda:0"), tqdm()

    @device.on_post(number=700)
    def done(rows: hostcall.u64) -> None:
        progress.update(rows)

    code = hostcall.cupy.module(SOURCE)           # it may `#include "hostcall_device.h"`
    code.get_function("rows")((blocks,), (threads,), (int(device.context("rows")), array))
"""

# CuPy has no types.
# mypy: ignore-errors
from __future__ import annotations

from typing import Any

import hostcall

__all__ = ["module", "nvrtc_options"]


def nvrtc_options() -> tuple[str, ...]:
    """Returns what NVRTC needs to compile kernels that include ``hostcall_device.h``."""
    return ("-std=c++17", f"-I{hostcall.include()}")


def module(code: str, options: tuple[str, ...] = (), **more: Any) -> Any:
    """Returns a ``cupy.RawModule`` of kernels that include ``hostcall_device.h``."""
    import cupy

    return cupy.RawModule(code=code, options=(*nvrtc_options(), *options), **more)
