"""Questions of other processes: who gets in, who answers, and when nobody waits any more.

It is what ``host/remote/src/door.rs`` and ``lanes.rs`` are in Rust, with the same limits. What carries messages is not known here.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Callable, Mapping, Protocol

from . import _hostcall
from . import _remote_messages as messages
from ._errors import Refuse
from ._remote_messages import Head, Question
from ._service import Method

MOST_WAITING = 256
"""Most questions of a service that wait for a thread, and that are not answered. More of them get ``Busy``."""
MOST_UNDER_WAY = 4096
MOST_BYTES = 256 << 20
"""Most bytes of the messages with questions of a service that are not answered. More of them get ``Busy``."""
_LOOK_EACH = 0.001
"""How often is looked for questions whose lanes have gone on, at most, in seconds."""

_LONGEST_END = 1.0
"""How long is waited for threads that end, in seconds."""

log = logging.getLogger("hostcall.remote")


def start(run: Callable[[], None]) -> threading.Thread:
    """Starts a thread that does not keep the process from ending."""
    thread = threading.Thread(target=run, name="hostcall-remote", daemon=True)
    thread.start()
    return thread


def join(thread: threading.Thread) -> None:
    """Waits for the end of a thread that has been told to end, unless it is the caller's."""
    if thread is not threading.current_thread():
        thread.join(_LONGEST_END)


class Arrived(Protocol):
    """A question that arrived. Without an answer it has to be dropped, which ends it at the other side, with nothing."""

    @property
    def method(self) -> str:
        """The name behind the service's: the method's, with ``/`` between its parts."""
        ...

    @property
    def size(self) -> int: ...
    def message(self) -> bytes: ...
    def answer(self, message: bytes, /) -> None: ...
    def drop(self) -> None: ...


@dataclass
class Counts:
    """What a session has counted since it was opened."""

    answered: int = 0
    """Questions that were answered: messages with calls."""
    refused: int = 0
    """Questions that were refused: of another version, malformed, twice the same, or too many at once."""
    unwanted: int = 0
    """Questions that were not answered since nobody waited for it any more."""
    raised: int = 0
    """Calls that ended with ``Panicked`` since a function raised."""


class Asked:
    """A question that is let in, until it was answered or nobody waits for it."""

    def __init__(self, door: Door, arrived: Arrived, question: Question, served: Served, size: int) -> None:
        came = time.monotonic()
        self._door, self._arrived = door, arrived
        self.head, self.words, self.served, self.size = question.head, question.words, served, size
        self._deadlines = None
        self.until = math.inf
        """When the last lane goes on by itself."""
        if any(question.remaining):
            self._deadlines = [came + us / 1e6 if us else math.inf for us in question.remaining]
            self.until = max(self._deadlines)

    def is_late(self, call: int) -> bool:
        return self._deadlines is not None and self._deadlines[call] <= time.monotonic()

    def or_late(self, statuses: list[int]) -> list[int]:
        """Returns the statuses, with those of calls whose lanes have gone on."""
        if self._deadlines is None:
            return statuses
        now = time.monotonic()
        return [messages.TIMED_OUT if until <= now else status for until, status in zip(self._deadlines, statuses)]

    def is_over(self) -> bool:
        """Returns whether it was answered, or nobody waits for it any more."""
        return not self._door.has(self)

    def is_wanted(self) -> bool:
        """Returns whether a lane waits for its answer."""
        return not self.is_over() and time.monotonic() < self.until

    def answer(self, statuses: list[int], words: bytes) -> None:
        """Sends the answer, if nobody ended the question before."""
        message = messages.write_answer(self.head, statuses, self.served.width if words else 0, words)
        if self._door.begin(self):
            try:
                self._arrived.answer(message)
            finally:
                self._door.sent()
            self._door.count(answered=1)

    def refuse(self, status: int) -> None:
        _refuse(self._arrived, self.head, status)

    def end(self) -> None:
        """Ends it without an answer. It has been removed."""
        self._arrived.drop()
        # It may wait for a thread still.
        self.words = memoryview(b"")
        self._door.count(unwanted=1)


def _refuse(arrived: Arrived, head: Head, status: int) -> None:
    arrived.answer(messages.write_answer(head, [status] * head.calls, 0, b""))


_current = threading.local()


def is_wanted() -> bool:
    """Returns whether a lane still waits for what the function that this thread runs returns.

    Lanes go on at their deadlines, and when they are cancelled or their process is gone. A function that takes long may look, and
    return anything once it is ``False``: nobody gets it. In threads that answer nobody it is ``True``.
    """
    asked: Asked | None = getattr(_current, "asked", None)
    return asked is None or asked.is_wanted()


class Served:
    """A function that answers."""

    def __init__(self, method: Method) -> None:
        if method.mode == "async":
            what = f"{method.name} is async, and calls of other processes come many at once"
            raise TypeError(f"{what}: take a function, with `batch` for one that gets all of them")
        self.name, self.mode, self.function = method.name, method.mode, method.function
        self._signature = _hostcall.RawSignature(method.name, method.arguments, method.results)
        self.schema = self._signature.schema(method.name)
        self.width = len(method.results)
        self.arguments = len(method.arguments)

    def _failed(self, error: BaseException) -> int:
        if not isinstance(error, Refuse):
            return messages.PANICKED
        # A class of the user's may have another one, or none.
        code = getattr(error, "code", -1)
        return messages.failed(code if isinstance(code, int) else -1)

    def answer(self, asked: Asked, words: memoryview) -> None:
        """Answers a question that had these words, with a status for each call whatever the function does."""
        _current.asked = asked
        try:
            (self._batch if self.mode == "batch" else self._each)(asked, words)
        finally:
            _current.asked = None

    def _log(self, asked: Asked, error: BaseException, calls: int) -> None:
        asked._door.count(raised=calls)
        if calls:
            what = "%s raised: %d of %d calls of process %x ended with `Panicked`"
            log.error(what, self.name, calls, asked.head.calls, asked.head.process, exc_info=error)

    def _batch(self, asked: Asked, words: memoryview) -> None:
        count = asked.head.calls
        statuses, results = [messages.OK] * count, b""
        try:
            results = self.function(words, count)
        # The thread goes on, whatever it is.
        except BaseException as error:
            statuses = [self._failed(error)] * count
            self._log(asked, error, statuses.count(messages.PANICKED))
        asked.answer(asked.or_late(statuses), results)

    def _each(self, asked: Asked, words: memoryview) -> None:
        size, nothing = 8 * self.arguments, bytes(8 * self.width)
        statuses: list[int] = []
        results = bytearray()
        first: BaseException | None = None
        for call in range(asked.head.calls):
            if asked.is_over():
                break
            status, result = messages.TIMED_OUT, nothing
            if not asked.is_late(call):
                try:
                    arguments = self._signature.decode(bytes(words[call * size : (call + 1) * size]))
                    status = messages.MALFORMED
                    if arguments is not None:
                        result = self._signature.encode(self.function(*arguments))
                        status = messages.OK
                except BaseException as error:
                    status = self._failed(error)
                    # Not its truth, which is a user's.
                    if first is None and not isinstance(error, Refuse):
                        first = error
                if asked.is_late(call):
                    status = messages.TIMED_OUT
            statuses.append(status)
            results += result if status == messages.OK else nothing
        if first is not None:
            self._log(asked, first, max(statuses.count(messages.PANICKED), 1))
        if len(statuses) == asked.head.calls:
            asked.answer(statuses, bytes(results))


class Door:
    """Where questions of a service come in. Its threads end when it is closed, but for those whose functions do not return."""

    def __init__(self, served: Mapping[str, Served], counts: Counts, lock: threading.Lock, threads: int) -> None:
        self._served, self._counts, self._count_lock = served, counts, lock
        # What follows is everybody's.
        self._lock = threading.Condition()
        self._once = messages.Once()
        self._under_way: dict[tuple[int, int], Asked] = {}
        self._bytes = self._waiting = self._sending = 0
        self._looks_at = math.inf
        self._is_closed = False
        self._work: SimpleQueue[Asked | None] = SimpleQueue()
        self._threads = threads
        self._watches = start(self._watch)
        for _ in range(threads):
            start(self._run)

    def count(self, **more: int) -> None:
        with self._count_lock:
            for name, number in more.items():
                setattr(self._counts, name, getattr(self._counts, name) + number)

    def has(self, asked: Asked) -> bool:
        return self._under_way.get((asked.head.process, asked.head.batch)) is asked

    def remove(self, asked: Asked) -> bool:
        """Takes a question out. Returns whether it was in."""
        with self._lock:
            return self._remove(asked)

    def _remove(self, asked: Asked) -> bool:
        found = self.has(asked)
        if found:
            del self._under_way[asked.head.process, asked.head.batch]
            self._bytes -= asked.size
        return found

    def begin(self, asked: Asked) -> bool:
        """Takes a question out of which the answer is sent until ``sent`` is called. Returns whether it was in."""
        with self._lock:
            found = self._remove(asked)
            self._sending += found
            return found

    def sent(self) -> None:
        with self._lock:
            self._sending -= 1
            if self._is_closed:
                self._lock.notify_all()

    def let_in(self, arrived: Arrived) -> None:
        """Lets a question in, or refuses it."""
        try:
            is_refused = self._let_in(arrived)
        except Exception:
            is_refused = True
            # First: to drop it may fail too.
            log.exception("a question to %s was dropped: this is a bug in hostcall", arrived.method)
            arrived.drop()
        self.count(refused=int(is_refused))

    def _let_in(self, arrived: Arrived) -> bool:
        size = arrived.size
        message = arrived.message() if size <= messages.MAX_BYTES else b""
        unwanted = messages.read_unwanted(message)
        if unwanted is not None:
            key = (unwanted.process, unwanted.batch)
            self.end_those(lambda asked: (asked.head.process, asked.head.batch) == key)
            arrived.drop()
            return False
        try:
            question = messages.read_question(message)
        except messages.OtherVersion as other:
            _refuse(arrived, other.head, messages.TYPE_MISMATCH)
            return True
        except messages.Malformed:
            # It does not say how many calls it has.
            arrived.drop()
            return True
        head, served = question.head, self._served.get(arrived.method)
        if served is None or served.schema != question.schema:
            _refuse(arrived, head, messages.NO_SUCH_SERVICE if served is None else messages.TYPE_MISMATCH)
            return True
        if served.arguments != head.width:
            _refuse(arrived, head, messages.MALFORMED)
            return True
        asked = Asked(self, arrived, question, served, size)
        with self._lock:
            # Its process may have been forgotten while the question is under way.
            is_here = (head.process, head.batch) in self._under_way
            if self._is_closed or is_here or not self._once.is_new(head.process, head.batch):
                arrived.drop()
                return True
            is_full = len(self._under_way) == MOST_UNDER_WAY or self._bytes + size > MOST_BYTES
            is_busy = is_full or self._waiting == MOST_WAITING
            if not is_busy:
                self._under_way[head.process, head.batch] = asked
                self._bytes += size
                self._waiting += 1
                if asked.until < self._looks_at:
                    self._lock.notify_all()
        if is_busy:
            asked.refuse(messages.BUSY)
            return True
        self._work.put(asked)
        return False

    def end_those(self, which: Callable[[Asked], bool]) -> None:
        """Ends questions for which nobody waits any more."""
        with self._lock:
            ended = [asked for asked in self._under_way.values() if which(asked)]
            for asked in ended:
                self._remove(asked)
        for asked in ended:
            asked.end()

    def close(self) -> None:
        """Ends all questions: nobody gets answers from here any more. Does not wait for functions that run."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        self.end_those(lambda _: True)
        for _ in range(self._threads):
            self._work.put(None)
        join(self._watches)
        # No other answer is sent than those that have begun: all questions have ended.
        with self._lock:
            self._lock.wait_for(lambda: not self._sending, _LONGEST_END)

    def _watch(self) -> None:
        """Ends questions whose lanes have gone on."""
        while True:
            with self._lock:
                if self._is_closed:
                    return
                self._looks_at = min((asked.until for asked in self._under_way.values()), default=math.inf)
                wait = max(self._looks_at - time.monotonic(), _LOOK_EACH)
                self._lock.wait(None if math.isinf(wait) else min(wait, threading.TIMEOUT_MAX))
            now = time.monotonic()
            self.end_those(lambda asked: asked.until <= now)

    def _run(self) -> None:
        """Has questions answered."""
        while (asked := self._work.get()) is not None:
            with self._lock:
                self._waiting -= 1
            # Before it is looked whether it has ended, which takes them from it.
            words = asked.words
            try:
                if not asked.is_over():
                    asked.served.answer(asked, words)
            # The thread goes on, whatever it is.
            except BaseException:
                log.exception("a question to %s was dropped: this is a bug in hostcall", asked.served.name)
                if self.remove(asked):
                    asked.end()
            # While it waits for the next one.
            del asked, words
