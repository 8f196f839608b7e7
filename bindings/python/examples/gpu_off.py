"""What the package costs a training step that does not use it: ``python gpu_off.py``.

A step of a small transformer, eager and replayed as a graph: before the package is imported, with it, and with a device and a
context that nobody calls.
"""

from __future__ import annotations

import time
from typing import Any, Callable

import numpy as np
import torch


def steps() -> tuple[Callable[[], Any], Callable[[], Any]]:
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(16, 128, 256, device="cuda")

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train()
    return train, graph.replay


def times(run: Callable[[], Any]) -> list[float]:
    found = []
    for _ in range(40):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(10):
            run()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - began) * 100_000)
    return found


def main() -> None:
    eager, replayed = steps()
    for run in (eager, replayed):
        times(run)

    def measure(name: str) -> None:
        free, _ = torch.cuda.mem_get_info()
        texts = [f"{kind} {np.median(times(run)):.1f} us" for kind, run in (("eager", eager), ("replayed", replayed))]
        print(f"{name}: {', '.join(texts)}, {free >> 20} MiB free", flush=True)

    for _ in range(3):
        measure("without")
    import hostcall
    import hostcall.triton

    for _ in range(3):
        measure("imported")
    with hostcall.Device.from_torch() as device, device.context():
        for _ in range(3):
            measure("with an idle device and context")
    measure("closed")


if __name__ == "__main__":
    main()
