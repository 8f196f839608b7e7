"""Tracers: what kernels call, post and say at trace points, in a file."""

from __future__ import annotations

import os
import warnings
from types import TracebackType
from typing import NamedTuple

from . import _hostcall
from ._errors import LostCalls, add_note


class TraceSummary(NamedTuple):
    """What a tracer has counted."""

    calls: int
    """Calls that were recorded, one for each lane."""
    posts: int
    """Posts that were recorded."""
    dropped_calls: int
    """Calls that came faster than they were written."""
    dropped_others: int
    """Other records that did."""
    lost_points: int
    """Records of trace points (``hostcall_span`` and the like) that came faster than they were read."""
    unwritten_calls: int
    """Calls that the file has no place for, or that were not written in time."""
    lost: str | None
    """All that was lost as a sentence; ``None`` where nothing was."""


class PointRecording:
    """Trace points that ``Device.record_points`` records, until ``end`` or the end of a ``with`` block."""

    def __init__(self, raw: _hostcall.RawPointRecording) -> None:
        self._raw = raw

    def pause(self) -> None:
        """Has points written no more, but for the ends of spans that were begun."""
        self._raw.switch(False)

    def resume(self) -> None:
        """Has points written again."""
        self._raw.switch(True)

    def end(self) -> None:
        """Ends the recording. It may be called again."""
        self._raw.end()

    def __enter__(self) -> PointRecording:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()


class Tracer:
    """Writes what kernels call, post and say at trace points into ``file``: for the devices that are opened with it. Of others
    ``Device.record_points`` records trace points there while they run.

    ``hostcall trace`` shows such a file, and exports it for Perfetto, Arrow, Parquet and as CSV. With ``with`` the file is whole
    at the end of the block; what was lost is a ``LostCalls`` warning then. ::

        with hostcall.Tracer("run.trace") as tracer, hostcall.Device("cuda:0", trace=tracer) as device:
            ...
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self._raw = _hostcall.RawTracer(file)
        self._process = os.getpid()
        self._is_finished = False

    def finish(self, timeout: float | None = 60.0) -> TraceSummary:
        """Ends the recording of all devices, and waits ``timeout`` seconds at most until all is written. It may be called again.

        Raises ``RuntimeError`` in a child of ``fork``: the file is the parent's, which goes on.
        """
        self._is_finished = True
        return TraceSummary(*self._raw.finish(timeout))

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process != os.getpid():
            # A child's: the parent writes the file.
            return
        try:
            lost = self.finish().lost
            if lost is not None:
                warnings.warn(lost, LostCalls, stacklevel=2)
        except BaseException as other:
            if error is None:
                raise
            add_note(error, f"meanwhile: {type(other).__name__}: {other}")
