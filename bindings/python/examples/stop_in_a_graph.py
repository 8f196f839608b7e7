# %% [markdown]
# # A decode loop inside a graph whose stop and mask the host decides
# The loop is a WHILE node of a CUDA graph: one launch makes a whole answer. In each turn a kernel picks the next token, and asks
# a function of Python which tokens may follow and whether the answer is complete. Vendors' graphs refuse host nodes there.

# %%
from __future__ import annotations

from typing import Any

import numpy as np
from cuda.core import Device, LaunchConfig, ObjectCode, Program, ProgramOptions, launch

import hostcall

WORDS, MOST, ANSWERS = 32, 200, 8
SOURCE = r"""
#include "hostcall_device.h"
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

// A step of a model that knows which word likes to follow which: one block, a thread a word.
extern "C" __global__ void step(uint64_t context, unsigned long long loop, const float *likes, uint32_t *tokens, uint32_t *count) {
    __shared__ float best[32];
    __shared__ uint64_t allowed[2];
    const uint32_t word = threadIdx.x, at = *count, last = tokens[at - 1];
    if (word == 0) {
        const uint64_t asked[2] = {at, last};
        if (hostcall_call_words(context, HOSTCALL_METHOD(700, 0), asked, 2, allowed, 2, 0) != HOSTCALL_CALL_OK)
            allowed[1] = 1;
    }
    __syncthreads();
    if (allowed[1]) {
        if (word == 0)
            cudaGraphSetConditional(loop, 0);
        return;
    }
    best[word] = allowed[0] >> word & 1 ? likes[last * 32 + word] : -1e30f;
    __syncthreads();
    if (word == 0) {
        uint32_t next = 0;
        for (uint32_t other = 1; other < 32; other++)
            next = best[other] > best[next] ? other : next;
        tokens[at] = next;
        *count = at + 1;
    }
}
"""


# %% [markdown]
# A grammar: no word twice within four tokens; the end is word 0, or after 60 tokens.


# %%
class Grammar:
    def __init__(self) -> None:
        self.recent: list[int] = []
        self.asked = 0

    def rule(self, count: int, last: int) -> tuple[int, bool]:
        self.asked += 1
        self.recent = [*self.recent, last][-4:]
        mask = (1 << WORDS) - 1
        for word in self.recent:
            mask &= ~(1 << word)
        return mask, count >= 60 or (count > 1 and last == 0)


def eagerly(likes: np.ndarray[Any, Any], first: int) -> list[int]:
    """Returns what the host alone decodes."""
    grammar, tokens = Grammar(), [first]
    while True:
        mask, is_over = grammar.rule(len(tokens), tokens[-1])
        if is_over:
            return tokens
        row = np.where([mask >> word & 1 for word in range(WORDS)], likes[tokens[-1]], np.float32(-1e30))
        tokens.append(int(np.argmax(row)))


# %% [markdown]
# The host's side: the function that each turn asks.

# %%
gpu = Device(0)
gpu.set_current()
device = hostcall.Device("cuda:0")
grammar = Grammar()


@device.service(number=700)
def rule(count: hostcall.u32, last: hostcall.u32) -> tuple[hostcall.u64, hostcall.u64]:
    mask, is_over = grammar.rule(count, last)
    return mask, int(is_over)


context = device.context("decoding")

# %% [markdown]
# The graph: a WHILE node, whose body is the kernel. The driver knows `cudaGraphSetConditional`.

# %%
options = ProgramOptions(std="c++17", arch=f"compute_{gpu.arch}", include_path=hostcall.include(), relocatable_device_code=True)
ptx = Program(SOURCE, "c++", options).compile("ptx")
step = ObjectCode.from_ptx(ptx.code).get_kernel("step")
likes = np.random.default_rng(3).random((WORDS, WORDS), np.float32)
table, tokens, count = device.buffer((WORDS, WORDS), "f4"), device.buffer(MOST, "u4"), device.buffer(1, "u4")
np.asarray(table)[:] = likes

builder = gpu.create_graph_builder().begin_building()
loop = builder.create_condition(default_value=1)
body = builder.while_loop(loop).begin_building()
arguments = (np.uint64(int(context)), np.uint64(int(loop.handle)), table.address, tokens.address, count.address)
launch(body, LaunchConfig(grid=1, block=WORDS), step, *arguments)
body.end_building()
graph = builder.end_building().complete()

# %% [markdown]
# Eight answers: eight launches of the graph. What it decodes is what the host decodes alone.

# %%
stream = gpu.create_stream()
answers: list[list[int]] = []
for first in range(1, ANSWERS + 1):
    grammar = Grammar()
    np.asarray(tokens)[0], np.asarray(count)[0] = first, 1
    graph.launch(stream)
    context.flush(stream=stream)
    answer = np.asarray(tokens)[: np.asarray(count)[0]].tolist()
    assert answer == eagerly(likes, first), "the graph and the host decode the same"
    answers.append(answer)
    print(f"{len(answer):2} tokens, {grammar.asked} questions: {' '.join(map(str, answer[:12]))} …")

# %%
import matplotlib.pyplot as plt

grid = np.full((ANSWERS, max(map(len, answers))), np.nan)
for row, answer in enumerate(answers):
    grid[row, : len(answer)] = answer
figure, axes = plt.subplots(num="stop-in-a-graph", figsize=(9, 2.6), layout="constrained")
axes.imshow(grid, cmap="viridis", aspect="auto")
for row, answer in enumerate(answers):
    for column, token in enumerate(answer):
        axes.text(column, row, str(token), ha="center", va="center", fontsize=6, color="white" if token < 20 else "black")
axes.set(xlabel="turn of the WHILE node", ylabel="launch", title="Each turn asks Python: which words may follow, and is it the end?")
plt.show()

# %%
device.close()
