"""The process of a ``hostcall.Worker``: it runs functions and says what became of them."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import traceback
from multiprocessing import spawn
from typing import Any, NoReturn

from . import _device, _hostcall, _worker
from ._errors import KernelPanic
from ._run import ProgramPanic
from ._watch import dump_signal


class _Channel:
    """The way to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self._file = self._socket.makefile("rb")
        self._sending = threading.Lock()

    def receive(self) -> Any:
        _, length = _worker.HEAD.unpack(self._file.read(_worker.HEAD.size))
        return pickle.loads(self._file.read(length))

    def send(self, kind: str, content: object) -> None:
        with self._sending:
            self._socket.sendall(_worker.framed((kind, content)))


def _told(error: BaseException) -> str:
    """Returns an exception's text, from the function on."""
    # The first frame is the one below.
    at = error.__traceback__ and error.__traceback__.tb_next
    lines = traceback.format_exception(type(error), error, at)
    if sys.version_info < (3, 11):
        lines += [f"{note}\n" for note in getattr(error, "__notes__", [])]
    return "".join(lines)


class _Outputs:
    """The standard output and error, as they were when the process began: functions may close and replace them."""

    def __init__(self) -> None:
        self._kept = [os.dup(1), os.dup(2)]
        self._libc = ctypes.CDLL(None)
        # By lines: what a function printed is there when its process is ended.
        self._libc.setvbuf(ctypes.c_void_p.in_dll(self._libc, "stdout"), None, 1, ctypes.c_size_t(0))
        self.restore()

    def restore(self) -> None:
        for kept, descriptor, name in zip(self._kept, (1, 2), ("stdout", "stderr")):
            os.dup2(kept, descriptor)
            stream: Any = getattr(sys, f"__{name}__")
            if stream is None or stream.closed:
                stream = open(descriptor, "w", closefd=False)
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
            setattr(sys, f"__{name}__", stream)
            setattr(sys, name, stream)

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self._libc.fflush(None)


def _ended(error: BaseException) -> dict[str, Any]:
    """Returns what is said of a function that raised."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return {"ended": "exited", "exit_code": int(error.code or 0)}
        print(error.code, file=sys.stderr)
        return {"ended": "exited", "exit_code": 1}
    if isinstance(error, KernelPanic):
        place: Any = {"file": error.file or None, "line": error.line or None, "column": None, "workgroup": error.block, "lane": error.lane}
        panic = ProgramPanic(error.kernel, error.message, others=error.count - 1, **place)
        return {"ended": "panicked", "exit_code": 101, "error": _told(error), "panic": panic}
    return {"ended": "failed", "exit_code": 1, "error": _told(error)}


def _run(request: bytes, channel: _Channel) -> dict[str, Any]:
    """Runs a function. Returns what became of it."""
    process, lost = os.getpid(), dict(_device.lost)
    # One that nobody has any more when the function returns is told of, too.
    _device.kept = set()
    done: dict[str, Any] = {"ended": "exited", "exit_code": 0}
    try:
        folder, sys.path[:], called = pickle.loads(request)
        os.chdir(folder)
        function, args = pickle.loads(called)
        channel.send("called", None)
        done["value"] = _pickled(function(*args))
    except BaseException as error:
        done = _ended(error)
    if os.getpid() != process:
        # A child that the function made, and that came back from it: the devices are the parent's.
        os._exit(0)
    devices, _device.kept = {*_device._open, *_device.kept}, None
    for device in devices:
        try:
            device.synchronize()
        except BaseException as error:
            told = _ended(error)
            if done["ended"] == "exited":
                done = told
            elif "error" in told and "error" in done:
                done["error"] += f"also, of {device.name}:\n{told['error']}"
    return {**done, "lost": {kind: _device.lost[kind] - count for kind, count in lost.items()}}


def _pickled(value: object) -> bytes | None:
    if value is None:
        return None
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise TypeError(f"the function's value cannot be sent from its process ({error}): return what can be pickled") from None


def _stop(channel: _Channel) -> None:
    """Has the function end: says which calls wait, interrupts the main thread, and has the calls end."""
    devices = list(_device._open)
    waiting = []
    for device in devices:
        with contextlib.suppress(Exception):
            waiting += device.waiting()
    channel.send("waiting", waiting)
    # First, so that the function does not go on with what calls that ended have left.
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)
    for device in devices:
        for context in list(device._contexts):
            with contextlib.suppress(Exception):
                context.cancel()


def _end() -> NoReturn:
    """Ends this process with what it has started, which would go on without it."""
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("the signal ends it")


def main(descriptor: int) -> None:
    # Before anything that may not return.
    _hostcall.end_with(descriptor)
    channel, outputs = _Channel(descriptor), _Outputs()
    faulthandler.enable()
    # Also where this one came with another: the imports may be interrupted, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel.send("started", dump_signal())
    requests = queue.SimpleQueue[Any]()

    def receive() -> None:
        try:
            while (message := channel.receive()) != "end":
                if message is None:
                    _stop(channel)
                else:
                    requests.put(message)
            requests.put(None)
        except BaseException:
            # Nothing that comes could be told any more: who waits gets to know that the process has ended.
            _end()

    failed = None
    prepared = channel.receive()
    threading.Thread(target=receive, daemon=True).start()
    try:
        # Which may run functions, too.
        _worker.is_starting = True
        spawn.prepare(prepared)
    except BaseException as error:
        failed = {"ended": "not started", "exit_code": 1, "error": _told(error)}
    finally:
        _worker.is_starting = False
    while (request := requests.get()) is not None:
        outputs.restore()
        # The one before may have left another one, or none.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        done = failed or _run(request, channel)
        outputs.flush()
        try:
            channel.send("done", done)
        except OSError:
            _end()
