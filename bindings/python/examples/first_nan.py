# %% [markdown]
# # The first NaN of a training step that is replayed as a graph
# Hooks of PyTorch are silent in a captured graph: a replay runs kernels alone. A kernel that calls the host is there in each replay.
# Here one looks at what each layer makes, and posts layer, row and column of the first value that is no number.

# %%
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import hostcall
import hostcall.triton as ht

LAYERS = ["up", "gate", "down"]


@triton.jit
def look(x, context, layer, columns, BLOCK: tl.constexpr):
    """A program looks at a row, and posts where its first NaN is."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + column, mask=column < columns, other=0.0)
    first = tl.min(tl.where(value != value, column, BLOCK))
    ht.post(context, 700, layer, row, first, mask=first < BLOCK)


class Looks(torch.nn.Module):
    """A layer whose result is looked at."""

    def __init__(self, name: str, inner: torch.nn.Module, context: int) -> None:
        super().__init__()
        self.layer, self.inner, self.context = LAYERS.index(name), inner, context

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        look[(y.shape[0],)](y.detach(), self.context, self.layer, y.shape[1], BLOCK=triton.next_power_of_2(y.shape[1]))
        return y


# %% [markdown]
# The host's side: a function that notes what is posted. The step that is replayed has no number of its own, the host counts it.


# %%
def main(steps: int = 50) -> tuple[int, str, int, int] | None:
    torch.manual_seed(7)
    found: list[tuple[int, str, int, int]] = []
    step = 0
    with hostcall.Device.from_torch() as device:

        @device.on_post(number=700)
        def no_number(layer: hostcall.u32, row: hostcall.u32, column: hostcall.u32) -> None:
            found.append((step, LAYERS[layer], row, column))

        context = device.context("training step")
        at = int(context)
        model = torch.nn.Sequential(
            Looks("up", torch.nn.Linear(64, 128), at),
            torch.nn.SiLU(),
            Looks("gate", torch.nn.Linear(128, 128), at),
            torch.nn.SiLU(),
            Looks("down", torch.nn.Linear(128, 16), at),
        ).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        x, target = torch.randn(32, 64, device="cuda"), torch.randn(32, 16, device="cuda")

        def train() -> Any:
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                train()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = train()

        for step in range(steps):
            x.normal_()
            if step == 37:
                # A bad sample: one value of row 12.
                x[12, 3] = float("inf")
                with torch.no_grad():
                    model[0].inner.weight[:, 3] = 0
            graph.replay()
            torch.cuda.synchronize()
            context.flush()
            if found:
                # Posts of one kernel are in order, those of several are not.
                first = min(found, key=lambda at: (LAYERS.index(at[1]), at[2]))
                print(f"step {first[0]}: the first NaN is in layer {first[1]!r}, row {first[2]}, column {first[3]} ({len(found)} rows in all)")
                return first
            if step % 10 == 0:
                print(f"step {step}: loss {loss.item():.3f}")
    return None


if __name__ == "__main__":
    main()
