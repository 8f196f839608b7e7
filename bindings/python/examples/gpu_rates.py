"""How many calls of a GPU's kernels functions of Python answer in a second, and what checks, posts and trace points cost kernels in Triton:
``python gpu_rates.py``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch
import triton
import triton.language as tl
import triton.profiler as proton
import triton.profiler.language as pl
from rates import serve

import hostcall
import hostcall.cupy
import hostcall.triton as ht

SOURCE = r"""
#include "hostcall_device.h"
extern "C" __global__ void calls(uint64_t context, uint64_t method, uint32_t rounds) {
    uint64_t x = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t round = 0; round < rounds; round++)
        if (hostcall_call_words(context, HOSTCALL_METHOD(method, 0), &x, 1, &x, 1, 0) != HOSTCALL_CALL_OK)
            return;
}
extern "C" __global__ void posts(uint64_t context, uint64_t method, uint32_t rounds) {
    uint64_t x = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t round = 0; round < rounds; round++, x++)
        hostcall_post_words(context, HOSTCALL_METHOD(method, 0), &x, 1);
}
extern "C" __global__ void counters(uint64_t context, const hostcall_raw_stream *, uint32_t rounds) {
    for (uint32_t round = 0; round < rounds; round++)
        hostcall_counter(context, "round", round);
}
extern "C" __global__ void untraced(uint64_t context, const hostcall_raw_stream *, uint32_t rounds) {
    const uint64_t traced = hostcall_traced(context);
    for (uint32_t round = 0; round < rounds; round++) {
        hostcall_counter(traced, "round", round);
        asm volatile("");
    }
}
extern "C" __global__ void spans(uint64_t context, const hostcall_raw_stream *, uint32_t rounds) {
    for (uint32_t round = 0; round < rounds; round++) {
        hostcall_span(context, "round");
    }
}
struct record {
    uint64_t at, head, owner, value;
};
extern "C" __global__ void records(uint64_t, const hostcall_raw_stream *at, uint32_t rounds) {
    const hostcall_raw_stream out = *at;
    hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    if (threadIdx.x % 32 == 0) {
        for (uint64_t round = 0; round < rounds; round++) {
            const record one = {round, round, round, round};
            hostcall_raw_record(&out, &writer, &one, sizeof one);
        }
        hostcall_raw_close(&out, &writer);
    }
}
"""

# What a kernel has more; 0 and 1 are nothing.
CHECK, POST, ASSERT, SPAN, STEPS, SCOPE, RING = (tl.constexpr(i) for i in range(2, 9))


@triton.jit
def matmul(a, b, c, context, n, WHAT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    k = tl.arange(0, K)
    sums = tl.zeros((M, N), tl.float32)
    for at in range(0, n, K):
        x = tl.load(a + row[:, None] * n + (at + k)[None, :])
        y = tl.load(b + (at + k)[:, None] * n + column[None, :])
        sums += tl.dot(x, y)
    if WHAT == POST:
        # One program: posts of all would wait for Python.
        ht.post(context, 704, tl.program_id(0), tl.program_id(1), mask=(tl.program_id(0) == 0) & (tl.program_id(1) == 0))
    if WHAT == CHECK:
        ht.check(context, sums == sums, "the product is a number")
    if WHAT == ASSERT:
        tl.device_assert(sums == sums, "the product is a number")
    tl.store(c + row[:, None] * n + column[None, :], sums)


@triton.jit
def attention(q, k, v, out, context, ring, n, WHAT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    if WHAT == SPAN:
        whole = ht.begin(context, "attend")
    if WHAT == SCOPE:
        pl.enter_scope("attend")
    if WHAT == RING:
        began = tl.extra.cuda.globaltimer()
    row, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    head = tl.program_id(1).to(tl.int64) * n * D
    query = tl.load(q + head + row[:, None] * D + d[None, :])
    most = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for at in range(0, n, N):
        if WHAT == STEPS:
            step = ht.begin(context, "step")
        column = at + tl.arange(0, N)
        key = tl.load(k + head + d[:, None] + column[None, :] * D)
        score = tl.dot(query, key)
        next = tl.maximum(most, tl.max(score, 1))
        weight, before = tl.exp(score - next[:, None]), tl.exp(most - next)
        value = tl.load(v + head + column[:, None] * D + d[None, :])
        total, most = total * before + tl.sum(weight, 1), next
        sums = sums * before[:, None] + tl.dot(weight.to(tl.float16), value)
        if WHAT == STEPS:
            ht.end(context, "step", step)
    if WHAT == POST:
        ht.post(context, 704, tl.program_id(0), tl.program_id(1), mask=(tl.program_id(0) == 0) & (tl.program_id(1) == 0))
    if WHAT == CHECK:
        ht.check(context, total > 0, "weights add up")
    if WHAT == ASSERT:
        tl.device_assert(total > 0, "weights add up")
    tl.store(out + head + row[:, None] * D + d[None, :], (sums / total[:, None]).to(tl.float16))
    if WHAT == SPAN:
        ht.end(context, "attend", whole)
    if WHAT == SCOPE:
        pl.exit_scope("attend")
    if WHAT == RING:
        place = ring + 2 * (tl.program_id(0) + tl.program_id(1) * tl.num_programs(0))
        tl.store(place, began)
        tl.store(place + 1, tl.extra.cuda.globaltimer())


def rates(device: hostcall.Device) -> None:
    sizes = serve(device)
    code, context = hostcall.cupy.module(SOURCE), device.context("rates")
    for kernel, method, name, grids in [
        ("calls", 700, "single calls", [(1, 1), (1, 32), (132, 32)]),
        ("calls", 701, "calls in batches", [(1, 32), (132, 32), (132, 256), (528, 256)]),
        ("posts", 703, "posts in batches", [(1, 32), (132, 32), (132, 256)]),
    ]:
        # The first launch loads the code.
        code.get_function(kernel)((1,), (1,), (np.uint64(int(context)), np.uint64(method), np.uint32(1)))
        cupy.cuda.get_current_stream().synchronize()
        for blocks, threads in grids:
            rounds, took = 4, 0.0
            while took < 0.5:
                rounds *= 4
                sizes.clear()
                began = time.perf_counter()
                code.get_function(kernel)((blocks,), (threads,), (np.uint64(int(context)), np.uint64(method), np.uint32(rounds)))
                cupy.cuda.get_current_stream().synchronize()
                context.flush()
                took = time.perf_counter() - began
            each = f", {np.mean(sizes):.0f} at once" if sizes else ""
            print(f"{name:17} {blocks:3} × {threads:3} lanes: {blocks * threads * rounds / took:12,.0f} /s{each}", flush=True)


def weights(device: hostcall.Device) -> None:
    @device.on_post(number=704, batch={"x": hostcall.u32, "y": hostcall.u32})
    def placed(posts: np.ndarray[Any, Any]) -> None: ...

    context = int(device.context("weights"))
    n = 4096
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(n, n, device="cuda")
    heads, length, wide = 64, 4096, 64
    q, k, v = (torch.randn(heads, length, wide, device="cuda", dtype=torch.float16) * 0.1 for _ in range(3))
    out = torch.empty_like(q)

    def product(what: int) -> Any:
        grid = (n // 128, n // 128)
        return matmul[grid](a, b, c, context, n, WHAT=what, M=128, N=128, K=64, num_warps=8, debug=what == ASSERT.value)

    def attend(what: int) -> Any:
        grid = (length // 64, heads)
        return attention[grid](q, k, v, out, context, out, length, WHAT=what, M=64, N=64, D=wide, debug=what == ASSERT.value)

    for name, run in (("matrix product", product), ("attention", attend)):
        names = {0: "nothing", 1: "nothing, again", 2: "a check", 3: "a post", 4: "Triton's own assertion"}
        made = {what: run(what) for what in names}
        times: dict[int, list[float]] = {what: [] for what in names}
        # In another order each time: a GPU's clock depends on what it has done just before.
        order = np.random.default_rng(1)
        for _ in range(60):
            for what in order.permutation(list(names)).tolist():
                times[what].append(triton.testing.do_bench(lambda: run(what), warmup=15, rep=30, return_mode="median"))
        plain = float(np.median(times[0] + times[1]))
        for what, called in names.items():
            us = 1000 * float(np.median(times[what]))
            registers = f"{made[what].n_regs} registers, {made[what].n_spills} spilled"
            print(f"{name} with {called}: {us:.1f} us, {us / plain / 1000:.4f} of both without, {registers}", flush=True)


def telemetry() -> None:
    """What a span of each program of an attention kernel costs that nobody records, and that a file records, beside two stores a program and
    Triton's Proton."""
    heads, length, wide = 64, 4096, 64
    q, k, v = (torch.randn(heads, length, wide, device="cuda", dtype=torch.float16) * 0.1 for _ in range(3))
    out, ring = torch.empty_like(q), torch.zeros(2 * heads * length // 64, device="cuda", dtype=torch.int64)
    pl.enable_semantic("triton")
    with tempfile.TemporaryDirectory() as folder:
        tracer = hostcall.Tracer(Path(folder) / "attend.trace")
        with hostcall.Device.from_torch() as plain, hostcall.Device.from_torch(trace=tracer) as traced:
            off, on = (int(device.context("attention")) for device in (plain, traced))

            def attend(what: int, context: int, rows: int = 64, columns: int = 64, warps: int = 4) -> Any:
                grid = (length // rows, heads)
                return attention[grid](
                    q, k, v, out, context, ring, length, WHAT=what, M=rows, N=columns, D=wide, num_warps=warps
                )

            for shape in [(64, 64, 4), (128, 64, 8), (128, 32, 4), (64, 32, 4)]:
                in_turn = ([], [], [])
                for _ in range(30):
                    for what, times_of in zip((0, SPAN.value, 1), in_turn, strict=True):
                        time_ms = triton.testing.do_bench(lambda: attend(what, off, *shape), warmup=5, rep=20, return_mode="median")
                        times_of.append(time_ms)
                without, with_span, again = (float(np.median(times_of)) for times_of in in_turn)
                print(f"attention {shape} with a span, not recorded: {2 * with_span / (without + again):.4f} ({again / without:.4f})", flush=True)

            ways = {
                "nothing": (0, off),
                "nothing, again": (1, off),
                "a span, not recorded": (SPAN.value, off),
                "a span a step, not recorded": (STEPS.value, off),
                "two stores": (RING.value, off),
                "a span, recorded": (SPAN.value, on),
            }
            made = {name: attend(*way) for name, way in ways.items()}
            times: dict[str, list[float]] = {name: [] for name in ways}
            order = np.random.default_rng(1)
            for _ in range(40):
                for name in order.permutation(list(ways)).tolist():
                    way = ways[name]
                    times[name].append(triton.testing.do_bench(lambda: attend(*way), warmup=10, rep=25, return_mode="median"))
            plain_ms = float(np.median(times["nothing"] + times["nothing, again"]))
            for name, ms in times.items():
                us = 1000 * float(np.median(ms))
                rate = f", {2 * heads * length / 64 / us:.1f} M events/s" if ways[name][1] == on else ""
                print(f"attention with {name}: {us:.1f} us, {us / plain_ms / 1000:.4f} of both without, {made[name].n_regs} registers{rate}", flush=True)
        print(tracer.finish())
        try:
            session = proton.start(str(Path(folder) / "proton"), data="trace", backend="instrumentation")
            attend_ms = [triton.testing.do_bench(lambda: attend(SCOPE.value, off), warmup=10, rep=25, return_mode="median") for _ in range(10)]
            us = 1000 * float(np.median(attend_ms))
            print(f"attention with a scope of Proton's: {us:.1f} us, {us / plain_ms / 1000:.4f} of both without", flush=True)
            proton.finalize(session)
        except Exception as error:  # What it needs differs between versions.
            print(f"Proton does not run here: {error!r}", flush=True)


def points() -> None:
    """What trace points of a wave take, beside bare records of 32 bytes, and where nobody traces."""
    with tempfile.TemporaryDirectory() as folder:
        tracer = hostcall.Tracer(Path(folder) / "points.trace")
        with hostcall.Device.from_torch() as plain, hostcall.Device.from_torch(trace=tracer) as traced:
            code = hostcall.cupy.module(SOURCE)
            for name, device, kernel in [
                ("records", plain, "records"),
                ("counters", traced, "counters"),
                ("spans", traced, "spans"),
                ("counters, untraced", plain, "counters"),
                ("with hostcall_traced", plain, "untraced"),
            ]:
                context, channel = device.context(name), device.channel("u8", pages=4096, page_bytes=4096)
                function, stream = code.get_function(kernel), channel.stream(context)

                def run(blocks: int, threads: int, rounds: int) -> float:
                    began, ended = cupy.cuda.Event(), cupy.cuda.Event()
                    began.record()
                    function((blocks,), (threads,), (np.uint64(int(context)), np.uint64(int(stream)), np.uint32(rounds)))
                    ended.record()
                    ended.synchronize()
                    return float(cupy.cuda.get_elapsed_time(began, ended))

                for blocks, threads in [(1, 1), (1, 32), (132, 32), (132, 256)]:
                    waves = blocks * ((threads + 31) // 32)
                    # No more than its pages have room for while the host reads.
                    rounds = 2000 if waves == 1 else max(8, 30_000 // waves)
                    run(blocks, threads, 1)
                    took = []
                    for _ in range(15):
                        for _ in channel.rest():
                            pass
                        time.sleep(0.02)
                        # The first launch after a pause takes longer.
                        run(blocks, threads, 0)
                        took.append(run(blocks, threads, rounds) - run(blocks, threads, 0))
                    each = 1e6 * float(np.median(took)) / rounds
                    print(f"{name:20} {blocks:3} × {threads:3} lanes: {each:8.1f} ns a wave's, {1e3 * waves / each:8.1f} M/s", flush=True)
            cupy.cuda.get_current_stream().synchronize()
        print(tracer.finish())


def main() -> None:
    telemetry()
    points()
    with hostcall.Device.from_torch() as device:
        rates(device)
        weights(device)


if __name__ == "__main__":
    main()
