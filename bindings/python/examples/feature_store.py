"""A feature store in Python, whose features kernels of other processes ask for: ``feature_store.py ADDRESS``."""

from __future__ import annotations

import sys

import numpy as np

# ANCHOR: service
import hostcall
import hostcall.remote

USERS = 1000
ages = np.arange(USERS, dtype=np.float32) % 90
scores = np.arange(USERS, dtype=np.float32) / USERS


@hostcall.service(name="Profiles")
class Store:
    # All calls of a message at once: a structured array, and a column for each word of the results.
    @hostcall.method(batch={"user": hostcall.u64}, result={"age": hostcall.f32, "score": hostcall.f32})
    def of(self, calls: np.ndarray) -> dict[str, np.ndarray]:
        users = calls["user"] % USERS
        return {"age": ages[users], "score": scores[users]}

    # One call at a time, without NumPy.
    def is_known(self, user: hostcall.u64) -> bool:
        return user < USERS
# ANCHOR_END: service


def main() -> None:
    address = sys.argv[1]
    # ANCHOR: answer
    with hostcall.remote.Session(listen=address) as session:
        session.export("profiles", Store())
        print("READY", flush=True)
        sys.stdin.read()  # until the other end is closed
    # ANCHOR_END: answer


if __name__ == "__main__":
    main()
