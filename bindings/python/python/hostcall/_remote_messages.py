"""The messages of services that live elsewhere, as ``host/remote/src/message.rs`` describes them: that page is both ends'."""

from __future__ import annotations

import struct
from typing import NamedTuple, Sequence

VERSION = 1
MAX_CALLS = 1 << 16
MAX_WORDS = 1 << 20
"""Most argument words of a message. Each of its calls may have as many result words as a call may have."""
MAX_WIDTH = 64
MAX_BYTES = 40 + 8 * MAX_CALLS + 8 * MAX_WORDS

OK, NO_SUCH_SERVICE, FAILED, PANICKED, CANCELLED, TOO_LARGE, TIMED_OUT, TYPE_MISMATCH, MALFORMED, BUSY = range(10)

_MAGIC = b"hcrm"
_HEAD = struct.Struct("<4sHHIIQQ")
_SCHEMA = struct.Struct("<Q")
_UNWANTED = 1


class Head(NamedTuple):
    """What is the same in messages of all versions."""

    version: int
    width: int
    """Words of each call."""
    calls: int
    """How many calls."""
    batch: int
    process: int


class Question(NamedTuple):
    """A batch of calls of one method."""

    head: Head
    schema: int
    remaining: tuple[int, ...]
    """For each call, how many microseconds its lane waits longer; 0 for as long as it takes."""
    words: memoryview
    """The calls' argument words, those of one call side by side."""


class Malformed(Exception):
    """Bytes are no message."""


class OtherVersion(Exception):
    """Bytes are a message of another version, which begins with this head."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self.head = head


def failed(code: int) -> int:
    """Returns the status of a call that a function refused with a code."""
    return FAILED | (code & 0xFFFF_FFFF) << 8


def _read_head(message: bytes, kind: int) -> Head:
    if len(message) < _HEAD.size:
        raise Malformed
    magic, version, width, count, found, batch, process = _HEAD.unpack_from(message)
    if magic != _MAGIC or not 0 < count <= MAX_CALLS:
        raise Malformed
    head = Head(version, width, count, batch, process)
    if version != VERSION:
        raise OtherVersion(head)
    if found != kind or width > MAX_WIDTH:
        raise Malformed
    return head


def read_unwanted(message: bytes) -> Head | None:
    """Returns the head of the question for whose answer nobody waits any more, if the message says so."""
    if len(message) != _HEAD.size:
        return None
    try:
        return _read_head(message, _UNWANTED)
    except (Malformed, OtherVersion):
        return None


def read_question(message: bytes) -> Question:
    """Reads a question. Raises ``Malformed`` or ``OtherVersion``."""
    head = _read_head(message, 0)
    calls = _HEAD.size + _SCHEMA.size
    words = calls + 8 * head.calls
    if len(message) != words + 8 * head.calls * head.width or head.calls * head.width > MAX_WORDS:
        raise Malformed
    (schema,) = _SCHEMA.unpack_from(message, _HEAD.size)
    pairs = struct.unpack_from(f"<{2 * head.calls}I", message, calls)
    # The other of a pair is the lane's place in its wave.
    if max(pairs[1::2]) > 0xFF:
        raise Malformed
    return Question(head, schema, pairs[::2], memoryview(message)[words:])


def write_answer(asked: Head, statuses: Sequence[int], width: int, words: bytes) -> bytes:
    """Returns the message that answers a question: a status a call, and ``width`` words a call."""
    head = _HEAD.pack(_MAGIC, VERSION, width, asked.calls, 0, asked.batch, asked.process)
    return head + struct.pack(f"<{asked.calls}Q", *statuses) + words


class Once:
    """Which batches were here before, by caller: the highest number, and which of the window were here. Older ones count as such."""

    MOST_CALLERS = 4096
    WINDOW = 8192
    """Numbers that are told apart, below the highest one and with it: threads that send overtake each other."""

    def __init__(self) -> None:
        # The lowest bit is the highest number's.
        self._callers: dict[int, tuple[int, int]] = {}

    def is_new(self, process: int, batch: int) -> bool:
        """Notes a batch. Returns whether it is here for the first time."""
        highest, here = self._callers.get(process, (-1, 0))
        if highest < 0:
            if len(self._callers) == self.MOST_CALLERS:
                # The one that came first.
                del self._callers[next(iter(self._callers))]
            self._callers[process] = (batch, 1)
            return True
        if batch > highest:
            more = batch - highest
            here = 1 if more >= self.WINDOW else (here << more | 1) & ((1 << self.WINDOW) - 1)
            self._callers[process] = (batch, here)
            return True
        below = highest - batch
        if below >= self.WINDOW or here >> below & 1:
            return False
        self._callers[process] = (highest, here | 1 << below)
        return True
