"""``headrace topic read``: what is in a topic, decoded."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fetchers.sdk.clock import SystemClock
from service.cli.access import AccessOptions, TopicAccess, opened_access
from service.cli.findings import print_refusal
from service.cli.printing import printable, printable_json
from service.embedded.errors import EmbeddedError
from service.job import ConfigRefusedError
from service.kafka.client import KafkaSettings
from service.kafka.errors import KafkaFailure
from service.kafka.reader import StoredRecord
from service.kafka.span import END, Place, Span, read_span
from service.reading.decoding import Decoder, as_base64, as_json_text
from service.registry.client import RegistryClient
from service.registry.errors import RegistryFailure

EXIT_CLEAN, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2
TABLE_RECORDS_MAX = 200
TABLE_CHARACTERS_MAX = 1 << 20
"""A table is printed when it has so many records, or so much text."""


_ALL = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of a topic is shown, and how."""

    span: Span = _ALL
    key: str | None = None
    """Only records whose key is this text, or is this JSON."""
    records_max: int | None = None
    is_json: bool = False
    has_headers: bool = False
    """Whether a table shows times and headers; JSON always has them."""


async def run_read_topic(topic: str, access: AccessOptions, wanted: Wanted) -> int:
    """Exit code: 0 read to the end, 1 Kafka or the registry failed, 2 configuration."""
    try:
        async with opened_access(access, environ=os.environ) as reached:
            return await print_topic(topic, reached, wanted)
    except ConfigRefusedError as refusal:
        print_refusal(refusal)
        return EXIT_CONFIG
    except EmbeddedError as error:
        Console(stderr=True, soft_wrap=True).print(Text(f"headrace: {error}", style="red"))
        return EXIT_CONFIG


async def print_topic(topic: str, access: TopicAccess, wanted: Wanted) -> int:
    """Print committed records, those of a partition oldest first; one JSON object a line, or tables."""
    console = Console(stderr=True, soft_wrap=True)
    decoder = Decoder()
    try:
        async with AsyncExitStack() as stack:
            if access.registry is not None:
                decoder.schema_by_id = (await stack.enter_async_context(RegistryClient(access.registry))).by_id
            records = read_records(topic, access.kafka, wanted, decoder=decoder)
            if wanted.is_json:
                await print_lines(records)
            elif wanted.span.is_following:
                await print_as_they_come(records, has_headers=wanted.has_headers)
            else:
                await print_tables(topic, records, has_headers=wanted.has_headers)
    except (KafkaFailure, RegistryFailure) as error:
        console.print(Text(f"headrace: {error}", style="red"))
        return EXIT_FAILED
    if decoder.has_missed_schemas:
        console.print("headrace: some of it looks like Avro, and is shown as bytes: name its registry by --registry")
    return EXIT_CLEAN


async def read_records(
    topic: str, settings: KafkaSettings, wanted: Wanted, *, decoder: Decoder
) -> AsyncIterator[dict[str, Any]]:
    """Committed records of a topic, decoded."""
    count = 0
    # Closed by us: who stops early must not leave the consumer to the garbage collector.
    async with aclosing(read_span(settings, topic, wanted.span)) as batches:
        async for records in batches:
            for record in records:
                if wanted.key is not None and not _is_key(await decoder.decode(record.key), wanted.key):
                    continue
                count += 1
                yield await shown(record, decoder)
                if count == wanted.records_max:
                    return


def _is_key(key: Any, wanted: str) -> bool:
    """As it is shown: a text with or without its quotation marks, anything else as JSON."""
    return key is not None and (key == wanted or as_json_text(key) == wanted)


def read_wanted_span(
    begin: str | None, end: str | None, *, partitions: Iterable[int], is_following: bool, wait_seconds: float
) -> Span:
    """What the command line asks for; raises ``click.UsageError`` for a place that is none."""
    now = SystemClock().now()
    try:
        places = [None if text is None else read_place(text, now=now) for text in (begin, end)]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return Span(
        begin=places[0],
        end=places[1],
        partitions=frozenset(partitions),
        is_following=is_following,
        wait_seconds=wait_seconds,
    )


_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def read_place(text: str, *, now: datetime) -> Place:
    """`120` (an offset), `-5` (so many before the end), `beginning`, `end`, `10m` (ago), or an ISO 8601 time.

    A time without a zone is UTC. Raises ValueError.
    """
    if re.fullmatch(r"-?\d{1,18}", text):
        return Place(offset=int(text))
    if text in {"beginning", "end"}:
        return Place(offset=0 if text == "beginning" else END)
    if ago := _AGO.fullmatch(text):
        return _place_at(now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2]]))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is no place in a topic: expected an offset (120, or -5 for the last five), beginning, end, "
            "a time (2026-01-31T12:00:00Z), or how long ago (10m, 2h, 1d)"
        ) from None
    return _place_at(at if at.tzinfo else at.replace(tzinfo=UTC))


def _place_at(at: datetime) -> Place:
    return Place(timestamp_ms=int(at.timestamp() * 1000))


async def shown(record: StoredRecord, decoder: Decoder) -> dict[str, Any]:
    """A record as a JSON-like value; raises what the decoder raises."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": await decoder.decode(record.key),
        "value": await decoder.decode(record.value),
        "headers": _headers(record.headers),
    }


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, Any]:
    """By name; those of one that is there several times are a list."""
    values: dict[str, list[Any]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(_header(value))
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def _header(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return as_base64(value or b"")


async def print_lines(records: AsyncIterator[dict[str, Any]]) -> None:
    """One line of valid JSON for each record, in whatever character set the output has."""
    async for record in records:
        print(printable_json(as_json_text(record)))


async def print_as_they_come(records: AsyncIterator[dict[str, Any]], *, has_headers: bool) -> None:
    """One line for each record, at once: nobody knows how wide those to come are."""
    console = Console(soft_wrap=True, highlight=False)
    async for record in records:
        console.print(Text("  ".join(filter(None, _cells(record, has_headers=has_headers)))))


async def print_tables(topic: str, records: AsyncIterator[dict[str, Any]], *, has_headers: bool = False) -> None:
    """A table for some hundred records at a time: a topic has no end that memory could wait for."""
    # Made here: it is the standard output of now that is written to.
    console = Console()
    table, characters, is_first = _table(topic, has_headers=has_headers), 0, True
    async for record in records:
        cells = _cells(record, has_headers=has_headers)
        table.add_row(*(Text(cell) for cell in cells))
        characters += sum(map(len, cells))
        if table.row_count >= TABLE_RECORDS_MAX or characters >= TABLE_CHARACTERS_MAX:
            console.print(table)
            table, characters, is_first = _table(topic, has_headers=has_headers), 0, False
    if table.row_count or is_first:
        console.print(table)


def _table(topic: str, *, has_headers: bool) -> Table:
    table = Table(title=Text(printable(topic)), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    # Partition and offset in one: what is read on 80 columns is the value.
    table.add_column("offset", justify="right", no_wrap=True)
    if has_headers:
        table.add_column("time (UTC)", no_wrap=True)
    table.add_column("key", overflow="fold", max_width=24)
    table.add_column("value and headers" if has_headers else "value", overflow="fold", ratio=1)
    return table


def _cells(record: dict[str, Any], *, has_headers: bool) -> tuple[str, ...]:
    place = f"{record['partition']}:{record['offset']}"
    cells = [place, as_json_text(record["key"]), as_json_text(record["value"])]
    if has_headers:
        cells.insert(1, _time(record["timestamp"]))
        headers = (
            f"{name}: {value if isinstance(value, str) else as_json_text(value)}"
            for name, value in record["headers"].items()
        )
        cells[-1] = "\n".join((cells[-1], *headers))
    return tuple(map(printable, cells))


def _time(timestamp_ms: int) -> str:
    """To the second; a dash for what is no time."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "-"
