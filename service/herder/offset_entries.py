"""What may stand in a request to change offsets: pure, with Connect's texts (`connect-rest`, section 6).

Where Connect answers 500 to a client's mistake, the answer here is 400.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError

TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_PRIMITIVE = (str, bool, int, float, type(None))
_LONG_MAX = 2**63 - 1


def source_entries(offsets: Sequence[OffsetEntry]) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """Source partitions and offsets; flat maps of primitive values."""
    entries = []
    for partition, offset in offsets:
        for values in (partition, offset):
            _demand_flat(values or {})
        if partition is None and offset is not None:
            raise BadRequestError("Partition objects cannot be null")
        entries.append((partition or {}, offset))
    return entries


def sink_entries(offsets: Sequence[OffsetEntry]) -> dict[tuple[str, int], int | None]:
    """Offsets of a consumer group by topic and partition; None = forget."""
    return {_topic_partition(partition): _sink_offset(offset) for partition, offset in offsets}


def _demand_flat(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if not isinstance(key, str):
            raise BadRequestError("Offsets may only use String keys")
        if not isinstance(value, _PRIMITIVE):
            kind = "MAP" if isinstance(value, Mapping) else "ARRAY"
            raise BadRequestError(
                f"Offsets may only contain primitive types as values, but field {key} contains {kind}"
            )


def _topic_partition(partition: Mapping[str, Any] | None) -> tuple[str, int]:
    if partition is None:
        raise BadRequestError("The partition for a sink connector offset cannot be null or missing")
    if TOPIC not in partition or PARTITION not in partition:
        raise BadRequestError(
            f"The partition for a sink connector offset must contain the keys '{TOPIC}' and '{PARTITION}'"
        )
    topic, number = partition[TOPIC], partition[PARTITION]
    if not isinstance(topic, str):
        raise BadRequestError("Kafka topic names must be valid strings and may not be null")
    if number is None:
        raise BadRequestError("Kafka partitions must be valid numbers and may not be null")
    parsed = _integer(number, most=2**31 - 1)
    if parsed is None:
        raise BadRequestError(
            f"Failed to parse the following Kafka partition value in the provided offsets: '{_shown(number)}'. "
            "Partition values for sink connectors need to be integers."
        )
    return topic, parsed


def _sink_offset(offset: Mapping[str, Any] | None) -> int | None:
    if offset is None:
        return None
    if OFFSET not in offset:
        raise BadRequestError(f"The offset for a sink connector should either be null or contain the key '{OFFSET}'")
    parsed = _integer(offset[OFFSET], most=_LONG_MAX)
    if parsed is None:
        raise BadRequestError(
            f"Failed to parse the following Kafka offset value in the provided offsets: '{_shown(offset[OFFSET])}'. "
            "Offset values for sink connectors need to be integers."
        )
    return parsed


def _shown(value: object) -> str:
    """As it stood in the request, but for the quotes of a text."""
    return value if isinstance(value, str) else json.dumps(value)


def _integer(value: object, *, most: int) -> int | None:
    """An integer, also as text; negative ones are none that Kafka has."""
    text = str(value)
    is_integer = not isinstance(value, bool) and text.isascii() and text.isdigit()
    return int(text) if is_integer and int(text) <= most else None
