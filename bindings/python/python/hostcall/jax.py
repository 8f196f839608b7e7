"""Calls, posts and checks of functions that JAX compiles, by XLA's custom calls (``jax.ffi``).

::

    import hostcall.jax as hj

    device = hostcall.Device("cuda:0")             # or "cpu", where JAX runs on it
    context = device.context("training")

    @jax.jit
    def step(x):
        factor = hj.call(context, 700, x, result=jnp.float32)
        hj.check(context, jnp.isfinite(factor), "the factor is a number")
        hj.post(context, 701, jnp.sum(x))
        return x * factor

    y = step(x).block_until_ready()
    context.flush()                                # raises what the functions raised, and what checks found

Words, condition and mask are arrays of one shape, or are made so by broadcasting: each element calls for itself, where ``mask``
holds. On a GPU these are lanes of a kernel in XLA's stream, and so a call that is captured into a graph calls in each replay.

The context's address is a constant of the compiled function: contexts that are made anew have it compiled anew. Under ``vmap``
there is a call for each element of the batch. Nothing here has a gradient: write ``jax.lax.stop_gradient`` or a ``custom_vjp``.
What is sharded over several devices is not served: a context is one device's.
"""

# What JAX has here has no types that a checker could follow.
# mypy: ignore-errors
from __future__ import annotations

import ctypes
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hostcall

from . import _hostcall

__all__ = ["call", "check", "post"]

_TARGET = "hostcall_rows"
_CALL, _POST, _CHECK = range(3)
_MOST_WORDS = 4
_WORDS = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"}


def _register() -> None:
    try:
        with open(hostcall.library("hostcall_rows_sm_70.ptx"), encoding="ascii") as file:
            code = file.read()
    except FileNotFoundError:
        # There are no calls on a GPU then.
        code = None
    handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    on_cpu, on_cuda = (jax.ffi.pycapsule(handler(address)) for address in _hostcall.xla_handlers(code))
    jax.ffi.register_ffi_target(_TARGET, on_cpu, platform="cpu")
    if code is not None:
        # The kernel is loaded before what is executed may be captured.
        jax.ffi.register_ffi_target(_TARGET, {"initialize": on_cuda, "execute": on_cuda}, platform="CUDA")


_register()


def _word(value: Any) -> Any:
    """Returns a value as an array whose elements are words of a call."""
    value = jnp.asarray(value)
    if value.dtype.name in ("float16", "bfloat16"):
        return value.astype(jnp.float32)
    if value.dtype.name not in _WORDS:
        raise TypeError(f"no word of a call is a {value.dtype}: take numbers of up to 64 bits, or bool")
    return value


def _bits(value: Any, dtype: Any) -> np.int64:
    """Returns a number as the bits that it has in an array."""
    bits = np.asarray(value, dtype).tobytes().ljust(8, b"\0")
    return np.int64(int.from_bytes(bits, "little", signed=True))


def _rows(what: int, context: Any, method: int, words: tuple[Any, ...], mask: Any, result: Any, otherwise: Any) -> Any:
    if not isinstance(context, hostcall.Context):
        raise TypeError(f"the context is a hostcall.Context, and not {context!r}")
    if len(words) > _MOST_WORDS:
        raise ValueError(f"a call or post has up to {_MOST_WORDS} words, not {len(words)}")
    arrays = [*(_word(word) for word in words), jnp.asarray(True if mask is None else mask, jnp.bool_)]
    shape = jnp.broadcast_shapes(*(array.shape for array in arrays))
    arrays = [jnp.broadcast_to(array, shape) for array in arrays]
    called = jax.ffi.ffi_call(
        _TARGET, jax.ShapeDtypeStruct(shape, result), has_side_effect=True, vmap_method="broadcast_all"
    )
    return called(
        *arrays,
        context=np.int64(int(context) - (1 << 64 if int(context) >> 63 else 0)),
        method=np.int64(method),
        what=np.int64(what),
        otherwise=_bits(otherwise, result),
    )


def _method(method: int) -> int:
    if not (0 <= method < 1 << 48 and method & 0xFFFF >= 256):
        raise ValueError(f"the number of a method is from 256 to 65535, and not {method}")
    return method


def call(context: hostcall.Context, method: int, *words: Any, mask: Any = None, otherwise: Any = 0, result: Any = jnp.int32) -> Any:
    """Calls a function of the host's for each element of up to four arrays, and returns an array of what it answered.

    ``method`` is the function's number; words are numbers of up to 64 bits, as its annotations say (16-bit floats become
    ``float32``). ``result`` is the dtype of the answer: ``jnp.float32`` for ``hostcall.f32``, and an integer of any length of which
    the answer has the value. Where ``mask`` does not hold, or the call fails, there is ``otherwise``.
    """
    result = jnp.dtype(result)
    if result.name not in _WORDS:
        raise TypeError(f"no function of the host's answers a {result}: take a number of 32 or 64 bits")
    if result.itemsize == 8 and not jax.config.jax_enable_x64:
        raise TypeError(f"JAX has no {result} without jax_enable_x64: take 32 bits")
    return _rows(_CALL, context, _method(method), words, mask, result, otherwise)


def post(context: hostcall.Context, method: int, *words: Any, mask: Any = None) -> None:
    """Posts words to a function of the host's (``Device.on_post``) for each element where ``mask`` holds. Nobody waits for it."""
    _rows(_POST, context, _method(method), words, mask, jnp.dtype(jnp.bool_), False)


def check(context: hostcall.Context, condition: Any, text: str, mask: Any = None) -> None:
    """Checks that ``condition`` holds for each element where ``mask`` does.

    If not, the function goes on, and ``Context.flush`` raises ``KernelPanic`` with the text, the file and line of the caller, and
    how many elements there were.
    """
    if not isinstance(text, str):
        raise TypeError(f"the text of a check is a string, and not {text!r}")
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    place = ("", 0) if caller is None else (caller.f_code.co_filename, caller.f_lineno)
    number = hostcall.check_number(text, *place)
    _rows(_CHECK, context, number, (jnp.asarray(condition, jnp.bool_),), mask, jnp.dtype(jnp.bool_), False)
