"""A process that answers kernels of other processes, for ``test_remote.py``: ``answerer.py ROLE ADDRESS``. It ends with its input."""

from __future__ import annotations

import os
import sys
import threading

import hostcall
import hostcall.remote


def say(line: str) -> None:
    print(line, flush=True)


@hostcall.service
class Store:
    """What ``tests/remote/examples/remote_asks.rs`` asks, but for ``missing``."""

    def next(self, key: hostcall.u64) -> tuple[hostcall.u64, hostcall.u32]:
        return key + 1, os.getpid()

    def scaled(self, key: hostcall.u32, by: hostcall.f32, is_negative: bool) -> tuple[hostcall.f32, hostcall.i64]:
        return key * by, -key if is_negative else key

    def fails(self, key: hostcall.u64) -> hostcall.u64:
        if key % 2 == 1:
            raise KeyError(f"there is no key {key}")
        return key

    def waits(self, key: hostcall.u64) -> hostcall.u64:
        say("HAS")
        threading.Event().wait()
        return key


class Refuses(Store):
    def fails(self, key: hostcall.u64) -> hostcall.u64:
        if key % 2 == 1:
            raise hostcall.Refuse(7)
        return key


class Watches(Store):
    def waits(self, key: hostcall.u64) -> hostcall.u64:
        say("HAS")
        while hostcall.remote.is_wanted():
            threading.Event().wait(0.002)
        say("GONE")
        return key


def columns() -> object:
    """Returns a store whose functions get all calls of a message at once."""
    import numpy as np

    @hostcall.service(name="Store")
    class Columns:
        @hostcall.method(batch={"key": hostcall.u64}, result={"next": hostcall.u64, "by": hostcall.u32})
        def next(self, calls: np.ndarray) -> dict[str, np.ndarray]:
            return {"next": calls["key"] + 1, "by": np.full(len(calls), os.getpid())}

        @hostcall.method(
            batch={"key": hostcall.u32, "by": hostcall.f32, "is_negative": bool}, result={"scaled": hostcall.f32, "key": hostcall.i64}
        )
        def scaled(self, calls: np.ndarray) -> dict[str, np.ndarray]:
            keys = calls["key"].astype("i8")
            return {"scaled": keys.astype("f4") * calls["by"], "key": np.where(calls["is_negative"], -keys, keys)}

        @hostcall.method(batch={"key": hostcall.u64}, result=hostcall.u64)
        def fails(self, calls: np.ndarray) -> np.ndarray:
            raise KeyError(f"there are no keys {calls['key'].min()} to {calls['key'].max()}")

    return Columns()


@hostcall.service(name="Store")
class OtherTypes:
    def next(self, key: hostcall.u32) -> tuple[hostcall.u64, hostcall.u32]:
        return key + 1, 0


ROLES = {"one by one": Store, "refuses": Refuses, "watches": Watches, "columns": columns, "other types": OtherTypes}

if __name__ == "__main__":
    role, address = sys.argv[1:]
    with hostcall.remote.Session(listen=address) as session:
        session.export("store", ROLES[role]())
        say("READY")
        for _ in sys.stdin:
            say(str(session.counts()))
