"""Functions that JAX compiles for a GPU, which call: the tests of ``tests/test_jax.py``, on ``cuda:0``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

import hostcall

# Beside the other frameworks in one process.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["JAX_PLATFORMS"] = "cuda,cpu"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
pytest.importorskip("jax")

from test_jax import (  # noqa: E402, F401
    context,
    test_64_bits_go_there_and_back,
    test_a_context_that_was_closed_answers_nobody,
    test_batches_loops_and_conditions_call,
    test_each_element_calls,
    test_many_threads_call,
    test_posts_and_checks_are_not_left_out,
    test_what_cannot_be_is_told,
    test_what_functions_raise_is_raised_where_one_waits,
    test_words_of_each_type_come_as_they_are,
)


@pytest.fixture
def device() -> Iterator[hostcall.Device]:
    with hostcall.Device("cuda:0", timeout=30) as device:
        yield device


def test_a_context_of_the_host_is_refused() -> None:
    import hostcall.jax as hj
    import jax

    with hostcall.Device("cpu") as device:
        with pytest.raises(Exception, match="the context is of cpu, and JAX runs this on cuda:0"):
            jax.block_until_ready(hj.call(device.context(), 700, 1.0, result="float32"))


def test_calls_that_were_captured_call_in_each_replay() -> None:
    """XLA makes graphs of what it runs: of custom calls too where it is told so."""
    program = """
import hostcall, hostcall.jax as hj, jax, jax.numpy as jnp
with hostcall.Device("cuda:0", timeout=30) as device:
    turn, posts = 0, []

    @device.service(number=700)
    def now(x: hostcall.f32) -> hostcall.f32:
        return x + turn

    device.on_post(number=701, batch={"x": hostcall.f32})(lambda calls: posts.extend(calls["x"].tolist()))
    context = device.context("captured")

    @jax.jit
    def step(x):
        y = jnp.sin(hj.call(context, 700, x, result=jnp.float32))
        hj.post(context, 701, y)
        return jnp.cos(y) + x

    x = jnp.arange(64.0)
    for turn in range(20):
        expected = jnp.cos(jnp.sin(x + turn)) + x
        assert jnp.allclose(step(x), expected, atol=1e-5), turn
        context.flush()
    assert len(posts) == 20 * 64
print("captured")
"""
    flags = "--xla_gpu_graph_min_graph_size=1 --xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL"
    environment = {**os.environ, "XLA_FLAGS": flags}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180, env=environment)
    if "Unknown flag" in ran.stderr:
        pytest.skip("XLA has no such flags any more")
    assert ran.stdout == "captured\n", ran.stderr
