"""Calls, posts, checks, prints and trace points of Triton's kernels, and what they wait for.

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
from __future__ import annotations

import builtins
import json
import os
import string
import struct
import tempfile
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import core

import hostcall

from ._device import Device, find_texts_by, serve_on_all
from ._kernels import Launch

__all__ = ["Compiled", "begin", "call", "check", "compile", "counter", "end", "no_wait", "post", "print", "waited", "waits"]

_I32, _I64 = core.dtype("int32"), core.dtype("int64")
_MOST_WORDS = 4
_MOST_PRINTED = 3
_WAIT_NAME_BYTES = 16
_POINT_NAME_BYTES, _POINT_FILE_BYTES = 24, 16
_POINT_TAGS = {"u": 1, "i": 5, "f": 6, "d": 7}
_PRINT = 65535

_MOST_AT_IMPORT = 1000

_formats: dict[int, tuple[str, str]] = {}


def _folder() -> Path:
    """Where texts of checks and lines lie: beside Triton's compiled kernels, which have their numbers alone. A process that finds a
    kernel there did not compile it. Each text is a file of its own, so that processes that compile at once do not meet."""
    return Path(triton.knobs.cache.dir) / "hostcall-texts"


def _enter(kind: str, text: str, file: str, line: int) -> int:
    # The values' types are part of a line's text.
    number = hostcall.check_number(f"{kind}\0{text}" if kind else text, file, line)
    if kind:
        _formats[number] = (kind[1:], text)
    return number


def _read(path: Path) -> tuple[str, str, int] | None:
    """Returns the text, file and line that a file has, and enters them; ``None`` where it has none, or those of another number."""
    try:
        kind, text, file, line = json.loads(path.read_text("utf-8"))
        if [type(part) for part in (kind, text, file, line)] == [str, str, str, int]:
            if _enter(kind, text, file, line) == int(path.stem, 16):
                return text, file, line
    except (OSError, ValueError, TypeError, OverflowError):
        pass
    return None


def _find(number: int) -> tuple[str, str, int] | None:
    return _read(_folder() / f"{number:08x}.json")


def _number(kind: str, text: str, generator: Any) -> int:
    """Returns the number of a text at the place that is compiled, as Triton's signed integers have it."""
    file, line = generator.file_name or "", generator.begin_line + getattr(generator.cur_node, "lineno", 0)
    number = _enter(kind, text, file, line)
    path = _folder() / f"{number:08x}.json"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            made.write_text(json.dumps([kind, text, file, line]), "utf-8")
            made.replace(path)
    except OSError as error:
        what = f"{error}: processes that find this kernel in Triton's cache will not know the text {text!r}"
        warnings.warn(what, RuntimeWarning, stacklevel=2)
    return number - (1 << 32) if number >> 31 else number


def _enter_newest() -> None:
    """Enters the texts of a process before, so that what is told at once has them: the newest, since each edit leaves some."""
    try:
        newest = sorted(_folder().glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return
    for path in newest[:_MOST_AT_IMPORT]:
        _read(path)


def _line(number: int, words: tuple[int, int, int]) -> str:
    if number not in _formats:
        _find(number)
    kinds, text = _formats.get(number, ("uuu", f"line {number:#x}, whose text is not in Triton's cache: {{}} {{}} {{}}"))
    return text.format(*(_value_of(kind, word) for kind, word in zip(kinds, words)))


def _value_of(kind: str, word: int) -> int | float:
    form, size = {"i": ("q", 8), "u": ("Q", 8), "f": ("f", 4), "d": ("d", 8)}[kind]
    value: int | float = struct.unpack("<" + form, word.to_bytes(8, "little")[:size])[0]
    return value


def _print_on(device: Device) -> None:
    # Not the device: it would own itself.
    output = device._output

    def printed(number: hostcall.u64, a: hostcall.u64, b: hostcall.u64, c: hostcall.u64) -> None:
        line = _line(number, (a, b, c))
        (builtins.print if output is None else output.line)(line)

    device.on_post(number=_PRINT, name="hostcall::triton::print")(printed)


_enter_newest()
find_texts_by(_find)
serve_on_all(_print_on)


class _Making:
    """What builds a function's operations while Triton compiles it."""

    def __init__(self, semantic, context, method, mask, values) -> None:
        self.semantic = semantic
        self.is_once = not any(isinstance(value, core.tensor) and value.type.is_block() for value in (mask, *values))
        if self.is_once and getattr(semantic.builder.options, "num_ctas", 1) > 1:
            raise ValueError("a program of several CTAs has several first threads: call with a block, and a mask for one element")
        context, number = _plain(context), _plain(method)
        if not isinstance(context, core.tensor) or context.type.is_block() or not context.dtype.is_int():
            raise TypeError(f"the context is `int(context)`, which the kernel gets as an argument, and not {context}")
        if isinstance(number, int) and not (0 <= number < 1 << 48 and number & 0xFFFF >= 256):
            raise ValueError(f"the number of a method is from 256 to 65535, and not {number}")
        self.context = self.cast(context, _I64)
        self.method = [] if number is None else [self.cast(number, _I64)]
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
        value = core.extern_elementwise(
            "hostcall", libraries["hostcall"], list(args), found, is_pure=False, _semantic=self.semantic
        )
        if options.backend_name == "cuda":
            # ptxas does not know that a warp is whole after a call by one of its threads, and keeps what is the same for all of
            # them in a register of each from there on.
            asm = "bar.warp.sync -1;\nmov.u32 $0, 0;"
            core.inline_asm_elementwise(asm, "=r", [], core.int32, is_pure=False, pack=1, _semantic=self.semantic)
        return value

    def first(self, mask):
        """Returns ``mask`` on the program's first thread, and 0 on the others."""
        return self.linked("hostcall_first", _I32, mask)

    def tell(self, symbol, *args):
        """Calls a function for which nobody waits."""
        mask = self.first(self.mask) if self.is_once else self.mask
        self.linked(symbol, _I32, self.context, *self.method, mask, *args)


def _plain(value):
    return value.value if isinstance(value, core.constexpr) else value


def _text(text, what):
    if not isinstance(_plain(text), str):
        raise TypeError(f"the text of {what} is a string, and not {text}")
    return _plain(text)


@triton.jit
def _sum(a, b):
    return a + b


def _words_of(text, most):
    """Returns the first bytes of a text, whole characters, as words."""
    text = text.encode()[:most].decode(errors="ignore").encode()
    return struct.unpack(f"<{most // 8}q", text.ljust(most, b"\0"))


def _point(make, kind, name, generator):
    """Returns the number of a trace point: its name's in its file; and what the host is told of it."""
    file, line = generator.file_name or "", generator.begin_line + getattr(generator.cur_node, "lineno", 0)
    text = _text(name, "a trace point")
    number = hostcall.check_number(f"{kind}\0{text}", file, 0)
    path = Path(file)
    file = path.name if len(path.name.encode()) <= _POINT_FILE_BYTES else path.stem
    words = _words_of(text, _POINT_NAME_BYTES) + _words_of(file, _POINT_FILE_BYTES)
    number = number - (1 << 32) if number >> 31 else number
    return make.cast(number, _I32), [make.cast(line, _I32), *(make.cast(word, _I64) for word in words)]


@core.builtin
def call(context, method, *words, mask=None, otherwise=0, result=_I64, _semantic=None, _generator=None):
    """Calls a function of the host's, and returns what it answers, or ``otherwise`` where ``mask`` does not hold or the call fails.

    ``method`` is its number; up to four ``words`` are integers and floats, as the function's annotations say. ``result`` is the
    type of the answer: ``tl.float32`` for ``hostcall.f32``. Nobody compares types, but for a ``typed`` service, whose methods'
    numbers are ``number | check << 16`` (``hostcall.header`` says both).
    """
    result = _plain(result)
    if not isinstance(result, core.dtype):
        raise TypeError(f"`result` is a type of Triton's, such as tl.float32, and not {result!r}")
    if isinstance(_plain(otherwise), float) and not result.is_floating():
        raise TypeError(f"`otherwise` is {_plain(otherwise)}, and the result {result}")
    make = _Making(_semantic, context, method, mask, (otherwise, *words))
    words = [word for word, _ in make.words(words, _MOST_WORDS, "a call")]
    otherwise, _ = make.word(make.cast(otherwise, _I64 if result.is_ptr() else result))
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
    number = make.cast(_number("", _text(text, "a check"), _generator), _I32)
    make.tell("hostcall_check_number", make.cast(make.cast(condition, core.int1), _I32), number)


@core.builtin
def print(context, text, *values, mask=None, _semantic=None, _generator=None):
    """Prints ``text`` with up to three values in place of its ``{}``, as ``str.format`` has them, where ``mask`` holds."""
    make = _Making(_semantic, context, _PRINT, mask, values)
    words = make.words(values, _MOST_PRINTED, "a line")
    kinds, text = "".join(kind for _, kind in words), _text(text, "a line")
    # A text that does not fit is the kernel's fault, not its line's.
    places = [place for _, place, _, _ in string.Formatter().parse(text) if place is not None]
    if len(places) != len(words) or any(places):
        raise ValueError(f"the line {text!r} has {len(places)} places, and {len(words)} values are for {{}} without names")
    text.format(*(0.5 if kind in "fd" else 1 for kind in kinds))
    number = make.cast(make.cast(_number(f"p{kinds}", text, _generator), core.dtype("uint32")), _I64)
    filler = [make.cast(0, _I64)] * (_MOST_PRINTED - len(words))
    make.tell("hostcall_post4", number, *(word for word, _ in words), *filler)


@core.builtin
def no_wait(_semantic=None):
    """Returns what ``waits`` takes before a loop that waits."""
    return _semantic.cast(_semantic.to_tensor(0), _I64)


@core.builtin
def waits(context, token, name, peer=None, sequence=0, polled=0, _semantic=None):
    """Says in a loop that polls what the program waits for: a flag of this name, of rank ``peer`` and with this number there.

    ``hostcall waits`` shows it once the loop has polled for a while, also while the device hangs. Returns the next poll's ``token``::

        token = ht.no_wait()
        while tl.load(flags + peer, volatile=True) < round:
            token = ht.waits(context, token, "signal", peer, round, flags + peer)
        ht.waited(context, token)
    """
    make = _Making(_semantic, context, None, None, (sequence,))
    words = _words_of(_text(name, "a wait"), _WAIT_NAME_BYTES)
    peer, (address, _) = -1 if _plain(peer) is None else peer, make.word(polled)
    values = [make.cast(word, _I64) for word in words] + [address, make.cast(peer, _I32), make.cast(sequence, _I64)]
    return make.linked("hostcall_wait_poll", _I64, make.context, make.first(make.mask), token, *values)


@core.builtin
def waited(context, token, _semantic=None):
    """Says that a loop is over which waited, with its last ``token``."""
    make = _Making(_semantic, context, None, None, ())
    make.linked("hostcall_wait_over", _I64, make.context, make.first(make.mask), token)


@core.builtin
def counter(context, name, value, mask=None, _semantic=None, _generator=None):
    """Says in a trace what the counter of this name shows, once for the program: a scalar.

    While nobody traces (``Device(.., trace=tracer)``, ``hostcall trace on``), it costs a look at a word. A name has 24 bytes at most, of
    which others are left out, and a kernel 64 trace points.
    """
    make = _Making(_semantic, context, None, mask, (value,))
    if not make.is_once:
        raise TypeError("a counter shows a scalar, such as tl.sum of a block")
    value, kind = make.word(value)
    number, told = _point(make, f"counter {kind}", name, _generator)
    make.tell("hostcall_count_point", number, make.cast(_POINT_TAGS[kind], _I32), *told, value)


@core.builtin
def begin(context, name, mask=None, _semantic=None, _generator=None):
    """Begins a span of this name in a trace, once for the program, and returns what its end takes::

        tile = ht.begin(context, "tile")
        ...
        ht.end(context, "tile", tile)
    """
    make = _Making(_semantic, context, None, mask, ())
    number, told = _point(make, "span", name, _generator)
    return make.linked("hostcall_begin_point", _I64, make.context, make.first(make.mask), number, *told)


@core.builtin
def end(context, name, began, _semantic=None, _generator=None):
    """Ends the span of this name that ``begin`` began in the same file."""
    make = _Making(_semantic, context, None, None, ())
    number, _ = _point(make, "span", name, _generator)
    make.tell("hostcall_end_point", began, number)


class Compiled:
    """A kernel of Triton's as a code object for an AMD GPU, or for ``gfx942`` in software: what ``compile`` returns."""

    def __init__(self, made: Any, warps: int) -> None:
        self.made = made
        """What Triton made: ``made.asm`` has each step of the compilation."""
        self.name: str = made.metadata.name
        """The kernel's name in the code object."""
        self.threads: int = made.metadata.warp_size * warps
        """Threads of a program."""
        self.shared: int = made.metadata.shared
        """Bytes of memory that the threads of a program share."""
        self._codes: weakref.WeakKeyDictionary[Device, Any] = weakref.WeakKeyDictionary()

    def launch(self, device: Device, grid: int | tuple[int, ...], *arguments: Any) -> Launch:
        """Launches so many programs with the kernel's arguments, in their order and without constants.

        A pointer is a ``hostcall.Buffer``, the context a ``hostcall.Context``, and other values say by their types how many bytes
        they have: ``numpy.int32(n)``. Nobody can check whether they are those that the kernel takes.
        """
        code = self._codes.get(device)
        if code is None:
            # The file is read at once.
            with tempfile.NamedTemporaryFile(suffix=".co") as file:
                file.write(self.made.asm["hsaco"])
                file.flush()
                code = self._codes[device] = device.load(file.name)
        # The last two are memory of Triton's own.
        nothing = (0).to_bytes(8, "little")
        return code.launch(self.name, grid, self.threads, *arguments, nothing, nothing, shared=self.shared)


def compile(kernel: Any, types: dict[str, str], *, arch: str = "gfx942", warps: int = 4, **constants: Any) -> Compiled:
    """Compiles a kernel of Triton's for an AMD GPU, by Triton's own compiler and without a GPU: ``gfx942`` runs in software too.

    ``types`` has those of the arguments that are no constants, as Triton writes them: ``"*fp32"``, ``"i32"``, and ``"i64"`` for a
    context. Raises ``ValueError`` where an argument is neither there nor a constant, and what Triton raises.

    ::

        device = hostcall.Device("gfx942")
        scale = ht.compile(scale, {"x": "*fp32", "context": "i64", "n": "i32"}, BLOCK=128)
        scale.launch(device, 5, device.buffer(600, "f4"), device.context("scale"), numpy.int32(600)).wait(timeout=60)
    """
    missing = [name for name in kernel.arg_names if name not in types and name not in constants]
    if missing:
        raise ValueError(f"{kernel.__name__} takes {', '.join(missing)}: say what type it has, or give it as a constant")
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs=constants)
    lanes = 64 if arch.startswith("gfx9") else 32
    return Compiled(triton.compile(source, target=GPUTarget("hip", arch, lanes), options={"num_warps": warps}), warps)
