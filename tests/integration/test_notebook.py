"""The notebooks run from their first cell to their last, and end with the right figures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

_ROOT = Path(__file__).parents[2]
_NOTEBOOKS = _ROOT / "docs" / "examples" / "notebooks"
_SLOW_START = "connect back"
"""What Spark says when a Python process of its own has not started within ten seconds: a busy machine is no failure."""
_CELL_SECONDS_MAX = 300


def test_the_first_hour_runs_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preview, contract, run, dead letters and DataFrame; what the contract refuses is not in the sums."""
    said = _executed("first-hour.ipynb", tmp_path, monkeypatch)
    preview, contract, run, frame = said[1:5]
    assert "3 records" in preview
    assert "every one of 21 records meets this schema" in contract
    assert "some" in run
    assert '"pieces":-3' in run.replace(" ", "")
    assert dict(re.findall(r"^(c\d) +(\d+)", frame, re.MULTILINE)) == {"c0": "15", "c1": "15", "c2": "15", "c3": "15"}


def test_a_source_is_a_dataframe_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rejected order says why and is in no sum; the stream has the others. The guide shows the same cells."""
    said = _persistently_executed("spark-data-source.ipynb", tmp_path, monkeypatch)
    rejected, sums, streamed = said[4], said[5], said[7]
    assert re.search(r"wrong_type *\|pieces: expected an integer", rejected)
    assert dict(re.findall(r"\| *(c\d) *\| *(\d+)\|", sums)) == {"c0": "15", "c1": "15", "c2": "15", "c3": "15"}
    assert "20 orders streamed" in streamed


def test_the_guide_of_the_data_source_shows_cells_of_its_notebook() -> None:
    """So what it shows is what is executed."""
    notebook = nbformat.read(_NOTEBOOKS / "spark-data-source.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    cells = [cell.source + "\n" for cell in notebook.cells if cell.cell_type == "code"]
    guide = (_ROOT / "docs" / "guides" / "spark-data-source.md").read_text()
    shown = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    assert len(shown) == 2
    assert all(block in cells for block in shown)


def _persistently_executed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As ``_executed``, once more where Spark was too slow for itself."""
    while True:
        try:
            return _executed(name, folder, monkeypatch)
        except nbclient.exceptions.CellExecutionError as error:
            if _SLOW_START not in str(error):
                raise


def _executed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each cell of code says."""
    monkeypatch.setenv("HEADRACE", os.fspath(_ROOT / "headrace"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = nbformat.read(_NOTEBOOKS / name, as_version=4)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(
        notebook,
        timeout=_CELL_SECONDS_MAX,
        startup_timeout=_CELL_SECONDS_MAX,
        # What a cell says comes on another channel than that it is over; by default it is left out after four seconds.
        iopub_timeout=_CELL_SECONDS_MAX,
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return ["".join(_texts(cell)) for cell in notebook.cells if cell.cell_type == "code"]


def _texts(cell: nbformat.NotebookNode) -> list[str]:
    return [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
