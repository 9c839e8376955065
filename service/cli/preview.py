"""``headrace preview``: the first records of a connector's source and what its contract says of them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fetchers.sdk import FetchError, Finding
from service.cli.findings import print_refusal
from service.cli.printing import printable, printable_json
from service.config.definition import ConnectorDefinition
from service.config.files import ConfigFileError, read_connector, read_properties
from service.config.worker import EMBEDDED, PLACEHOLDER_REGISTRY, REGISTRY_KEY
from service.job import ConfigRefusedError, Job, SourceFindings, make_job
from service.preview.judging import PreviewParts, PreviewRefusedError
from service.preview.preview import Preview, as_json, preview
from service.preview.sampling import SampleLimits
from service.reading.decoding import as_json_text
from service.registry.errors import RegistryFailure
from service.registry.settings import RegistrySettings
from service.validation.connectors import find_connector
from service.worker.schemas import RegistrySchemas
from spark_batch.errors import ConversionError
from spark_batch.plan import ConversionPlan, PlanFinding

if TYPE_CHECKING:
    from spark_batch.runner import ConversionRunner

T = TypeVar("T")

EXIT_SHOWN, EXIT_FAILED, EXIT_CONFIG, EXIT_INTERRUPTED = 0, 1, 2, 130
ENDING_SECONDS_MAX = 5.0
"""After Ctrl-C: what has not ended by then ends with the process."""
CELL_CHARACTERS_MAX = 400
_OF_CONTRACT = ("contract.", "key.", "value.", "timestamp.field", "dedupe.", "transforms", "predicates")
"""Beginnings of keys that say what becomes of records, not where they come from."""
_STYLES = {"valid": "green", "rejected": "red", "duplicate": "yellow", "filtered": "yellow"}


def run_preview(file: Path, worker: Path | None, limits: SampleLimits, *, is_json: bool) -> int:
    """Exit code: 0 shown, 1 the source, the registry or Spark failed, 2 configuration, 130 interrupted."""
    console = Console(stderr=True, soft_wrap=True)
    try:
        job = read_source(file, worker)
        shown = interruptible(_previewed(job, str(file), limits, console))
    except ConfigRefusedError as refusal:
        print_refusal(refusal)
        return EXIT_CONFIG
    except (RegistryFailure, ConversionError) as error:
        console.print(Text(printable(f"headrace: {error}"), style="red"))
        return EXIT_FAILED
    except asyncio.CancelledError:
        console.print("headrace: interrupted; nothing was written")
        return EXIT_INTERRUPTED
    hide = job.providers.redactor.redact
    if is_json:
        print(printable_json(as_json_text(as_json(shown, hide=hide))))
    else:
        _print(shown, hide)
    if shown.sample.error is not None and not isinstance(shown.sample.error, FetchError):
        # A mistake in the connector's own code: whoever writes it wants to see where.
        console.print(Text(printable(hide("".join(traceback.format_exception(shown.sample.error))))))
    return EXIT_FAILED if shown.has_failed else EXIT_SHOWN


def read_source(file: Path, worker: Path | None, *, is_contract_read: bool = True) -> Job:
    """The connector's file, and the worker's or one of defaults; raises ``ConfigRefusedError``.

    ``is_contract_read``: false where only the source is wanted, whose contract may be still to be made.
    """
    source = str(worker)
    try:
        # Without its file the worker's registry is not known, and a preview does not ask it for what Avro writes.
        worker_properties = read_properties(worker) if worker else {REGISTRY_KEY: EMBEDDED}
        source = str(file)
        properties = read_connector(file).properties
        if not is_contract_read:
            properties = {key: value for key, value in properties.items() if not key.startswith(_OF_CONTRACT)}
    except ConfigFileError as error:
        raise ConfigRefusedError([SourceFindings(source, (Finding("", None, str(error)),))]) from error
    job = make_job(worker_properties, [properties], sources=[str(worker or "worker"), str(file)])
    class_name = job.resolved(properties, registry_url=None).get("connector.class", "")
    known = find_connector(class_name, job.worker_properties)
    if known is not None and known.is_sink:
        text = f"{class_name} is a sink: only what sources would write can be previewed"
        raise ConfigRefusedError([SourceFindings(str(file), (Finding("connector.class", class_name, text),))])
    return job


async def _previewed(job: Job, source: str, limits: SampleLimits, console: Console) -> Preview:
    for secret in job.secrets():
        job.providers.redactor.learn(secret)
    for told in job.warnings:
        for finding in told.findings:
            console.print(Text(printable(f"headrace: {finding.severity.value}: {finding.key}: {finding.message}")))
    url = None if job.worker.schema_registry_url == EMBEDDED else job.worker.schema_registry_url
    (definition,) = job.definitions(registry_url=url)
    registry = None if url is None else RegistrySettings.parse({**job.worker_properties, "schema.registry.url": url})[0]
    schemas = RegistrySchemas(contract_registry=registry, addresses=definition.reach.addresses)
    async with schemas, _spark(job, console) as (convert, check):

        async def contract_of(definition: ConnectorDefinition) -> str | None:
            named = definition.value_converter.registry or registry
            held = definition.contract_source
            if (
                held is not None
                and held.subject is not None
                and named is not None
                and PLACEHOLDER_REGISTRY in named.urls
            ):
                text = "names a subject of the embedded registry, which is there only while a worker runs: give its URL"
                raise PreviewRefusedError([Finding("contract.schema", f"registry:{held.subject}", text)])
            return await schemas.contract_of(definition)

        try:
            return await preview(definition, limits, PreviewParts(contract_of, convert, check))
        except PreviewRefusedError as refusal:
            raise ConfigRefusedError([SourceFindings(source, refusal.findings)]) from refusal


@asynccontextmanager
async def _spark(job: Job, console: Console) -> AsyncIterator[tuple[Any, Any]]:
    """Conversion and check by a Spark that starts when it is first asked, and ends with the block."""
    runners: list[ConversionRunner] = []

    def runner() -> ConversionRunner:
        from service.surroundings import spark_settings  # noqa: PLC0415 - most previews do without Spark
        from spark_batch.runner import ConversionRunner  # noqa: PLC0415 - as above

        if not runners:
            console.print(
                "headrace: there are rules, or Sql, which Spark evaluates: starting it takes about ten seconds"
            )
            runners.append(ConversionRunner(spark_settings(job), slots=1))
        return runners[0]

    async def convert(plan: ConversionPlan, batch: pa.Table, *, is_alone: bool = False) -> pa.Table:
        del is_alone
        return await runner().convert(plan, batch)

    async def check(plan: ConversionPlan) -> Sequence[PlanFinding]:
        return await runner().check(plan)

    try:
        yield convert, check
    finally:
        for started in runners:
            await started.stop()


def interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run it; Ctrl-C cancels it, which raises CancelledError, and ends the process where that is not heeded.

    A fetcher may hold the event loop, or swallow its cancellation. Children of ours end with the process.
    """

    async def interrupted_by_signals() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - told to the type checker
        presses = 0

        def end(_number: int, _frame: FrameType | None) -> None:
            nonlocal presses
            presses += 1
            if presses > 1:
                os._exit(EXIT_INTERRUPTED)
            watchdog = threading.Timer(ENDING_SECONDS_MAX, os._exit, args=(EXIT_INTERRUPTED,))
            watchdog.daemon = True
            watchdog.start()
            loop.call_soon_threadsafe(task.cancel)

        previous = signal.signal(signal.SIGINT, end)
        try:
            return await work
        finally:
            if not presses:
                signal.signal(signal.SIGINT, previous)

    return asyncio.run(interrupted_by_signals())


def _print(shown: Preview, hide: Callable[[str], str]) -> None:
    console = Console(highlight=False)
    told = as_json(shown, hide=hide)
    if told["records"]:
        console.print(_table(told["records"]))
    counts = told["counts"]
    parts = [f"{counts[word]:,} {word}" for word in ("valid", "rejected", "duplicate", "filtered") if counts[word]]
    console.print(Text(f"{counts['records']:,} records: {', '.join(parts)}" if parts else "no records"))
    for reason, count in counts["reasons"].items():
        console.print(Text(printable(f"  {count:,} {reason}")))
    for field, count in counts["coerced"].items():
        console.print(Text(printable(f"  {count:,} coerced: {field}")))
    source = told["source"]
    if source["records_left"]:
        console.print(Text(f"The source has more: {source['records_left']:,} records on the last page are not shown."))
    for note in told["notes"]:
        console.print(Text(printable(note)))


def _table(records: Sequence[dict[str, Any]]) -> Table:
    table = Table(pad_edge=False)
    for column in ("", "verdict", "topic", "key", "record"):
        table.add_column(column, overflow="fold")
    for number, record in enumerate(records, start=1):
        is_valid = record["verdict"] == "valid"
        written = _cell(record["value"] if record["reason"] is None else record["payload"])
        why = None if is_valid else Text(_why(record), style=_STYLES[record["verdict"]])
        table.add_row(
            str(number),
            Text(record["verdict"], style=_STYLES[record["verdict"]]),
            Text(printable(record["topic"])),
            Text("" if record["key"] is None else _cell(record["key"])),
            Text(written) if why is None else Text("\n").join([Text(written), why]),
        )
    return table


def _why(record: dict[str, Any]) -> str:
    if record["reason"] is None:
        return "equal by dedupe.fields to one before it"
    return printable(f"{record['reason']}: {record['message']}")


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else as_json_text(value)
    cut = text if len(text) <= CELL_CHARACTERS_MAX else f"{text[:CELL_CHARACTERS_MAX]}…"
    return printable(cut)
