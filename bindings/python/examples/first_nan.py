# %% [markdown]
# # The first NaN of a training step that is replayed as a graph
# Hooks of PyTorch are silent in a captured graph: a replay runs kernels alone. A kernel that calls the host is there in each replay.
# Here one looks at what each layer makes, and posts layer, row and column of the first value of a row that is no number.

# %%
from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

import hostcall
import hostcall.triton as ht

LAYERS, STEPS = ["up", "gate", "down"], 50


# %% [markdown]
# A program looks at a row. Its post waits for nobody, so that a step without a NaN costs one more read of each layer's result.


# %%
@triton.jit
def look(x, context, layer, columns, BLOCK: tl.constexpr):
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
# The host's side is a function that notes what is posted. A replay has no number of its own: the host counts them.

# %%
device = hostcall.Device.from_torch()
found: list[tuple[int, str, int, int]] = []
step = 0


@device.on_post(number=700)
def no_number(layer: hostcall.u32, row: hostcall.u32, column: hostcall.u32) -> None:
    found.append((step, LAYERS[layer], row, column))


context = device.context("training step")

# %% [markdown]
# The model and its step, captured once. The context's address is an argument as others, and never changes.

# %%
torch.manual_seed(7)
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

# %% [markdown]
# Fifty replays. In step 37 a bad sample comes: one value of row 12 is infinite, and its weight is zero.

# %%
losses = []
for step in range(STEPS):
    x.normal_()
    if step == 37:
        x[12, 3] = float("inf")
        with torch.no_grad():
            model[0].inner.weight[:, 3] = 0
    graph.replay()
    torch.cuda.synchronize()
    context.flush()
    losses.append(loss.item())
    if step % 10 == 0:
        print(f"step {step}: loss {losses[-1]:.3f}")

# %% [markdown]
# Posts of one kernel are in order, those of several are not: the first is the one of the first step, layer and row.

# %%
first = min(found, key=lambda post: (post[0], LAYERS.index(post[1]), post[2]))
print(f"step {first[0]}: the first NaN is in layer {first[1]!r}, row {first[2]}, column {first[3]}")

# %%
import matplotlib.pyplot as plt

rows = np.zeros((len(LAYERS), STEPS), int)
for at_step, layer, *_ in found:
    rows[LAYERS.index(layer), at_step] += 1
figure, (upper, lower) = plt.subplots(2, 1, num="first-nan", figsize=(8, 4), sharex=True, layout="constrained")
upper.plot(losses, color="tab:blue")
upper.axvline(first[0], color="tab:red", linewidth=1)
where = f"step {first[0]}: layer {first[1]!r}, row {first[2]}, column {first[3]} "
upper.text(first[0], losses[0], where, color="tab:red", va="top", ha="right")
upper.set(ylabel="loss", title="What the loss says, and what a kernel in the graph posts")
lower.imshow(np.where(rows, rows, np.nan), aspect="auto", cmap="Reds", vmin=-16, vmax=40)
for layer, at_step in np.argwhere(rows):
    lower.text(at_step, layer, str(rows[layer, at_step]), ha="center", va="center", fontsize=7)
lower.set(xlabel="replay", ylabel="rows with a NaN", yticks=range(len(LAYERS)), yticklabels=LAYERS, xlim=(-0.5, STEPS - 0.5))
plt.show()

# %%
device.close()
