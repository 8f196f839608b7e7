"""Kernels of CuPy, Triton, PyTorch's graphs and Numba on a GPU, which call Python."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

import hostcall

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
torch: Any = pytest.importorskip("torch")
cupy: Any = pytest.importorskip("cupy")
triton: Any = pytest.importorskip("triton")

import hostcall.cupy  # noqa: E402
import triton_kernels as kernels  # noqa: E402

SOURCE = r"""
#include "hostcall_device.h"
extern "C" __global__ void chain(uint64_t context, uint64_t method, uint32_t rounds, uint32_t lanes, uint64_t *out) {
    uint64_t x = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t lane = x;
    if (lane >= lanes)
        return;
    uint64_t status = HOSTCALL_CALL_OK;
    for (uint32_t round = 0; round < rounds && status == HOSTCALL_CALL_OK; round++)
        status = hostcall_call_words(context, HOSTCALL_METHOD(method, 0), &x, 1, &x, 1, 0);
    hostcall_check(context, status == HOSTCALL_CALL_OK);
    out[lane] = status == HOSTCALL_CALL_OK ? x : ~uint64_t(0);
    hostcall_post_words(context, HOSTCALL_METHOD(702, 0), &lane, 1);
    if (lane == 0)
        hostcall_printf(context, "lane %u of %s\n", (uint32_t)lane, "chain");
}
struct record {
    uint64_t lane, square;
};
extern "C" __global__ void squares(const hostcall_raw_stream *at, uint32_t rounds) {
    const hostcall_raw_stream out = *at;
    hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    const uint64_t lane = blockIdx.x * blockDim.x + threadIdx.x, lanes = gridDim.x * blockDim.x;
    for (uint64_t round = 0; round < rounds; round++) {
        const record one = {round * lanes + lane, (round * lanes + lane) * (round * lanes + lane)};
        hostcall_raw_record(&out, &writer, &one, sizeof one);
    }
    hostcall_raw_close(&out, &writer);
}
"""


@pytest.fixture
def device() -> Iterator[hostcall.Device]:
    with hostcall.Device.from_torch(timeout=20) as device:
        yield device


def launch(context: hostcall.Context, method: int, rounds: int, lanes: int) -> Any:
    out = cupy.zeros(lanes, cupy.uint64)
    chain = hostcall.cupy.module(SOURCE).get_function("chain")
    arguments = (np.uint64(int(context)), np.uint64(method), np.uint32(rounds), np.uint32(lanes), out)
    chain(((lanes + 127) // 128,), (128,), arguments)
    return out


def test_kernels_of_cupy_call(device: hostcall.Device, capfd: pytest.CaptureFixture[str]) -> None:
    posts: list[int] = []

    @device.service(number=700)
    def single(x: hostcall.u64) -> hostcall.u64:
        if x == 10**6:
            raise KeyError(x)
        return 3 * x + 1

    @device.service(number=701, batch={"x": hostcall.u64}, result=hostcall.u64)
    def many(calls: np.ndarray[Any, Any]) -> Any:
        return 3 * calls["x"] + 1

    @device.on_post(number=702)
    def note(lane: hostcall.u64) -> None:
        posts.append(lane)

    context = device.context("cupy")
    for method, lanes in ((700, 300), (701, 5000)):
        posts.clear()
        out = launch(context, method, 3, lanes)
        cupy.cuda.get_current_stream().synchronize()
        context.flush()
        assert cupy.asnumpy(out).tolist() == [27 * lane + 13 for lane in range(lanes)]
        assert sorted(posts) == list(range(lanes))
    device.synchronize()
    assert "lane 0 of chain\n" in capfd.readouterr().out
    # A method that is not there is a status, and what checks found an exception; the device works on.
    out = launch(context, 777, 1, 64)
    cupy.cuda.get_current_stream().synchronize()
    with pytest.raises(hostcall.KernelPanic, match="status == HOSTCALL_CALL_OK") as raised:
        context.flush()
    assert raised.value.count == 64
    assert int(launch(context, 700, 1, 1)[0]) == 1


def test_kernels_of_triton_call_post_check_and_print(device: hostcall.Device, capfd: pytest.CaptureFixture[str]) -> None:
    asked, posts = kernels.serve(device)
    context = device.context("triton")
    x = torch.arange(600, device="cuda", dtype=torch.float32) / 4
    x[5] = x[300] = float("nan")
    out = torch.zeros_like(x)
    kernels.everything[(3,)](x, out, int(context), 600, BLOCK=256)
    torch.cuda.synchronize()
    with pytest.raises(KeyError) as raised:
        context.flush()
    notes = "\n".join(getattr(raised.value, "__notes__", []))
    assert "x is a number" in notes and "triton_kernels.py:" in notes and "1 more" in notes
    expected = 2 * x.cpu().numpy() + np.arange(600) - np.repeat([0, 100, 200], 256)[:600]
    expected[7] = -1
    np.testing.assert_array_equal(out.cpu().numpy(), expected)
    assert sorted(asked) == [0, 1, 2] and sorted(posts) == [600, 1600, 2600]
    device.synchronize()
    lines = sorted(line for line in capfd.readouterr().out.splitlines() if line.startswith("program"))
    assert lines == [f"program {program} of 600: {program * 0.5:.2f}" for program in range(3)]


def test_a_graph_of_pytorchs_calls_in_each_replay(device: hostcall.Device) -> None:
    posts: list[int] = []
    replay = 0

    @device.service(number=700)
    def factor(place: hostcall.i32, value: hostcall.f32) -> hostcall.f32:
        return replay

    @device.service(number=701)
    def start(program: hostcall.i64) -> hostcall.i32:
        return 0

    @device.on_post(number=702)
    def note(program: hostcall.u32, n: hostcall.u32) -> None:
        posts.append(program)

    context = device.context("replays")
    x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    kernels.everything[(1,)](x, out, int(context), 100, BLOCK=256)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.everything[(1,)](x, out, int(context), 100, BLOCK=256)
    torch.cuda.synchronize()
    context.flush()
    posts.clear()
    for replay in range(200):
        graph.replay()
        torch.cuda.synchronize()
        assert out.tolist() == [replay] * 100
    context.flush()
    assert len(posts) == 200
    # A graph outlives its context: calls end, and nothing waits.
    context.close()
    graph.replay()
    torch.cuda.synchronize()
    assert out.tolist() == [-1] * 100


def test_kernels_of_numba_call(device: hostcall.Device) -> None:
    cuda: Any = pytest.importorskip("numba.cuda")
    import hostcall.numba as hn

    posts: list[int] = []
    small = hostcall.check_number("i is small", __file__, 1)

    @device.service(number=700)
    def twice(x: hostcall.i64) -> hostcall.i64:
        return 2 * x

    @device.on_post(number=701)
    def note(i: hostcall.i64, y: hostcall.i64) -> None:
        posts.append(y)

    call1, post2, check = hn.call1, hn.post2, hn.check

    @cuda.jit
    def kernel(context: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = call1(context, 700, 1, -1, i)
            post2(context, 701, 1, i, out[i])
            check(context, 1, i < 90, small)

    context, out = device.context("numba"), cuda.device_array(100, np.int64)
    kernel[1, 128](np.int64(int(context)), out)
    cuda.synchronize()
    with pytest.raises(hostcall.KernelPanic, match="i is small") as raised:
        context.flush()
    assert raised.value.count == 10
    assert out.copy_to_host().tolist() == [2 * i for i in range(100)] == sorted(posts)


def test_buffers_are_arrays_of_cupy_and_pytorch(device: hostcall.Device) -> None:
    buffer = device.buffer((4, 5), "f4")
    array = cupy.asarray(buffer)
    array += 3
    cupy.cuda.get_current_stream().synchronize()
    assert np.asarray(buffer).tolist() == [[3] * 5] * 4
    tensor = torch.as_tensor(buffer, device="cuda")
    tensor.mul_(2)
    torch.cuda.synchronize()
    assert np.asarray(buffer).tolist() == [[6] * 5] * 4 and torch.from_dlpack(buffer).tolist() == [[6] * 5] * 4


def test_a_device_takes_less_than_100_mib_beside_pytorch() -> None:
    torch.cuda.synchronize()
    before, _ = torch.cuda.mem_get_info()
    with hostcall.Device.from_torch() as device, device.context():
        after, _ = torch.cuda.mem_get_info()
    assert before - after < 100 << 20


def test_a_launcher_that_holds_the_gil_is_named_and_ended(device: hostcall.Device, capfd: pytest.CaptureFixture[str]) -> None:
    """As NVIDIA's bindings did when they synchronized with the GIL held: the kernel waits for Python, and Python for the kernel."""
    driver = ctypes.PyDLL("libcuda.so.1")

    @device.service(number=700, timeout=3.0)
    def never(x: hostcall.u64) -> hostcall.u64:
        return x

    context = device.context("held")
    for _ in range(3):
        out = launch(context, 700, 1, 1)
        began = time.monotonic()
        driver.cuCtxSynchronize()
        took = time.monotonic() - began
        assert 2 < took < 6 and int(out[0]) == 2**64 - 1
        with pytest.raises(hostcall.KernelPanic):
            context.flush()
    said = capfd.readouterr().err
    assert said.count("GIL") >= 1 and "cuCtxSynchronize" in said or "test_a_launcher_that_holds_the_gil" in said


def test_a_fence_waits_for_a_stream_and_its_posts(device: hostcall.Device) -> None:
    seen: list[int] = []
    may_end = threading.Event()

    @device.service(number=700)
    def single(x: hostcall.u64) -> hostcall.u64:
        time.sleep(0.02)
        return 3 * x + 1

    @device.service(number=704)
    async def late(x: hostcall.u64) -> hostcall.u64:
        while not may_end.is_set():
            await asyncio.sleep(0.001)
        return x

    @device.on_post(number=702)
    def note(lane: hostcall.u64) -> None:
        time.sleep(0.02)
        seen.append(lane)

    context = device.context("fenced")
    launch(context, 700, 1, 1)
    context.flush(timeout=10, stream=cupy.cuda.get_current_stream())
    for stream in (torch.cuda.current_stream(), cupy.cuda.get_current_stream(), 0, torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)):
        seen.clear()
        is_torch = isinstance(stream, torch.cuda.Stream)
        handle = stream if isinstance(stream, int) else stream.cuda_stream if is_torch else stream.ptr
        with cupy.cuda.ExternalStream(handle):
            launch(context, 700, 5, 3)
            fence = context.fence(stream)
            # Behind it something that ends when the host says so: a fence is that of its place.
            launch(context, 704, 1, 1)
        assert not fence.is_done()
        with pytest.raises(TimeoutError):
            fence.wait(timeout=0.01)
        fence.wait(timeout=10)
        assert sorted(seen) == [0, 1, 2] and fence.is_done()
        may_end.set()
        context.flush(timeout=10, stream=stream)
        may_end.clear()
    seen.clear()
    with cupy.cuda.ExternalStream(stream.ptr):
        launch(context, 700, 2, 2)
    context.flush(timeout=10, stream=stream)
    assert sorted(seen) == [0, 1]
    with pytest.raises(TypeError, match="is no stream"):
        context.fence("a")
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(4, device="cuda")
    with torch.cuda.graph(graph):
        x += 1
        with pytest.raises(RuntimeError, match="is being captured into a graph"):
            context.fence(torch.cuda.current_stream())
    graph.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [1] * 4


def test_calls_of_many_streams_and_threads(device: hostcall.Device) -> None:
    @device.service(number=701, batch={"x": hostcall.u64}, result=hostcall.u64)
    def many(calls: np.ndarray[Any, Any]) -> Any:
        return 3 * calls["x"] + 1

    device.on_post(number=702, batch={"lane": hostcall.u64})(lambda posts: None)
    contexts = [device.context(f"stream {i}") for i in range(4)]
    failed: list[BaseException] = []

    def work(context: hostcall.Context) -> None:
        try:
            with cupy.cuda.Stream(non_blocking=True) as stream:
                for _ in range(20):
                    out = launch(context, 701, 4, 777)
                    stream.synchronize()
                    assert cupy.asnumpy(out).tolist() == [81 * lane + 40 for lane in range(777)]
                context.flush()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("staged", [False, True])
def test_records_of_a_running_kernel_of_cupys_are_arrays(device: hostcall.Device, staged: bool) -> None:
    context = device.context("records")
    # A page of 64 KiB for each of its waves, and more.
    channel = device.channel([("lane", "u8"), ("square", "u8")], pages=2048, staged=staged)
    squares = hostcall.cupy.module(SOURCE).get_function("squares")
    blocks, rounds = 264, 2000
    seen_while_it_ran = 0
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            squares((blocks,), (128,), (np.uint64(int(channel.stream(context))), np.uint32(rounds)))
        finished = stream.record()
        found = np.zeros(blocks * 128 * rounds, bool)
        for page in channel.until(context.fence(stream), timeout=60):
            seen_while_it_ran += len(page) if not finished.done else 0
            records = page.array
            assert (records["square"] == records["lane"] ** 2).all() and page.dropped_before == 0
            found[records["lane"]] = True
        assert found.all()
    counted = channel.statistics()
    assert counted.bytes == 2 * 16 * len(found) and counted.dropped_records == counted.malformed_words == counted.swept_pages == 0
    print(f"{seen_while_it_ran} of {2 * len(found)} records were read while a kernel ran")


def test_records_of_a_replayed_graph_are_arrows_columns(device: hostcall.Device) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")
    context, channel = device.context("replays"), device.channel([("lane", "u8"), ("square", "u8")], pages=1024, page_bytes=4096)
    squares = hostcall.cupy.module(SOURCE).get_function("squares")
    arguments = (np.uint64(int(channel.stream(context))), np.uint32(3))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        squares((4,), (128,), arguments)
        stream.begin_capture()
        squares((4,), (128,), arguments)
        graph = stream.end_capture()
        for _ in range(5):
            graph.launch(stream)
    table = pyarrow.table(channel.until(context.fence(stream), timeout=60))
    lanes = table["lane"].to_numpy()
    assert sorted(lanes) == sorted(list(range(4 * 128 * 3)) * 6) and (table["square"].to_numpy() == lanes**2).all()


def test_prints_of_kernels_go_to_a_function() -> None:
    lines: list[str] = []
    with hostcall.Device.from_torch(timeout=20, output=lines.append) as device:
        context = device.context("prints")
        device.service(number=700)(_next)
        device.on_post(number=702, batch={"lane": hostcall.u64})(lambda posts: None)
        launch(context, 700, 1, 1)
        context.flush(stream=cupy.cuda.get_current_stream())
        device.synchronize()
    assert lines == ["lane 0 of chain"]


def _next(x: hostcall.u64) -> hostcall.u64:
    return x + 1


def test_lost_calls_are_told_where_one_waits(device: hostcall.Device) -> None:
    context = device.context("lost")
    device.on_post(number=702, batch={"lane": hostcall.u64})(lambda posts: None)
    launch(context, 799, 1, 64)
    with pytest.warns(hostcall.LostCalls, match="64 calls of `lost` to 799 found no service of this number"):
        with pytest.raises(hostcall.KernelPanic):
            context.flush(stream=cupy.cuda.get_current_stream())
