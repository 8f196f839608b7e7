"""The examples that are notebooks, as they are. ``NOTEBOOKS=FOLDER`` has the notebooks and their pictures written there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
# Figures are pictures, and no windows.
os.environ.setdefault("MPLBACKEND", "Agg")

import notebooks  # noqa: E402


def run(name: str, *modules: str) -> notebooks.Notebook:
    for module in (*modules, "matplotlib"):
        pytest.importorskip(module)
    notebook = notebooks.Notebook(EXAMPLES / name)
    notebook.run()
    if folder := os.environ.get("NOTEBOOKS"):
        notebook.write(Path(folder))
    if notebook.failed is not None:
        raise notebook.failed
    return notebook


def test_the_first_nan_of_a_replayed_step_is_found() -> None:
    notebook = run("first_nan.py", "torch")
    # 0 × inf, in each column of that layer.
    assert notebook.names["first"] == (37, "up", 12, 0)
    # One row in that step's layers, and all rows of all layers behind it.
    assert [int(count) for count in notebook.names["rows"].sum(0)] == [0] * 37 + [3] + [3 * 32] * 12
    assert list(notebook.pictures) == ["first-nan"]


def test_an_index_error_is_an_exception() -> None:
    notebook = run("index_error.py", "torch")
    ((call, caught),) = notebook.names["panics"].items()
    assert call == 13 and caught.message == "`the index is in the table` does not hold" and caught.count == 2
    # Its place is that of the example, not of a notebook's cell.
    assert Path(caught.file).name == "index_error.py" and "ht.check(" in Path(caught.file).read_text().splitlines()[caught.line - 1]
    assert list(notebook.pictures) == ["index-error"]


def test_progress_is_seen_while_the_kernel_runs() -> None:
    notebook = run("progress.py", "cupy", "tqdm")
    assert notebook.names["bar"].n == 4096 and notebook.names["rows_while_it_ran"] > 0
    # How often, the machine says.
    assert len(notebook.names["frames"]) > 1 and notebook.names["shown"].updates > 1
    assert list(notebook.pictures) == ["progress"]


def test_the_host_decides_in_a_graph() -> None:
    notebook = run("stop_in_a_graph.py", "cuda.core")
    assert len(notebook.names["answers"]) == 8 and min(map(len, notebook.names["answers"])) > 1
    assert list(notebook.pictures) == ["stop-in-a-graph"]
