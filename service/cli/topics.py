"""``headrace topic read``: what is in a topic, decoded."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.cli.access import TopicAccess, read_access
from service.cli.findings import print_refusal
from service.job import ConfigRefusedError
from service.kafka.client import KafkaSettings
from service.kafka.errors import KafkaFailure
from service.kafka.reader import StoredRecord, read_topic
from service.reading.decoding import Decoder, as_base64, as_json_text
from service.registry.client import RegistryClient
from service.registry.errors import RegistryFailure

EXIT_CLEAN, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2
TABLE_RECORDS_MAX = 200
TABLE_CHARACTERS_MAX = 1 << 20
"""A table is printed when it has so many records, or so much text."""


async def run_read_topic(
    topic: str,
    config: Path | None,
    *,
    bootstrap: str | None,
    registry_url: str | None,
    records_max: int | None,
    is_json: bool,
) -> int:
    """Exit code: 0 read to the end, 1 Kafka or the registry failed, 2 configuration."""
    try:
        access = read_access(config, bootstrap=bootstrap, registry_url=registry_url, environ=os.environ)
    except ConfigRefusedError as refusal:
        print_refusal(refusal)
        return EXIT_CONFIG
    return await print_topic(topic, access, records_max=records_max, is_json=is_json)


async def print_topic(topic: str, access: TopicAccess, *, records_max: int | None, is_json: bool) -> int:
    """Print committed records, oldest first; one JSON object a line, or tables."""
    console = Console(stderr=True)
    decoder = Decoder()
    try:
        async with AsyncExitStack() as stack:
            if access.registry is not None:
                decoder.schema_by_id = (await stack.enter_async_context(RegistryClient(access.registry))).by_id
            records = read_records(topic, access.kafka, decoder=decoder, records_max=records_max)
            await (print_lines(records) if is_json else print_tables(topic, records))
    except (KafkaFailure, RegistryFailure) as error:
        console.print(Text(f"headrace: {error}", style="red"))
        return EXIT_FAILED
    if decoder.has_missed_schemas:
        console.print("headrace: some of it looks like Avro, and is shown as bytes: name its registry by --registry")
    return EXIT_CLEAN


async def read_records(
    topic: str, settings: KafkaSettings, *, decoder: Decoder, records_max: int | None
) -> AsyncIterator[dict[str, Any]]:
    """Committed records of a topic, decoded."""
    count = 0
    # Closed by us: who stops early must not leave the consumer to the garbage collector.
    async with aclosing(read_topic(settings, topic)) as batches:
        async for records in batches:
            for record in records:
                if records_max is not None and count >= records_max:
                    return
                count += 1
                yield await shown(record, decoder)


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
        line = as_json_text(record)
        print(line if _printable(line) == line else as_json_text(record, is_ascii=True))


async def print_tables(topic: str, records: AsyncIterator[dict[str, Any]]) -> None:
    """A table for some hundred records at a time: a topic has no end that memory could wait for."""
    # Made here: it is the standard output of now that is written to.
    console = Console()
    table, characters, is_first = _table(topic), 0, True
    async for record in records:
        cells = _cells(record)
        table.add_row(*(Text(cell) for cell in cells))
        characters += sum(map(len, cells))
        if table.row_count >= TABLE_RECORDS_MAX or characters >= TABLE_CHARACTERS_MAX:
            console.print(table)
            table, characters, is_first = _table(topic), 0, False
    if table.row_count or is_first:
        console.print(table)


def _table(topic: str) -> Table:
    table = Table(title=Text(_printable(topic)))
    for column in ("partition", "offset", "key", "value", "headers"):
        table.add_column(column, overflow="fold")
    return table


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    headers = (
        f"{name}: {value if isinstance(value, str) else as_json_text(value)}"
        for name, value in record["headers"].items()
    )
    cells = (
        str(record["partition"]),
        str(record["offset"]),
        as_json_text(record["key"]),
        as_json_text(record["value"]),
        "\n".join(headers),
    )
    return tuple(map(_printable, cells))


def _printable(text: str) -> str:
    """The text as standard output can take it: what its character set does not have is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
