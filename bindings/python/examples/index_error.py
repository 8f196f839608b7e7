# %% [markdown]
# # An index out of range is an exception, and the process lives on
# PyTorch's own assertion on the device ends the process's whole use of the GPU: after it each call fails with `device-side assert
# triggered`. A check of hostcall's is told to the host while the kernel goes on; Python raises it, and the next call works.

# %%
from __future__ import annotations

import time

import torch
import triton
import triton.language as tl

import hostcall
import hostcall.triton as ht

ROWS, COLUMNS, CALLS, BAD = 1000, 16, 30, 13


# %% [markdown]
# The kernel reads nothing where an index is wrong, and says so.


# %%
@triton.jit
def gather(table, index, out, context, rows, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + i, mask=i < n, other=0)
    is_good = (at >= 0) & (at < rows)
    ht.check(context, is_good, "the index is in the table", mask=i < n)
    column = tl.arange(0, COLUMNS)
    mask = (is_good & (i < n))[:, None]
    value = tl.load(table + at[:, None] * COLUMNS + column[None, :], mask=mask, other=0.0)
    tl.store(out + i[:, None] * COLUMNS + column[None, :], value, mask=(i < n)[:, None])


class Embedding:
    def __init__(self, table: torch.Tensor, context: hostcall.Context) -> None:
        self.table, self.context = table, context

    def __call__(self, index: torch.Tensor) -> torch.Tensor:
        n, columns = index.numel(), self.table.shape[1]
        out = torch.empty(n, columns, device="cuda")
        grid = (triton.cdiv(n, 128),)
        gather[grid](self.table, index, out, int(self.context), self.table.shape[0], n, COLUMNS=columns, BLOCK=128)
        self.context.flush(stream=torch.cuda.current_stream())
        return out


# %%
device = hostcall.Device.from_torch()
table = torch.arange(ROWS, device="cuda", dtype=torch.float32).repeat_interleave(COLUMNS).reshape(ROWS, COLUMNS)
embedding = Embedding(table, device.context("embedding"))
# Compiles the kernel.
embedding(torch.zeros(1, device="cuda", dtype=torch.int64))

# %% [markdown]
# Thirty calls, of which one gets two indices that are none.

# %%
panics: dict[int, hostcall.KernelPanic] = {}
milliseconds = []
for call in range(CALLS):
    index = torch.randint(0, ROWS, (5000,), device="cuda")
    if call == BAD:
        index[[123, 4000]] = ROWS
    torch.cuda.synchronize()
    began = time.perf_counter()
    try:
        out = embedding(index)
        assert torch.equal(out[:, 0].long(), index)
    except hostcall.KernelPanic as panic:
        panics[call] = panic
        print(f"call {call}: {panic}")
    milliseconds.append(1e3 * (time.perf_counter() - began))
print(f"{CALLS - len(panics)} of {CALLS} calls have their rows")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(num="index-error", figsize=(8, 3), layout="constrained")
good = [call for call in range(CALLS) if call not in panics]
axes.plot(good, [milliseconds[call] for call in good], "o", color="tab:blue", label="its rows are right")
axes.plot(list(panics), [milliseconds[call] for call in panics], "X", color="tab:red", markersize=10, label="KernelPanic")
for call, panic in panics.items():
    place = f"{panic.message}:\nblock {panic.block[0]}, thread {panic.thread[0]}, and {panic.count - 1} more"
    axes.annotate(place, (call, milliseconds[call]), (12, -4), textcoords="offset points", color="tab:red", va="top")
axes.set(xlabel="call", ylabel="ms until Python has it", ylim=(0, 1.6 * max(milliseconds)), title="A wrong index in one call of thirty")
axes.legend(loc="upper right")
plt.show()

# %%
device.close()
