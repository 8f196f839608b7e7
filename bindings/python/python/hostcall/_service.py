"""Services: functions that kernels call."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, Callable, Mapping, Protocol, TypeVar, Union, overload

from . import _hostcall
from ._types import signature_of, word_of

if TYPE_CHECKING:
    import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
Fields = Mapping[str, Any]
"""Names and types of words, as ``{"key": hostcall.u64, "weight": hostcall.f32}``."""

_NUMPY = {"u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}
_NUMPY |= {"f32": "f4", "f64": "f8", "bool": "?"}


_MOST_POST_WORDS = 5


class Decorator(Protocol):
    """Returns a function as it is."""

    def __call__(self, function: F, /) -> F: ...


@dataclass
class Options:
    """How a function is called, as its decorator says."""

    number: int | None = None
    batch: Fields | None = None
    result: Any = None


@dataclass
class Method:
    """A method of a service, as the core takes it."""

    number: int
    name: str
    function: Callable[..., Any]
    arguments: list[str]
    results: list[str]
    mode: str
    is_typed: bool = False

    @property
    def check(self) -> int:
        """The bits that name the types in a kernel's call: the second part of the header's ``HOSTCALL_METHOD``."""
        return _hostcall.check_of(self.name, self.arguments, self.results)

    def described(self) -> tuple[int, str, Callable[..., Any], list[str], list[str], str, bool]:
        return (self.number, self.name, self.function, self.arguments, self.results, self.mode, self.is_typed)

    def refuse_as_post(self) -> None:
        """Refuses a function to which no post can come."""
        for kind in self.arguments:
            if kind in ("bytes", "str"):
                raise TypeError(f"{self.name} takes `{kind}`, and a post has words alone: have kernels call it (`@device.service`)")
        if len(self.arguments) > _MOST_POST_WORDS:
            raise TypeError(f"{self.name} takes {len(self.arguments)} words, and a post has up to {_MOST_POST_WORDS}: have kernels call it")

    def define(self) -> str:
        """Returns the line of C that names the method."""
        name = self.name.replace("::", "_").upper()
        return f"#define {name} HOSTCALL_METHOD({self.number}, {self.check if self.is_typed else 0:#x})\n"


def record_of(fields: Fields, name: str) -> tuple[list[str], np.dtype[Any]]:
    """Returns the types of the words that ``fields`` says, and the type of NumPy's of a lane's."""
    import numpy as np

    kinds = [word_of(annotation, f"`{field}` of {name}") for field, annotation in fields.items()]
    for kind in kinds:
        if kind not in _NUMPY:
            raise TypeError(f"{name} takes many calls at once, which have words alone, and no `{kind}`")
    described: Any = {
        "names": list(fields),
        "formats": ["<" + _NUMPY[kind] for kind in kinds],
        "offsets": [8 * place for place in range(len(kinds))],
        "itemsize": 8 * len(kinds),
    }
    return kinds, np.dtype(described)


def _as_type(values: Any, form: np.dtype[Any], name: str) -> Any:
    """Returns an array's values in a type that can hold them; floats do not become integers."""
    import numpy as np

    if values.dtype == form or form.kind not in "iu" or values.dtype.kind not in "iu":
        return values.astype(form, casting="same_kind", copy=False)
    limits = np.iinfo(form)
    if values.size and not (limits.min <= int(values.min()) and int(values.max()) <= limits.max):
        raise OverflowError(f"{name} returned values from {values.min()} to {values.max()}, which are no `{form.name}`")
    return values.astype(form)


def _extended(kind: str, values: Any) -> Any:
    """Returns an array's values as words, with the sign in all bits above."""
    import numpy as np

    if kind[0] == "i":
        return values.astype("<i8").view("<u8")
    if kind[0] == "f":
        return np.ascontiguousarray(values).view("<u" + _NUMPY[kind][1:]).astype("<u8")
    return values.astype("<u8")


def _batched(function: Callable[..., Any], options: Options, name: str) -> tuple[Callable[[bytes, int], bytes], list[str], list[str]]:
    import numpy as np

    assert options.batch is not None
    arguments, argument_type = record_of(options.batch, name)
    result = options.result
    one = result is not None and not isinstance(result, Mapping)
    fields: Fields = {"": result} if one else (result or {})
    results, _ = record_of({f"r{place}": kind for place, kind in enumerate(fields.values())}, name)
    formats = [np.dtype("<" + _NUMPY[kind]) for kind in results]

    def call(data: bytes, count: int) -> bytes:
        calls = np.frombuffer(data, argument_type, count) if arguments else np.zeros(count, argument_type)
        returned = function(calls)
        if not results:
            if returned is not None:
                what = f"{name} returned a `{type(returned).__name__}`"
                raise TypeError(f"{what}, and has no `result`: write `result=hostcall.f32`, say, or return None")
            return b""
        out = np.empty((count, len(results)), "<u8")
        for place, (key, kind, form) in enumerate(zip(fields, results, formats)):
            column = np.asarray(returned if one else returned[key])
            if column.shape != (count,):
                raise ValueError(f"{name} got {count} calls and returned {column.shape}: it returns an array with one value a call")
            out[:, place] = _extended(kind, _as_type(column, form, name))
        return out.tobytes()

    return call, arguments, results


def method_of(function: Callable[..., Any], options: Options, number: int, name: str, is_typed: bool) -> Method:
    """Returns the method that calls a function."""
    if not 256 <= number <= 65535:
        raise ValueError(f"{name} has the number {number}: take one from 256 to 65535, those below are hostcall's own")
    if options.batch is not None:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name} is async and takes many calls at once: it can be one of these")
        called, arguments, results = _batched(function, options, name)
        return Method(number, name, called, arguments, results, "batch", is_typed)
    arguments, results = signature_of(function, name)
    mode = "async" if inspect.iscoroutinefunction(function) else "single"
    return Method(number, name, function, arguments, results, mode, is_typed)


@overload
def method(function: F, /) -> F: ...
@overload
def method(*, number: int | None = None, batch: Fields | None = None, result: Any = None) -> Decorator: ...
def method(function: Any = None, /, *, number: int | None = None, batch: Fields | None = None, result: Any = None) -> Any:
    """Says how a method of a service is called, where that is not the usual.

    ``number`` is its own; without one it follows the method before. With ``batch``, names and types of the words, it gets all
    calls that wait as one structured array, and returns an array with a value for each (``result``: its type), or a mapping or
    structured array with one for each of several names (``result``: names and types).
    """

    def mark(function: F) -> F:
        setattr(function, "_hostcall_options", Options(number, batch, result))
        return function

    return mark if function is None else mark(function)


def _unwritten(*_: object) -> None:
    raise NotImplementedError


def _is_unwritten(function: object) -> bool:
    """Returns whether all that a function does is to say that it has to be written."""
    code: Any = getattr(getattr(function, "__func__", function), "__code__", None)
    own = _unwritten.__code__
    is_said = code is not None and (code.co_code, code.co_names) == (own.co_code, own.co_names)
    return is_said or bool(getattr(function, "__isabstractmethod__", False))


@dataclass
class Description:
    """What ``@hostcall.service`` says of a class."""

    of: type
    name: str
    number: int
    is_typed: bool
    functions: dict[str, Options] = field(default_factory=dict)

    def refuse_unwritten(self, service: object) -> None:
        """Refuses an object whose class does not have all methods."""
        missing = [name for name in self.functions if _is_unwritten(getattr(service, name, None))]
        if missing:
            what = f"{type(service).__name__} does not have {', '.join(missing)} of {self.name}"
            raise TypeError(f"{what}: derive a class that has all of its methods")

    def methods(self, service: object) -> list[Method]:
        """Returns the methods of an object of the class."""
        number, methods = self.number, []
        for name, options in self.functions.items():
            number = number if options.number is None else options.number
            function = getattr(service, name)
            if isinstance(service, type):
                # Only its types are asked for.
                function = MethodType(function, service)
            full = f"{self.name}::{name}"
            said_again = getattr(function, "_hostcall_options", options)
            if said_again not in (options, Options()):
                what = f"{function.__qualname__} has a @hostcall.method of its own, and is called as {self.of.__name__} says"
                raise TypeError(f"{what}: write it without")
            found = method_of(function, options, number, full, self.is_typed)
            declared = vars(self.of)[name]
            if getattr(function, "__func__", function) is not declared:
                said = method_of(MethodType(declared, service), options, number, full, self.is_typed)
                if (found.arguments, found.results) != (said.arguments, said.results):
                    raise TypeError(f"{function.__qualname__} has other types than {self.of.__name__} says: annotate it as there")
            methods.append(found)
            number += 1
        return methods


@overload
def service(of: C, /) -> C: ...
@overload
def service(*, number: int | None = None, name: str | None = None, typed: bool = False) -> Callable[[C], C]: ...
def service(of: Union[C, None] = None, /, *, number: int | None = None, name: str | None = None, typed: bool = False) -> Any:
    """Makes a class a service: kernels call its public methods, in their order, from ``number`` on.

    ::

        @hostcall.service(number=700)
        class Prices:
            def of(self, item: hostcall.u64) -> hostcall.f32:
                return 1.5 * item

        device.serve(Prices())

    Names and numbers are those of a Rust trait of the same name; without a number it is the one that such a trait has. Calls of
    other types end with ``TYPE_MISMATCH`` where the service is ``typed``, else a function checks what it gets:
    ``hostcall.header`` writes what kernels in C name methods by. A class may be derived from a service's, with methods of the
    same types: ``hostcall bind --python`` makes the one to derive from.
    """

    def mark(of: C) -> C:
        for base in of.__mro__[1:]:
            if "_hostcall_service" in vars(base):
                what = f"{of.__name__} is derived from the service {base.__name__}, and has its numbers"
                raise TypeError(f"{what}: write @hostcall.service above {base.__name__} alone")
        text = name or of.__name__
        described = Description(of, text, _hostcall.number_of(text) if number is None else number, typed)
        for attribute, value in vars(of).items():
            if inspect.isfunction(value) and not attribute.startswith("_"):
                described.functions[attribute] = getattr(value, "_hostcall_options", Options())
        if not described.functions:
            raise TypeError(f"{text} has no public methods, so no kernel could call it")
        setattr(of, "_hostcall_service", described)
        return of

    return mark if of is None else mark(of)


def description_of(service: object) -> Description:
    """Returns what ``@hostcall.service`` said of an object's class, or of a class."""
    described = getattr(service, "_hostcall_service", None)
    if not isinstance(described, Description):
        what = service.__name__ if isinstance(service, type) else type(service).__name__
        raise TypeError(f"{what} is no service: write @hostcall.service above the class")
    return described


def header(*services: object) -> str:
    """Returns lines of C that name the methods of services, for ``hostcall_device.h``: ``#define PRICES_OF HOSTCALL_METHOD(…)``."""
    return "".join(method.define() for service in services for method in description_of(service).methods(service))
