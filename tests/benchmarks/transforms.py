"""What a chain of five transformations costs, and how fast Kafka Connect is with a chain that both can carry out.

Connect's file source knows lines only, so the chain that both have begins with `HoistField`; what five transformations
take off the rate of validated Avro is measured on headrace alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.benchmarks.lines import write_lines
from tests.benchmarks.peer import connect_file_source
from tests.benchmarks.throughput import AVRO, Field, run_headrace
from tests.benchmarks.watching import Passage, processor_seconds, watch

_PACKAGE: Final = "org.apache.kafka.connect.transforms"


def chain(**steps: Mapping[str, str]) -> dict[str, str]:
    """A connector's keys, the transformations in their order."""
    found = {"transforms": ",".join(steps)}
    for name, keys in steps.items():
        found |= {f"transforms.{name}.{key}": text for key, text in keys.items()}
        found[f"transforms.{name}.type"] = f"{_PACKAGE}.{keys['type']}$Value"
    return found


OF_LINES = chain(
    hoisted={"type": "HoistField", "field": "line"},
    inserted={"type": "InsertField", "static.field": "at", "static.value": "1700000000123"},
    typed={"type": "Cast", "spec": "at:int64"},
    timed={"type": "TimestampConverter", "field": "at", "target.type": "string", "format": "yyyy-MM-dd HH:mm:ss"},
    named={"type": "ReplaceField", "renames": "line:event"},
) | {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
"""Five transformations of lines, and JSON."""
OF_RECORDS = chain(
    flat={"type": "Flatten", "delimiter": "_"},
    typed={"type": "Cast", "spec": "properties_amount:string"},
    timed={
        "type": "TimestampConverter", "field": "properties_time", "target.type": "Timestamp",
        "unix.precision": "seconds",
    },
    inserted={"type": "InsertField", "static.field": "source", "static.value": "file"},
    named={"type": "ReplaceField", "exclude": "properties_is_trial", "renames": "properties_city:city"},
)  # fmt: skip
"""Five transformations of records that a contract describes."""


async def peer(field: Field, run: str, *, records: int) -> Passage:
    """Kafka Connect, lines through five transformations to JSON."""
    file = write_lines(field.folder / "lines.jsonl", count=records)
    topic = f"peer-chain-{run}"
    with connect_file_source(
        field.folder / topic, bootstrap=field.servers.bootstrap, file=file, topic=topic, more=OF_LINES
    ) as child:
        sample = processor_seconds({"Kafka Connect": child.pid, "broker": field.servers.pid})
        return await watch(field.servers.bootstrap, topic, records=records, sample=sample)


async def lines(field: Field, run: str, *, records: int) -> Passage:
    """The same chain of headrace, exactly once."""
    return await _from_file(field, f"lines-chain-{run}", OF_LINES, records=records)


async def with_chain(field: Field, run: str, *, records: int) -> Passage:
    """Validated Avro, through five transformations."""
    return await _from_file(field, f"chain-{run}", {**AVRO, **OF_RECORDS}, records=records)


async def without_chain(field: Field, run: str, *, records: int) -> Passage:
    """Validated Avro as it comes."""
    return await _from_file(field, f"plain-{run}", AVRO, records=records)


async def _from_file(field: Field, name: str, properties: Mapping[str, str], *, records: int) -> Passage:
    file = write_lines(field.folder / "lines.jsonl", count=records)
    own = {"connector.class": "FileStreamSource", "file": str(file), **properties}
    return await run_headrace(field, name, own, records=records)
