"""``headrace contract``: a schema from a sample, and what a schema says of a sample."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.cli.printing import printable, printable_json
from service.preview.inference import Inference, InferenceRefusedError, inferred
from service.preview.samples import SampleError, SampleSource, SampleToldError, file_payloads
from service.reading.decoding import as_json_text
from spark_batch.coercion import Coerce
from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat, UnknownFields
from spark_batch.plan_findings import plan_findings

EXIT_CLEAN, EXIT_FAILED, EXIT_REFUSED, EXIT_INTERRUPTED = 0, 1, 2, 130
PORTION_RECORDS = 2_000
VERDICTS_MAX = 1_000
"""Different reasons of a sample that are told apart."""
NOTES_SHOWN_MAX = 40
CONNECTOR_BYTES_MAX = 1 << 20
"""A larger file is no connector's."""
CLASS_KEY = "connector.class"


def run_infer(source: SampleSource, *, records_max: int, out: Path | None) -> int:
    """Exit code: 0 written, 1 the source failed, 2 nothing can be had of what was given, 130 interrupted."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        found = _inferred(source, records_max)
        _write(found, out)
    except SampleToldError as told:
        return told.exit_code
    except (SampleError, InferenceRefusedError) as refusal:
        console.print(Text(printable(f"headrace: {source.name}: {refusal}"), style="red"))
        return EXIT_REFUSED
    except asyncio.CancelledError:
        console.print("headrace: interrupted; nothing was written")
        return EXIT_INTERRUPTED
    where = "" if out is None else f", written to {out}"
    console.print(Text(printable(f"headrace: every one of {found.records:,} records meets this schema{where}")))
    for note in (*found.skipped, *found.notes)[:NOTES_SHOWN_MAX]:
        console.print(Text(printable(f"  {note}")))
    return EXIT_CLEAN


def _inferred(source: SampleSource, records_max: int) -> Inference:
    path = Path(source.name)
    if path.exists() and not _is_connector(path):
        return inferred(islice(file_payloads(path), records_max), name=path.stem.partition(".")[0])
    # Files need neither Kafka's client nor fetchers, whose imports take longer than a sample.
    from service.cli.contract_sources import sample_elsewhere  # noqa: PLC0415 - as said

    found = sample_elsewhere(source, records_max)
    return inferred(found.payloads, name=path.stem.partition(".")[0], is_typeless=found.is_typeless)


def _is_connector(path: Path) -> bool:
    """By its name, or as JSON that names a connector's class, in Connect's two forms."""
    if path.suffix == ".properties":
        return True
    try:
        if not path.is_file() or path.stat().st_size > CONNECTOR_BYTES_MAX:
            return False
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    inner = found.get("config") if isinstance(found, dict) else None
    return any(isinstance(each, dict) and CLASS_KEY in each for each in (found, inner))


def _write(found: Inference, out: Path | None) -> None:
    """A file that is there already may have been worked on, and stays."""
    text = json.dumps(found.document, indent=2)
    if out is None:
        print(text)
        return
    try:
        file = out.open("x", encoding="utf-8")
    except FileExistsError as error:
        message = f"{out} is there already: expected the name of a new file"
        raise SampleError(message) from error
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror or error}"
        raise SampleError(message) from error
    try:
        with file:
            file.write(f"{text}\n")
    except OSError as error:
        # A part of a schema, as a full disk leaves it, would stand in the way of the next attempt.
        out.unlink(missing_ok=True)
        message = f"{out} cannot be written: {error.strerror or error}"
        raise SampleError(message) from error


def run_check(schema: Path, file: Path, *, coerce: str, unknown_fields: str, is_json: bool) -> int:
    """Exit code: 0 all records are valid, 2 some are not, or schema or file cannot be read."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        text = schema.read_text(encoding="utf-8")
        words = _words(coerce)
        contract = Contract(text, unknown_fields=UnknownFields(unknown_fields), coerce=words)
        plan = ConversionPlan(PayloadFormat.JSON, contract)
        findings = plan_findings(plan)
        if findings:
            for finding in findings:
                console.print(Text(printable(f"{schema}: {finding.value}: expected {finding.expected}")))
            return EXIT_REFUSED
        found = checked(plan, file_payloads(file))
    except (OSError, UnicodeDecodeError) as error:
        console.print(Text(printable(f"headrace: {schema}: {error}"), style="red"))
        return EXIT_REFUSED
    except SampleError as refusal:
        console.print(Text(printable(f"headrace: {refusal}"), style="red"))
        return EXIT_REFUSED
    if not found.records:
        console.print(Text(printable(f"headrace: {file} has no records: expected JSON, one record a line or an array")))
        return EXIT_REFUSED
    if is_json:
        print(printable_json(as_json_text(_as_json(found))))
    else:
        _print(found)
    return EXIT_REFUSED if found.rejected else EXIT_CLEAN


def _words(coerce: str) -> frozenset[Coerce]:
    words = [word.strip() for word in coerce.split(",") if word.strip()]
    unknown = [word for word in words if word not in set(Coerce)]
    if unknown:
        message = f"--coerce {coerce}: expected words of {', '.join(Coerce)}"
        raise SampleError(message)
    return frozenset(map(Coerce, words))


@dataclass(slots=True)
class SampleVerdicts:
    """What a contract says of the records of a sample."""

    records: int = 0
    rejected: int = 0
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many records were rejected for a reason and a message."""
    first: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number, from 1, of the first such record."""
    coerced: Counter[str] = field(default_factory=Counter)


def checked(plan: ConversionPlan, payloads: Iterable[bytes]) -> SampleVerdicts:
    """The verdicts of the conversion's exact path, a portion of records at a time."""
    found = SampleVerdicts()
    waiting = iter(payloads)
    while portion := list(islice(waiting, PORTION_RECORDS)):
        nulls = [None] * len(portion)
        outcome = convert_exactly(
            plan, pa.table({"key": nulls, "value": portion, "timestamp": nulls}, schema=INPUT_SCHEMA)
        )
        columns = (outcome.column(name).to_pylist() for name in ("reason", "message", "coerced"))
        for number, (reason, message, bits) in enumerate(zip(*columns, strict=True), start=found.records + 1):
            if reason is not None:
                why = (reason, message)
                if why not in found.reasons and len(found.reasons) >= VERDICTS_MAX:
                    why = (reason, "(others)")
                found.rejected += 1
                found.reasons[why] += 1
                found.first.setdefault(why, number)
            elif bits:
                found.coerced.update(name for at, name in enumerate(plan.coerced_fields) if bits >> at & 1)
        found.records += len(portion)
    return found


def _as_json(found: SampleVerdicts) -> dict[str, Any]:
    reasons = [
        {"reason": reason, "message": message, "records": count, "first": found.first[reason, message]}
        for (reason, message), count in found.reasons.most_common()
    ]
    counts = {"records": found.records, "valid": found.records - found.rejected, "rejected": found.rejected}
    return {**counts, "reasons": reasons, "coerced": dict(found.coerced)}


def _print(found: SampleVerdicts) -> None:
    console = Console(highlight=False)
    if found.reasons:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("records", "reason", "where, and what was expected", "first"):
            table.add_column(column, overflow="fold")
        for (reason, message), count in found.reasons.most_common():
            table.add_row(f"{count:,}", reason, Text(printable(message)), f"{found.first[reason, message]:,}")
        console.print(table)
    for name, count in found.coerced.most_common():
        console.print(Text(printable(f"{count:,} coerced in {name}")))
    valid = found.records - found.rejected
    console.print(f"{found.records:,} records: {valid:,} valid, {found.rejected:,} rejected")
