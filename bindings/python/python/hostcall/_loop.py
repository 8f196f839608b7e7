"""Where coroutines of services run."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any, Callable, Coroutine, Sequence

Reply = Callable[["asyncio.Task[Any]"], None]
Started = Sequence[tuple["Coroutine[Any, Any, Any]", Reply, "float | None"]]
"""Coroutines, what gets their tasks, and after how many seconds these are cancelled: their calls have ended then."""


def _stop(limit: asyncio.TimerHandle, _: object) -> None:
    limit.cancel()


class Loop:
    """An event loop: the user's, or one of our own on a thread that starts with the first coroutine."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def submit(self, started: Started) -> None:
        """Has coroutines run; each task goes to its reply when it is done."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="hostcall-asyncio", daemon=True)
            self._thread.start()
        try:
            self._loop.call_soon_threadsafe(self._start, started)
        except RuntimeError:
            # The user's loop was closed. Replies that are dropped end their calls with `Cancelled`.
            for coroutine, *_ in started:
                coroutine.close()
            raise

    def _start(self, started: Started) -> None:
        assert self._loop is not None
        for coroutine, reply, timeout in started:
            task = self._loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(reply)
            if timeout is not None:
                limit = self._loop.call_later(timeout, task.cancel)
                task.add_done_callback(functools.partial(_stop, limit))

    def close(self) -> None:
        """Cancels what runs, and ends a loop of our own."""
        loop, thread = self._loop, self._thread
        if loop is None or loop.is_closed():
            return

        def cancel() -> None:
            for task in self._tasks:
                task.cancel()
            if thread is not None:
                # Behind the tasks' own turns.
                loop.call_soon(loop.stop)

        loop.call_soon_threadsafe(cancel)
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)
            if not thread.is_alive():
                loop.close()

    def is_current(self) -> bool:
        """Returns whether it runs the caller."""
        try:
            return self._loop is not None and asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False
