"""Not run: what type checkers accept of those who use the package."""

from __future__ import annotations

import ctypes
import operator
from typing import Any

import numpy as np

import hostcall


@hostcall.service(number=700, typed=True)
class Prices:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def of(self, item: hostcall.u64) -> hostcall.f32:
        return self.factor * item

    @hostcall.method(number=710, batch={"item": hostcall.u64}, result=hostcall.f32)
    def of_many(self, calls: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(calls["item"] * self.factor)

    async def label(self, item: hostcall.u64, text: str) -> tuple[hostcall.u64, bytes]:
        return item, text.encode()


def use() -> float:
    with hostcall.Device("cpu", Prices(1.5), timeout=None) as device, device.context("typed") as context:

        @device.service(number=720)
        def twice(x: hostcall.i32) -> hostcall.i32:
            return 2 * x

        @device.on_post(number=721)
        def progress(step: hostcall.u32, loss: hostcall.f32) -> None:
            print(step, loss)

        argument = ctypes.c_uint64(operator.index(context))
        context.flush(timeout=1.0)
        who = hostcall.caller()
        return twice(argument.value) + Prices(2.0).of(3) + device.statistics().posts + (who.lane if who else 0)


def queued(device: hostcall.Device) -> int:
    with device.post_queue("sends", waves=8) as queue:
        posts = queue.poll(most=10, timeout=None)
        return operator.index(queue) + sum(len(post.data) for post in posts) + int(posts.of(1, "u8")[0]) + queue.statistics().posts


def ran() -> hostcall.Report:
    with hostcall.Worker() as worker:
        worker.run(use, timeout=10)
    return hostcall.run(told, ["a panic"], timeout=1.0, fresh=True)


def told(panic: hostcall.KernelPanic) -> str:
    return f"{panic.place} {panic.kernel} {panic.block[0]} {panic.count} {hostcall.header(Prices)}"
