"""Makes notebooks of the examples that have cells, runs them, and keeps what they show.

``python notebooks.py FOLDER [first_nan.py …]`` writes ``first_nan.ipynb`` with all outputs into the folder, and each figure that has a
name as a picture beside it (``plt.subplots(num="first-nan")``: ``first-nan.png``). Without examples it takes all that have cells. It
ends with the number of examples that failed.

The examples are Python files whose cells begin with ``# %%``, and those of text with ``# %% [markdown]``: editors run them cell by
cell, and each is a program too. This runs them as Jupyter does, and needs no Jupyter: names live on from cell to cell, the value of a
cell's last line is shown, and figures are where their cell ends. ``display`` is there, also for what changes while a kernel runs.
"""

from __future__ import annotations

import __future__

import ast
import base64
import builtins
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

HERE = Path(__file__).parent


@dataclass
class Cell:
    """A part of an example."""

    is_text: bool
    line: int
    """The line of the file with which its source begins, from 1."""
    source: str


def cells_of(text: str) -> list[Cell]:
    """Returns the cells of an example. Raises ``ValueError`` where something stands before the first one."""
    found: list[tuple[bool, int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# %%"):
            found.append((line.removeprefix("# %%").strip() == "[markdown]", number + 1, []))
        elif found:
            is_text, _, lines = found[-1]
            lines.append(line.removeprefix("#").removeprefix(" ") if is_text else line)
        elif line.strip():
            raise ValueError(f"line {number} stands before the first cell")
    cells = []
    for is_text, first, lines in found:
        while lines and not lines[0].strip():
            del lines[0]
            first += 1
        cells.append(Cell(is_text, first, "\n".join(lines).rstrip()))
    return cells


def _is_figure(value: object) -> bool:
    return "matplotlib.figure" in sys.modules and isinstance(value, sys.modules["matplotlib.figure"].Figure)


def _overwritten(text: str) -> str:
    """Returns a text as a terminal has it: behind a carriage return a line begins anew."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


class _Shown:
    """What ``display`` returns for something that may change."""

    def __init__(self, shows: Shows, output: dict[str, Any]) -> None:
        self._shows, self._output = shows, output
        self.updates = 0

    def update(self, value: object) -> None:
        self._output["data"] = self._shows.data_of(value)
        self.updates += 1


class _Stream(io.TextIOBase):
    """The standard output or error of a cell, whichever thread writes."""

    def __init__(self, shows: Shows, name: str) -> None:
        self._shows, self._name = shows, name

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._shows.lock:
            outputs = self._shows.outputs
            if not outputs or outputs[-1].get("name") != self._name:
                outputs.append({"output_type": "stream", "name": self._name, "text": ""})
            outputs[-1]["text"] += text
        return len(text)


@dataclass
class Shows:
    """What an example shows: the outputs of the cell that runs, and all pictures with names."""

    outputs: list[dict[str, Any]] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def data_of(self, value: object) -> dict[str, str]:
        """Returns a value in the forms in which it can be shown, by their media types."""
        if not _is_figure(value):
            return {"text/plain": repr(value)}
        figure: Any = value
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=100)
        if figure.get_label():
            self.pictures[figure.get_label()] = png.getvalue()
        return {"image/png": base64.b64encode(png.getvalue()).decode(), "text/plain": repr(value)}

    def display(self, *values: object, display_id: bool = False) -> _Shown | None:
        """Shows values, as Jupyter's function of this name. With ``display_id`` what it returns has ``update(value)``."""
        shown = None
        for value in values:
            output: dict[str, Any] = {"output_type": "display_data", "data": self.data_of(value), "metadata": {}}
            with self.lock:
                self.outputs.append(output)
            shown = _Shown(self, output)
        return shown if display_id else None

    def show_figures(self) -> None:
        """Shows figures that are open, and closes them."""
        pyplot: Any = sys.modules.get("matplotlib.pyplot")
        for number in pyplot.get_fignums() if pyplot else ():
            self.display(pyplot.figure(number))
            pyplot.close(number)

    @contextlib.contextmanager
    def of_cell(self) -> Iterator[list[dict[str, Any]]]:
        """Collects the outputs of what runs inside."""
        outputs = self.outputs = []
        before = getattr(builtins, "display", None)
        setattr(builtins, "display", self.display)
        try:
            with contextlib.redirect_stdout(_Stream(self, "stdout")), contextlib.redirect_stderr(_Stream(self, "stderr")):
                yield outputs
        finally:
            if before is None:
                delattr(builtins, "display")
            else:
                setattr(builtins, "display", before)
            for output in outputs:
                if output["output_type"] == "stream":
                    output["text"] = _overwritten(output["text"])


class Failed(Exception):
    """A cell raised. The notebook ends with it."""


@dataclass
class Notebook:
    """An example that runs, or has run."""

    path: Path
    names: dict[str, Any] = field(default_factory=dict)
    """What its cells have defined."""
    shows: Shows = field(default_factory=Shows)
    cells: list[dict[str, Any]] = field(default_factory=list)
    """Its cells as a notebook's file has them."""
    failed: Failed | None = None

    @property
    def pictures(self) -> dict[str, bytes]:
        """PNG files by the names of their figures."""
        return self.shows.pictures

    def _evaluate(self, cell: Cell, count: int, flags: int) -> int:
        """Runs a cell. Returns the flags of ``from __future__`` for those behind it."""
        # Lines before it: a function's source is found in the file, and a place in a traceback is one there.
        tree = ast.parse("\n" * (cell.line - 1) + cell.source, str(self.path))
        last = tree.body[-1] if tree.body else None
        body = tree.body[:-1] if isinstance(last, ast.Expr) else tree.body
        code = compile(ast.Module(body, []), str(self.path), "exec", flags, True)
        flags |= code.co_flags & __future__.annotations.compiler_flag
        exec(code, self.names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(self.path), "eval", flags, True), self.names)
            if value is not None and not _is_figure(value):
                result = {"output_type": "execute_result", "data": self.shows.data_of(value), "metadata": {}}
                self.shows.outputs.append({**result, "execution_count": count})
        self.shows.show_figures()
        return flags

    def run(self) -> None:
        """Runs all cells. Where one raises, none behind it runs, and ``failed`` says so."""
        self.names.update(__name__="__main__", __file__=str(self.path))
        flags = count = 0
        for place, cell in enumerate(cells_of(self.path.read_text("utf-8"))):
            made: dict[str, Any] = {"id": f"cell-{place}", "metadata": {}, "source": cell.source.splitlines(keepends=True)}
            if cell.is_text:
                self.cells.append({"cell_type": "markdown", **made})
                continue
            with self.shows.of_cell() as outputs:
                if self.failed is None:
                    count += 1
                    try:
                        flags = self._evaluate(cell, count, flags)
                    except Exception as error:
                        lines = "".join(traceback.format_exception(error)).splitlines()
                        outputs.append({"output_type": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": lines})
                        self.failed = Failed(f"{self.path.name}, cell {count}: {type(error).__name__}: {error}")
                        self.failed.__cause__ = error
            self.cells.append({"cell_type": "code", "execution_count": count, "outputs": outputs, **made})

    def write(self, folder: Path) -> None:
        """Writes the notebook and its pictures."""
        folder.mkdir(parents=True, exist_ok=True)
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        whole = {
            "cells": self.cells,
            "metadata": {"kernelspec": kernel, "language_info": {"name": "python", "file_extension": ".py"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (folder / f"{self.path.stem}.ipynb").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", "utf-8")
        for name, picture in self.pictures.items():
            (folder / f"{name}.png").write_bytes(picture)


def run(path: Path) -> Notebook:
    """Runs an example in this process. Raises ``Failed`` where a cell raises, with its exception as the cause."""
    # Figures are pictures, and no windows.
    os.environ.setdefault("MPLBACKEND", "Agg")
    notebook = Notebook(path)
    notebook.run()
    if notebook.failed is not None:
        raise notebook.failed
    return notebook


def all_examples() -> list[Path]:
    """Returns the examples that have cells."""
    return sorted(path for path in HERE.glob("*.py") if path.read_text("utf-8").startswith("# %%"))


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, paths = Path(sys.argv[1]), [Path(path) for path in sys.argv[2:]] or all_examples()
    if len(paths) > 1:
        # Each in a process of its own: nothing of one is there when the next begins.
        return sum(bool(subprocess.run([sys.executable, __file__, str(folder), str(path)]).returncode) for path in paths)
    os.environ.setdefault("MPLBACKEND", "Agg")
    notebook = Notebook(paths[0])
    notebook.run()
    notebook.write(folder)
    print(f"{paths[0].name}: {notebook.failed or 'runs'}; {', '.join(f'{name}.png' for name in notebook.pictures) or 'no pictures'}")
    if notebook.failed is not None:
        traceback.print_exception(notebook.failed)
    return int(notebook.failed is not None)


if __name__ == "__main__":
    sys.exit(main())
