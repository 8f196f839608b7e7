"""Each order of a deadlock with the GIL, as often as ``DEADLOCKS`` says: ``python tests/deadlocks.py cuda:0 100`` is the long run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
pytest.importorskip("cupy")

import deadlocks  # noqa: E402


def test_each_order_is_named_and_ends() -> None:
    assert deadlocks.run("cuda:0", int(os.environ.get("DEADLOCKS", "2")))
