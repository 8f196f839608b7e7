"""Kernels in HIP on the GPU in software, and memory that is shared."""

from __future__ import annotations

import ctypes
import gc
import queue
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Kernels

import hostcall


KERNELS = Path(__file__).with_name("gfx942.hip")
CLANG = ["--cuda-device-only", "-nogpuinc", "-nogpulib", "-std=c++17", "-O2", "-Wall", "-Werror"]
CLANG += ["-include", "hostcall_gpu.h", "-I", hostcall.include()]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clang = shutil.which("clang-22")
    if clang is None:
        pytest.skip("there is no clang-22")
    out = tmp_path_factory.mktemp("gfx942") / "kernels.co"
    command = [clang, "-x", "hip", "--offload-arch=gfx942", "--no-gpu-bundle-output", *CLANG, str(KERNELS), "-o", str(out)]
    subprocess.run(command, check=True)
    return out


def test_clang_compiles_kernels_for_nvidia_without_cuda(tmp_path: Path) -> None:
    clang = shutil.which("clang-22")
    if clang is None:
        pytest.skip("there is no clang-22")
    out = tmp_path / "kernels.ptx"
    command = [clang, "-x", "cuda", "--cuda-gpu-arch=sm_90", "--cuda-feature=+ptx78", *CLANG, "-S", str(KERNELS), "-o", str(out)]
    subprocess.run(command, check=True)
    assert all(f".entry {kernel}(" in out.read_text() for kernel in ("chain", "sums", "squares", "squares_at"))


def test_kernels_in_hip_call_python(code: Path) -> None:
    posts: list[int] = []
    with hostcall.Device("gfx942", timeout=60) as device:
        assert device.target == "gfx942" and device.wave_lanes == 64

        @device.service(number=700, batch={"x": hostcall.u64}, result=hostcall.u64)
        def many(calls: "np.ndarray[Any, Any]") -> Any:
            return 3 * calls["x"] + 1

        @device.service(number=701)
        def single(x: hostcall.u64) -> hostcall.u64:
            if x == 1_000:
                raise KeyError(x)
            return 3 * x + 1

        @device.on_post(number=702)
        def note(x: hostcall.u64) -> None:
            posts.append(x)

        kernels, context = device.load(code), device.context("hip")
        for method in (700, 701):
            posts.clear()
            out = device.buffer(300, "u8")
            launch = kernels.launch("chain", 5, 64, context, out, np.uint32(300), ctypes.c_uint32(method), np.uint32(3))
            launch.wait(timeout=60)
            expected = [27 * lane + 13 for lane in range(300)]
            assert np.asarray(out).tolist() == expected
            with pytest.raises(hostcall.KernelPanic) as raised:
                context.flush()
            assert raised.value.message == "`lane % 50 != 49` does not hold" and raised.value.count == 6
            # The first of them to be told: of threads 49, 99, … of the launch.
            panic = raised.value
            thread = panic.block[0] * 64 + panic.thread[0]
            assert thread % 50 == 49 and panic.lane == panic.thread[0]
            assert raised.value.kernel == "hip" and raised.value.file.endswith("gfx942.hip")
            assert sorted(posts) == expected

        for arguments, error in [((context, out, 3), "argument 2 is 3"), ((context, out), "argument"), ((np.uint8(1),) * 5, "argument")]:
            with pytest.raises((TypeError, RuntimeError), match=error):
                kernels.launch("chain", 1, 64, *arguments)
        with pytest.raises(RuntimeError, match="missing"):
            kernels.launch("missing", 1, 64)
        with pytest.raises(ValueError, match="one to three numbers"):
            kernels.launch("chain", (1, 1, 1, 1), 64)


def test_a_kernel_that_waits_for_python_is_waited_for_with_a_limit(code: Path) -> None:
    with hostcall.Device("gfx942", timeout=1.0) as device:

        @device.service(number=701)
        def never(x: hostcall.u64) -> hostcall.u64:
            import time

            time.sleep(3)
            return x

        kernels, context, out = device.load(code), device.context("slow"), device.buffer(1, "u8")
        launch = kernels.launch("chain", 1, 1, context, out, np.uint32(1), np.uint32(701), np.uint32(1))
        with pytest.raises(TimeoutError, match="chain has not ended"):
            launch.wait(timeout=0.2)
        # Its call ends at the service's deadline.
        launch.wait(timeout=60)
        assert np.asarray(out)[0] == 2**64 - 1


def test_a_posted_function_does_not_wait_for_its_kernel(code: Path) -> None:
    """The launch ends once its posts were handled: neither a wait there nor the last reference to it may wait for that."""
    with hostcall.Device("gfx942") as device:
        launches: queue.SimpleQueue[Any] = queue.SimpleQueue()
        told: queue.SimpleQueue[str] = queue.SimpleQueue()

        @device.service(number=701)
        def next(x: hostcall.u64) -> hostcall.u64:
            return x + 1

        @device.on_post(number=702)
        def posted(lane: hostcall.u64) -> None:
            launch = launches.get()
            try:
                launch.wait()
            except RuntimeError as error:
                told.put(str(error))
            del launch
            gc.collect()
            told.put("dropped")

        context, out = device.context("posts"), device.buffer(1, "u8")
        launches.put(device.load(code).launch("chain", 1, 1, context, out, np.uint32(1), np.uint32(701), np.uint32(1)))
        assert "a function that kernels call waits for such functions" in told.get(timeout=60)
        assert told.get(timeout=60) == "dropped"
        context.flush(timeout=60)


def test_buffers_are_arrays_of_others(kernels: Kernels) -> None:
    device = hostcall.Device("cpu")
    buffer = device.buffer((4, 6), "f4")
    array = np.asarray(buffer)
    assert array.shape == (4, 6) and array.dtype == np.float32 and not array.any() and len(buffer) == 4
    array[1, 2] = 7
    other = np.from_dlpack(buffer)  # type: ignore[arg-type]
    assert other[1, 2] == 7 and np.shares_memory(array, other)
    records = device.buffer(3, np.dtype([("a", "u4"), ("b", "f4")]))
    np.asarray(records)["a"] = 5
    assert np.asarray(records).tolist() == [(5, 0.0)] * 3
    words = device.buffer(48, "u8")
    device.service(number=700, batch={"x": hostcall.u64}, result=hostcall.u64)(lambda calls: calls["x"] + 1)
    # What kernels write is there without a copy; on `cpu` its address is the host's.
    out = ctypes.cast(words.address, ctypes.POINTER(ctypes.c_uint64))
    kernels.free.chain(ctypes.c_uint64(int(device.context("arrays"))), ctypes.c_uint64(700), 48, 2, out)
    assert np.asarray(words).tolist() == [lane + 2 for lane in range(48)]
    # The memory stays as long as an array of it.
    device.close()
    del buffer, device
    gc.collect()
    assert array[1, 2] == 7
    with pytest.raises(TypeError, match="Python's objects"):
        hostcall.Device("cpu").buffer(1, object)


def test_a_buffer_stays_what_it_is() -> None:
    with hostcall.Device("cpu") as device:
        buffer = device.buffer((np.int64(2), 3), "u8")
        assert buffer.shape == (2, 3) and buffer.nbytes == 48 and device.buffer(np.uint8(4)).shape == (4,)
        for name, value in [("shape", (1 << 20,)), ("dtype", np.dtype("u1")), ("nbytes", 1), ("address", 0)]:
            with pytest.raises(AttributeError):
                setattr(buffer, name, value)
        with pytest.raises(TypeError):
            device.buffer(2.0)  # type: ignore[arg-type]


def test_an_empty_buffer_is_one() -> None:
    with hostcall.Device("cpu") as device:
        assert np.asarray(device.buffer(0, "u8")).shape == (0,)
        with pytest.raises(ValueError, match="negative"):
            device.buffer(-1)


def test_blocks_share_memory_and_know_the_grid(code: Path) -> None:
    sizes: list[tuple[int, ...]] = []
    with hostcall.Device("gfx942", timeout=60) as device:

        @device.on_post(number=703)
        def grid(x: hostcall.u32, y: hostcall.u32, z: hostcall.u32) -> None:
            sizes.append((x, y, z))

        context, out = device.context("sums"), device.buffer(6, "u8")
        device.load(code).launch("sums", 6, 128, context, out).wait(timeout=60)
        context.flush()
        assert np.asarray(out).tolist() == [sum(range(128 * block, 128 * (block + 1))) for block in range(6)]
        assert sizes == [(6, 1, 1)]


def test_channels_are_arguments_by_value_and_by_address(code: Path) -> None:
    with hostcall.Device("gfx942", timeout=60) as device:
        channel = device.channel([("lane", "u8"), ("square", "u8")], pages=64, page_bytes=4096)
        kernels, context = device.load(code), device.context("channel")
        for kernel, argument in (("squares", channel), ("squares_at", np.uint64(int(channel.stream(context))))):
            launch = kernels.launch(kernel, 10, 64, argument)
            found = np.concatenate([page.array for page in channel.until(launch, timeout=60)])
            assert launch.is_done()
            launch.wait()
            assert sorted(found["lane"].tolist()) == list(range(640))
            assert (found["square"] == found["lane"] ** 2).all()
        assert channel.statistics().swept_pages == 0


def test_kernels_in_hip_post_to_a_queue(code: Path) -> None:
    with hostcall.Device("gfx942") as device, device.post_queue("hip", waves=4) as queue:
        launch, found = device.load(code).launch("messages", 5, 64, queue, np.uint32(9)), []
        while not launch.is_done() or queue.has_posts():
            found.append(queue.poll(timeout=0.05))
        launch.wait(timeout=60)
        words = np.concatenate([posts.of(9, ("u8", 16)) for posts in found])
        assert sorted(words.ravel().tolist()) == list(range(16 * 5 * 64))
        assert {post.block for posts in found for post in posts} == set(range(5))
