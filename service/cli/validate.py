"""``headrace validate``: a connector's file, looked at without a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fetchers.sdk import Finding
from service.validation.files import FileVerdict, validate_file

EXIT_VALID, EXIT_REFUSED = 0, 2


def run_validate(files: tuple[Path, ...], worker: Path | None, *, is_json: bool) -> int:
    """Print every finding of every file; exit code 2 where one of them is an error."""
    verdicts = [(path, validate_file(path, worker)) for path in files]
    if is_json:
        click.echo(msgspec.json.format(msgspec.json.encode([_as_json(*each) for each in verdicts]), indent=2).decode())
    else:
        _print(verdicts, worker)
    return EXIT_VALID if all(verdict.is_valid for _, verdict in verdicts) else EXIT_REFUSED


def _as_json(path: Path, verdict: FileVerdict) -> dict[str, Any]:
    return {
        "file": str(path),
        "connector": verdict.connector,
        "valid": verdict.is_valid,
        "findings": [_finding(finding) for finding in verdict.findings],
        "worker_findings": [_finding(finding) for finding in verdict.worker_findings],
    }


def _finding(finding: Finding) -> dict[str, str | None]:
    return {
        "severity": finding.severity.value,
        "key": finding.key,
        "value": finding.value,
        "message": finding.message,
    }


def _print(verdicts: list[tuple[Path, FileVerdict]], worker: Path | None) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("file", "", "key", "value", "finding"):
        table.add_column(column, overflow="fold")
    for path, verdict in verdicts:
        found = [(str(worker), finding) for finding in verdict.worker_findings]
        found += [(str(path), finding) for finding in verdict.findings]
        for source, finding in found:
            cells = (source, finding.severity.value, finding.key, finding.value or "", finding.message)
            # As plain text: what users write is no markup.
            table.add_row(*(Text(cell) for cell in cells))
    if table.row_count:
        console.print(table)
    for path, verdict in verdicts:
        console.print(Text(f"{path}: {'valid' if verdict.is_valid else 'refused'}"))
