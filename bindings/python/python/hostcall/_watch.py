"""Stacks of Python's threads, for a thread that cannot take the GIL."""

from __future__ import annotations

import faulthandler
import functools
import signal


@functools.lru_cache(maxsize=None)
def dump_signal() -> int:
    """Returns a signal at which ``faulthandler`` prints the stacks, by code that needs no GIL; 0 without one that is free."""
    for number in range(int(signal.SIGRTMAX) - 1, int(signal.SIGRTMIN), -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            # As a number, since whatever `sys.stderr` is by now may write nowhere.
            faulthandler.register(number, file=2, all_threads=True)
            return number
    return 0
