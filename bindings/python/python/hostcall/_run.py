"""Programs of the command ``hostcall run``, functions that run in a process of their own, and what became of them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

_GRACE = 10.0
"""How long the command may take to end after its own time limit: it cancels the program's calls, and writes what was printed."""


@dataclass(frozen=True)
class ProgramPanic:
    """The first panic of a program, or the first failed check of a function's kernels."""

    kernel: str
    message: str | None
    file: str | None
    line: int | None
    column: int | None
    workgroup: tuple[int, int, int] | None
    lane: int | None
    others: int
    """How many lanes panicked besides."""

    @property
    def place(self) -> str | None:
        """The place in the source, as ``file:line:column``, without what is not known."""
        known = [self.line, self.column] if self.line is not None else []
        return None if self.file is None else ":".join([self.file, *(str(part) for part in known if part is not None)])


@dataclass(frozen=True)
class Polled:
    """What a wave polls that waits for a flag or at a barrier, as it says."""

    address: int
    peer: int | None
    """The rank that is waited for."""
    sequence: int


@dataclass(frozen=True)
class Wait:
    """What waits, or waited when a program was ended: a call, or lanes that wait for what they say."""

    service: str
    kernel: str
    workgroup: tuple[int, int, int] | None
    wave: int | None
    lanes: int
    seconds: float
    text: str
    """All of it as a sentence."""
    polled: Polled | None = None
    """Of a flag or barrier."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Wait:
        """Returns what the command's JSON says."""
        block, polled = found["workgroup"], found["polled"]
        workgroup = None if block is None else (block[0], block[1], block[2])
        return cls(**{**found, "workgroup": workgroup, "polled": None if polled is None else Polled(**polled)})


@dataclass(frozen=True)
class Report:
    """How a program or a function ended."""

    exit_code: int
    """A function's is 0, 1 if it raised, 101 for a ``KernelPanic``, 124 at its time limit, or that of its process: of a signal -N."""
    ended: str
    """``exited``, ``panicked``, ``failed`` (a function raised), ``timed out``, ``interrupted``, ``not started``, or ``killed``: it did
    not end after its time limit, as a GPU's kernel that does not call, and its process was ended; ``died``: a function's process
    ended by itself."""
    seconds: float
    """From the call of a function on; with the time that it had to end, where it was told to."""
    panic: ProgramPanic | None
    waiting: list[Wait]
    lost: dict[str, int]
    """How many posts and bytes of output were lost, and calls of a function's kernels: those of which ``LostCalls`` warns."""
    stdout: str
    stderr: str
    said: list[str] = field(default_factory=list)
    """What the command said; why a function's process was ended."""
    value: Any = None
    """What a function returned."""
    error: str | None = None
    """What a function raised: its traceback with its notes."""

    @property
    def ok(self) -> bool:
        """It ended with code 0, which no function does whose kernels' checks failed, and nothing was lost."""
        return self.exit_code == 0 and self.ended == "exited" and not any(self.lost.values())

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Report:
        """Returns what the command's JSON says."""

        def place(numbers: Sequence[int] | None) -> tuple[int, int, int] | None:
            return None if numbers is None else (numbers[0], numbers[1], numbers[2])

        panic = found["panic"]
        return cls(
            exit_code=found["exit_code"],
            ended=found["ended"],
            seconds=found["seconds"],
            panic=None
            if panic is None
            else ProgramPanic(
                kernel=panic["kernel"],
                message=panic.get("message"),
                file=panic.get("file"),
                line=panic.get("line"),
                column=panic.get("column"),
                workgroup=place(panic.get("workgroup")),
                lane=panic.get("lane"),
                others=panic["others"],
            ),
            waiting=[Wait.of(wait) for wait in found["waiting"]],
            lost=dict(found["lost"]),
            stdout=found["stdout"],
            stderr=found["stderr"],
            said=list(found["said"]),
        )


def _end(process: subprocess.Popen[str]) -> str:
    """Ends a process and its group. Returns what it wrote to its standard error."""
    if process.returncode is None:
        # It may have ended just now.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=_GRACE)[1]
    except subprocess.TimeoutExpired as error:
        # One that left the group has the pipe still.
        kept = error.stderr or b""
        return kept if isinstance(kept, str) else kept.decode("utf-8", "replace")


def check_timeout(timeout: float | None) -> None:
    try:
        fits = timeout is None or (not isinstance(timeout, str) and 0 < float(timeout) < math.inf)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError("a timeout is a number of seconds above 0, or None for no limit")


def run(
    program: str | os.PathLike[str] | Callable[..., object],
    args: Sequence[Any] = (),
    *,
    timeout: float | None = None,
    fresh: bool = False,
    device: str | None = None,
    options: Sequence[str] = (),
    command: str | os.PathLike[str] | None = None,
) -> Report:
    """Runs a function, or a program (a package's folder or an image), in a process of its own, and returns what became of it.

    With ``timeout`` it is cancelled after so many seconds, and its process is ended where that is not enough: this returns, whatever
    the kernel does.

    A function runs as in a ``hostcall.Worker``, of which one is kept for the next call; ``functools.partial`` gives it keywords.
    Libraries and modules stay there as they were read: ``fresh`` takes a new worker, as for a library that was built again. Of a
    program ``options`` are more of ``hostcall run --help``; ``command`` is the command, else ``hostcall`` of the ``PATH``. The time to
    build a package counts too.
    """
    check_timeout(timeout)
    if callable(program):
        if device is not None or options or command is not None:
            raise TypeError("device, options and command are those of a program: a function opens its device itself")
        from ._worker import run_kept

        return run_kept(program, args, timeout, fresh)
    found = command or shutil.which("hostcall")
    if found is None:
        raise FileNotFoundError("the command `hostcall` is not on the PATH: `cargo install --path tools/cli` installs it, or pass `command`")
    line = [os.fspath(found), "run", "--report", "json", *options]
    if device is not None:
        line += ["--device", device]
    if timeout is not None:
        line += ["--timeout", str(timeout)]
    line += [os.fspath(part) for part in (program, *args)]
    limit = None if timeout is None else timeout + _GRACE
    # A group of its own: what a build started ends with it.
    process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whatever the locale says: a program's bytes may be no text.
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            out, said = process.communicate(timeout=limit)
        except BaseException as error:
            said = _end(process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            sentence = f"the program, or its build, did not end within {timeout} s nor {_GRACE:g} s after, and its process was ended"
            return Report(-signal.SIGKILL, "killed", float(limit or 0), None, [], {}, "", "", [sentence, *said.splitlines()])
    try:
        report = Report.of(json.loads(out))
    except (ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"{' '.join(line)}: ended with code {process.returncode} and wrote no report: {said.strip() or out.strip()}") from error
    # A build's.
    report.said.extend(said.splitlines())
    return report
