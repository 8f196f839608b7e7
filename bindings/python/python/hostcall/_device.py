"""Devices, and contexts with which kernels call."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import re
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from types import EllipsisType, TracebackType
from typing import Any, Callable, NamedTuple, Protocol, SupportsIndex, TypeVar, Union

from . import _hostcall
from ._arrays import Buffer
from ._channel import Channel, Policy, channel_of
from ._errors import KernelPanic, LostCalls, Refuse, add_note, lost_text, raise_first
from ._kernels import Code
from ._loop import Loop
from ._output import Destination, Output
from ._posts import PostQueue
from ._run import Polled, Wait
from ._service import Fields, Method, Options, description_of, method_of
from ._trace import PointRecording, Tracer
from ._types import u64
from ._watch import dump_signal

F = TypeVar("F", bound=Callable[..., Any])
Lost = tuple[str, int, str, int, int]
"""Why, number, name, calls and posts."""

_open: weakref.WeakSet[Device]
_of_all: list[Callable[[Device], object]] = []


_LONGEST_OUTPUT = 5.0
"""How many seconds closing waits for an output to take what kernels printed."""

lost = {"calls": 0, "posts": 0}
"""How many ``LostCalls`` told of in this process."""

kept: set[Device] | None = None
"""Where it is a set: what was opened since and is not closed, kept until somebody has asked for errors."""

_opening = threading.Lock()
# Closed ones, of which a function that a kernel called had not returned.
_left_alone: list[_hostcall.RawDevice] = []
_finders: list[Callable[[int], tuple[str, str, int] | None]] = []


def serve_on_all(add: Callable[[Device], object]) -> None:
    """Has ``add`` called with all devices that are open, and with all that come."""
    with _opening:
        _of_all.append(add)
        devices = list(_open)
    for device in devices:
        try:
            add(device)
        except (ValueError, RuntimeError) as error:
            # One that has the number taken, or was closed meanwhile: others work.
            warnings.warn(f"{device.name}: {error}", RuntimeWarning, stacklevel=3)


def find_texts_by(find: Callable[[int], tuple[str, str, int] | None]) -> None:
    """Has ``find`` asked for text, file and line of a check whose number nobody asked for in this process."""
    _finders.append(find)


@dataclass(frozen=True)
class Statistics:
    """What was counted since a device was opened."""

    packets: int
    """Packets of calls: those of waves."""
    posts: int
    refused_posts: int
    """Posts that reached no function, or whose function raised."""
    declined_posts: int
    """How often posts had to wait in their wave's ring, since the queue was full."""
    garbage_posts: int
    broken_slots: int
    refused_calls: int
    """Calls that ended with ``BUSY``, since the queue was full."""
    timed_out_calls: int
    """Calls that ended at the deadline of their service."""


class Caller(NamedTuple):
    """Who calls a function."""

    kernel: str
    """The kernel's name, or that of the context with which it was launched."""
    block: tuple[int, int, int] | None
    """The block in the grid, where that is known."""
    wave: int | None
    """The wave in the block."""
    lane: int
    """The lane in the wave."""


def caller() -> Caller | None:
    """Returns who calls the function that runs; ``None`` outside of such, and in coroutines and batches."""
    found = _hostcall.caller()
    if found is None:
        return None
    kernel, place, lane = found
    if place is None:
        return Caller(kernel, None, None, lane)
    (x, y, z), wave = place
    return Caller(kernel, (x, y, z), wave, lane)


def check_number(text: str, file: str = "", line: int = 0) -> int:
    """Returns the number of a check, by which kernels tell of it that have no text (``hostcall_check_number``).

    ``text`` says what did not hold; without ``file`` and ``line`` nobody knows where. The number is a hash of the three, for all
    devices and processes: each process asks for it before it runs the kernel. 4,096 checks have one at most.
    """
    return _hostcall.check_number(text, file, line)


class Bar(Protocol):
    """What moves by steps, as the bars of tqdm."""

    def update(self, n: int, /) -> object: ...


class DeviceInfo(NamedTuple):
    """A device of this machine, or a kind of which there is none."""

    name: str
    description: str
    unavailable: str | None
    """Why it cannot be used, and what to do; ``None`` where it can."""


def devices() -> list[DeviceInfo]:
    """Returns the devices of this machine, and the kinds of which there is none."""
    return [DeviceInfo(*found) for found in _hostcall.devices()]


def _depth() -> int:
    """Returns how many frames above its caller the first one is that is not this package's, as ``warnings.warn`` counts."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hostcall."):
        depth, frame = depth + 1, frame.f_back
    return depth


def _method(function: Callable[..., Any], options: Options, number: int, name: str | None) -> Method:
    return method_of(function, options, number, name or f"python::{function.__name__}", False)


class _Closing:
    """What ends with a ``with``: an exception of its body's is not replaced by one of a kernel's."""

    def close(self) -> None:
        raise NotImplementedError

    def _exit(self, error: BaseException | None) -> None:
        try:
            self.close()
        except BaseException as other:
            if error is None:
                raise
            add_note(error, f"meanwhile: {type(other).__name__}: {other}")


def _panics(checks: list[Any], kernel: str) -> list[KernelPanic]:
    panics = []
    for condition, file, line, block, thread, lane, count in checks:
        unknown = re.fullmatch("check 0x([0-9a-f]+)", condition)
        if unknown and not file:
            for find in _finders:
                condition, file, line = find(int(unknown[1], 16)) or (condition, file, line)
        message = f"`{condition}` does not hold"
        where: Any = {"block": tuple(block), "thread": tuple(thread), "lane": lane}
        panics.append(KernelPanic(message, kernel=kernel, file=file, line=line, count=count, **where))
    return panics


def _count(told: list[Lost]) -> None:
    for *_, calls, posts in told:
        lost["calls"] += calls
        lost["posts"] += posts


def _handle_of(stream: object) -> int:
    """Returns the driver's handle of a stream."""
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair: Any = protocol() if callable(protocol) else protocol
        return int(pair[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            handle = getattr(stream, name)
            return int(getattr(handle, "value", handle) or 0)
    if isinstance(stream, int):
        return stream
    raise TypeError(f"{stream!r} is no stream: pass one of PyTorch, CuPy, Numba or cuda.core, or the driver's handle")


class Fence:
    """A place in a stream of CUDA's, behind kernels with a context."""

    def __init__(self, context: Context, raw: _hostcall.RawFence) -> None:
        self._context = context
        self._raw = raw

    def is_done(self) -> bool:
        """Returns whether the kernels before it have ended, and their posts were handled."""
        return self._raw.is_done()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it is done, and then does what ``Context.check`` does.

        Raises ``TimeoutError`` where that takes longer than ``timeout`` seconds.
        """
        self._context._wait(timeout, self)


class Context(_Closing):
    """What kernels get that others launch, as an argument: ``int(context)`` is a 64-bit address that never changes.

    It goes wherever an integer goes (``operator.index``): to ``ctypes.c_uint64``, and to kernels of CuPy, Numba and Triton. It is
    open until it or its device is closed; calls of kernels that run later end with ``CANCELLED``. Make one for each purpose, not
    one for each launch.
    """

    def __init__(self, device: Device, raw: _hostcall.RawContext, name: str) -> None:
        self._raw = raw
        self._device = device
        self._address = raw.address()
        self.name = name

    def __int__(self) -> int:
        return self._address

    __index__ = __int__

    def _argument(self) -> _hostcall.RawContext:
        return self._raw

    def __repr__(self) -> str:
        return f"<hostcall.Context {self.name!r} at {self._address:#x}>"

    def attend(self) -> None:
        """Says that kernels come soon. Without it the first call after a long silence may take 2 ms on a GPU."""
        self._raw.attend()

    def flush(self, timeout: float | None = None, stream: object = None) -> None:
        """Waits until the posts of kernels that have ended were handled, and then does what ``check`` does.

        With a ``stream`` of CUDA's (an object of PyTorch, CuPy, Numba or ``cuda.core``, or the driver's handle) it waits for the
        kernels that have been launched there too; without, wait for the kernels' stream before.

        Raises ``TimeoutError`` where that takes longer than ``timeout`` seconds.
        """
        fence = None if stream is None else self.fence(stream)
        self._wait(timeout, fence)

    def fence(self, stream: object) -> Fence:
        """Takes the place in a stream of CUDA's behind what has been launched there, and says that kernels run, as ``attend`` does."""
        return Fence(self, self._raw.fence(_handle_of(stream)))

    def _wait(self, timeout: float | None, fence: Fence | None) -> None:
        self._device._refuse_in_loop()
        self._raw.flush(timeout, None if fence is None else fence._raw)
        self.check()

    def check(self) -> None:
        """Raises what functions raised for kernels with the context, or ``KernelPanic`` where a kernel's check failed, as far as it
        has come: after ``flush`` there is nothing more of kernels that have ended.

        Each is raised once, the first of several with notes of the others.
        """
        errors, count, checks, lost = self._raw.take()
        self._tell(errors, count, checks, lost)

    def _tell(self, errors: list[BaseException], count: int, checks: list[Any], lost: list[Lost]) -> None:
        """Raises what there is to raise, and warns of what was lost."""
        panics: list[BaseException] = [*_panics(checks, self.name)]
        try:
            if lost:
                _count(lost)
                # At the place of who waits.
                warnings.warn(lost_text(lost, self.name), LostCalls, stacklevel=_depth())
        except LostCalls as warning:
            panics.append(warning)
        raise_first(errors, count, panics)

    def cancel(self) -> None:
        """Ends calls with ``CANCELLED``: those that wait, and all that come until ``renew``."""
        self._raw.cancel()

    def renew(self) -> None:
        """Has calls answered again after ``cancel``."""
        self._raw.renew()

    def close(self) -> None:
        """Ends the calls of its kernels with ``CANCELLED``, now and later, and does what ``check`` does. Closing twice is fine."""
        if self._device._process != os.getpid():
            # A child's: the kernels are the parent's.
            return
        self._device._contexts.discard(self)
        errors, count, checks, lost = self._raw.take()
        self._raw.close()
        more, also, _, _ = self._raw.take()
        self._tell([*errors, *more], count + also, checks, lost)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._exit(error)


class Device(_Closing):
    """A device whose kernels call functions of Python: ``cpu``, ``cuda:0``, ``amdgpu:0`` or ``gfx942``.

    On a GPU it uses the primary context, which is that of PyTorch, CuPy, JAX and the CUDA runtime, and changes none of its settings.

    All functions of a device are called on one thread of its own, one after the other; coroutines run on ``loop``, or on a loop of
    the device's own. A call waits ``timeout`` seconds at most, and then ends with ``TIMED_OUT``; with ``None``, as long as it takes.

    ``output`` gets what kernels print while they run: a ``logging.Logger`` (lines, as ``INFO``, and as ``WARNING`` those of the
    standard error), a function of a line such as ``print``, which in a notebook prints into the cell, or a file of text. Without
    it, the process's standard output and error do. What it raises is raised by ``synchronize`` or ``close``. What kernels call
    and post, and their trace points, go to the file of ``trace``.
    """

    def __init__(
        self,
        name: str = "cpu",
        *services: object,
        timeout: float | None = 10.0,
        loop: asyncio.AbstractEventLoop | None = None,
        output: Destination | None = None,
        trace: Tracer | None = None,
    ) -> None:
        if trace is not None and not isinstance(trace, Tracer):
            raise TypeError(f"{trace!r} is no tracer: make one of the file, as `trace=hostcall.Tracer(\"run.trace\")`")
        if trace is not None and trace._is_finished:
            raise RuntimeError("the tracer has finished, and records nothing: make another one")
        self._loop = Loop(loop)
        self._output = None if output is None else Output(output)
        # So that `int(device.context())` is an argument too: kernels may have it as long as the device is open.
        self._contexts: set[Context] = set()
        self._timeout = timeout
        self._raw = _hostcall.RawDevice(name, Refuse, self._loop.submit, dump_signal(), self._output, None if trace is None else trace._raw)
        self._is_closed = False
        self._process = os.getpid()
        self.name = name
        self.product, self.target, self.wave_lanes = self._raw.properties()
        with _opening:
            _open.add(self)
            if kept is not None:
                kept.add(self)
            added = list(_of_all)
        try:
            for add in added:
                add(self)
            for service in services:
                self.serve(service)
        except BaseException:
            self._end()
            raise

    @classmethod
    def from_torch(
        cls,
        device: Any = None,
        *services: object,
        timeout: float | None = 10.0,
        loop: asyncio.AbstractEventLoop | None = None,
        output: Destination | None = None,
        trace: Tracer | None = None,
    ) -> Device:
        """Opens the device that PyTorch uses now, or the one that ``device`` (a ``torch.device`` or its name) says."""
        torch = importlib.import_module("torch")
        if device is None:
            device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        device = torch.device(device)
        if device.type == "cpu":
            return cls("cpu", *services, timeout=timeout, loop=loop, output=output, trace=trace)
        if device.type != "cuda":
            raise ValueError(f"hostcall knows the CPU and the GPUs that PyTorch calls `cuda`, not `{device.type}`")
        index = torch.cuda.current_device() if device.index is None else device.index
        kind = "amdgpu" if getattr(torch.version, "hip", None) else "cuda"
        return cls(f"{kind}:{index}", *services, timeout=timeout, loop=loop, output=output, trace=trace)

    def serve(self, service: object, *, timeout: float | None | EllipsisType = ...) -> None:
        """Has kernels call the methods of an object whose class is a ``@hostcall.service``, for as long as the device is open.

        Without a ``timeout`` of its own its calls have the device's.
        """
        if isinstance(service, type):
            raise TypeError(f"{service.__name__} is a class: pass an object, as {service.__name__}()")
        described = description_of(service)
        described.refuse_unwritten(service)
        self._register(described.methods(service), timeout)

    def _register(self, methods: list[Method], timeout: float | None | EllipsisType) -> None:
        limit = self._timeout if isinstance(timeout, EllipsisType) else timeout
        self._raw.serve([method.described() for method in methods], limit)

    def service(
        self,
        *,
        number: int,
        name: str | None = None,
        batch: Fields | None = None,
        result: Any = None,
        timeout: float | None | EllipsisType = ...,
    ) -> Callable[[F], F]:
        """Has kernels call a function by this number. ``batch`` and ``result`` are as ``hostcall.method`` has them.

        ::

            @device.service(number=700)
            def price(item: hostcall.u64) -> hostcall.f32:
                return 1.5 * item
        """

        def add(function: F) -> F:
            self._register([_method(function, Options(number, batch, result), number, name)], timeout)
            return function

        return add

    def on_post(self, *, number: int, name: str | None = None, batch: Fields | None = None) -> Callable[[F], F]:
        """Has a function called for what kernels post to this number: nobody waits for it, and up to five words come.

        ::

            @device.on_post(number=701)
            def progress(step: hostcall.u32, loss: hostcall.f32) -> None:
                bar.update(step)
        """

        def add(function: F) -> F:
            method = _method(function, Options(number, batch), number, name)
            method.refuse_as_post()
            self._register([method], ...)
            return function

        return add

    def progress(self, bar: Union[Bar, Callable[[int], object]], *, number: int) -> None:
        """Has kernels move a progress bar: what they post to this number is one word, by how many steps. It needs NumPy.

        ``bar`` has ``update(steps)``, as those of tqdm, or is a function of the steps. It is called on the device's thread, once for
        all posts that wait, and for as long as the device is open.

        ::

            bar = tqdm(total=rows)
            device.progress(bar, number=702)
            # In a kernel: hostcall_post_words(context, HOSTCALL_METHOD(702, 0), &done, 1);
        """
        update = getattr(bar, "update", bar)
        if not callable(update):
            raise TypeError(f"{bar!r} is no progress bar: it has no `update`, and is no function")

        def posted(posts: Any) -> None:
            update(int(posts["steps"].sum()))

        self.on_post(number=number, name="hostcall::progress", batch={"steps": u64})(posted)

    def context(self, name: str = "kernels") -> Context:
        """Makes a context, by which kernels call that others launch. ``name`` is what reports call them."""
        context = Context(self, self._raw.context(name), name)
        self._contexts.add(context)
        return context

    def buffer(self, shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = "u1") -> Buffer:
        """Allocates zeroed memory that the host and kernels access at the same time: an array for ``numpy.asarray``."""
        return Buffer(self._raw.pinned, shape, dtype, self.name.startswith("cuda"))

    def channel(
        self,
        dtype: Any = None,
        *,
        pages: int = 256,
        page_bytes: int = 1 << 16,
        policy: Policy = "block",
        staged: bool = False,
    ) -> Channel:
        """Makes a raw channel, through which kernels stream records of a dtype to the host while they run.

        A record has a multiple of 8 bytes, as ``[("address", "u8"), ("lane", "u4"), ("step", "u4")]``; without a dtype kernels
        write bytes. There are ``pages`` of ``page_bytes`` each, both powers of two: 16 to 65,536 of 128 bytes to 16 MiB, of which
        each wave that writes has one. A wave that finds no free page waits for one (``policy="block"``), drops what it would
        have written (``"drop"``), or gets the oldest page that nobody has read (``"overwrite"``: pages are overwritten as long as a
        context is open for which ``stream`` was called). Pages lie in the host's memory;
        ``staged``, kernels fill them in the device's, and a copy engine brings them.

        Raises ``ValueError`` for other sizes, ``TypeError`` for another dtype, ``RuntimeError`` where there is no memory.
        """
        return channel_of(self, dtype, pages, page_bytes, policy, staged)

    def post_queue(self, name: str = "posts", *, waves: int = 256, ring_entries: int = 2048) -> PostQueue:
        """Makes a post queue, to which kernels post up to 128 bytes for a thread of yours that polls. ``name`` is what errors call it.

        ``waves`` is how many waves post at the same time: more wait for each other. ``ring_entries``, of 16 bytes, are those of each
        wave's ring: a power of two, 16 a lane at least and 65,536 at most. A post of ``n`` words takes ``1 + n // 2``. Make one for
        each purpose, not one for each launch: its memory stays until the process ends.

        Raises ``ValueError`` for other sizes, ``RuntimeError`` where there is no memory.
        """
        return PostQueue(self, self._raw.post_queue(name, waves, ring_entries), name)

    def load(self, path: str | PathLike[str]) -> Code:
        """Loads a code object that another compiler made, as of HIP for ``gfx942``."""
        return Code(self._raw.load(path))

    def statistics(self) -> Statistics:
        """Returns what was counted since the device was opened."""
        return Statistics(**dict(self._raw.statistics()))

    def waiting(self) -> list[Wait]:
        """Returns the calls of kernels that wait for their functions, and what else of the device's waits for the host."""
        of = self._raw.waiting()
        return [Wait(*found[:7], None if found[7] is None else Polled(*found[7])) for found in of]

    def record_points(self, trace: Tracer, points: str | Sequence[str] = (), kernels: str | Sequence[str] = ()) -> PointRecording:
        """Records trace points into the file of ``trace`` from now on, also of kernels that run, which need no other build.

        ``points`` and ``kernels`` are names of points (an event's is its format) and of kernels, in which ``*`` and ``?`` stand
        for any characters; all are recorded without any. ::

            with hostcall.Tracer("run.trace") as tracer, device.record_points(tracer, "step*"):
                time.sleep(2)

        Raises ``RuntimeError`` where points of the device are recorded already: one recording at a time has them.
        """
        if not isinstance(trace, Tracer):
            raise TypeError(f"{trace!r} is no tracer: make one of the file, as `hostcall.Tracer(\"run.trace\")`")
        names = [[of] if isinstance(of, str) else list(of) for of in (points, kernels)]
        return PointRecording(self._raw.record_points(trace._raw, *names))

    def synchronize(self, timeout: float | None = None) -> None:
        """Flushes all contexts and what kernels printed, and raises what there is to raise, as ``Context.flush`` does.

        It does not wait for kernels, which others launched: wait for their streams before. ``timeout`` is that of all contexts
        together.
        """
        self._refuse_in_loop()
        if timeout is not None and not timeout > 0:
            raise ValueError("a timeout is a number of seconds above 0, or None for no limit")
        deadline = None if timeout is None else time.monotonic() + timeout
        found: list[BaseException] = []
        for context in list(self._contexts):
            try:
                # Of one whose posts were handled it is told also when the time is over.
                context.flush(None if deadline is None else max(deadline - time.monotonic(), 1e-3))
            except KeyboardInterrupt as error:
                for other in found:
                    add_note(error, f"also: {type(other).__name__}: {other}")
                raise
            except BaseException as error:
                found.append(error)
        try:
            self._raw.flush_prints(None)
        except Exception as error:
            found.append(error)
        errors, count, *_ = self._raw.take()
        raise_first([*found, *errors], len(found) + count, [])

    def _refuse_in_loop(self) -> None:
        if self._output is not None and self._output.is_current():
            raise RuntimeError("the output of what kernels print waits for itself: flush on another thread")
        if self._loop.is_current():
            raise RuntimeError("this thread runs the loop of coroutines that kernels call: flush on another one (`loop.run_in_executor`)")

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        _open.discard(self)
        if kept is not None:
            kept.discard(self)
        if self._process != os.getpid():
            # A child's: its threads are the parent's.
            return
        try:
            self._loop.close()
        finally:
            # Also where somebody ends the wait for the loop.
            self._end_output()
            has_ended = self._raw.close()
        if not has_ended:
            _left_alone.append(self._raw)
            warnings.warn(f"a function that kernels of {self.name} called has not returned after 5 s: it is left alone", stacklevel=3)

    def _end_output(self) -> None:
        if self._output is None:
            return
        if self._output.is_current():
            # It closes the device itself.
            return
        try:
            if not self._raw.flush_prints(_LONGEST_OUTPUT):
                self._raw.leave_output()
                what = f"the output of what kernels of {self.name} print has not taken it for {_LONGEST_OUTPUT:g} s: it is left alone"
                return warnings.warn(what, stacklevel=4)
            self._output.end()
        except Exception as error:
            warnings.warn(f"what kernels of {self.name} printed last is lost: {type(error).__name__}: {error}", stacklevel=4)

    def close(self) -> None:
        """Ends the device, its contexts and all calls, and raises what functions raised that nobody was told of."""
        if self._process != os.getpid():
            return self._end()
        found: list[BaseException] = []
        for context in list(self._contexts):
            try:
                context.close()
            except BaseException as error:
                found.append(error)
        self._end()
        errors, count, *_ = self._raw.take()
        raise_first([*found, *errors], len(found) + count, [])

    def __enter__(self) -> Device:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._exit(error)

    def __repr__(self) -> str:
        return f"<hostcall.Device {self.name!r}, {self.product}{', closed' if self._is_closed else ''}>"


_open = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends the threads that use the interpreter, before it ends."""
    for device in list(_open):
        try:
            device.close()
        except BaseException as error:
            print(f"hostcall: nobody was told of what functions raised that kernels of {device.name} called:", file=sys.stderr)
            traceback.print_exception(error)
    if not all([raw.close() for raw in _left_alone]):
        # Python ends threads that come back to it then in a way that no thread of Rust's survives.
        print("hostcall: a function that kernels called has not returned: the process ends without it, with exit code 1", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
