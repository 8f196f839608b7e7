"""Services that kernels of other processes call, on this machine or another one.

::

    import hostcall
    import hostcall.remote

    @hostcall.service
    class Features:
        @hostcall.method(batch={"user": hostcall.u64}, result={"age": hostcall.f32, "score": hostcall.f32})
        def of(self, calls):                     # all calls that wait: a structured array of NumPy
            rows = table[calls["user"]]
            return {"age": rows[:, 0], "score": rows[:, 1]}

    with hostcall.remote.Session(listen="tcp/127.0.0.1:7447") as session:
        session.export("features", Features())
        threading.Event().wait()

The other process imports the service by that name (``hostcall_remote::import`` in Rust). It needs no GPU, no device, and zenoh's
package: ``pip install 'hostcall[remote]'``.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ._remote_door import Counts, Door, Served, is_wanted, join, log, start
from ._service import description_of

try:
    import zenoh
except ImportError as error:
    raise ImportError("hostcall.remote needs zenoh's package: pip install 'hostcall[remote]'") from error

__all__ = ["Counts", "Export", "Session", "is_wanted"]

# Those of host/remote/src/zenoh_carrier.rs: nothing is looked for on the network, and nothing listens.
_DEFAULTS = {
    "mode": '"peer"',
    "scouting/multicast/enabled": "false",
    "scouting/gossip/enabled": "false",
    "listen/endpoints": "[]",
    "connect/endpoints": "[]",
    "connect/timeout_ms": "-1",
    "connect/exit_on_failure": "false",
    "connect/retry": "{ period_init_ms: 100, period_max_ms: 400, period_increase_factor: 2 }",
    "transport/link/tx/lease": "1500",
    "transport/link/tx/keep_alive": "4",
    "transport/link/rx/max_message_size": "67108864",
    "transport/shared_memory/enabled": "false",
    "transport/unicast/max_sessions": "10000",
}

_MOST_ARRIVED = 16
"""Most questions that have arrived and were not looked at. Of more of them zenoh waits with the link."""


def _check_name(what: str, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise ValueError(f"`{name}` cannot name a {what} here: use 1 to 64 letters, digits, `_`, `-` and `.`")


def _key_of(method: str) -> str:
    """Returns the part of a key that is a method's."""
    parts = method.split("::")
    if not all(re.fullmatch(r"[^*$#?/\s]+", part) for part in parts):
        raise ValueError(f"`{method}` cannot name a method here: it has characters that no key may have")
    return "/".join(parts)


def _is_loopback(address: str) -> bool:
    """Returns whether this machine alone reaches an address."""
    place = re.split("[#?]", address.partition("/")[2])[0]
    host, _, port = place.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return False
    return bool(host and found) and all(ip_address(str(place[4][0])).is_loopback for place in found)


def _addresses(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


class _Arrived:
    """A question as zenoh brings it."""

    def __init__(self, query: zenoh.Query, prefix: int) -> None:
        # Of some of its functions zenoh's package does not say the types.
        self._query: Any = query
        # Now: an answered query does not say it any more.
        self.method = str(query.key_expr)[prefix:]

    @property
    def size(self) -> int:
        payload = self._query.payload
        return 0 if payload is None else len(payload)

    def message(self) -> bytes:
        payload = self._query.payload
        return b"" if payload is None else payload.to_bytes()

    def answer(self, message: bytes, /) -> None:
        try:
            self._query.reply(self._query.key_expr, message, express=True)
        except zenoh.ZError:
            # Whoever asked is gone, or the session is closed.
            pass
        finally:
            self.drop()

    def drop(self) -> None:
        self._query.drop()


def _each(arrives: Any, take: Callable[[Any], None]) -> threading.Thread:
    """Gives what arrives to a function, on a thread of its own, until nothing more can."""

    # By itself: what is declared cannot be undeclared while its own function waits.
    handler = arrives.handler

    def run() -> None:
        while True:
            try:
                arrived = handler.recv()
            except zenoh.ZError:
                return
            try:
                take(arrived)
            except Exception:
                # The thread goes on: without it the link would stand still.
                log.exception("what came over a link was dropped: this is a bug in hostcall")

    return start(run)


class Export:
    """A service that is answered for, until it is closed, or its session is."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._declared: list[Any] = []
        self._takes: list[threading.Thread] = []

    def _takes_from(self, declared: Any, take: Callable[[Any], None]) -> None:
        self._declared.append(declared)
        self._takes.append(_each(declared, take))

    def close(self) -> None:
        """Answers no more: questions end, and nobody waits for functions that run. It may be called again."""
        declared, self._declared = self._declared, []
        # From the last one on, and each of them when another one fails.
        with ExitStack() as ends:
            ends.callback(self._door.close)
            for thread in self._takes:
                ends.callback(join, thread)
            for each in declared:
                ends.callback(each.undeclare)

    def __enter__(self) -> Export:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(exports: list[Export], session: Any, process: int) -> None:
    if os.getpid() != process:
        # One that was forked has none of the threads for which this would wait.
        return
    # As an export's.
    with ExitStack() as ends:
        ends.callback(session.close)
        for export in exports:
            ends.callback(export.close)


class Session:
    """A process's links to those that call. Keep it: what it exports ends with it.

    ``listen`` and ``connect`` are addresses, such as ``"tcp/127.0.0.1:7447"``, one or several. It connects now or later, and again when
    a link was lost. Sessions of other jobs see none of this one's services. ``file`` is one of zenoh's own kind, JSON5, with TLS and
    access rules, say, and ``settings`` are zenoh's by their paths: ``{"transport/link/tls/enable_mtls": "true"}``.

    An address that other machines reach is refused unless ``beyond_this_machine``: who reaches it may call, and answer for any name.
    """

    def __init__(
        self,
        *,
        listen: str | Sequence[str] = (),
        connect: str | Sequence[str] = (),
        job: str = "default",
        beyond_this_machine: bool = False,
        file: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        _check_name("job", job)
        listens, connects = _addresses(listen), _addresses(connect)
        for address in listens:
            if not (beyond_this_machine or _is_loopback(address)):
                raise ValueError(
                    f"`{address}` is no address of this machine alone, such as tcp/127.0.0.1:7447: pass `beyond_this_machine=True` to "
                    "listen where other machines reach it, with TLS and access rules"
                )
        config = zenoh.Config() if file is None else zenoh.Config.from_file(file)
        said = {name: value for name, value in _DEFAULTS.items() if file is None or name.startswith(("transport/", "scouting/"))}
        said |= {f"{what}/endpoints": json.dumps(list_) for what, list_ in (("listen", listens), ("connect", connects)) if list_}
        for name, value in {**said, **(settings or {})}.items():
            config.insert_json5(name, value)
        self._counts, self._lock = Counts(), threading.Lock()
        self._job = job
        self._exports: list[Export] = []
        self._session: Any = zenoh.open(config)
        # At the process's end too: a thread that is in zenoh's package when Python ends aborts the process.
        self._end = weakref.finalize(self, _end, self._exports, self._session, os.getpid())

    def export(self, name: str, service: object, *, threads: int = 1) -> Export:
        """Answers the calls that kernels of other processes make to a service, by this name in the session's job.

        ``service`` is an object whose class is a ``@hostcall.service``: its name, its methods' and their types are what callers
        must have, and numbers mean nothing here. A method with ``batch`` gets all calls of a message at once. They have words alone.
        ``threads`` call its functions, each for a message at a time. One that does not return keeps its thread.

        Other processes may answer for the same name, in any language: each message goes to one of them.
        """
        _check_name("service", name)
        if threads < 1:
            raise ValueError(f"{threads} threads would answer nobody: take 1 or more")
        if isinstance(service, type):
            raise TypeError(f"{service.__name__} is a class: pass an object, as {service.__name__}()")
        described = description_of(service)
        described.refuse_unwritten(service)
        served = {_key_of(method.name): Served(method) for method in described.methods(service)}
        door = Door(served, self._counts, self._lock, threads)
        prefix = f"hostcall/{self._job}/{name}/"

        def asker(sample: zenoh.Sample) -> None:
            process = str(sample.key_expr).rpartition("/")[2]
            if sample.kind == zenoh.SampleKind.DELETE and re.fullmatch("[0-9a-f]{1,16}", process):
                gone = int(process, 16)
                door.end_those(lambda asked: asked.head.process == gone)

        # Complete: of several that answer, a question goes to one. Neither has a callback: the threads on which zenoh's package calls
        # one are no daemons, and keep a process that does not close its session from ending.
        export = Export(door)
        try:
            arrives = self._session.declare_queryable(prefix + "**", zenoh.handlers.FifoChannel(_MOST_ARRIVED), complete=True)
            export._takes_from(arrives, lambda query: door.let_in(_Arrived(query, len(prefix))))
            lives = self._session.liveliness().declare_subscriber(prefix + "-askers-/*", zenoh.handlers.FifoChannel(_MOST_ARRIVED))
            export._takes_from(lives, asker)
        except BaseException:
            export.close()
            raise
        self._exports.append(export)
        return export

    def counts(self) -> Counts:
        """Returns what was counted since the session was opened."""
        with self._lock:
            return Counts(**vars(self._counts))

    def close(self) -> None:
        """Ends what it exports, and its links. It may be called again."""
        self._end()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
