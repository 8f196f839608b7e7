"""Functions that run in a process of their own, which is ended and replaced where they do not end. ``_worker_process`` is its side."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import math
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Callable

from ._run import Report, Wait, check_timeout

_GRACE = 2.0
"""How many seconds a function may take to end after it was told to."""
_LONGEST_START = 60.0
"""How many seconds the process and the function's imports may take, where the function has a limit."""
_LONGEST_END = 10.0
"""How many seconds a process may take that was killed: the driver's part of it may hang."""
_LOOK = 0.1
"""Seconds between two looks whether the process is there: a child of its own may keep the pipes open."""
_MOST_OUTPUT = 16 << 20
"""Bytes of each output that are kept."""
_PIPE_BYTES = 1 << 20
"""What a pipe may hold."""

HEAD = struct.Struct("<4sQ")
MAGIC = b"HCW1"

is_starting = False
"""Whether this is a worker that imports its parent's main script."""

_all: weakref.WeakSet[Worker]
_idle: list[Worker] = []
"""Those of ``hostcall.run``."""
_idle_lock = threading.Lock()


def framed(message: object) -> bytes:
    """Returns a message as it is sent."""
    data = pickle.dumps(message)
    return HEAD.pack(MAGIC, len(data)) + data


class _Over(Exception):
    """Nothing more comes from the process, or nothing that can be believed: that says why."""


def _ends() -> tuple[socket.socket, socket.socket]:
    """Returns both ends of a new socket."""
    ends = []
    for end in socket.socketpair():
        with end:
            # Above the standard ones: where those are closed here, they are others in the process.
            found = socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
        # Whatever `socket.setdefaulttimeout` says: it would go with the file to the process.
        found.setblocking(True)
        ends.append(found)
    return ends[0], ends[1]


def _paths() -> list[str]:
    """Returns where modules are looked for: the interpreter skips what is no text."""
    return [path for path in sys.path if isinstance(path, str)]


class _Output:
    """What a function prints."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self._kept = bytearray()
        self.lost = 0
        self.is_over = False
        """Whether nobody writes any more."""

    def read(self) -> bool:
        """Takes what is there, in part. Returns whether there was something."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return False
        room = _MOST_OUTPUT - len(self._kept)
        self._kept += data[:room]
        self.lost += max(len(data) - room, 0)
        self.is_over = not data
        return bool(data)

    def rest(self) -> None:
        """Takes all that is there, and no more: something may go on to write."""
        for _ in range(_PIPE_BYTES >> 16):
            if not self.read():
                break

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


class _Process:
    """A process that runs one function after the other."""

    def __init__(self) -> None:
        from multiprocessing import spawn, util

        prepared: dict[str, Any] = spawn.get_preparation_data("hostcall")
        # Those are of multiprocessing's own processes.
        for key in ("authkey", "start_method"):
            prepared.pop(key, None)
        prepared["sys_path"] = [path for path in prepared["sys_path"] if isinstance(path, str)]
        self._socket, other = _ends()
        code = f"import sys; sys.path[:] = {prepared['sys_path']!r}; from hostcall._worker_process import main; main({other.fileno()})"
        executable = os.fsdecode(spawn.get_executable())
        # As `-W` and `-X`.
        flags: list[str] = getattr(util, "_args_from_interpreter_flags")()
        with other:
            self._process = subprocess.Popen(
                [executable, *flags, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=[other.fileno()],
                # A group of its own: what it starts ends with it, and keys that interrupt this process do not interrupt it.
                start_new_session=True,
            )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._pipes = (self._process.stdout, self._process.stderr)
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._unsent = bytearray(framed(prepared))
        self._ending = threading.RLock()
        self._socket.setblocking(False)
        self._received = bytearray()
        self._dump_signal = 0

    def has_ended(self) -> bool:
        """Returns whether the process has ended. It is not reaped, so that its group's number stays its own."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            # Where the process ignores SIGCHLD.
            return True

    def _send(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            pass
        except OSError:
            # The other end is closed, of which who receives is told.
            self._unsent.clear()

    def _messages(self) -> list[tuple[str, Any]]:
        """Returns the messages that have come. Raises ``_Over`` where there is no more, or something else came."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            raise _Over
        self._received += data
        found: list[tuple[str, Any]] = []
        while len(self._received) >= HEAD.size:
            magic, length = HEAD.unpack_from(self._received)
            if magic != MAGIC:
                raise _Over("ValueError: the process wrote into the socket of its worker")
            if len(self._received) < HEAD.size + length:
                break
            try:
                kind, content = pickle.loads(self._received[HEAD.size : HEAD.size + length])
            except Exception as why:
                raise _Over(f"{type(why).__name__}: {why}") from None
            found.append((kind, content))
            del self._received[: HEAD.size + length]
        return found

    def run(self, request: bytes, timeout: float | None) -> tuple[Report, bool]:
        """Runs a pickled function. Returns its report, and whether the process can run another one."""
        for pipe in self._pipes:
            # What threads of functions before have written is nobody's.
            _Output(pipe.fileno()).rest()
        outputs = [_Output(pipe.fileno()) for pipe in self._pipes]
        self._unsent += framed(request)
        began = time.monotonic()
        deadline = math.inf if timeout is None else began + _LONGEST_START
        limit = f"the process and the function's imports took longer than {_LONGEST_START:g} s"
        is_told, waiting, said = False, list[Wait](), list[str]()
        done: dict[str, Any] | None = None
        with selectors.DefaultSelector() as selector:
            for output in outputs:
                selector.register(output.pipe, selectors.EVENT_READ, output)
            selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while done is None:
                is_over = self.has_ended()
                # What handlers of signals raise here comes through.
                for key, events in selector.select(max(min(_LOOK, deadline - time.monotonic()), 0)):
                    if key.data is not None:
                        key.data.read()
                        if key.data.is_over:
                            selector.unregister(key.fd)
                    elif events & selectors.EVENT_WRITE:
                        self._send()
                selector.modify(self._socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0))
                messages: list[tuple[str, Any]] = []
                try:
                    messages = self._messages()
                except _Over as why:
                    said.extend(why.args)
                    is_over = True
                for kind, content in messages:
                    if kind == "started":
                        self._dump_signal = content
                    elif kind == "called":
                        began = time.monotonic()
                        if timeout is not None and not is_told:
                            deadline, limit = began + timeout, f"the function did not end within {timeout:g} s"
                    elif kind == "waiting":
                        waiting = content
                    else:
                        done = content
                if done is not None:
                    # Also of a process that has ended since.
                    break
                if is_over:
                    # Its pipes close before it has a code.
                    code = self.end(grace=1)
                    how = f"by the signal {-code}" if code < 0 else f"with code {code}"
                    said.append(f"the function's process ended {how}")
                    done = {"ended": "died", "exit_code": code}
                elif deadline <= time.monotonic():
                    if is_told:
                        self._dump(outputs)
                        said.append(f"it did not end {_GRACE:g} s after it was told to either, and its process was ended")
                        done = {"ended": "killed", "exit_code": self.end()}
                    else:
                        is_told = True
                        said.append(limit)
                        deadline = time.monotonic() + _GRACE
                        self._unsent += framed(None)
                        selector.modify(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
        for output in outputs:
            output.rest()
        is_usable = not is_told and done["ended"] in ("exited", "failed", "panicked")
        if is_told and done["ended"] != "killed":
            done = {**done, "ended": "timed out", "exit_code": 124}
        value, error = None, done.get("error")
        if done.get("value") is not None:
            try:
                value = pickle.loads(done["value"])
            except Exception as why:
                done = {**done, "ended": "failed", "exit_code": 1}
                error = f"the function's value cannot be read here: {type(why).__name__}: {why}"
        report = Report(
            exit_code=done["exit_code"],
            ended=done["ended"],
            seconds=time.monotonic() - began,
            panic=done.get("panic"),
            waiting=waiting,
            lost={**done.get("lost", {}), "stdout_bytes": outputs[0].lost, "stderr_bytes": outputs[1].lost},
            stdout=outputs[0].text(),
            stderr=outputs[1].text(),
            said=said,
            value=value,
            error=error,
        )
        return report, is_usable

    def _dump(self, outputs: list[_Output]) -> None:
        """Has the process print the stacks of its threads, also where one holds the GIL."""
        if self._dump_signal:
            os.kill(self._process.pid, self._dump_signal)
            time.sleep(_LOOK)
            for output in outputs:
                output.rest()

    def end(self, grace: float = 0) -> int:
        """Ends the process, which may end by itself for ``grace`` seconds, and its group. Returns its exit code."""
        # One at a time: who comes later may not kill a group whose number is another's by then.
        with self._ending:
            if self._process.returncode is None:
                deadline = time.monotonic() + grace
                while not self.has_ended() and time.monotonic() < deadline:
                    time.sleep(0.005)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LONGEST_END)
            return -signal.SIGKILL if self._process.returncode is None else self._process.returncode

    def close(self) -> None:
        """Has the process end, and closes what leads to it."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(_GRACE)
            self._socket.sendall(bytes(self._unsent) + framed("end"), socket.MSG_NOSIGNAL)
        self.end(_GRACE)
        self.forget()

    def forget(self) -> None:
        """Closes what leads to the process. It ends then, if no other process has that open."""
        self._socket.close()
        for pipe in self._pipes:
            pipe.close()
        if self._process.returncode is None:
            # Nobody waits for it here: a child of `fork`, whose parent does, or a driver that does not let it go.
            self._process.returncode = -signal.SIGKILL


class Worker:
    """Runs functions in a process of its own, one after the other, whatever they do.

    ::

        with hostcall.Worker() as worker:
            report = worker.run(train_step, [3], timeout=60)
            if not report.ok:
                print(report.ended, report.error, report.waiting, report.stderr)

    The process is a fresh interpreter, which starts with the first function and is kept for the next ones: what these import, open and
    put into modules stays. One that a function ended, or that had to be ended, is replaced. Whatever it started ends with it, unless
    that has left its process group, and all of it ends with this process, however that ends. Libraries and modules stay as they were
    read: one that is built or written again is read by a new worker alone.
    """

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._is_closed = False
        self._running = threading.Lock()
        self._changing = threading.RLock()
        """Of the process and of whether the worker was closed. Handlers of signals may close it."""
        _all.add(self)

    def run(self, function: Callable[..., object], args: Sequence[Any] = (), *, timeout: float | None = None) -> Report:
        """Calls ``function(*args)`` in the process, and returns what became of it. It raises nothing that the function raises.

        The function is one of a module, or of the main script, whose top level runs again in the process, as in those of
        ``multiprocessing``. Arguments and value are pickled. Devices that are open when it returns are synchronized: what functions of
        theirs raised and what kernels' checks found is told.

        After ``timeout`` seconds (the process and its imports have a minute before these) contexts are cancelled, and the function gets
        a ``KeyboardInterrupt``. Where it has not ended 2 s later, as with a kernel that never calls, the stacks of its threads are the end of
        ``Report.stderr``, and its process is ended.
        """
        check_timeout(timeout)
        if is_starting:
            raise RuntimeError(
                "the script runs once more in the worker, up to here: put what runs functions behind `if __name__ == \"__main__\":`"
            )
        request = _pickled(function, args)
        if not self._running.acquire(blocking=False):
            raise RuntimeError("the worker runs another function: wait for that one, or make one more worker")
        try:
            if self._is_closed:
                raise RuntimeError("the worker was closed: make another one")
            if self._process is not None and self._process.has_ended():
                # What a function left behind has ended it.
                self._replace()
            if self._process is None:
                made = _Process()
                with self._changing:
                    self._process = made
                    is_closed = self._is_closed
                if is_closed:
                    # Meanwhile: who closed it saw no process.
                    self._replace()
                    raise RuntimeError("the worker was closed while it started")
            is_usable = False
            try:
                report, is_usable = self._process.run(request, timeout)
            finally:
                if not is_usable:
                    self._replace()
            return report
        finally:
            self._running.release()
            if self._is_closed:
                # Who closed it meanwhile has left the rest to this thread.
                self.close()

    def _replace(self) -> None:
        """Ends the process: the next function starts another one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()
            process.forget()

    def close(self) -> None:
        """Ends the process. A function that runs is ended too. Closing twice is fine."""
        with self._changing:
            self._is_closed = True
            process = self._process
        if not self._running.acquire(blocking=False):
            if process is not None:
                process.end()
            return
        try:
            process, self._process = self._process, None
            if process is not None:
                process.close()
        finally:
            self._running.release()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # Nobody may run it any more.
        if self._process is not None:
            self._replace()

    def _forget(self) -> None:
        """Leaves the process to the parent of this one."""
        self._running, self._changing = threading.Lock(), threading.RLock()
        process, self._process = self._process, None
        if process is not None:
            process.forget()


def run_kept(function: Callable[..., object], args: Sequence[Any], timeout: float | None, fresh: bool) -> Report:
    """Runs a function in a worker that is kept. Those that run at the same time have one each. A fresh one takes another's place."""
    with _idle_lock:
        worker = _idle.pop() if _idle else Worker()
    if fresh:
        worker.close()
        worker = Worker()
    try:
        return worker.run(function, args, timeout=timeout)
    finally:
        with _idle_lock:
            _idle.append(worker)


def _pickled(function: Callable[..., object], args: Sequence[Any]) -> bytes:
    called: Any = function
    while isinstance(called, functools.partial):
        called = called.func
    if getattr(called, "__module__", None) == "__main__":
        main = sys.modules["__main__"]
        name = getattr(getattr(main, "__spec__", None), "name", "")
        if name == "__main__" or name.endswith(".__main__"):
            raise TypeError(f"a worker cannot import {called!r} of a `__main__.py`: write it to another file, and import it from there")
        if not os.path.isfile(getattr(main, "__file__", None) or ""):
            raise TypeError(f"a worker cannot import {called!r}, which was typed in: write it to a file, and import it from there")
    try:
        # The function by itself: its module is found by the path.
        return pickle.dumps((os.getcwd(), _paths(), pickle.dumps((function, tuple(args)))))
    except Exception as error:
        what = "take a function of a module, not a lambda and none that is inside of another, and arguments that can be pickled"
        raise TypeError(f"{function!r} or its arguments cannot be sent to a worker ({error}): {what}") from error


_all = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for worker in list(_all):
        worker.close()


def _forget_all() -> None:
    """In a child that ``fork`` made: the processes are the parent's, and end when all that leads to them is closed there."""
    global _idle_lock
    _idle_lock = threading.Lock()
    _idle.clear()
    for worker in list(_all):
        worker._forget()


os.register_at_fork(after_in_child=_forget_all)
