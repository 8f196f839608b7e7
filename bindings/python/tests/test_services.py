"""Services of words and bytes, batches, coroutines and posts."""

from __future__ import annotations

import asyncio
import ctypes
import struct
import threading
from typing import Any

import numpy as np
import pytest
import catalog
from conftest import FAILED, MALFORMED, NO_SUCH_SERVICE, OK, PANICKED, TOO_LARGE, TYPE_MISMATCH, Kernels

import hostcall


@hostcall.service(number=700)
class Prices:
    """A service with each kind of word."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def of(self, item: hostcall.u64) -> hostcall.u64:
        self.threads.add(threading.get_ident())
        return 3 * item + 1

    def mixed(self, a: hostcall.i32, b: hostcall.f32, c: bool, d: hostcall.f64, e: hostcall.u8) -> tuple[hostcall.i16, hostcall.f32, bool]:
        return -a, b * d, not c and e == 255

    @hostcall.method(number=710)
    def nothing(self) -> None:
        pass

    def name(self, item: hostcall.u64, prefix: str, data: bytes) -> tuple[hostcall.u64, str]:
        return item + len(data), f"{prefix}-{data.hex()}-ü"

    def _not_a_method(self) -> None:
        raise AssertionError


def f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def f64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def test_words_of_each_type_go_there_and_back(device: hostcall.Device, kernels: Kernels) -> None:
    device.serve(Prices())
    context = device.context("words")
    assert kernels.call(context, 700, 5) == (OK, [16])
    words = (2**64 - 7, f32(1.5), 0, f64(-2.0), 255)
    assert kernels.call(context, 701, *words, results=3) == (OK, [7, f32(-3.0), 1])
    assert kernels.call(context, 710, results=0) == (OK, [])
    assert kernels.call(context, 799, 5)[0] == NO_SUCH_SERVICE
    context.flush()


def test_bytes_and_text_are_a_word_and_the_bytes(device: hostcall.Device, kernels: Kernels) -> None:
    device.serve(Prices())
    context = device.context("bytes")
    for length in (0, 3, 1000, 100_000):
        data = bytes(i % 251 for i in range(length))
        expected = f"né-{data.hex()}-ü".encode()
        found = kernels.call_bytes(context, 711, [9, 3, length], "né".encode() + data, results=1, capacity=len(expected))
        assert found == (OK, [9 + length], expected)
    # A reply for which there is no room.
    assert kernels.call_bytes(context, 711, [9, 1, 2], b"xyz", results=1, capacity=3)[0] == TOO_LARGE
    with pytest.raises(ValueError, match="returned 9 bytes, and the kernel takes 3") as raised:
        context.check()
    assert "raised for Prices::name, called by `bytes`" in raised.value.__notes__[0]


def test_words_that_are_no_arguments_are_refused_with_a_sentence(device: hostcall.Device, kernels: Kernels) -> None:
    device.serve(Prices())
    context = device.context("wrong")
    for words in [(), (1, 2)]:
        assert kernels.call(context, 700, *words)[0] == MALFORMED
        with pytest.raises(TypeError, match=r"Prices::of takes \(u64\), and the kernel sent . words"):
            context.flush()
    assert kernels.call(context, 701, 1 << 40, 0, 0, 0, 0, results=3)[0] == MALFORMED
    assert kernels.call_bytes(context, 711, [9, 1, 7], b"xyz", results=1)[0] == MALFORMED
    with pytest.raises(TypeError):
        context.check()
    context.check()


def test_types_are_compared_where_a_service_is_typed(device: hostcall.Device, kernels: Kernels) -> None:
    @hostcall.service(number=800, typed=True)
    class Store:
        def find(self, key: hostcall.u64) -> hostcall.u64:
            return key

    device.serve(Store())
    context = device.context("typed")
    (line,) = hostcall.header(Store).splitlines()
    name, method = line.split(" ", 2)[1:]
    assert name == "STORE_FIND" and hostcall.header(Store()) == hostcall.header(Store)
    number, check = (int(part, 0) for part in method[len("HOSTCALL_METHOD(") : -1].split(","))
    assert number == 800 and 0 < check < 1 << 20
    assert kernels.call(context, check << 16 | number, 4) == (OK, [4])
    assert kernels.call(context, number, 4)[0] == TYPE_MISMATCH
    assert kernels.call(context, (check ^ 1) << 16 | number, 4)[0] == TYPE_MISMATCH


class Shelf(catalog.Catalog):
    """A host of what catalog.toml describes."""

    def of(self, item: hostcall.u64, from_: hostcall.i32) -> hostcall.f32:
        return item + from_ / 2

    def label(self, item: hostcall.u64, prefix: str) -> tuple[hostcall.u64, bytes]:
        text = f"{prefix}{item}".encode()
        return len(text), text

    def pair(self, is_first: bool) -> tuple[hostcall.u8, hostcall.i64]:
        return 200, -1 if is_first else 1

    def sold(self, item: hostcall.u64, raw: bytes) -> None:
        pass


def test_a_described_service_has_the_checks_of_its_header(device: hostcall.Device, kernels: Kernels) -> None:
    # As `hostcall bind catalog.toml` has them for kernels in C.
    names = ["CATALOG_OF", "CATALOG_LABEL", "CATALOG_PAIR", "CATALOG_SOLD"]
    checks = [0x91A10, 0xD255A, 0x74ED3, 0x76DF2]
    lines = hostcall.header(Shelf).splitlines()
    assert lines == [f"#define {name} HOSTCALL_METHOD({900 + at}, {checks[at]:#x})" for at, name in enumerate(names)]
    device.serve(Shelf())
    context = device.context("described")
    pair, label = checks[2] << 16 | 902, checks[1] << 16 | 901
    assert kernels.call(context, pair, 1, results=2) == (OK, [200, 2**64 - 1])
    assert kernels.call_bytes(context, label, [7, 4], b"item", results=1) == (OK, [5], b"item7")
    assert kernels.call(context, pair ^ 1 << 16, 1, results=2)[0] == TYPE_MISMATCH


def test_a_class_that_is_derived_has_the_types_of_the_service(device: hostcall.Device) -> None:
    class Other(Shelf):
        def pair(self, is_first: hostcall.u8) -> tuple[hostcall.u8, hostcall.i64]:
            return 0, 0

    with pytest.raises(TypeError, match="Other.pair has other types than Catalog says: annotate it as there"):
        device.serve(Other())


def test_a_class_that_is_derived_has_all_methods_as_the_service_says(device: hostcall.Device) -> None:
    @hostcall.service(number=905)
    class Said:
        def one(self, x: hostcall.u64) -> hostcall.u64:
            """It has to be written."""
            raise NotImplementedError

        def two(self, x: hostcall.u64) -> None:
            raise NotImplementedError

    class Part(Said):
        def one(self, x: hostcall.u64) -> hostcall.u64:
            return x

    with pytest.raises(TypeError, match="Part does not have two of Said: derive a class that has all of its methods"):
        device.serve(Part())
    for options in ({"number": 950}, {"batch": {"x": hostcall.u64}}):

        class Marked(Part):
            @hostcall.method(**options)  # type: ignore[arg-type]
            def two(self, x: hostcall.u64) -> None:
                pass

        with pytest.raises(TypeError, match="Marked.two has a @hostcall.method of its own, and is called as Said says"):
            device.serve(Marked())
    with pytest.raises(TypeError, match="Again is derived from the service Said, and has its numbers"):

        @hostcall.service
        class Again(Part):
            def two(self, x: hostcall.u64) -> None:
                pass

    class Whole(Part):
        def two(self, x: hostcall.u64) -> None:
            pass

    assert hostcall.header(Whole) == hostcall.header(Said)
    device.serve(Whole())


def test_names_numbers_and_checks_are_those_of_rust() -> None:
    """The schema of `programs/inventory` as `hostcall_abi` hashes it, of the methods whose types Python has."""

    def add(hash: int, data: bytes) -> int:
        for byte in data:
            hash = (hash ^ byte) * 0x100000001B3 % 2**64
        return hash

    def of(text: str) -> int:
        return add(0xCBF29CE484222325, text.encode())

    @hostcall.service(name="Inventory", typed=True)
    class Stock:
        def label(self, key: hostcall.u64, text: str) -> bytes:
            return text.encode()

    hash = of("Inventory::label")
    for part in ("u64", "&str", "&mut [u8]", "tuple"):
        hash = add(hash, of(part).to_bytes(8, "little"))
    found = hostcall.header(Stock)
    assert "INVENTORY_LABEL HOSTCALL_METHOD(" in found
    check = int(found.rsplit(" ", 1)[1].rstrip(")\n"), 0)
    # The hash's bits that a doorbell carries.
    assert check in {hash >> shift & 0xFFFFF for shift in range(64)}
    number = int(found.split("(")[1].split(",")[0])
    assert number >= 0x8000 and number % 16 == 0


def test_many_lanes_call_one_thread(device: hostcall.Device, kernels: Kernels) -> None:
    prices = Prices()
    device.serve(prices)
    context = device.context("many")
    failed, ends = kernels.chain(context, 700, 48, 20)
    expected = []
    for lane in range(48):
        for _ in range(20):
            lane = (3 * lane + 1) % 2**64
        expected.append(lane)
    assert failed == 0 and ends == expected
    assert len(prices.threads) == 1


def test_batches_are_structured_arrays(device: hostcall.Device, kernels: Kernels) -> None:
    sizes: list[int] = []

    @device.service(number=720, batch={"x": hostcall.u64}, result=hostcall.u64)
    def affine(calls: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        sizes.append(len(calls))
        return 3 * calls["x"] + 1

    @device.service(number=721, batch={"a": hostcall.i32, "b": hostcall.f32}, result={"sum": hostcall.f64, "low": hostcall.i8})
    def both(calls: "np.ndarray[Any, Any]") -> dict[str, Any]:
        return {"sum": calls["a"] + calls["b"].astype("f8"), "low": np.full(len(calls), -2, "i1")}

    @device.service(number=722, batch={"x": hostcall.i64}, result=hostcall.u32)
    def signed(calls: "np.ndarray[Any, Any]") -> Any:
        return calls["x"]

    context = device.context("batches")
    assert kernels.call(context, 722, 2**32 - 1) == (OK, [2**32 - 1])
    assert kernels.call(context, 722, 2**64 - 1)[0] == PANICKED
    with pytest.raises(OverflowError, match="-1 to -1, which are no `uint32`"):
        context.check()
    failed, ends = kernels.chain(context, 720, 64, 50)
    assert failed == 0 and ends[0] == (3**50 - 1) // 2 % 2**64
    assert sum(sizes) == 3200 and max(sizes) > 1, "lanes that wait at the same time come together"
    assert kernels.call(context, 721, 2**64 - 5, f32(0.5), results=2) == (OK, [f64(-4.5), 2**64 - 2])
    assert kernels.call(context, 721, 5, results=2)[0] == MALFORMED
    with pytest.raises(TypeError, match=r"takes \(i32, f32\)"):
        context.check()


def test_a_batch_that_fails_fails_each_of_its_lanes(device: hostcall.Device, kernels: Kernels) -> None:
    @device.service(number=720, batch={"x": hostcall.u64}, result=hostcall.u64)
    def wrong(calls: "np.ndarray[Any, Any]") -> Any:
        return np.zeros(len(calls) + 1)

    context = device.context("batches")
    failed, _ = kernels.chain(context, 720, 16, 3)
    assert failed == 48
    with pytest.raises(ValueError, match="returns an array with one value a call") as raised:
        context.flush()
    assert any("48 calls got no result" in note for note in raised.value.__notes__)


def test_coroutines_wait_side_by_side(kernels: Kernels) -> None:
    @hostcall.service(number=730)
    class Slow:
        def __init__(self) -> None:
            self.waiting, self.most = 0, 0
            self.everybody = asyncio.Event()

        async def twice(self, x: hostcall.u64) -> hostcall.u64:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            if self.waiting == 20:
                self.everybody.set()
            await self.everybody.wait()
            return 2 * x

        async def fails(self, x: hostcall.u64) -> hostcall.u64:
            await asyncio.sleep(0)
            raise LookupError(f"no {x}")

        async def note(self, x: hostcall.u64, y: hostcall.u64) -> None:
            await asyncio.sleep(0.01)
            self.waiting += 1

    slow = Slow()
    with hostcall.Device("cpu", slow) as device:
        context = device.context("coroutines")
        assert kernels.chain(context, 730, 20, 1) == (0, [2 * lane for lane in range(20)])
        assert slow.most == 20
        assert kernels.call(context, 731, 7)[0] == 3
        with pytest.raises(LookupError, match="no 7"):
            context.check()
        slow.waiting = 0
        assert kernels.posts(context, 732, 2, 10) == 0
        context.flush(timeout=20)
        assert slow.waiting == 20


def test_coroutines_of_posts_are_bounded(kernels: Kernels) -> None:
    running, most, seen = 0, 0, 0
    with hostcall.Device("cpu", timeout=60) as device:

        @device.on_post(number=730)
        async def note(lane: hostcall.u64, round: hostcall.u64) -> None:
            nonlocal running, most, seen
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            seen += 1

        context = device.context("posts")
        assert kernels.posts(context, 730, 4, 2000) == 0
        context.flush(timeout=60)
        assert seen == 8000 and most <= 1024
    # Posts that wait for others end with the device.
    device = hostcall.Device("cpu", timeout=None)
    begun = 0

    @device.on_post(number=730)
    async def never(lane: hostcall.u64, round: hostcall.u64) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    context = device.context("never")
    assert kernels.posts(context, 730, 1, 3000) == 0
    with pytest.raises(TimeoutError):
        context.flush(timeout=0.5)
    assert begun == 1024
    device.close()


def test_coroutines_run_on_a_loop_of_the_users(kernels: Kernels) -> None:
    async def run() -> None:
        loop, threads = asyncio.get_running_loop(), set()
        with hostcall.Device("cpu", loop=loop) as device:

            @device.service(number=730)
            async def where(x: hostcall.u64) -> hostcall.u64:
                threads.add(threading.get_ident())
                return x

            context = device.context("loop")
            assert await loop.run_in_executor(None, kernels.call, context, 730, 3) == (OK, [3])
            assert threads == {threading.get_ident()}

    asyncio.run(run())


def test_posts_come_each_once(device: hostcall.Device, kernels: Kernels) -> None:
    seen: list[tuple[int, int]] = []
    counted = 0

    @device.on_post(number=740)
    def note(lane: hostcall.u32, round: hostcall.u64) -> None:
        seen.append((lane, round))

    @device.on_post(number=741, batch={"lane": hostcall.u64, "round": hostcall.u64})
    def many(posts: "np.ndarray[Any, Any]") -> None:
        nonlocal counted
        counted += len(posts)

    context = device.context("posts")
    assert kernels.posts(context, 740, 8, 3000) == 0
    context.flush()
    assert sorted(seen) == [(lane, round) for lane in range(8) for round in range(3000)]
    assert kernels.posts(context, 741, 8, 20_000) == 0
    context.flush()
    assert counted == 160_000
    statistics = device.statistics()
    assert statistics.posts == 184_000 and statistics.refused_posts == 0


def test_a_function_refuses_a_call_with_a_code(device: hostcall.Device, kernels: Kernels) -> None:
    @device.service(number=750)
    def find(key: hostcall.u64) -> hostcall.u64:
        raise hostcall.Refuse(-42)

    context = device.context("refused")
    status, _ = kernels.call(context, 750, 1)
    assert status == FAILED | (-42 & 0xFFFFFFFF) << 8
    context.flush()


def test_a_batch_refuses_all_its_calls(device: hostcall.Device, kernels: Kernels) -> None:
    @device.service(number=750, batch={"key": hostcall.u64}, result=hostcall.u64)
    def find(calls: "np.ndarray[Any, Any]") -> Any:
        raise hostcall.Refuse(7)

    context = device.context("refused")
    assert kernels.call(context, 750, 1)[0] == FAILED | 7 << 8
    assert kernels.chain(context, 750, 16, 2)[0] == 32
    context.flush()


def test_a_function_learns_who_calls(device: hostcall.Device, kernels: Kernels) -> None:
    callers: list[Any] = []

    @device.service(number=750)
    def who() -> None:
        callers.append(hostcall.caller())

    assert hostcall.caller() is None
    kernels.call(device.context("mine"), 750, results=0)
    assert callers[0].kernel == "mine" and callers[0].lane == 0


def test_what_cannot_be_called_is_refused_at_once(device: hostcall.Device) -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        return x

    def list_of(x: "list[int]") -> None: ...

    def many(*x: hostcall.u64) -> None: ...

    async def later() -> None: ...

    def text(x: str) -> None: ...

    def six(a: int, b: int, c: int, d: int, e: int, f: int) -> None: ...

    with pytest.raises(TypeError, match="python::text takes `str`, and a post has words alone"):
        device.on_post(number=760)(text)
    with pytest.raises(TypeError, match="python::six takes 6 words, and a post has up to 5"):
        device.on_post(number=760)(six)
    for function, error, text_of in [
        (untyped, TypeError, "the parameter `x` of python::untyped has no annotation"),
        (list_of, TypeError, "take hostcall.u8 to u64"),
        (many, TypeError, "no kernel can send"),
    ]:
        with pytest.raises(error, match=text_of):
            device.service(number=760)(function)
    with pytest.raises(TypeError, match="it can be one of these"):
        device.service(number=760, batch={})(later)
    with pytest.raises(ValueError, match="take one from 256 to 65535"):
        device.service(number=7)(later)
    with pytest.raises(TypeError, match="write @hostcall.service above the class"):
        device.serve(object())
    with pytest.raises(ValueError, match="a timeout is"):
        device.service(number=760, timeout=-1)(later)
    device.service(number=760)(later)
    with pytest.raises(ValueError, match="python::later cannot have the number 760, which python::later has"):
        device.service(number=760)(later)
    with pytest.raises(TypeError, match="has no public methods"):
        hostcall.service(type("Empty", (), {}))


def test_posts_move_a_progress_bar(device: hostcall.Device, kernels: Kernels) -> None:
    class Bar:
        n = updates = 0

        def update(self, n: int) -> None:
            self.n, self.updates = self.n + n, self.updates + 1

    bar, steps = Bar(), list[int]()
    device.progress(bar, number=720)
    device.progress(steps.append, number=721)
    context = device.context("bars")
    word = (ctypes.c_uint64 * 1)(3)
    for method in (720, 721):
        for _ in range(100):
            assert kernels.free.post(ctypes.c_uint64(int(context)), ctypes.c_uint64(method), word, 1)
    context.flush()
    assert bar.n == sum(steps) == 300 and 1 <= bar.updates <= 100
    with pytest.raises(TypeError, match="is no progress bar"):
        device.progress(5, number=722)  # type: ignore[arg-type]
