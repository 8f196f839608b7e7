"""Kernels of test_triton.py."""
# pyright: basic
# mypy: ignore-errors

import triton
import triton.language as tl

import hostcall
import hostcall.triton as ht


def serve(device):
    """Serves what `everything` calls. Returns which programs asked, and what they posted."""
    asked, posts = [], []

    @device.service(number=700)
    def factor(place: hostcall.i32, value: hostcall.f32) -> hostcall.f32:
        if place == 7:
            raise KeyError(place)
        return 2 * value + place

    @device.service(number=701)
    def start(program: hostcall.i64) -> hostcall.i32:
        asked.append(program)
        return -100 * program

    @device.on_post(number=702)
    def note(program: hostcall.u32, n: hostcall.u32) -> None:
        posts.append(1000 * program + n)

    return asked, posts


@triton.jit
def everything(x, out, context, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    ht.check(context, value == value, "x is a number", mask=i < n)
    ht.post(context, 702, program, n)
    ht.print(context, "program {} of {}: {:.2f}", program, n, program * 0.5)
    start = ht.call(context, 701, program, result=tl.int32)
    factor = ht.call(context, 700, i, value, mask=i < n, otherwise=-1.0, result=tl.float32)
    tl.store(out + i, tl.where(i == 7, factor, factor + start), mask=i < n)


@triton.jit
def checks_all(x, context, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    ht.check(context, tl.load(x + i) >= 0, "x is positive", mask=i < n)


@triton.jit
def too_many(x, context, n, BLOCK: tl.constexpr):
    ht.post(context, 702, 1, 2, 3, 4, 5)


@triton.jit
def wrong_text(x, context, n, BLOCK: tl.constexpr):
    ht.print(context, "{} and {}", n)


@triton.jit
def too_few_places(x, context, n, BLOCK: tl.constexpr):
    ht.print(context, "only {}", n, n)


@triton.jit
def no_text(x, context, n, BLOCK: tl.constexpr):
    ht.check(context, n > 0, n)


@triton.jit
def swapped(x, context, n, BLOCK: tl.constexpr):
    ht.post(701, context, n)


@triton.jit
def no_number(x, context, n, BLOCK: tl.constexpr):
    ht.post(context, -1, n)


@triton.jit
def no_type(x, context, n, BLOCK: tl.constexpr):
    ht.call(context, 700, n, result="f32")


@triton.jit
def printed_too_many(x, context, n, BLOCK: tl.constexpr):
    ht.print(context, "{}{}{}{}", n, n, n, n)


@triton.jit
def waits(x, context, n, BLOCK: tl.constexpr):
    token = ht.no_wait()
    while ht.call(context, 700, n) == 0:
        token = ht.waits(context, token, "a signal that is long", 3, n, x)
    ht.waited(context, token)


@triton.jit
def traced(x, context, n, BLOCK: tl.constexpr):
    whole = ht.begin(context, "program")
    for step in range(n):
        one = ht.begin(context, "a step whose name is too long")
        ht.counter(context, "sum", tl.program_id(0) + step / 2)
        ht.end(context, "a step whose name is too long", one)
    ht.counter(context, "steps", n)
    ht.end(context, "program", whole)


@triton.jit
def counts_a_block(x, context, n, BLOCK: tl.constexpr):
    ht.counter(context, "numbers", tl.arange(0, BLOCK))
