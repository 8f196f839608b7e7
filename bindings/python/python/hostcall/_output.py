"""Where goes what kernels print."""

from __future__ import annotations

import codecs
import logging
import threading
from typing import Any, Callable, Protocol, Union


class Writer(Protocol):
    """A file of text, as ``sys.stdout``."""

    def write(self, text: str, /) -> object: ...


Destination = Union[Writer, "logging.Logger", "logging.LoggerAdapter[Any]", Callable[[str], object]]


class Output:
    """What kernels print, as text for Python. Its functions are called on a thread of the device's output, one after the other."""

    def __init__(self, to: Destination) -> None:
        self._thread: int | None = None
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(2)]
        self._unfinished = ["", ""]
        self._write: Callable[[str], object] | None = None
        if isinstance(to, (logging.Logger, logging.LoggerAdapter)):
            self._lines: list[Callable[[str], object]] = [lambda line: to.info("%s", line), lambda line: to.warning("%s", line)]
            return
        write = getattr(to, "write", None)
        if callable(write):
            self._write = write
            self._lines = []
        elif callable(to):
            self._lines = [to, to]
        else:
            raise TypeError(f"{to!r} is no output: pass a logger, a file of text, or a function of a line, such as print")

    def __call__(self, is_error: bool, data: bytes) -> None:
        """Takes a piece, which may end within a line or a character."""
        stream = int(is_error)
        self._thread = threading.get_ident()
        try:
            self.put(stream, self._decoders[stream].decode(data))
        finally:
            self._thread = None

    def put(self, stream: int, text: str) -> None:
        """Takes text of the standard output (0) or error (1)."""
        if self._write is not None:
            self._write(text)
            return
        *lines, self._unfinished[stream] = (self._unfinished[stream] + text).split("\n")
        for line in lines:
            self._lines[stream](line)

    def line(self, text: str) -> None:
        """Takes a line of its own, which nothing comes between."""
        if self._write is not None:
            self._write(text + "\n")
        else:
            self._lines[0](text)

    def end(self) -> None:
        """Gives out lines that have no end."""
        for stream in range(2):
            text = self._decoders[stream].decode(b"", final=True)
            if text or self._unfinished[stream]:
                self.put(stream, text if self._write is not None else text + "\n")

    def is_current(self) -> bool:
        """Returns whether the caller is called by it."""
        return self._thread == threading.get_ident()
