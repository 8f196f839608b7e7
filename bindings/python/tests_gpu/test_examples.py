"""The examples, as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


def test_the_first_nan_of_a_replayed_step_is_found() -> None:
    pytest.importorskip("torch")
    import first_nan

    # 0 × inf, in each column of that layer.
    assert first_nan.main() == (37, "up", 12, 0)


def test_an_index_error_is_an_exception() -> None:
    pytest.importorskip("torch")
    import index_error

    caught = index_error.main()
    assert caught is not None and caught.message == "`the index is in the table` does not hold" and caught.count == 2


def test_progress_is_seen_while_the_kernel_runs() -> None:
    pytest.importorskip("cupy")
    import progress

    seen, before_the_end = progress.main()
    assert seen == 4096 and before_the_end > 2000


def test_the_host_decides_in_a_graph() -> None:
    pytest.importorskip("cuda.core")
    import stop_in_a_graph

    assert len(stop_in_a_graph.main()) == 8
