"""What the devices of this process have counted."""

from __future__ import annotations

from typing import NamedTuple

from . import _hostcall


class Metric(NamedTuple):
    """A number of a series."""

    name: str
    """The series' name, such as ``hostcall_calls_total``."""
    labels: dict[str, str]
    """Which of the series' numbers it is, by ``device``, ``service``, ``method`` and so on."""
    value: float
    """The number."""


def metrics() -> list[Metric]:
    """Returns what the devices of this process have counted, also those that were closed: calls, launches, waits, losses.

    The series are those that ``hostcall serve`` has for Prometheus; such a text is ``metrics_text()``. ::

        calls = sum(metric.value for metric in hostcall.metrics() if metric.name == "hostcall_calls_total")
    """
    return [Metric(name, dict(labels), value) for name, labels, value in _hostcall.metrics()]


def metrics_text() -> str:
    """Returns the same as a text for Prometheus, whose type is ``text/plain; version=0.0.4``."""
    return _hostcall.metrics_text()
