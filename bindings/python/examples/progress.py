# %% [markdown]
# # A progress bar from inside a running kernel
# One launch of CuPy's, which takes a second or two: each block posts how many rows it has done, and `tqdm` shows it meanwhile.

# %%
from __future__ import annotations

import sys
from typing import Any

import cupy
import numpy as np
from tqdm.auto import tqdm

import hostcall
import hostcall.cupy

SOURCE = r"""
#include "hostcall_device.h"
extern "C" __global__ void mandelbrot(uint64_t context, uint32_t *out, uint32_t size, uint32_t limit) {
    for (uint32_t row = blockIdx.x; row < size; row += gridDim.x) {
        for (uint32_t column = threadIdx.x; column < size; column += blockDim.x) {
            const double a = 2.6 * column / size - 2.0, b = 2.6 * row / size - 1.3;
            double x = 0, y = 0;
            uint32_t steps = 0;
            while (steps < limit && x * x + y * y < 4) {
                const double next = x * x - y * y + a;
                y = 2 * x * y + b, x = next, steps++;
            }
            out[(uint64_t)row * size + column] = steps;
        }
        __syncthreads();
        const uint64_t done = 1;
        if (threadIdx.x == 0)
            hostcall_post_words(context, HOSTCALL_METHOD(700, 0), &done, 1);
    }
}
"""


# %%
def main(size: int = 4096, limit: int = 40000) -> tuple[int, int]:
    seen = 0
    before_the_end = 0
    with hostcall.Device("cuda:0") as device, tqdm(total=size, unit="row", file=sys.stderr) as bar:
        finished = cupy.cuda.Event()

        @device.on_post(number=700, batch={"rows": hostcall.u64})
        def rows(posts: Any) -> None:
            nonlocal seen, before_the_end
            seen += int(posts["rows"].sum())
            before_the_end += 0 if finished.done else len(posts)
            bar.update(int(posts["rows"].sum()))

        context, out = device.context("progress"), cupy.empty((size, size), cupy.uint32)
        kernel = hostcall.cupy.module(SOURCE).get_function("mandelbrot")
        context.attend()
        kernel((264,), (256,), (np.uint64(int(context)), out, np.uint32(size), np.uint32(limit)))
        finished.record()
        finished.synchronize()
        context.flush()
    print(f"{seen} rows, {before_the_end} of them seen while the kernel ran")
    return seen, before_the_end


if __name__ == "__main__":
    main()
