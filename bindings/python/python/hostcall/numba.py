"""Calls, posts and checks of Numba's kernels.

::

    import hostcall.numba as hn
    from numba import cuda

    POSITIVE = hostcall.check_number("x is positive", __file__)

    @cuda.jit
    def prices(context, items, out):
        i = cuda.grid(1)
        if i < len(items):
            out[i] = hn.call1(context, 700, 1, -1, items[i])
            hn.check(context, 1, out[i] > 0, POSITIVE)

    prices[blocks, threads](int(device.context("prices")), items, out)

``call0`` to ``call4`` take the context, a method's number, whether the thread calls at all (1), what a call that fails returns, and
words, which are integers of 64 bits. ``post0`` to ``post4`` take the context, the number, 1 and words; ``check`` takes the context,
1, a condition and the number of the check's text.
"""

# Numba has no types.
# mypy: ignore-errors
from __future__ import annotations

from numba import cuda, types

import hostcall

__all__ = [*(f"{what}{words}" for what in ("call", "post") for words in range(5)), "check"]

_I32, _I64 = types.int32, types.int64


def _declared(name, result, *arguments):
    return cuda.declare_device(f"hostcall_{name}", result(*arguments), link=hostcall.library("hostcall_sm_70.ptx"), abi="c")


for _words in range(5):
    _more = [_I64] * _words
    globals()[f"call{_words}"] = _declared(f"call{_words}", _I64, _I64, _I64, _I32, _I64, *_more)
    globals()[f"post{_words}"] = _declared(f"post{_words}", _I32, _I64, _I64, _I32, *_more)

check = _declared("check_number", _I32, _I64, _I32, _I32, types.uint32)
