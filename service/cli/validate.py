"""``headrace validate``: a connector's file, looked at without a worker; with ``--deep`` also by asking others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fetchers.sdk import Finding
from service.cli.printing import printable
from service.validation.deep import Answer
from service.validation.files import FileVerdict, validate_file

EXIT_VALID, EXIT_REFUSED = 0, 2


@dataclass(frozen=True, slots=True)
class _Looked:
    """A file, and what was found in it and about it."""

    path: Path
    verdict: FileVerdict
    answers: Sequence[Answer] = ()


def run_validate(files: tuple[Path, ...], worker: Path | None, *, is_json: bool, is_deep: bool = False) -> int:
    """Print every finding of every file; exit code 2 where one of them is an error.

    ``is_deep``: what is right by itself is held against Spark, the registry, its source and Kafka.
    """
    looked = [_Looked(path, validate_file(path, worker)) for path in files]
    if is_deep:
        answers = _asked(looked, worker)
        looked = [_with_answers(each, answers.get(each.path, ())) for each in looked]
    if is_json:
        click.echo(msgspec.json.format(msgspec.json.encode([_as_json(each) for each in looked]), indent=2).decode())
    else:
        _print(looked, worker)
    return EXIT_VALID if all(each.verdict.is_valid for each in looked) else EXIT_REFUSED


def _asked(looked: Sequence[_Looked], worker: Path | None) -> Mapping[Path, Sequence[Answer]]:
    """What others say of the files that are right by themselves, in the order in which they are asked."""
    from service.app import open_deep_checks  # noqa: PLC0415 - Spark's imports are for who asks it
    from service.config.files import read_properties  # noqa: PLC0415 - as above
    from service.job import make_job  # noqa: PLC0415 - as above
    from service.validation.connectors import find_connector  # noqa: PLC0415 - as above

    right = {each.path: read_properties(each.path) for each in looked if each.verdict.is_valid}
    if not right:
        return {}
    properties = read_properties(worker) if worker else {}
    # One by one: two files may be of one name, which only matters where both run.
    jobs = {path: make_job(properties, [connector]) for path, connector in right.items()}
    has_rules = any(
        key.startswith("contract.rules.") or (key.startswith("transforms.") and key.endswith(".sql"))
        for connector in right.values()
        for key in connector
    )

    async def ask() -> dict[Path, Sequence[Answer]]:
        found: dict[Path, Sequence[Answer]] = {}
        async with open_deep_checks(next(iter(jobs.values())), needs_spark=has_rules) as checks:
            for path, job in jobs.items():
                resolved = job.resolution(right[path], registry_url=None)
                under = job.worker_with(None)
                known = find_connector(resolved.properties["connector.class"], under)
                reading = None if known is None else known.kind.read(resolved.properties, worker=under)
                if reading is not None and reading.definition is not None:
                    answers = await checks.answers(reading.definition)
                    found[path] = [
                        replace(answer, findings=tuple(map(resolved.hidden, answer.findings))) for answer in answers
                    ]
        return found

    return asyncio.run(ask())


def _with_answers(looked: _Looked, answers: Sequence[Answer]) -> _Looked:
    found = (finding for answer in answers for finding in answer.findings)
    verdict = replace(looked.verdict, findings=(*looked.verdict.findings, *found))
    return _Looked(looked.path, verdict, answers)


def _as_json(looked: _Looked) -> dict[str, Any]:
    verdict = looked.verdict
    body: dict[str, Any] = {
        "file": str(looked.path),
        "connector": verdict.connector,
        "valid": verdict.is_valid,
        "findings": [_finding(finding) for finding in verdict.findings],
        "worker_findings": [_finding(finding) for finding in verdict.worker_findings],
    }
    return body | ({"asked": {each.asked: each.told for each in looked.answers}} if looked.answers else {})


def _finding(finding: Finding) -> dict[str, str | None]:
    return {
        "severity": finding.severity.value,
        "key": finding.key,
        "value": finding.value,
        "message": finding.message,
    }


def _print(looked: Sequence[_Looked], worker: Path | None) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("file", "", "key", "value", "finding"):
        table.add_column(column, overflow="fold")
    for each in looked:
        found = [(str(worker), finding) for finding in each.verdict.worker_findings]
        found += [(str(each.path), finding) for finding in each.verdict.findings]
        for source, finding in found:
            cells = (source, finding.severity.value, finding.key, finding.value or "", finding.message)
            # As plain text: what users write is no markup.
            table.add_row(*(Text(printable(cell)) for cell in cells))
    if table.row_count:
        console.print(table)
    for each in looked:
        for answer in each.answers:
            console.print(Text(printable(f"{each.path}: {answer.asked}: {answer.told}")))
        console.print(Text(f"{each.path}: {'valid' if each.verdict.is_valid else 'refused'}"))
