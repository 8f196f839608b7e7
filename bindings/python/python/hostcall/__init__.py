"""Functions of Python that kernels call while they run, whoever launches these kernels.

::

    import hostcall

    device = hostcall.Device("cuda:0")            # the context that PyTorch and CuPy use

    @device.service(number=700)
    def price(item: hostcall.u64) -> hostcall.f32:
        return 1.5 * item

    context = device.context("prices")
    kernel((blocks,), (threads,), (int(context), items, out))  # of CuPy, Numba, Triton, or C++ by `hostcall.include()`
    stream.synchronize()
    context.flush()                               # raises what `price` raised, and what `hostcall_check` found
"""

from __future__ import annotations

from pathlib import Path

from ._arrays import Buffer
from ._channel import Channel, ChannelStatistics, ChannelStream, Page, Pages
from ._device import Caller, Context, Device, DeviceInfo, Fence, Statistics, caller, check_number, devices
from ._errors import KernelPanic, LostCalls, Refuse
from ._kernels import Code, Launch
from ._metrics import Metric, metrics, metrics_text
from ._posts import Post, PostQueue, PostQueueStatistics, Posts
from ._run import Polled, ProgramPanic, Report, Wait, run
from ._service import header, method, service
from ._trace import PointRecording, Tracer, TraceSummary
from ._worker import Worker
from ._types import f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

__version__ = "0.1.0"

__all__ = [
    "Buffer",
    "Caller",
    "Channel",
    "ChannelStatistics",
    "ChannelStream",
    "Code",
    "Context",
    "Device",
    "DeviceInfo",
    "Fence",
    "KernelPanic",
    "Launch",
    "LostCalls",
    "Metric",
    "Page",
    "Pages",
    "PointRecording",
    "Polled",
    "Post",
    "PostQueue",
    "PostQueueStatistics",
    "Posts",
    "ProgramPanic",
    "Refuse",
    "Report",
    "Statistics",
    "TraceSummary",
    "Tracer",
    "Wait",
    "Worker",
    "caller",
    "check_number",
    "devices",
    "f32",
    "f64",
    "header",
    "i16",
    "i32",
    "i64",
    "i8",
    "include",
    "library",
    "method",
    "metrics",
    "metrics_text",
    "run",
    "service",
    "u16",
    "u32",
    "u64",
    "u8",
]


def include() -> str:
    """Returns the folder that has ``hostcall_device.h``, by which kernels in C and C++ call: for a compiler's ``-I``."""
    return str(Path(__file__).parent / "include")


def library(file: str) -> str:
    """Returns the path of one of the files that kernels link in languages without ``#include``.

    ``hostcall_nvptx64.bc`` and ``hostcall_amdgcn.bc`` are bitcode, ``hostcall_sm_70.ptx`` is PTX for all GPUs from there on.
    Raises ``FileNotFoundError`` where the package was built without them (``scripts/device-library``).
    """
    path = Path(__file__).parent / "lib" / file
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: make the folder with scripts/device-library, then build the package")
    return str(path)
