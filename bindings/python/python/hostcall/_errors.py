"""What is raised where somebody waits for kernels."""

from __future__ import annotations

import sys
from typing import Sequence


class Refuse(Exception):
    """Raised by a function that kernels call: the call ends with the status ``FAILED`` and this code. Nobody else learns of it."""

    def __init__(self, code: int = 1) -> None:
        if not -(2**31) <= code < 2**31:
            raise ValueError(f"a code has 32 bits, and {code} has more")
        super().__init__(f"the call was refused with code {code}")
        self.code = code


class KernelPanic(Exception):
    """A check of a kernel has failed (``hostcall_check``). The kernel went on, and so do the process and the device."""

    def __init__(
        self,
        message: str,
        *,
        kernel: str,
        file: str,
        line: int,
        block: tuple[int, int, int],
        thread: tuple[int, int, int],
        lane: int,
        count: int,
    ) -> None:
        more = f", nor for {count - 1} more" if count > 1 else ""
        where = f"{file}:{line}: " if file else ""
        super().__init__(f"{where}{kernel}, block {block}, thread {thread}: {message}{more}")
        self.message = message
        """What did not hold, as the kernel's source has it."""
        self.kernel = kernel
        """The name of the context with which the kernel was launched."""
        self.file = file
        self.line = line
        self.block = block
        """The block of the first thread that found it."""
        self.thread = thread
        """That thread in its block."""
        self.lane = lane
        """The thread's index in its wave."""
        self.count = count
        """How many threads found it."""

    @property
    def place(self) -> str:
        """The place in the source, as ``file:line``."""
        return f"{self.file}:{self.line}"


for _shown in (Refuse, KernelPanic):
    # As users import them.
    _shown.__module__ = "hostcall"


def add_note(error: BaseException, note: str) -> None:
    """Adds a note, also before Python 3.11."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        setattr(error, "__notes__", [*getattr(error, "__notes__", []), note])


def raise_first(errors: Sequence[BaseException], count: int, panics: Sequence[KernelPanic]) -> None:
    """Raises the first of what there is, if there is any, with notes of the others. ``count`` calls raised ``errors``."""
    everything = [*errors, *panics]
    if not everything:
        return
    first, rest = everything[0], everything[1:]
    for other in rest:
        add_note(first, f"also: {type(other).__name__}: {other}")
    if count > len(errors):
        add_note(first, f"{count} calls got no result because a function raised")
    raise first
