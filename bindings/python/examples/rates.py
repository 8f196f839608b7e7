"""How many calls of kernels on the device ``cpu`` a function of Python answers in a second: ``python rates.py [SECONDS]``.

The kernels are threads in C++; each waits for its answer before it calls again. On few cores it is they who are slow: of a GPU,
thousands of lanes wait at the same time.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import hostcall

SOURCE = r"""
#include "hostcall_device.h"
#include <thread>
#include <vector>
extern "C" void calls(uint64_t context, uint64_t method, uint32_t lanes, uint32_t rounds) {
    std::vector<std::thread> threads;
    for (uint64_t lane = 0; lane < lanes; lane++)
        threads.emplace_back([=] {
            uint64_t x = lane;
            for (uint32_t round = 0; round < rounds; round++)
                if (hostcall_call_words(context, HOSTCALL_METHOD(method, 0), &x, 1, &x, 1, 0) != HOSTCALL_CALL_OK)
                    break;
        });
    for (auto &thread : threads)
        thread.join();
}
extern "C" void posts(uint64_t context, uint64_t method, uint32_t lanes, uint32_t rounds) {
    std::vector<std::thread> threads;
    for (uint64_t lane = 0; lane < lanes; lane++)
        threads.emplace_back([=] {
            for (uint64_t round = 0; round < rounds; round++)
                hostcall_post_words(context, HOSTCALL_METHOD(method, 0), &round, 1);
        });
    for (auto &thread : threads)
        thread.join();
}
"""


def serve(device: hostcall.Device) -> list[int]:
    """Serves what the kernels call and post to, one by one and in batches. Returns the sizes of the batches, as they come."""
    sizes: list[int] = []

    @device.service(number=700)
    def single(x: hostcall.u64) -> hostcall.u64:
        return x + 1

    @device.service(number=701, batch={"x": hostcall.u64}, result=hostcall.u64)
    def batch(calls: np.ndarray[Any, Any]) -> Any:
        sizes.append(len(calls))
        return calls["x"] + 1

    @device.on_post(number=702)
    def post(x: hostcall.u64) -> None: ...

    @device.on_post(number=703, batch={"x": hostcall.u64})
    def posts(calls: np.ndarray[Any, Any]) -> None:
        sizes.append(len(calls))

    return sizes


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory() as folder, hostcall.Device("cpu") as device, device.context("rates") as context:
        source, library = Path(folder, "rates.cpp"), Path(folder, "rates.so")
        source.write_text(SOURCE)
        command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", "-I", hostcall.include(), source, "-o", library]
        subprocess.run(command, check=True)
        kernels = ctypes.CDLL(str(library))

        sizes = serve(device)
        for kernel, method, name in [
            (kernels.calls, 700, "single calls"),
            (kernels.calls, 701, "calls in batches"),
            (kernels.posts, 702, "single posts"),
            (kernels.posts, 703, "posts in batches"),
        ]:
            for lanes in (1, 8, 64):
                rounds, took = 16, 0.0
                while took < seconds:
                    rounds *= 4
                    sizes.clear()
                    began = time.perf_counter()
                    kernel(ctypes.c_uint64(int(context)), ctypes.c_uint64(method), lanes, rounds)
                    context.flush()
                    took = time.perf_counter() - began
                each = f", {np.mean(sizes):.1f} at once" if sizes else ""
                print(f"{name:17} {lanes:3} lanes: {lanes * rounds / took:12,.0f} /s{each}", flush=True)


if __name__ == "__main__":
    main()
