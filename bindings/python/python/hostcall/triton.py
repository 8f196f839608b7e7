"""Calls, posts, checks and prints of Triton's kernels.

::

    import hostcall.triton as ht

    @triton.jit
    def scale(x, context, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + i, mask=i < n)
        ht.check(context, value == value, "x is a number", mask=i < n)
        factor = ht.call(context, 700, tl.program_id(0), result=tl.float32)
        tl.store(x + i, value * factor, mask=i < n)

    scale[grid](x, int(device.context("scale")), n, BLOCK=128)

A block's elements call each for itself, where ``mask`` holds. Where all that is given are scalars, the program does it once: on its
first thread, which is not there in a part of a program that other warps run.

Triton may give an element to several threads: where a block has fewer elements than the program has threads, and where it is what a
reduction left. Then each of these threads calls, posts or prints.
"""

# What Triton calls has no types that a checker could follow.
# mypy: ignore-errors
# pyright: basic
from __future__ import annotations

import builtins
import json
import struct
from pathlib import Path

import triton
from triton.language import core

import hostcall

from ._device import Device, serve_on_all

__all__ = ["call", "check", "post", "print"]

_I32, _I64 = core.dtype("int32"), core.dtype("int64")
_MOST_WORDS = 4
_MOST_PRINTED = 3
_PRINT = 65535

_formats: dict[int, tuple[str, str]] = {}


class _Texts:
    """Texts of checks and lines, by their numbers. They are kept beside Triton's compiled kernels, which have the numbers alone:
    a later process runs those without compiling them."""

    def __init__(self) -> None:
        self._path = Path(triton.knobs.cache.dir) / "hostcall-texts.jsonl"
        self._known: set[tuple[str, str, str, int]] = set()
        try:
            lines = self._path.read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            try:
                kind, text, file, place = json.loads(line)
                self._take(str(kind), str(text), str(file), int(place))
            except ValueError:
                # Cut where a process ended while it wrote.
                continue

    def _take(self, kind: str, text: str, file: str, line: int) -> int:
        self._known.add((kind, text, file, line))
        # The values' types are part of a line's text.
        number = hostcall.check_number(f"{kind}\0{text}" if kind else text, file, line)
        if kind:
            _formats[number] = (kind[1:], text)
        return number

    def number(self, kind: str, text: str, file: str, line: int) -> int:
        is_new = (kind, text, file, line) not in self._known
        number = self._take(kind, text, file, line)
        if is_new:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as all:
                all.write(json.dumps([kind, text, file, line]) + "\n")
        return number


_texts = _Texts()


def _printed(number: hostcall.u64, a: hostcall.u64, b: hostcall.u64, c: hostcall.u64) -> None:
    kinds, text = _formats[number]
    builtins.print(text.format(*(_read(kind, word) for kind, word in zip(kinds, (a, b, c)))))


def _read(kind: str, word: int) -> int | float:
    form, size = {"i": ("q", 8), "u": ("Q", 8), "f": ("f", 4), "d": ("d", 8)}[kind]
    value: int | float = struct.unpack("<" + form, word.to_bytes(8, "little")[:size])[0]
    return value


def _print_on(device: Device) -> None:
    device.on_post(number=_PRINT, name="hostcall::triton::print")(_printed)


serve_on_all(_print_on)


class _Making:
    """What builds a function's operations while Triton compiles it."""

    def __init__(self, semantic, context, method, mask, values) -> None:
        self.semantic = semantic
        self.is_once = not any(isinstance(value, core.tensor) and value.type.is_block() for value in (mask, *values))
        self.context = self.cast(context, _I64)
        self.method = [] if method is None else [self.cast(method, _I64)]
        self.mask = self.cast(self.cast(True if _plain(mask) is None else mask, core.int1), _I32)

    def cast(self, value, to):
        return self.semantic.cast(self.semantic.to_tensor(_plain(value)), to)

    def word(self, value):
        """Returns a value as 64 bits, and how they are read."""
        value = self.semantic.to_tensor(_plain(value))
        kind = value.dtype
        if kind.is_fp64():
            return self.semantic.bitcast(value, _I64), "d"
        if kind.is_floating():
            bits = self.semantic.bitcast(self.cast(value, core.float32), core.dtype("uint32"))
            return self.cast(bits, _I64), "f"
        return self.cast(value, _I64), "u" if kind.is_ptr() or not kind.is_int_signed() else "i"

    def words(self, values, most, what):
        if len(values) > most:
            raise ValueError(f"{what} has up to {most} values, not {len(values)}")
        return [self.word(value) for value in values]

    def value(self, word, kind):
        """Returns what 64 bits are as another type."""
        if kind.is_fp64():
            return self.semantic.bitcast(word, kind)
        if kind.is_floating():
            return self.cast(self.semantic.bitcast(self.cast(word, _I32), core.float32), kind)
        return self.cast(word, kind)

    def linked(self, symbol, result, *args):
        """Calls a function of the library's, with which the kernel is linked from here on."""
        options = self.semantic.builder.options
        libraries = dict(options.extern_libs)
        if "hostcall" not in libraries:
            is_amd = options.backend_name == "hip"
            libraries["hostcall"] = hostcall.library("hostcall_amdgcn.bc" if is_amd else "hostcall_nvptx64.bc")
            # As Triton itself adds its own.
            object.__setattr__(options, "extern_libs", tuple(libraries.items()))
        found = {tuple(arg.dtype for arg in args): (symbol, result)}
        return core.extern_elementwise(
            "hostcall", libraries["hostcall"], list(args), found, is_pure=False, _semantic=self.semantic
        )

    def first(self, mask):
        """Returns ``mask`` on the program's first thread, and 0 on the others."""
        return self.linked("hostcall_first", _I32, mask)

    def tell(self, symbol, *args):
        """Calls a function for which nobody waits."""
        mask = self.first(self.mask) if self.is_once else self.mask
        self.linked(symbol, _I32, self.context, *self.method, mask, *args)


def _plain(value):
    return value.value if isinstance(value, core.constexpr) else value


def _number(kind, text, generator):
    line = generator.begin_line + getattr(generator.cur_node, "lineno", 0)
    number = _texts.number(kind, text, generator.file_name or "", line)
    return number - (1 << 32) if number >> 31 else number


@triton.jit
def _sum(a, b):
    return a + b


@core.builtin
def call(context, method, *words, mask=None, otherwise=0, result=_I64, _semantic=None, _generator=None):
    """Calls a function of the host's, and returns what it answers, or ``otherwise`` where ``mask`` does not hold or the call fails.

    ``method`` is its number; up to four ``words`` are integers and floats, as the function's annotations say. ``result`` is the
    type of the answer: ``tl.float32`` for ``hostcall.f32``.
    """
    result = _plain(result)
    make = _Making(_semantic, context, method, mask, (otherwise, *words))
    words = [word for word, _ in make.words(words, _MOST_WORDS, "a call")]
    otherwise, _ = make.word(make.cast(otherwise, result))
    mask = make.mask
    if make.is_once:
        # One thread calls, and it alone has something in a sum, which tells the others.
        options = _semantic.builder.options
        lanes = [options.num_warps * options.warp_size]
        first = make.first(_semantic.full(lanes, 1, _I32))
        mask = _semantic.mul(first, mask, False)
        otherwise = _semantic.where(make.cast(first, core.int1), otherwise, _semantic.full(lanes, 0, _I64))
    called = make.linked(f"hostcall_call{len(words)}", _I64, make.context, *make.method, mask, otherwise, *words)
    if make.is_once:
        called = core.reduce(called, 0, _sum, _semantic=_semantic, _generator=_generator)
    return make.value(called, result)


@core.builtin
def post(context, method, *words, mask=None, _semantic=None):
    """Posts up to four words to a function of the host's (``Device.on_post``), where ``mask`` holds. Nobody waits for it."""
    make = _Making(_semantic, context, method, mask, words)
    posted = [word for word, _ in make.words(words, _MOST_WORDS, "a post")]
    make.tell(f"hostcall_post{len(posted)}", *posted)


@core.builtin
def check(context, condition, text, mask=None, _semantic=None, _generator=None):
    """Checks that ``condition`` holds where ``mask`` does.

    If not, the kernel goes on, and ``Context.flush`` raises ``KernelPanic``: with the text, file and line, the first block and
    thread, and how many elements there were.
    """
    make = _Making(_semantic, context, None, mask, (condition,))
    number = make.cast(_number("", str(_plain(text)), _generator), _I32)
    make.tell("hostcall_check_number", make.cast(make.cast(condition, core.int1), _I32), number)


@core.builtin
def print(context, text, *values, mask=None, _semantic=None, _generator=None):
    """Prints ``text`` with up to three values in place of its ``{}``, as ``str.format`` has them, where ``mask`` holds."""
    make = _Making(_semantic, context, _PRINT, mask, values)
    words = make.words(values, _MOST_PRINTED, "a line")
    kinds, text = "".join(kind for _, kind in words), str(_plain(text))
    # A text that does not fit is the kernel's fault, not its line's.
    text.format(*(0.5 if kind in "fd" else 1 for kind in kinds))
    number = make.cast(make.cast(_number(f"p{kinds}", text, _generator), core.dtype("uint32")), _I64)
    filler = [make.cast(0, _I64)] * (_MOST_PRINTED - len(words))
    make.tell("hostcall_post4", number, *(word for word, _ in words), *filler)
