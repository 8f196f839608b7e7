"""Kernels in Triton that call, post and check by the device's library, compiled for an H100 without a GPU: what they take more in
registers than the same kernel without.

    python3 triton_kernels.py BITCODE PTXAS
"""
import re
import subprocess
import sys
import tempfile

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import core

BITCODE, PTXAS = sys.argv[1:]
I32, I64 = core.dtype("int32"), core.dtype("int64")


def linked(args, types, symbol, result, semantic):
    found = {types: (symbol, result)}
    return core.extern_elementwise("hostcall", BITCODE, args, found, is_pure=False, _semantic=semantic)


@core.extern
def call1(context, method, mask, otherwise, a, _semantic=None):
    args = [context, method, mask, otherwise, a]
    return linked(args, (I64, I64, I32, I64, I64), "hostcall_call1", I64, _semantic)


@core.extern
def post1(context, method, mask, a, _semantic=None):
    return linked([context, method, mask, a], (I64, I64, I32, I64), "hostcall_post1", I32, _semantic)


@core.extern
def check_number(context, mask, condition, number, _semantic=None):
    args = [context, mask, condition, number]
    return linked(args, (I64, I32, I32, I32), "hostcall_check_number", I32, _semantic)


@core.extern
def first(mask, _semantic=None):
    return linked([mask], (I32,), "hostcall_first", I32, _semantic)


@core.extern
def wait_poll(context, mask, token, name, more, address, peer, sequence, _semantic=None):
    args = [context, mask, token, name, more, address, peer, sequence]
    return linked(args, (I64, I32, I64, I64, I64, I64, I32, I64), "hostcall_wait_poll", I64, _semantic)


@core.extern
def wait_over(context, mask, token, _semantic=None):
    return linked([context, mask, token], (I64, I32, I64), "hostcall_wait_over", I64, _semantic)


PLAIN, CHECK, POST, CALL, SPIN, WAIT = (tl.constexpr(i) for i in range(6))


@triton.jit
def spin(context, n, WHAT: tl.constexpr):
    """Waits for a flag, and says so."""
    flag, zero = context.to(tl.pointer_type(tl.int64)), context * 0
    once, token = first((zero + 1).to(tl.int32)), zero
    while tl.load(flag, volatile=True) < n:
        if WHAT == WAIT:
            token = wait_poll(context, once, token, zero + 0x6C616E676973, zero, context, once * 3, zero + n)
    if WHAT == WAIT:
        wait_over(context, once, token)


@triton.jit
def scale(x, context, n, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WHAT == SPIN or WHAT == WAIT:
        spin(context, n, WHAT)
    value = tl.load(x + i, mask=i < n)
    lanes, zero = (i < n).to(tl.int32), (i * 0).to(tl.int64)
    if WHAT == CHECK:
        check_number(context, lanes, (value == value).to(tl.int32), 5)
    if WHAT == POST:
        post1(context, zero + 700, lanes, i.to(tl.int64))
    if WHAT == CALL:
        value += call1(context, zero + 700, lanes, zero, i.to(tl.int64)).to(tl.float32)
    tl.store(x + i, value * 2, mask=i < n)


@triton.jit
def matmul(a, b, c, context, n, WHAT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    k = tl.arange(0, K)
    zero = (row * 0).to(tl.int64)
    if WHAT == SPIN or WHAT == WAIT:
        spin(context, n, WHAT)
    sums = tl.zeros((M, N), tl.float32)
    for at in range(0, n, K):
        x = tl.load(a + row[:, None] * n + (at + k)[None, :])
        y = tl.load(b + (at + k)[:, None] * n + column[None, :])
        sums += tl.dot(x, y)
        if WHAT == POST:
            # One element of the program tells how far it is.
            post1(context, zero + 700, (row == 0).to(tl.int32), zero + at)
    if WHAT == CHECK:
        is_number = (sums == sums).to(tl.int32)
        check_number(context, is_number * 0 + 1, is_number, 5)
    if WHAT == CALL:
        sums += call1(context, zero + 700, row * 0 + 1, zero, row.to(tl.int64))[:, None].to(tl.float32)
    tl.store(c + row[:, None] * n + column[None, :], sums)


@triton.jit
def attention(q, k, v, out, context, n, WHAT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    row, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    zero = (row * 0).to(tl.int64)
    query = tl.load(q + row[:, None] * D + d[None, :])
    if WHAT == SPIN or WHAT == WAIT:
        spin(context, n, WHAT)
    most = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for at in range(0, n, N):
        column = at + tl.arange(0, N)
        key = tl.load(k + d[:, None] + column[None, :] * D)
        score = tl.dot(query, key)
        next = tl.maximum(most, tl.max(score, 1))
        weight, before = tl.exp(score - next[:, None]), tl.exp(most - next)
        value = tl.load(v + column[:, None] * D + d[None, :])
        total, most = total * before + tl.sum(weight, 1), next
        sums = sums * before[:, None] + tl.dot(weight.to(tl.float16), value)
        if WHAT == POST:
            post1(context, zero + 700, (row == 0).to(tl.int32), zero + at)
    if WHAT == CHECK:
        check_number(context, row * 0 + 1, (total > 0).to(tl.int32), 5)
    if WHAT == CALL:
        total += call1(context, zero + 700, row * 0 + 1, zero, row.to(tl.int64)).to(tl.float32)
    tl.store(out + row[:, None] * D + d[None, :], (sums / total[:, None]).to(tl.float16))


def registers(kernel, types, constants, **options):
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs=constants)
    options = {"extern_libs": {"hostcall": BITCODE}, **options}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(made.asm["ptx"])
        file.flush()
        command = [PTXAS, "-arch=sm_90a", "-v", "-o", "/dev/null", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill stores", said)))
    return int(re.findall(r"Used (\d+) registers", said)[0]), spilled


HALF, SINGLE, N = "*fp16", "*fp32", {"n": "i32", "context": "i64"}
KERNELS = [
    (scale, {"x": SINGLE, **N}, {"BLOCK": 128}, {}),
    (matmul, {"a": HALF, "b": HALF, "c": SINGLE, **N}, {"M": 64, "N": 64, "K": 32}, {}),
    (matmul, {"a": HALF, "b": HALF, "c": SINGLE, **N}, {"M": 128, "N": 128, "K": 64}, {"num_warps": 8}),
    (attention, {"q": HALF, "k": HALF, "v": HALF, "out": HALF, **N}, {"M": 64, "N": 64, "D": 64}, {}),
]
# Registers more than the kernel's own that each may take where the kernel has many, and those of one that has few.
MOST, MOST_OF_SMALL = {CHECK: 3, POST: 12, CALL: 40}, 48
NAMES = {PLAIN: "plain", CHECK: "check", POST: "post", CALL: "call", SPIN: "spin", WAIT: "wait"}

for kernel, types, constants, options in KERNELS:
    row = {what: registers(kernel, types, {**constants, "WHAT": what.value}, **options) for what in NAMES}
    sizes = " x ".join(str(size) for size in constants.values())
    print(f"{kernel.__name__} {sizes}: " + ", ".join(f"{NAMES[what]} {used}" for what, (used, _) in row.items()))
    plain, _ = row[PLAIN]
    for what, most in MOST.items():
        used, spilled = row[what]
        allowed = max(plain + most, MOST_OF_SMALL)
        if used > allowed or spilled:
            sys.exit(f"{kernel.__name__} {sizes} with a {NAMES[what]}: {used} registers, {spilled} bytes spilled (most: {allowed}, 0)")
    # A mark takes no more than the wait itself, of registers as a multiprocessor gives them: eight at a time.
    (spins, _), (waits, spilled) = row[SPIN], row[WAIT]
    allowed = max(-(-spins // 8) * 8, MOST_OF_SMALL)
    if waits > allowed or spilled:
        sys.exit(f"{kernel.__name__} {sizes} that says what it waits for: {waits} registers, {spilled} bytes spilled (most: {allowed}, 0)")
