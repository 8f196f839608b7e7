"""What is raised where somebody waits for kernels."""

from __future__ import annotations

import operator
import sys
from typing import Sequence


class Refuse(Exception):
    """Raised by a function that kernels call: the call ends with the status ``FAILED`` and this code. Nobody else learns of it."""

    def __init__(self, code: int = 1) -> None:
        code = operator.index(code)
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


class LostCalls(RuntimeWarning):
    """Calls of kernels got no answer, or posts reached no function: a warning where somebody waits for these kernels.

    ``warnings.simplefilter("error", hostcall.LostCalls)`` has it raised. Calls that ended at a deadline of the kernel's own, or
    since they were cancelled, are not told of.
    """


def lost_text(lost: Sequence[tuple[str, int, str, int, int]], kernels: str) -> str:
    """Returns what is said of lost calls and posts."""
    reasons = {
        "timed out": "timed out: the function did not answer before the deadline (`timeout` of the device or service)",
        "busy": "ended with BUSY: more calls waited than there may",
        "no service": "found no service of this number: serve it, or correct the number in the kernel",
        "types": "had other types than the typed service: name methods by `hostcall.header`",
    }
    lines = []
    for why, number, name, calls, posts in lost:
        counts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in ((calls, "call"), (posts, "post")) if count]
        lines.append(f"{' and '.join(counts)} of `{kernels}` to {number}{f' ({name})' if name else ''} {reasons[why]}")
    return "; ".join(lines)


for _shown in (Refuse, KernelPanic, LostCalls):
    # As users import them.
    _shown.__module__ = "hostcall"


def add_note(error: BaseException, note: str) -> None:
    """Adds a note, also before Python 3.11."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        setattr(error, "__notes__", [*getattr(error, "__notes__", []), note])


def raise_first(errors: Sequence[BaseException], count: int, panics: Sequence[BaseException]) -> None:
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
