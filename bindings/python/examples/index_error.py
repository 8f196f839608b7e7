# %% [markdown]
# # An index out of range is an exception, and the process lives on
# PyTorch's own assertion on the device ends the process's whole use of the GPU: after it each call fails with `device-side assert
# triggered`. A check of hostcall's is told to the host while the kernel goes on; Python raises it, and the next call works.

# %%
from __future__ import annotations

import torch
import triton
import triton.language as tl

import hostcall
import hostcall.triton as ht


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


# %%
class Embedding:
    def __init__(self, table: torch.Tensor, context: hostcall.Context) -> None:
        self.table, self.context = table, context

    def __call__(self, index: torch.Tensor) -> torch.Tensor:
        n, columns = index.numel(), self.table.shape[1]
        out = torch.empty(n, columns, device="cuda")
        grid = (triton.cdiv(n, 128),)
        gather[grid](self.table, index, out, int(self.context), self.table.shape[0], n, COLUMNS=columns, BLOCK=128)
        torch.cuda.synchronize()
        self.context.flush()
        return out


# %%
def main() -> hostcall.KernelPanic | None:
    caught = None
    with hostcall.Device.from_torch() as device:
        table = torch.arange(1000, device="cuda", dtype=torch.float32).repeat_interleave(16).reshape(1000, 16)
        embedding = Embedding(table, device.context("embedding"))
        good = torch.randint(0, 1000, (5000,), device="cuda")
        bad = good.clone()
        bad[[123, 4000]] = 1000
        for name, index in (("good", good), ("bad", bad), ("good again", good)):
            try:
                out = embedding(index)
                assert torch.equal(out[:, 0].long(), index)
                print(f"{name}: {len(out)} rows")
            except hostcall.KernelPanic as panic:
                caught = panic
                print(f"{name}: {panic}")
    return caught


if __name__ == "__main__":
    main()
