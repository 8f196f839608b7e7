# %% [markdown]
# # Progress from inside a running kernel
# One launch of CuPy's, which takes a second or two. Each block posts which of its rows it has done: a bar moves meanwhile, and a
# picture of what is there so far grows in the notebook, whose memory the kernel and NumPy have in common.

# %%
from __future__ import annotations

import builtins
import sys
import time
from typing import Any

import cupy
import matplotlib.pyplot as plt
import numpy as np
from tqdm.auto import tqdm

import hostcall
import hostcall.cupy

SIZE, LIMIT = 4096, 40000
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

# %% [markdown]
# What is posted to 700 moves the bar. `picture` is the kernel's memory, seen by NumPy: a point that is not there yet is 0.

# %%
device = hostcall.Device("cuda:0")
context, out = device.context("progress"), device.buffer((SIZE, SIZE), "u4")
picture = np.asarray(out)
bar = tqdm(total=SIZE, unit="row", file=sys.stderr)
device.progress(bar, number=700)
kernel = hostcall.cupy.module(SOURCE).get_function("mandelbrot")


# %%
def shades() -> Any:
    """Returns a small copy of what is there by now; points that are not are masked."""
    return np.ma.masked_equal(np.log1p(picture[::16, ::16]), 0)


live, axes = plt.subplots(figsize=(4, 4), layout="constrained")
image = axes.imshow(shades(), cmap="magma", vmin=0, vmax=float(np.log1p(LIMIT)))
axes.set_axis_off()
# A notebook has `display`. A plain program has none, and shows the bar alone.
display = getattr(builtins, "display", None)
shown = display(live, display_id=True) if display else None
frames: list[tuple[int, Any]] = []

stream, finished = cupy.cuda.get_current_stream(), cupy.cuda.Event()
kernel((264,), (256,), (np.uint64(int(context)), cupy.asarray(out), np.uint32(SIZE), np.uint32(LIMIT)))
finished.record()
fence = context.fence(stream)
rows_while_it_ran = 0
while not fence.is_done():
    done = int(bar.n)
    rows_while_it_ran = rows_while_it_ran if finished.done else done
    if not frames or done > frames[-1][0]:
        frames.append((done, shades()))
        axes.set_title(f"{done} of {SIZE} rows")
        image.set_data(frames[-1][1])
        if shown:
            shown.update(live)
    time.sleep(0.02)
context.flush()
bar.close()
plt.close(live)
frames.append((int(bar.n), shades()))
print(f"{bar.n} rows, {rows_while_it_ran} of them seen while the kernel ran, in {len(frames)} pictures")

# %% [markdown]
# Four of these pictures. For none of them did the driver copy memory, and there was one launch.

# %%
strip, panels = plt.subplots(1, 4, num="progress", figsize=(9, 2.6), layout="constrained")
for part, panel in enumerate(panels, 1):
    done, shown_then = min(frames, key=lambda frame: abs(frame[0] - part * SIZE / 4))
    panel.imshow(shown_then, cmap="magma", vmin=0, vmax=float(np.log1p(LIMIT)))
    panel.set_facecolor("lightgrey")
    panel.set(title=f"{done} rows", xticks=[], yticks=[])
plt.show()

# %%
device.close()
