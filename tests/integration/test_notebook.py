"""The notebook of the first hour runs from its first cell to its last, and ends with the right figures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

_ROOT = Path(__file__).parents[2]
_NOTEBOOK = _ROOT / "docs" / "examples" / "notebooks" / "first-hour.ipynb"
_CELL_SECONDS_MAX = 300


def test_the_first_hour_runs_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preview, contract, run, dead letters and DataFrame; what the contract refuses is not in the sums."""
    monkeypatch.setenv("HEADRACE", os.fspath(_ROOT / "headrace"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(_NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(
        notebook, timeout=_CELL_SECONDS_MAX, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    said = ["".join(_texts(cell)) for cell in notebook.cells if cell.cell_type == "code"]
    preview, contract, run, frame = said[1:5]
    assert "3 records" in preview
    assert "every one of 21 records meets this schema" in contract
    assert "some" in run
    assert '"pieces":-3' in run.replace(" ", "")
    assert dict(re.findall(r"^(c\d) +(\d+)", frame, re.MULTILINE)) == {"c0": "15", "c1": "15", "c2": "15", "c3": "15"}


def _texts(cell: nbformat.NotebookNode) -> list[str]:
    return [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
