"""Examples as notebooks: what runs them, and that those for a GPU are notebooks."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Kernels

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import notebooks  # noqa: E402

EXAMPLE = '''# %% [markdown]
# # Prices
# What a kernel asks.

# %%
from __future__ import annotations
import ctypes, inspect, sys, threading
import hostcall

# %%
device, seen = hostcall.Device("cpu"), []

@device.service(number=700)
def twice(x: hostcall.u64) -> hostcall.u64:
    print(f"asked for {x}")
    return 2 * x


class Bar:
    def update(self, n: int) -> None:
        seen.append(n)
        print(f"\\r{sum(seen)} rows", end="", file=sys.stderr)


context = device.context("cells")
# %%
status, answer = kernels.call(context, 700, 21)
shown = display("at first", display_id=True)
shown.update("at last")
answer
# %%
inspect.getsource(twice).splitlines()[-1]
# %%
device.close()
'''


def validated(notebook: notebooks.Notebook, folder: Path) -> dict[str, Any]:
    notebook.write(folder)
    path = folder / f"{notebook.path.stem}.ipynb"
    whole: dict[str, Any] = json.loads(path.read_text())
    try:
        import nbformat
    except ImportError:
        pass
    else:
        nbformat.validate(nbformat.reads(path.read_text(), 4))
    return whole


def test_cells_run_as_those_of_a_notebook(kernels: Kernels, tmp_path: Path) -> None:
    path = tmp_path / "prices.py"
    path.write_text(EXAMPLE)
    notebook = notebooks.Notebook(path, {"kernels": kernels})
    notebook.run()
    assert notebook.failed is None and notebook.names["answer"] == [42]
    title, imports, serves, calls, source, ends = validated(notebook, tmp_path / "made")["cells"]
    assert title["cell_type"] == "markdown" and "".join(title["source"]) == "# Prices\nWhat a kernel asks."
    assert imports["outputs"] == serves["outputs"] == ends["outputs"] == []
    # The function printed on another thread, into the cell that waited.
    stream, shown, result = calls["outputs"]
    assert (stream["name"], stream["text"]) == ("stdout", "asked for 21\n")
    assert shown["data"] == {"text/plain": "'at last'"} and result["data"] == {"text/plain": "[42]"}
    # What was defined in a cell has a source, as Triton needs it.
    assert source["outputs"][0]["data"] == {"text/plain": "'    return 2 * x'"}
    assert [cell["execution_count"] for cell in (imports, ends)] == [1, 5]


def test_a_cell_that_raises_is_the_last_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text("# %%\nimport sys\n# %%\nprint(1)\nassert False, 'no'\n# %%\nprint(2)\n")
    notebook = notebooks.Notebook(path)
    notebook.run()
    assert "fails.py, cell 2: AssertionError: no" in str(notebook.failed)
    _, failed, skipped = validated(notebook, tmp_path)["cells"]
    printed, error = failed["outputs"]
    assert printed["text"] == "1\n" and error["ename"] == "AssertionError" and skipped["outputs"] == []
    assert any('fails.py", line 5' in line for line in error["traceback"])
    with pytest.raises(notebooks.Failed):
        notebooks.run(path)
    path.write_text("import sys\n# %%\n")
    with pytest.raises(ValueError, match="line 1 stands before the first cell"):
        notebooks.run(path)


def test_a_line_that_is_written_anew_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "bars.py"
    path.write_text("# %%\nimport sys\nfor row in range(3):\n    print(f'\\r{row} rows', end='', file=sys.stderr)\n")
    notebook = notebooks.run(path)
    assert notebook.cells[0]["outputs"] == [{"output_type": "stream", "name": "stderr", "text": "2 rows"}]


def test_figures_are_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    path = tmp_path / "plots.py"
    path.write_text(
        "# %%\nimport matplotlib.pyplot as plt\nfigure, axes = plt.subplots(num='a-plot')\naxes.plot([1, 2])\nplt.show()\n# %%\nplt.get_fignums()\n"
    )
    notebook = notebooks.run(path)
    first, second = validated(notebook, tmp_path)["cells"]
    assert [output["output_type"] for output in first["outputs"]] == ["display_data"] and "image/png" in first["outputs"][0]["data"]
    # It is closed behind its cell.
    assert second["outputs"][0]["data"] == {"text/plain": "[]"}
    assert (tmp_path / "a-plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_four_examples_are_notebooks() -> None:
    examples = notebooks.all_examples()
    assert [path.name for path in examples] == ["first_nan.py", "index_error.py", "progress.py", "stop_in_a_graph.py"]
    for path in examples:
        cells = notebooks.cells_of(path.read_text())
        assert cells[0].is_text and cells[0].source.startswith("# ")
        for cell in cells:
            if not cell.is_text:
                ast.parse(cell.source)
        # Each has one picture, for the book.
        assert len(re.findall(r'num="([a-z-]+)"', path.read_text())) == 1
