"""Functions that JAX compiles, which call by XLA's custom calls: on the device `cpu`, where JAX runs on it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostcall

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax: Any = pytest.importorskip("jax")

import hostcall.jax as hj  # noqa: E402
import jax.numpy as jnp  # noqa: E402


@pytest.fixture
def context(device: hostcall.Device) -> hostcall.Context:
    @device.service(number=700)
    def twice(x: hostcall.f32) -> hostcall.f32:
        return 2 * x

    @device.service(number=701)
    def total(a: hostcall.i32, b: hostcall.u8, c: hostcall.f32, d: bool) -> hostcall.i32:
        return a + b + int(c) - d

    return device.context("compiled")


def test_each_element_calls(context: hostcall.Context) -> None:
    @jax.jit
    def step(x: Any) -> Any:
        return hj.call(context, 700, x + 1, result=jnp.float32) - 1

    x = np.arange(300, dtype="f4").reshape(3, 100)
    for _ in range(3):
        np.testing.assert_array_equal(step(x), 2 * x + 1)
    context.flush()
    # Scalars, empty arrays, and what is not compiled.
    assert float(step(np.float32(4))) == 9
    assert step(x[:0]).shape == (0, 100)
    assert hj.call(context, 700, 1.5, result=jnp.float32) == 3


def test_words_of_each_type_come_as_they_are(context: hostcall.Context) -> None:
    a, b, c = jnp.array([-5, 7], jnp.int16), jnp.uint8(200), jnp.array([[1.5], [-2.5]], jnp.bfloat16)
    found = jax.jit(lambda a, b, c: hj.call(context, 701, a, b, c, a < 0))(a, b, c)
    np.testing.assert_array_equal(found, [[195, 208], [192, 205]])
    assert found.dtype == jnp.int32
    small = jax.jit(lambda a: hj.call(context, 701, a, b, 0.0, False, result=jnp.int8, mask=a < 0))(a)
    assert small.tolist() == [-61, 0], "the low bits, and `otherwise` where the mask does not hold"
    context.flush()


def test_posts_and_checks_are_not_left_out(device: hostcall.Device, context: hostcall.Context) -> None:
    posts: list[tuple[int, float]] = []

    @device.on_post(number=702)
    def note(i: hostcall.i32, x: hostcall.f32) -> None:
        posts.append((i, x))

    @jax.jit
    def step(x: Any) -> Any:
        hj.post(context, 702, jnp.arange(x.size), x, mask=x > 2)
        hj.check(context, x < 4, "x is small", mask=x != 5)
        return x + 1

    assert step(jnp.arange(7.0)).tolist() == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(hostcall.KernelPanic, match="`x is small` does not hold, nor for 1 more") as raised:
        context.flush()
    assert Path(raised.value.file).name == "test_jax.py" and raised.value.count == 2
    assert "x is small" in Path(raised.value.file).read_text().splitlines()[raised.value.line - 1]
    assert sorted(posts) == [(i, float(i)) for i in range(3, 7)]


def test_what_functions_raise_is_raised_where_one_waits(device: hostcall.Device, context: hostcall.Context) -> None:
    @device.service(number=703)
    def picky(x: hostcall.i32) -> hostcall.i32:
        if x == 3:
            raise KeyError(x)
        return x

    found = jax.jit(lambda x: hj.call(context, 703, x, otherwise=-1))(jnp.arange(5))
    assert found.tolist() == [0, 1, 2, -1, 4]
    with pytest.raises(KeyError) as raised:
        context.flush()
    assert "called by `compiled`" in raised.value.__notes__[0]


def test_batches_loops_and_conditions_call(device: hostcall.Device, context: hostcall.Context) -> None:
    rounds: list[int] = []

    @device.service(number=704, batch={"round": hostcall.i32}, result=hostcall.i32)
    def goes_on(calls: Any) -> Any:
        rounds.extend(calls["round"].tolist())
        return (calls["round"] < 20).astype("i4")

    mapped = jax.jit(jax.vmap(lambda x: hj.call(context, 700, x, result=jnp.float32)))
    assert mapped(jnp.ones((4, 3))).tolist() == [[2] * 3] * 4

    @jax.jit
    def loop() -> Any:
        return jax.lax.while_loop(lambda i: hj.call(context, 704, i) != 0, lambda i: i + 1, 0)

    assert loop() == 20 and rounds == list(range(21))


def test_a_context_that_was_closed_answers_nobody(device: hostcall.Device) -> None:
    device.service(number=705)(lambda: None)
    context = device.context("closed")
    step = jax.jit(lambda x: hj.call(context, 700, x, result=jnp.float32, otherwise=-2.5))
    context.close()
    assert step(jnp.ones(3)).tolist() == [-2.5] * 3


def test_many_threads_call(context: hostcall.Context) -> None:
    step = jax.jit(lambda x: hj.call(context, 700, x, result=jnp.float32))
    found: list[bool] = []

    def work(start: int) -> None:
        x = jnp.arange(start, start + 200.0)
        found.append(bool((step(x) == 2 * x).all()))

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [True] * 4
    context.flush()


def test_what_cannot_be_is_told(context: hostcall.Context) -> None:
    for call, error, sentence in [
        (lambda: hj.call(int(context), 700, 1), TypeError, "the context is a hostcall.Context"),
        (lambda: hj.call(context, 7, 1), ValueError, "from 256 to 65535, and not 7"),
        (lambda: hj.call(context, 700, 1, 2, 3, 4, 5), ValueError, "up to 4 words, not 5"),
        (lambda: hj.call(context, 700, 1j), TypeError, "no word of a call is a complex64"),
        (lambda: hj.call(context, 700, 1, result=jnp.complex64), TypeError, "answers a complex64"),
        (lambda: hj.call(context, 700, 1, result=np.int64), TypeError, "without jax_enable_x64"),
        (lambda: hj.check(context, True, 5), TypeError, "the text of a check is a string"),
    ]:
        with pytest.raises(error, match=sentence):
            call()


def test_a_context_of_another_device_is_refused(context: hostcall.Context) -> None:
    with hostcall.Device("gfx942") as other:
        with pytest.raises(Exception, match="the context is of gfx942, and JAX runs this on cpu"):
            jax.block_until_ready(hj.call(other.context(), 700, 1.0, result=jnp.float32))


def test_64_bits_go_there_and_back(device: hostcall.Device, context: hostcall.Context) -> None:
    @device.service(number=706)
    def more(x: hostcall.u64, y: hostcall.f64) -> hostcall.f64:
        return x + y

    enable_x64 = getattr(jax, "enable_x64", None)
    if enable_x64 is None:
        from jax.experimental import enable_x64
    with enable_x64(True):
        x = jnp.array([2**40, 3], jnp.uint64)
        found = jax.jit(lambda x: hj.call(context, 706, x, jnp.float64(0.25), result=jnp.float64))(x)
        assert found.tolist() == [2**40 + 0.25, 3.25]
