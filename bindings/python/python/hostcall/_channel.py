"""Raw channels: records that kernels stream while they run."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal

from . import _hostcall

if TYPE_CHECKING:
    import numpy as np

    from ._device import Context, Device

Policy = Literal["block", "drop", "overwrite"]

_ARROW = {"i1": "c", "u1": "C", "i2": "s", "u2": "S", "i4": "i", "u4": "I", "i8": "l", "u8": "L", "f2": "e", "f4": "f", "f8": "g"}

_STREAM_BYTES = 72
"""Of ``struct hostcall_raw_stream``."""
_TURN = 0.05
"""How many seconds a wait goes on before it looks whether there is more to wait for."""

# A graph may have the address of one whose channel is gone.
_kept_streams: list[_hostcall.RawBuffer] = []


def _columns(dtype: np.dtype[Any]) -> list[tuple[str, str, int, int]]:
    """Returns name, Arrow's format, offset and size of the fields of a record."""
    known: Any = dtype.fields
    # Without titles, which are among the fields a second time.
    fields = {name: known[name] for name in dtype.names} if dtype.names else {"value": (dtype, 0)}
    columns = []
    for name, (kind, offset, *_) in fields.items():
        letters = kind.str[1:]
        if kind.str[0] == ">" and kind.itemsize > 1:
            letters = "big-endian"
        if kind.kind == "b":
            form = "b"
        elif kind.kind in "SV" and kind.itemsize and kind.fields is None and kind.subdtype is None:
            form = f"w:{kind.itemsize}"
        elif letters in _ARROW:
            form = _ARROW[letters]
        else:
            raise TypeError(f"the field `{name}` is {kind}, of which Arrow gets no column: take numbers, bool or bytes")
        columns.append((name, form, offset, kind.itemsize))
    return columns


@dataclass(frozen=True)
class ChannelStatistics:
    """What was written to a channel so far, as far as the host knows."""

    pages: int
    """Pages that were closed."""
    bytes: int
    """Bytes that waves said they had written."""
    dropped_records: int
    """Records (words of 8 bytes, of bytes) that waves dropped since no page was free."""
    overwritten_bytes: int
    """Bytes that were overwritten before anybody read them."""
    swept_pages: int
    """Pages that their waves did not close: what these wrote last may be lost."""
    malformed_words: int
    """Words of the device that made no sense."""


class Page:
    """A page of a channel, or the part of one that was written, lent to who reads it: no wave writes to it meanwhile.

    ``page.array`` is its records, in place: NumPy's array is read-only, and keeps the page. ``numpy.asarray(page)`` is the same, and
    ``page.view`` its bytes, which whatever takes a buffer takes. The page goes back to the kernels
    when the last of them and the page itself are gone. ``pyarrow.table(page)`` and others copy its records into columns.
    """

    def __init__(self, raw: _hostcall.RawPage, dtype: np.dtype[Any] | None) -> None:
        self._raw = raw
        self._dtype = dtype
        self._address, self.nbytes = raw.memory()
        info = dict(raw.info())
        self.sequence: int = info["sequence"]
        """Which page of the channel it is, in the order of their opening. Parts of one page have the same number."""
        self.offset: int = info["offset_bytes"]
        """Where in the page the part begins, in bytes."""
        self.is_last = bool(info["is_last"])
        """Whether the page has no more than this."""
        self.block: int = info["block"]
        """The linear index of the block whose wave wrote it, as the device says."""
        self.wave: int = info["wave"]
        """The wave in its block."""
        self.opened_ns: int = info["opened_ns"]
        """The device's clock when the page was opened, in nanoseconds."""
        self.dropped_before: int = info["dropped_before"]
        """Records (words of 8 bytes, of bytes) that were dropped between the writer's page before and this one."""
        self.overwritten_before: int = info["overwritten_before"]
        """Bytes of the channel that were overwritten between the page that was read before and this one."""

    def __len__(self) -> int:
        """Returns how many records there are; bytes, of a channel without a dtype."""
        return self.nbytes if self._dtype is None else self.nbytes // self._dtype.itemsize

    @property
    def view(self) -> memoryview:
        """Its bytes in place, without NumPy."""
        memory = (ctypes.c_uint8 * self.nbytes).from_address(self._address)
        # What a view keeps keeps the page.
        setattr(memory, "page", self)
        return memoryview(memory).cast("B").toreadonly()

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """Its records in place, as a read-only array of the channel's dtype."""
        import numpy as np

        return np.asarray(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        import numpy as np

        dtype = np.dtype("u1") if self._dtype is None else self._dtype
        described: Any = dtype.descr if dtype.names else [("", dtype.str)]
        return {"version": 3, "shape": (len(self),), "typestr": dtype.str, "descr": described, "data": (self._address, True)}

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the records as a stream of Arrow's with one batch, for ``pyarrow.table(page)`` and others."""
        return _arrow(iter([self]), self._dtype)

    def __repr__(self) -> str:
        return f"<hostcall.Page {self.sequence} of block {self.block}, wave {self.wave}: {len(self)} records>"


def _arrow(pages: Iterator[Page], dtype: np.dtype[Any] | None) -> object:
    if dtype is None:
        raise TypeError("the channel has bytes, and no records: make it with a dtype")
    return _hostcall.arrow_stream((page._raw for page in pages), _columns(dtype), dtype.itemsize)


class Pages:
    """Pages of a channel, up to an end: what ``Channel.until`` returns. It is an iterator, and one of ``async for``."""

    def __init__(self, channel: Channel, is_over: Callable[[], bool], timeout: float | None) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError("a timeout is a number of seconds above 0, or None for no limit")
        self._channel, self._is_over = channel, is_over
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._turns: asyncio.Future[tuple[Page | None, bool]] | None = None

    def __iter__(self) -> Pages:
        return self

    def _turn(self) -> tuple[Page | None, bool]:
        """Waits a moment for a page. Returns also whether there is no more."""
        # What was written before it was over is there afterwards.
        is_over = self._channel.is_closed or self._is_over()
        page = self._channel.next(0 if is_over else _TURN)
        if page is None and not is_over and self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError("kernels that may write to the channel have not ended")
        return page, is_over

    def __next__(self) -> Page:
        while True:
            page, is_over = self._turn()
            if page is not None:
                return page
            if is_over:
                raise StopIteration

    def __aiter__(self) -> Pages:
        return self

    async def __anext__(self) -> Page:
        loop = asyncio.get_running_loop()
        while True:
            # On a thread of the loop's, which has others' work meanwhile. Who is cancelled leaves the turn to whoever comes next.
            if self._turns is None:
                self._turns = loop.run_in_executor(None, self._turn)
            try:
                page, is_over = await asyncio.shield(self._turns)
            except asyncio.CancelledError:
                raise
            except BaseException:
                self._turns = None
                raise
            self._turns = None
            if page is not None:
                return page
            if is_over:
                raise StopAsyncIteration

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the records as a stream of Arrow's, a batch for each page, as they come."""
        return _arrow(self, self._channel.dtype)


class ChannelStream:
    """A channel for kernels with a context: ``int(stream)`` is where a ``struct hostcall_raw_stream`` lies that they read."""

    def __init__(self, channel: Channel, context: Context, memory: _hostcall.RawBuffer) -> None:
        self._memory = memory
        self._address = memory.address()
        self.channel, self.context = channel, context

    def __int__(self) -> int:
        return self._address

    __index__ = __int__

    def __repr__(self) -> str:
        return f"<hostcall.ChannelStream of {self.channel!r} for {self.context.name!r} at {self._address:#x}>"


class Channel:
    """Memory through which kernels stream records to the host while they run. ``Device.channel`` makes it.

    ::

        accesses = device.channel([("address", "u8"), ("lane", "u4"), ("step", "u4")])
        kernel((blocks,), (threads,), (int(accesses.stream(context)), nodes))
        for page in accesses.until(context.fence(stream)):
            histogram += numpy.bincount(page.array["lane"], minlength=lanes)

    In the kernel::

        __global__ void walk(const hostcall_raw_stream *at, const uint32_t *nodes) {
            const hostcall_raw_stream out = *at;
            hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
            struct access access = {…};
            hostcall_raw_record(&out, &writer, &access, sizeof access);  // one record of each lane
            hostcall_raw_close(&out, &writer);                           // each lane, before it ends
        }

    Iterating over the channel itself (``for``, ``async for``) gives pages until another thread closes it. Several threads that read
    share the pages. A kernel that ``device.load(…).launch`` starts takes the channel itself as a ``hostcall_raw_stream`` by value.
    """

    def __init__(self, device: Device, raw: _hostcall.RawChannel, dtype: np.dtype[Any] | None) -> None:
        self._raw = raw
        self._device = device
        self._streams: dict[int, ChannelStream] = {}
        self.dtype = dtype
        """Of the records; ``None`` of a channel of bytes."""

    def _argument(self) -> _hostcall.RawChannel:
        return self._raw

    def stream(self, context: Context) -> ChannelStream:
        """Returns the channel as an argument of kernels with a context, whose address never changes.

        Wait for such kernels before the context is closed or renewed: pages that they have open are given to others then. What is
        asked again for the same context is the same. The channel's memory stays until the process ends: make a channel for each
        purpose, not for each launch. Raises ``RuntimeError`` where one of them is closed or of another device.
        """
        found = self._streams.get(id(context))
        if found is not None and found.context is context:
            self._raw.stream(context._raw, found._memory)
            return found
        memory = self._device._raw.pinned(_STREAM_BYTES)
        self._raw.stream(context._raw, memory)
        _kept_streams.append(memory)
        stream = self._streams[id(context)] = ChannelStream(self, context, memory)
        return stream

    def next(self, timeout: float | None = None) -> Page | None:
        """Returns the next page, or the part of one that is written, and waits for it.

        Returns ``None`` where none comes within ``timeout`` seconds (0: without a wait), or the channel was closed.
        """
        if timeout is not None and timeout < 0:
            raise ValueError("a timeout is a number of seconds from 0 on, or None for no limit")
        page = self._raw.next(None if timeout is None else float(timeout))
        return None if page is None else Page(page, self.dtype)

    def until(self, end: Any, timeout: float | None = None) -> Pages:
        """Returns the pages that come until ``end``, and those that are there then.

        ``end`` is a ``Fence`` or a ``Launch`` (``is_done()``), or a function that returns whether kernels that write have ended.
        Raises ``TimeoutError`` where that takes longer than ``timeout`` seconds.
        """
        is_over = getattr(end, "is_done", end)
        if not callable(is_over):
            raise TypeError(f"{end!r} is no end: pass a fence, a launch, or a function that returns whether kernels have ended")
        return Pages(self, lambda: bool(is_over()), timeout)

    def rest(self) -> Pages:
        """Returns the pages that are there now. Of kernels that were waited for, these are all."""
        return Pages(self, lambda: True, None)

    def __iter__(self) -> Iterator[Page]:
        return Pages(self, lambda: False, None)

    def __aiter__(self) -> AsyncIterator[Page]:
        return Pages(self, lambda: False, None)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the records as a stream of Arrow's, a batch for each page, until the channel is closed."""
        return _arrow(iter(self), self.dtype)

    def statistics(self) -> ChannelStatistics:
        """Returns what was written so far: pages and bytes that were there when somebody looked for pages last."""
        return ChannelStatistics(**dict(self._raw.statistics()))

    @property
    def is_closed(self) -> bool:
        return self._raw.is_closed()

    def close(self) -> None:
        """Ends the channel: who iterates comes to an end, and waves that wait for a page go on without. Pages stay that are lent."""
        self._raw.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hostcall.Channel of {self.dtype or 'bytes'} of {self._device.name}{', closed' if self.is_closed else ''}>"


def channel_of(device: Device, dtype: Any, pages: int, page_bytes: int, policy: str, staged: bool) -> Channel:
    """Makes a channel, see ``Device.channel``."""
    kind: Any = None
    if dtype is not None:
        import numpy as np

        kind = np.dtype(dtype)
        try:
            kind.descr
        except ValueError:
            raise TypeError(f"fields that overlap or are out of order have no array: {kind}") from None
        if kind.hasobject:
            raise TypeError("kernels cannot write Python's objects: take a dtype of numbers")
        if kind.itemsize == 0 or kind.itemsize % 8:
            raise TypeError(f"a record has a multiple of 8 bytes, and {kind} has {kind.itemsize}: add a field to fill it up")
        if kind.itemsize > page_bytes:
            raise ValueError(f"a page of {page_bytes} bytes has no room for a record of {kind.itemsize}")
    return Channel(device, device._raw.channel(pages, page_bytes, policy, staged), kind)
