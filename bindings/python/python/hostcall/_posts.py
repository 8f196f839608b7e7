"""Post queues: posts of kernels for a thread of yours, which polls and gets the posts themselves."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _hostcall

if TYPE_CHECKING:
    import numpy as np

    from ._device import Device

_MOST_WORDS = 16
_HEAD = struct.Struct("<QIIII")
_RECORD_BYTES = _HEAD.size + 8 * _MOST_WORDS
_DTYPE = [("tag", "<u8"), ("block", "<u4"), ("wave", "<u4"), ("slot", "<u4"), ("count", "<u4"), ("words", "<u8", (_MOST_WORDS,))]


class Post(NamedTuple):
    """A post of a kernel."""

    tag: int
    """What the kernel called it: 48 bits, or 32 with more than five words."""
    block: int
    """The linear index of the block that posted."""
    wave: int
    """The wave in its block."""
    slot: int
    """The slot through which it came: of posts through one slot each comes after the one before."""
    data: bytes
    """Its words: 0 to 128 bytes."""


class Posts:
    """The posts of a poll. Of one slot each comes after the one before.

    ``posts.of(tag, dtype)`` is what a kernel posted with a tag, as an array of structs. Iterating gives a ``Post`` each, without
    NumPy too.
    """

    def __init__(self, records: bytes) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records) // _RECORD_BYTES

    def __iter__(self) -> Iterator[Post]:
        for at in range(0, len(self._records), _RECORD_BYTES):
            tag, block, wave, slot, count = _HEAD.unpack_from(self._records, at)
            begin = at + _HEAD.size
            yield Post(tag, block, wave, slot, self._records[begin : begin + 8 * count])

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """All of them, as a read-only array of ``tag``, ``block``, ``wave``, ``slot``, ``count`` and ``words``.

        The first ``count`` of the 16 ``words`` are the post's, the others 0.
        """
        import numpy as np

        return np.frombuffer(self._records, _DTYPE)

    def of(self, tag: int, dtype: Any) -> np.ndarray[Any, Any]:
        """Returns the posts with a tag as an array of a dtype, in their order.

        A post is whole words: a struct of 12 bytes has a dtype of 16. Raises ``ValueError`` where one has another size.
        """
        import numpy as np

        kind, array = np.dtype(dtype), self.array
        if kind.hasobject:
            raise TypeError("kernels cannot post Python's objects: take a dtype of numbers")
        found = array[array["tag"] == tag]
        other = found["count"][8 * found["count"] != kind.itemsize]
        if len(other):
            raise ValueError(f"a post with tag {tag} has {8 * int(other[0])} bytes, and {kind} has {kind.itemsize}")
        return np.ndarray((len(found),), kind, found["words"][:, : kind.itemsize // 8].tobytes())

    def __repr__(self) -> str:
        return f"<hostcall.Posts: {len(self)}>"


@dataclass(frozen=True)
class PostQueueStatistics:
    """What became of a queue's posts until the last poll that ended."""

    posts: int
    """Posts that polls handed over."""
    dropped: int
    """Posts of before a cancellation or a renewal, and those that nobody had read when the queue was closed."""
    refused_calls: int
    """Calls, for which a queue is the wrong place."""
    garbage: int
    """Words of the device that made no sense."""


class PostQueue:
    """Posts of 0 to 16 words (128 bytes) for a thread of yours that polls, as proxies of communication libraries do.

    ``int(queue)`` is what kernels take in the place of a context's address, for ``hostcall_post_message``, ``hostcall_post`` and
    ``hostcall_wait_word``::

        queue = device.post_queue("sends")
        while not is_over:
            sends = queue.poll(timeout=0.1).of(SEND, [("peer", "u4"), ("bytes", "u4"), ("signal", "u8")])

    A wave whose ring is full waits until a poll has made room. Several threads that poll share the posts.
    """

    def __init__(self, device: Device, raw: _hostcall.RawPostQueue, name: str) -> None:
        self._device = device
        self._raw = raw
        self._address = raw.address()
        self.name = name

    def __int__(self) -> int:
        return self._address

    __index__ = __int__

    def _argument(self) -> _hostcall.RawPostQueue:
        return self._raw

    def poll(self, most: int | None = None, *, timeout: float | None = 0.0) -> Posts:
        """Returns the posts that are there, ``most`` at most.

        It waits ``timeout`` seconds for the first one, with ``None`` without a limit, and not at all without being told to: it looks
        every 50 µs, and each millisecond where none has come for 100 ms. What a kernel wrote before a post, and fenced
        (``hostcall_fence_system``), is there. Raises ``RuntimeError`` once the queue or its device is closed.
        """
        return Posts(self._raw.poll(2**62 if most is None else most, timeout))

    def has_posts(self) -> bool:
        """Returns whether posts were announced that no poll has taken: of kernels that have ended, all of theirs."""
        return self._raw.has_posts()

    def cancel(self) -> None:
        """Ends waits of kernels for room and for words. Polls drop what was posted and what comes, until ``renew``."""
        self._raw.cancel()

    def renew(self) -> None:
        """Has posts handed over again after ``cancel``. Polls drop what was posted before."""
        self._raw.renew()

    def statistics(self) -> PostQueueStatistics:
        """Returns what became of the posts until the last poll that ended."""
        return PostQueueStatistics(**dict(self._raw.statistics()))

    def close(self) -> PostQueueStatistics | None:
        """Cancels the queue for good. Returns the statistics, in which posts that nobody has read are among the dropped ones.

        Its memory stays until the process ends, since a graph may have its address. Closing twice is fine, and returns ``None``.
        """
        counted = self._raw.close()
        return None if counted is None else PostQueueStatistics(**dict(counted))

    def __enter__(self) -> PostQueue:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hostcall.PostQueue {self.name!r} at {self._address:#x}>"
