"""Types of the words of calls, for annotations. To a type checker each is Python's own."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Callable


@dataclass(frozen=True)
class Word:
    """What a word of a call is, by Rust's name."""

    name: str


u8 = Annotated[int, Word("u8")]
u16 = Annotated[int, Word("u16")]
u32 = Annotated[int, Word("u32")]
u64 = Annotated[int, Word("u64")]
i8 = Annotated[int, Word("i8")]
i16 = Annotated[int, Word("i16")]
i32 = Annotated[int, Word("i32")]
i64 = Annotated[int, Word("i64")]
f32 = Annotated[float, Word("f32")]
f64 = Annotated[float, Word("f64")]

_PLAIN = {int: "i64", float: "f64", bool: "bool", bytes: "bytes", str: "str"}


def word_of(annotation: Any, what: str) -> str:
    """Returns Rust's name of the type that an annotation says; ``int`` is ``i64`` and ``float`` is ``f64``."""
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Word):
            return mark.name
    if isinstance(annotation, type) and annotation in _PLAIN:
        return _PLAIN[annotation]
    raise TypeError(
        f"{what} is annotated {annotation!r}: take hostcall.u8 to u64, i8 to i64, f32 or f64, or bool, int, float, bytes or str"
    )


def signature_of(function: Callable[..., Any], name: str) -> tuple[list[str], list[str]]:
    """Returns the types of the parameters and of the result that a function's annotations say."""
    hints = typing.get_type_hints(function, include_extras=True)
    result = hints.pop("return", None)
    code = getattr(function, "__func__", function).__code__
    if code.co_kwonlyargcount or code.co_flags & 0x0C:
        raise TypeError(f"{name} takes what no kernel can send: give it positional parameters alone")
    parameters = code.co_varnames[: code.co_argcount]
    if isinstance(function, types.MethodType):
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter not in hints:
            raise TypeError(f"the parameter `{parameter}` of {name} has no annotation: say its type, such as hostcall.u64")
    arguments = [word_of(hints[parameter], f"the parameter `{parameter}` of {name}") for parameter in parameters]
    if result is None or result is type(None):
        return arguments, []
    what = f"the result of {name}"
    if typing.get_origin(result) is tuple:
        return arguments, [word_of(part, what) for part in typing.get_args(result)]
    return arguments, [word_of(result, what)]
