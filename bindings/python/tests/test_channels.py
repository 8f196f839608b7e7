"""Raw channels: pages as arrays, as columns of Arrow's, and by iterating."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import threading
from typing import Any

import numpy as np
import pytest
from conftest import Kernels, u64

import hostcall

RECORD = [("value", "u8"), ("half", "f4"), ("lane", "u2"), ("is_even", "?"), ("letter", "S1")]
LANES = 5


@pytest.fixture
def channel(device: hostcall.Device) -> hostcall.Channel:
    return device.channel(RECORD, pages=64, page_bytes=4096)


def records(kernels: Kernels, channel: hostcall.Channel, context: hostcall.Context, rounds: int, lanes: int = LANES) -> None:
    kernels.free.records(u64(channel.stream(context)), lanes, rounds)


def check(found: np.ndarray[Any, Any], rounds: int) -> None:
    assert found.dtype == np.dtype(RECORD) and len(found) == LANES * rounds
    for lane in range(LANES):
        own = found[found["lane"] == lane]
        # Records of a lane are in its order.
        assert own["value"].tolist() == [lane << 32 | round for round in range(rounds)]
        assert (own["half"] == own["value"].astype("u4") / 2).all() and (own["is_even"] == (own["value"] % 2 == 0)).all()
        assert set(own["letter"]) == {bytes([ord("a") + lane])}


def test_records_of_running_kernels_are_arrays(device: hostcall.Device, channel: hostcall.Channel, kernels: Kernels) -> None:
    context = device.context("records")
    # More than there are pages for: lanes wait until the pages are read.
    kernel = threading.Thread(target=records, args=(kernels, channel, context, 20_000))
    kernel.start()
    pages = []
    for page in channel.until(lambda: not kernel.is_alive(), timeout=60):
        assert page.array.flags.writeable is False and np.shares_memory(page.array, np.asarray(page))
        assert len(page) == len(page.array) and page.nbytes == page.array.nbytes and page.dropped_before == 0
        pages.append(page.array.copy())
    kernel.join()
    check(np.concatenate(pages), 20_000)
    counted = channel.statistics()
    assert counted.bytes == LANES * 20_000 * 16 and counted.dropped_records == counted.malformed_words == counted.swept_pages == 0


def test_a_page_is_lent_as_long_as_somebody_has_an_array_of_it(device: hostcall.Device, kernels: Kernels) -> None:
    channel = device.channel("u8", pages=16, page_bytes=128, policy="drop")
    context = device.context("lent")
    kernels.free.words(u64(channel.stream(context)), 16 * 16 + 4)
    # All pages are full, and what came then was dropped.
    arrays = [page.array for page in channel.rest()]
    assert np.concatenate(arrays).tolist() == list(range(256)) and channel.statistics().dropped_records == 4
    view = memoryview(arrays[0])[:8]
    del arrays[1:]
    gc.collect()
    # One page is lent still.
    kernels.free.words(u64(channel.stream(context)), 1000)
    assert sum(len(page) for page in channel.rest()) == 15 * 16
    assert arrays[0].tolist() == list(range(16)) and view[3] == 3
    with pytest.raises(ValueError):
        arrays[0][0] = 1
    page_view = hostcall.Page.view.fget  # type: ignore[attr-defined]
    del arrays, view
    kernels.free.words(u64(channel.stream(context)), 3)
    page = channel.next(timeout=10)
    assert page is not None
    words = page_view(page).cast("Q")
    assert words.readonly and words.tolist() == [0, 1, 2] and page.is_last
    assert np.frombuffer(page.view, "u8").tolist() == [0, 1, 2]
    # The view keeps the page's memory, also when the channel and its device are closed.
    del page
    device.close()
    gc.collect()
    assert words.tolist() == [0, 1, 2]


def test_iterating_ends_when_the_channel_is_closed(device: hostcall.Device, channel: hostcall.Channel, kernels: Kernels) -> None:
    context, found = device.context("closed"), []

    def read() -> None:
        for page in channel:
            found.append(page.array.copy())

    reader = threading.Thread(target=read)
    reader.start()
    records(kernels, channel, context, 300)
    while sum(map(len, found)) < LANES * 300:
        assert reader.is_alive()
    channel.close()
    reader.join(10)
    assert not reader.is_alive() and channel.is_closed
    check(np.concatenate(found), 300)
    assert channel.next() is None and list(channel.rest()) == []
    with pytest.raises(RuntimeError, match="the channel was closed"):
        channel.stream(context)
    with pytest.raises(RuntimeError, match="the channel was closed"):
        channel.statistics()


def test_a_kernel_does_not_wait_for_a_channel_that_was_closed(device: hostcall.Device, kernels: Kernels) -> None:
    channel, context = device.channel("u8", pages=16, page_bytes=128), device.context("waits")
    stream = channel.stream(context)
    assert channel.stream(context) is stream and int(stream) == stream.__index__()
    kernel = threading.Thread(target=kernels.free.words, args=(u64(stream), 1000))
    kernel.start()
    kernel.join(0.2)
    assert kernel.is_alive(), "it waits for a page"
    with channel:
        pass
    kernel.join(10)
    assert not kernel.is_alive()
    # Nor one that comes later.
    kernels.free.words(u64(stream), 10)


def test_channels_are_read_by_coroutines(device: hostcall.Device, channel: hostcall.Channel, kernels: Kernels) -> None:
    context = device.context("async")
    kernel = threading.Thread(target=records, args=(kernels, channel, context, 5_000))

    async def read() -> list[np.ndarray[Any, Any]]:
        found, ticks = [], 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        kernel.start()
        async for page in channel.until(lambda: not kernel.is_alive()):
            found.append(page.array.copy())
        ticking.cancel()
        assert ticks, "others go on meanwhile"
        return found

    check(np.concatenate(asyncio.run(read())), 5_000)
    kernel.join()


def test_a_wait_that_is_cancelled_loses_no_page(device: hostcall.Device, channel: hostcall.Channel, kernels: Kernels) -> None:
    context = device.context("cancelled")
    kernel = threading.Thread(target=records, args=(kernels, channel, context, 5_000))

    async def read() -> list[np.ndarray[Any, Any]]:
        found: list[np.ndarray[Any, Any]] = []
        pages = channel.until(lambda: not kernel.is_alive())
        kernel.start()
        while True:
            try:
                found.append((await asyncio.wait_for(pages.__anext__(), 0.0005)).array.copy())
            except asyncio.TimeoutError:
                pass
            except StopAsyncIteration:
                return found

    check(np.concatenate(asyncio.run(read())), 5_000)
    kernel.join()


def test_a_wait_for_pages_has_a_limit(channel: hostcall.Channel) -> None:
    assert channel.next(timeout=0) is None and channel.next(timeout=0.05) is None
    with pytest.raises(TimeoutError, match="have not ended"):
        next(channel.until(lambda: False, timeout=0.2))
    with pytest.raises(ValueError, match="from 0 on"):
        channel.next(timeout=-1)
    with pytest.raises(ValueError, match="above 0"):
        channel.until(lambda: True, timeout=0)
    with pytest.raises(TypeError, match="is no end"):
        channel.until(5)


def test_the_oldest_pages_are_overwritten(device: hostcall.Device, kernels: Kernels) -> None:
    channel, context = device.channel("u8", pages=16, page_bytes=128, policy="overwrite"), device.context("newest")
    kernels.free.words(u64(channel.stream(context)), 16_000)
    # From here on no kernel may write, and what is left stays.
    context.close()
    pages = list(channel.rest())
    found = np.concatenate([page.array for page in pages])
    assert found[-1] == 15_999 and (np.diff(found.astype("i8")) > 0).all()
    lost = channel.statistics().overwritten_bytes
    assert lost + 8 * len(found) == 8 * 16_000 and sum(page.overwritten_before for page in pages) == lost


def test_a_context_that_is_renewed_or_closed_leaves_the_channel_usable(
    device: hostcall.Device, channel: hostcall.Channel, kernels: Kernels
) -> None:
    context = device.context("renewed")
    records(kernels, channel, context, 10)
    context.cancel()
    context.renew()
    records(kernels, channel, context, 10)
    found = np.concatenate([page.array for page in channel.rest()])
    assert len(found) == 2 * LANES * 10
    context.close()
    with pytest.raises(RuntimeError, match="closed"):
        channel.stream(context)
    other = device.context("other")
    records(kernels, channel, other, 10)
    check(np.concatenate([page.array for page in channel.rest()]), 10)
    with hostcall.Device("cpu") as another, pytest.raises(RuntimeError, match="the raw channel"):
        channel.stream(another.context())


def test_what_is_no_channel_is_refused(device: hostcall.Device) -> None:
    for options, error, sentence in [
        ({"pages": 15}, ValueError, "raw channel"),
        ({"page_bytes": 100}, ValueError, "raw channel"),
        ({"policy": "newest"}, ValueError, "there is no policy `newest`"),
        ({"dtype": "u4"}, TypeError, "a record has a multiple of 8 bytes, and uint32 has 4"),
        ({"dtype": object}, TypeError, "Python's objects"),
        ({"dtype": {"names": ["a", "b"], "formats": ["u8", "u8"], "offsets": [0, 4]}}, TypeError, "overlap"),
        ({"dtype": ("u8", 17), "page_bytes": 128}, ValueError, "no room for a record of 136"),
    ]:
        with pytest.raises(error, match=sentence):
            device.channel(**options)  # type: ignore[arg-type]


class Schema(ctypes.Structure):
    """``struct ArrowSchema``."""


Schema._fields_ = [
    *((name, ctypes.c_char_p) for name in ("format", "name", "metadata")),
    *((name, ctypes.c_int64) for name in ("flags", "n_children")),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))),
    ("private", ctypes.c_void_p),
]


class Array(ctypes.Structure):
    """``struct ArrowArray``."""


Array._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))),
    ("private", ctypes.c_void_p),
]


class ArrowStream(ctypes.Structure):
    """``struct ArrowArrayStream``."""


ArrowStream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowStream), ctypes.POINTER(Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowStream), ctypes.POINTER(Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(ArrowStream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowStream))),
    ("private", ctypes.c_void_p),
]


def stream_of(source: Any) -> tuple[Any, object]:
    capsule = source.__arrow_c_stream__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.cast(pointer(capsule, b"arrow_array_stream"), ctypes.POINTER(ArrowStream)), capsule


def test_records_are_columns_of_arrows(device: hostcall.Device, channel: hostcall.Channel, kernels: Kernels) -> None:
    records(kernels, channel, device.context("arrow"), 1000)
    stream, capsule = stream_of(channel.rest())
    schema = Schema()
    assert stream.contents.get_schema(stream, schema) == 0
    fields = [schema.children[i].contents for i in range(schema.n_children)]
    assert [(field.name, field.format) for field in fields] == [
        (b"value", b"L"), (b"half", b"f"), (b"lane", b"S"), (b"is_even", b"b"), (b"letter", b"w:1"),
    ]  # fmt: skip
    assert schema.format == b"+s"
    schema.release(schema)
    assert not schema.release
    batches = []
    while True:
        array = Array()
        assert stream.contents.get_next(stream, array) == 0
        if not array.release:
            break
        columns = []
        for i, form in enumerate(["<u8", "<f4", "<u2", "u1", "S1"]):
            column = array.children[i].contents
            assert column.length == array.length and column.n_buffers == 2 and not column.buffers[0]
            size = -(-array.length // 8) if i == 3 else array.length * np.dtype(form).itemsize
            values = np.frombuffer(ctypes.string_at(column.buffers[1], size), form)
            columns.append(np.unpackbits(values, count=array.length, bitorder="little").astype(bool) if i == 3 else values)
        batches.append(np.rec.fromarrays(columns, dtype=np.dtype(RECORD)))
        array.release(array)
    check(np.concatenate(batches), 1000)
    # The other streams are released by their capsules.
    stream_of(channel.rest())
    del capsule


def test_an_error_of_the_pages_is_the_streams(channel: hostcall.Channel) -> None:
    def broken() -> bool:
        raise KeyError("no end")

    stream, capsule = stream_of(channel.until(broken))
    assert stream.contents.get_next(stream, Array()) == 5 and b"no end" in stream.contents.get_last_error(stream)
    with pytest.raises(TypeError, match="has bytes, and no records"):
        stream_of(hostcall.Channel(channel._device, channel._raw, None))
    for dtype in (">u8", "c16", [("nested", [("x", "u8")])]):
        with pytest.raises(TypeError, match="of which Arrow gets no column"):
            stream_of(channel._device.channel(dtype))


def test_pyarrow_takes_channels_and_pages(device: hostcall.Device, channel: hostcall.Channel, kernels: Kernels) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    context = device.context("pyarrow")
    kernel = threading.Thread(target=records, args=(kernels, channel, context, 5000))
    kernel.start()
    table = pyarrow.table(channel.until(lambda: not kernel.is_alive()))
    kernel.join()
    assert table.num_rows == LANES * 5000 and table.schema.field("is_even").type == pyarrow.bool_()
    table.validate(full=True)
    values = [value for value in table["value"].to_pylist() if value >> 32 == 3]
    assert values == [3 << 32 | round for round in range(5000)]
    records(kernels, channel, context, 3)
    page = channel.next()
    assert page is not None and pyarrow.table(page).num_rows == 3


def test_a_channel_of_bytes(device: hostcall.Device, kernels: Kernels) -> None:
    channel, context = device.channel(pages=16, page_bytes=128), device.context("bytes")
    kernels.free.text(u64(channel.stream(context)), b"hello, " * 30, 210)
    assert b"".join(bytes(page.view) for page in channel.rest())[:210] == b"hello, " * 30
