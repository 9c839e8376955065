"""What a connector's contract says of the records of a sample: verdicts, topics, keys and values, written nowhere.

The exact path of the conversion judges them in this process (``spark_batch.convert_exactly``, equal to Spark's job);
only contracts with rules need Spark, because rules are expressions of Spark SQL.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from fastavro.types import Schema

from fetchers.sdk import Finding, Page
from service.config.definition import ConnectorDefinition, as_findings
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import Convert, input_table, shares_of
from service.pipeline.dead_letters import FETCH_STAGE
from service.pipeline.queue import QueuedPage
from service.preview.sampling import Sample
from service.reading.decoding import as_base64, framed, parsed, plain
from service.stores.dedupe import NO_WINDOW
from service.worker.connectors import PlanCheck
from spark_batch.convert_exactly import convert_exactly, is_judged_exactly
from spark_batch.plan import ConversionPlan, ConverterKind
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_transforms import key_schema, value_schema

SHOWN_BYTES_MAX = 32 * 1024
"""Of one payload, key or value in an answer; what is longer is cut, and says so. Verdicts are on the whole record."""
AVRO_BYTES_MAX = 1 << 20
"""What is longer is not decoded; its text is longer than its bytes, but its reading keeps other threads waiting."""
JUDGES = ThreadPoolExecutor(max_workers=2, thread_name_prefix="preview")
"""Threads in which a preview does what takes long: the event loop is that of the worker's connectors."""
_KEY_ID, _VALUE_ID = 1, 2
"""In place of the registry's ids: nothing is registered for a preview, and what is shown is decoded."""
_EXPECTED = ": expected "
_NO_FIELDS = frozenset({"record", "key", "rules"})
_NO_FIELD_PREFIXES = ("rule ", "transformation ")


class PreviewRefusedError(Exception):
    """The contract cannot be used: carries what is wrong with it, found only by the registry's schema or by Spark."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        """``findings``: at least one."""
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = tuple(findings)


@dataclass(frozen=True, slots=True)
class PreviewParts:
    """What judging asks of others."""

    contract_of: Callable[[ConnectorDefinition], Awaitable[str | None]]
    """Text of a contract's schema; asks the registry where the config names a subject of it. Raises RegistryFailure."""
    convert: Convert
    """By Spark, for contracts with rules alone."""
    check: PlanCheck
    """What only Spark can find wrong with rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRecord:
    """One record of a sample and what becomes of it."""

    payload: bytes | None
    """As it came; None is a tombstone."""
    topic: str
    """Where it goes if it is valid."""
    key: Any
    value: Any
    """Both as they would be written, decoded to JSON-like values; None where the record is rejected.

    Bytes where it is too long to be decoded: ``SHOWN_BYTES_MAX``, and for Avro ``AVRO_BYTES_MAX``.
    """
    timestamp: int | None
    """Milliseconds since the epoch; None: the time of delivery."""
    verdict: str
    """``valid``, ``rejected``, ``filtered`` (by a transformation), or ``duplicate``: equal by ``dedupe.fields`` to one
    before it in the sample."""
    coerced: tuple[str, ...] = ()
    """Fields in which a text was taken for their value, as ``contract.coerce`` allows."""
    stage: str | None = None
    reason: str | None = None
    field: str | None = None
    """Path of the offending field, where one is to blame."""
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A sample with its verdicts."""

    records: tuple[JudgedRecord, ...]
    is_by_spark: bool

    def count(self, verdict: str) -> int:
        """Records of one verdict."""
        return sum(record.verdict == verdict for record in self.records)

    @property
    def coerced(self) -> dict[str, int]:
        """In how many valid records each field was coerced."""
        return dict(Counter(name for record in self.records if record.reason is None for name in record.coerced))

    @property
    def reasons(self) -> dict[str, int]:
        """How many were rejected for each reason, the most frequent first."""
        reasons = [record.reason for record in self.records if record.reason is not None]
        return dict(
            sorted(((reason, reasons.count(reason)) for reason in set(reasons)), key=lambda each: (-each[1], each[0]))
        )


async def plan_to_judge_by(definition: ConnectorDefinition, parts: PreviewParts) -> ConversionPlan:
    """The connector's plan; asks the registry, and Spark about rules, and registers nothing.

    Raises ``PreviewRefusedError``, ``RegistryFailure``, ``ConversionError``.
    """
    plan = definition.plan(await parts.contract_of(definition))
    found = plan_findings(plan) or ([] if is_judged_exactly(plan) else await parts.check(plan))
    if found:
        raise PreviewRefusedError(as_findings(found, definition.properties))
    return plan.with_schema_ids(key=_KEY_ID, value=_VALUE_ID)


async def judge(definition: ConnectorDefinition, plan: ConversionPlan, sample: Sample, parts: PreviewParts) -> Judged:
    """The verdicts on a sample by a plan of ``plan_to_judge_by``; raises ``ConversionError`` where Spark is lost."""
    batch = MicroBatch(tuple(QueuedPage(page, 0.0) for page in sample.pages), CloseReason.STOP, 0.0)
    is_by_spark = not is_judged_exactly(plan)
    if not batch.records:
        return Judged((), is_by_spark)
    records = input_table(batch)
    outcomes: dict[int, pa.Table] = {}
    for share in shares_of(batch, plan, lambda page: _plan_of_rows(definition, plan, page)):
        part = share.of(records)
        outcome = await (parts.convert(share.plan, part) if is_by_spark else _converted(share.plan, part))
        outcomes |= share.cut(outcome)
    outcome = pa.concat_tables([outcomes[start] for start in sorted(outcomes)])
    return Judged(
        await asyncio.get_running_loop().run_in_executor(
            JUDGES, lambda: tuple(_records(definition, plan, sample.pages, outcome))
        ),
        is_by_spark,
    )


def _plan_of_rows(definition: ConnectorDefinition, plan: ConversionPlan, page: Page) -> ConversionPlan:
    """Of a page of rows; raises ``PreviewRefusedError`` for what a worker refuses too."""
    if page.schema is None:
        return plan
    key_schema = None if page.key_schema is None else page.key_schema.avro
    rows = plan.for_rows(schema=page.schema.avro, key_schema=key_schema, topic=page.topic or definition.topic)
    if found := plan_findings(rows):
        raise PreviewRefusedError(as_findings(found, definition.properties))
    return rows


async def _converted(plan: ConversionPlan, records: pa.Table) -> pa.Table:
    return await asyncio.get_running_loop().run_in_executor(JUDGES, convert_exactly, plan, records)


def _records(
    definition: ConnectorDefinition, plan: ConversionPlan, pages: Sequence[Page], outcome: pa.Table
) -> Iterator[JudgedRecord]:
    seen: set[tuple[str, bytes, bool]] = set()
    rows = iter(outcome.to_pylist())
    for page in pages:
        decoded = _Decoding.of(_plan_of_rows(definition, plan, page))
        own = {rejection.index: rejection for rejection in page.rejections}
        window = NO_WINDOW if page.dedupe is None else page.dedupe.window
        for index, payload in enumerate(page.values()):
            row = next(rows)
            if index in own:
                row |= {"stage": FETCH_STAGE, "reason": own[index].reason, "message": own[index].message}
            is_rejected = row["reason"] is not None
            is_seen = row["dedupe"] is not None and (window, row["dedupe"], is_rejected) in seen
            if row["dedupe"] is not None:
                seen.add((window, row["dedupe"], is_rejected))
            target = row["topic"] or page.topic or definition.topic
            yield JudgedRecord(
                payload=payload,
                topic=target,
                key=None if is_rejected else decoded.key(row["key"]),
                value=None if is_rejected else decoded.value(row["value"]),
                timestamp=row["timestamp"],
                verdict="duplicate" if is_seen else "rejected" if is_rejected else _kept(row),
                coerced=tuple(name for bit, name in enumerate(plan.coerced_fields) if (row["coerced"] or 0) >> bit & 1),
                stage=row["stage"],
                reason=row["reason"],
                field=field_of(row["message"]),
                message=row["message"],
            )


def _kept(row: Mapping[str, Any]) -> str:
    return "filtered" if row["is_dropped"] else "valid"


def field_of(message: str | None) -> str | None:
    """The path that a rejection's message begins with (``age: expected an integer …``); None where it names none."""
    if message is None or _EXPECTED not in message:
        return None
    place = message.partition(_EXPECTED)[0]
    return None if place in _NO_FIELDS or place.startswith(_NO_FIELD_PREFIXES) else place


@dataclass(frozen=True, slots=True)
class _Decoding:
    """Reads keys and values back, each by its converter."""

    plan: ConversionPlan
    key_schema: Schema | None
    value_schema: Schema | None

    @classmethod
    def of(cls, plan: ConversionPlan) -> Self:
        return cls(plan, parsed(key_schema(plan) or '"bytes"'), parsed(value_schema(plan) or '"bytes"'))

    def key(self, data: bytes | None) -> Any:
        return _decoded(data, self.plan.key_converter.kind, self.key_schema)

    def value(self, data: bytes | None) -> Any:
        return _decoded(data, self.plan.value_converter.kind, self.value_schema)


def _decoded(data: bytes | None, kind: ConverterKind, schema: Schema | None) -> Any:
    """What is long stays as it is: only its beginning is shown."""
    if data is None or len(data) > (AVRO_BYTES_MAX if kind is ConverterKind.AVRO else SHOWN_BYTES_MAX):
        return data
    if kind is ConverterKind.AVRO:
        return framed(data, schema)
    if kind is ConverterKind.JSON:
        return plain(data)
    if kind.number is not None and len(data) == kind.number.size_bytes:
        return plain(kind.number.json_text(data).encode())
    try:
        return data.decode()
    except UnicodeDecodeError:
        return as_base64(data)
