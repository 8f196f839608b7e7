"""Kernels of others that do not end, in a process that is ended and replaced; post queues and traces of CuPy's kernels."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostcall

sys.path.insert(0, str(Path(__file__).parent))
cupy: Any = pytest.importorskip("cupy")

import hostcall.cupy  # noqa: E402

SOURCE = r"""
#include "hostcall_device.h"
extern "C" __global__ void spin(volatile uint64_t *flag) {
    while (*flag == 0) {
    }
}
extern "C" __global__ void ask(uint64_t context, uint64_t *out) {
    const uint64_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t status = hostcall_call_words(context, HOSTCALL_METHOD(700, 0), &lane, 1, &out[lane], 1, 0);
    hostcall_check(context, status == HOSTCALL_CALL_OK);
}
extern "C" __global__ void send(uint64_t queue, uint32_t rounds) {
    const uint64_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint64_t round = 0; round < rounds; round++) {
        const uint64_t words[3] = {lane, round, lane * round};
        while (!hostcall_post_message(queue, 7, words, 3)) {
        }
    }
}
extern "C" __global__ void traced(uint64_t context, uint32_t steps, float *out) {
    float sum = threadIdx.x;
    hostcall_span(context, "all steps");
    for (uint32_t step = 0; step < steps; step++) {
        hostcall_span_begin(context, one, "one step");
        sum = sum * 0.5f + step;
        hostcall_counter(context, "sum", sum);
        hostcall_span_end(context, one);
    }
    hostcall_event(context, "block {} has {}", blockIdx.x, sum);
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""


def spins() -> None:
    flag = cupy.zeros(1, cupy.uint64)
    hostcall.cupy.module(SOURCE).get_function("spin")((1,), (1,), (flag,))
    print("the kernel runs", flush=True)
    cupy.cuda.get_current_stream().synchronize()


def asks(lanes: int, refuses: bool) -> list[int]:
    with hostcall.Device.from_torch() as device:

        @device.service(number=700)
        def triple(x: hostcall.u64) -> hostcall.u64:
            if refuses:
                raise KeyError(x)
            return 3 * x

        context, out = device.context("asks"), cupy.zeros(lanes, cupy.uint64)
        hostcall.cupy.module(SOURCE).get_function("ask")((1,), (lanes,), (np.uint64(int(context)), out))
        cupy.cuda.get_current_stream().synchronize()
        context.flush()
        return [int(value) for value in out.get()]


def test_a_kernel_that_does_not_end_is_told_and_its_process_replaced() -> None:
    sys.modules.setdefault("test_processes", sys.modules[__name__])
    with hostcall.Worker() as worker:
        good = worker.run(asks, [32, False], timeout=120)
        assert good.ok and good.value == [3 * lane for lane in range(32)], good
        hung = worker.run(spins, timeout=5)
        assert hung.ended == "killed" and not hung.ok and "the kernel runs" in hung.stdout and hung.seconds < 12, hung
        again = worker.run(asks, [32, False], timeout=120)
        assert again.ok, again
        failed = worker.run(asks, [4, True], timeout=120)
        assert not failed.ok and "KeyError" in str(failed.error), failed
    print(f"hung: {hung.seconds:.2f} s with a limit of 5 s; fresh process and context {again.seconds:.2f} s; kept {failed.seconds:.2f} s")


def test_a_post_queue_has_each_message_once() -> None:
    lanes, rounds = 4 * 128, 200
    with hostcall.Device.from_torch() as device, device.post_queue("sends", waves=64) as queue:
        hostcall.cupy.module(SOURCE).get_function("send")((4,), (128,), (np.uint64(int(queue)), np.uint32(rounds)))
        found = np.zeros((lanes, rounds), bool)
        while not found.all():
            posts = queue.poll(timeout=20)
            assert posts, f"{found.sum()} of {found.size} posts"
            words = posts.of(7, [("lane", "u8"), ("round", "u8"), ("product", "u8")])
            assert (words["product"] == words["lane"] * words["round"]).all()
            assert not found[words["lane"], words["round"]].any()
            found[words["lane"], words["round"]] = True
        cupy.cuda.get_current_stream().synchronize()
        assert not queue.has_posts()


def test_points_of_cupys_kernels_are_in_the_trace(tmp_path: Path) -> None:
    blocks, steps = 8, 50
    with hostcall.Tracer(tmp_path / "run.trace") as tracer, hostcall.Device.from_torch(trace=tracer) as device:
        context, out = device.context("relax"), cupy.zeros(32 * blocks, cupy.float32)
        traced = hostcall.cupy.module(SOURCE).get_function("traced")
        for _ in range(3):
            traced((blocks,), (32,), (np.uint64(int(context)), np.uint32(steps), out))
        cupy.cuda.get_current_stream().synchronize()
        context.flush()
        summary = tracer.finish()
    assert summary.lost is None, summary
    trace = (tmp_path / "run.trace").read_bytes()
    assert all(re.search(name, trace) for name in (b"all steps", b"one step", b"block {} has {}"))
