"""Where coroutines of services run."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any, Callable, Coroutine, Sequence

Reply = Callable[["asyncio.Task[Any]"], None]
Started = Sequence[tuple["Coroutine[Any, Any, Any]", Reply, "float | None"]]
"""Coroutines, what gets their tasks, and after how many seconds their calls end."""

_LATER = 0.5
"""How many seconds after its call a task is cancelled: whoever ends calls at their deadlines looks ten times a second or so, and a task
that ended before would answer that it was cancelled."""


def _stop(limit: asyncio.TimerHandle, _: object) -> None:
    limit.cancel()


def _discard(started: Started) -> None:
    """Ends coroutines that will not run. Replies that are dropped end their calls with `Cancelled`."""
    for coroutine, *_ in started:
        coroutine.close()


class Loop:
    """An event loop: the user's, or one of our own on a thread that starts with the first coroutine."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # For what follows: coroutines come while another thread closes.
        self._lock = threading.Lock()
        self._closed = False
        self._ending = False

    def submit(self, started: Started) -> None:
        """Has coroutines run; each task goes to its reply when it is done."""
        try:
            with self._lock:
                if not self._closed:
                    if self._loop is None:
                        loop = asyncio.new_event_loop()
                        self._thread = threading.Thread(target=self._run, args=(loop,), name="hostcall-asyncio", daemon=True)
                        self._thread.start()
                        self._loop = loop
                    self._loop.call_soon_threadsafe(self._start, started)
                    return
        except BaseException:
            # The user's loop was closed.
            _discard(started)
            raise
        _discard(started)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._ending:
            try:
                loop.run_forever()
            except BaseException:
                # `SystemExit` and `KeyboardInterrupt` of a coroutine's leave the loop. Its task has them, and so its reply.
                pass
        loop.close()

    def _start(self, started: Started) -> None:
        if self._closed:
            return _discard(started)
        assert self._loop is not None
        for coroutine, reply, timeout in started:
            task = self._loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(reply)
            if timeout is not None:
                limit = self._loop.call_later(timeout + _LATER, task.cancel)
                task.add_done_callback(functools.partial(_stop, limit))

    def close(self) -> None:
        """Cancels what runs and what comes, and ends a loop of our own."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or loop.is_closed():
            return

        def end() -> None:
            self._ending = True
            loop.stop()

        def cancel() -> None:
            for task in list(self._tasks):
                task.cancel()
            if thread is not None:
                # Behind the tasks' own turns.
                loop.call_soon(end)

        try:
            loop.call_soon_threadsafe(cancel)
        except RuntimeError:
            # The user's loop was closed meanwhile, and its tasks with it.
            return
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def is_current(self) -> bool:
        """Returns whether it runs the caller."""
        try:
            return self._loop is not None and asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False
