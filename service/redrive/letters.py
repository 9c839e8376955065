"""Dead letters as people look at them: which are open, why, and where in the payload the trouble is.

A letter is open until a redrive has read it. Then its record was delivered, or it was rejected again and has another
letter further on, with one try more: so each record has one open letter, at most (decision 43). How far a redrive has
read is a source offset of its own, committed with what it wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import StoredRecord, last_ends, read_topic
from service.pipeline.dead_letters import (
    CONNECTOR_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    REASON_HEADER,
    STAGE_HEADER,
)
from service.reading.decoding import as_base64, as_json_text
from service.redrive.source import letter_partition, redrive_name, redriven_to, tries_of
from service.stores.offsets import OffsetStore, canonical_partition

SHOWN_CHARACTERS_MAX = 120
GROUPS_MAX = 1_000
"""Pairs of reason and field that are told apart; a map's keys may be any number of fields."""
SAMPLES_MAX = 3
_FIELD = re.compile(r"(?P<field>.{1,400}?): expected ", re.DOTALL)
_INDEX = re.compile(r"\[(\d{1,9})\]")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter, and what its headers say."""

    record: StoredRecord
    connector: str | None
    """None: its writer has headers switched off."""
    stage: str
    reason: str
    message: str
    source_partition: str
    source_offset: str
    tries: int
    is_open: bool

    @classmethod
    def of(cls, record: StoredRecord, *, is_open: bool) -> Letter:
        """``is_open``: whether no redrive has read it."""
        headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
        return cls(
            record,
            headers.get(CONNECTOR_HEADER),
            headers.get(STAGE_HEADER, ""),
            headers.get(REASON_HEADER, "") or "unknown",
            headers.get(MESSAGE_HEADER, ""),
            headers.get(PARTITION_HEADER, ""),
            headers.get(OFFSET_HEADER, ""),
            tries_of(record.headers),
            is_open,
        )

    @property
    def field(self) -> str:
        """Path of the field that is at fault, or ``rule NAME``; empty where it is the record, or no message says it."""
        found = _FIELD.match(self.message)
        return "" if found is None or found["field"] == "record" else found["field"]

    @property
    def place(self) -> str:
        """Where it lies: partition and offset."""
        return f"{self.record.partition}:{self.record.offset}"

    @property
    def offending(self) -> str:
        """The place in the payload that is at fault, with what stands there, in one short line."""
        return offending(self.record.value, "" if self.reason == "rule_failed" else self.field)

    def exported(self) -> dict[str, Any]:
        """Everything of it that mending needs; the payload exactly, as text or as ``{"base64": …}``."""
        record = self.record
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "connector": self.connector,
            "stage": self.stage,
            "reason": self.reason,
            "field": self.field,
            "message": self.message,
            "tries": self.tries,
            "source_partition": self.source_partition,
            "source_offset": self.source_offset,
            "key": exact(record.key),
            "value": exact(record.value),
        }


def exact(data: bytes | None) -> Any:
    """Bytes as JSON can have them and lose nothing."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return as_base64(data)


@dataclass(slots=True)
class Group:
    """Open letters with one reason and one field."""

    count: int = 0
    tries_max: int = 1
    samples: list[Letter] = field(default_factory=list)
    """The last ones: what goes wrong now."""


@dataclass(slots=True)
class LetterSummary:
    """Counts letters; bounded, however many there are."""

    open: int = 0
    redriven: int = 0
    """Delivered since, or replaced by a later letter."""
    nameless: int = 0
    """Of the open ones those that do not say whose they are."""
    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    """By reason and field."""

    def add(self, letter: Letter) -> None:
        """Count one more."""
        if not letter.is_open:
            self.redriven += 1
            return
        self.open += 1
        self.nameless += letter.connector is None
        key = (letter.reason, letter.field)
        if key not in self.groups and len(self.groups) >= GROUPS_MAX:
            key = (letter.reason, "(other fields)")
        group = self.groups.setdefault(key, Group())
        group.count += 1
        group.tries_max = max(group.tries_max, letter.tries)
        group.samples = [*group.samples[1 - SAMPLES_MAX :], letter]

    def by_count(self) -> list[tuple[str, str, Group]]:
        """Reason, field and group, the largest first."""
        ordered = sorted(self.groups.items(), key=lambda item: (-item[1].count, item[0]))
        return [(reason, name, group) for (reason, name), group in ordered]


class OffsetsUnknownError(Exception):
    """Nobody can say what was redriven: there is no offset topic of that name."""


async def read_letters(
    settings: KafkaSettings, topic: str, connector: str, redriven: Mapping[int, int]
) -> AsyncGenerator[Letter, None]:
    """Every letter of the connector, oldest first; those that name nobody too. Raises DeliveryFatal, DeliveryRetriable.

    ``redriven``: how far each partition was, as ``read_redriven`` gives it.
    """
    async with aclosing(read_topic(settings, topic)) as batches:
        async for records in batches:
            for record in records:
                letter = Letter.of(record, is_open=record.offset >= redriven.get(record.partition, 0))
                if letter.connector in {None, connector}:
                    yield letter


async def read_redriven(settings: KafkaSettings, topic: str, connector: str, *, offsets_topic: str) -> dict[int, int]:
    """By partition the offset up to which redrives have read; 0 in one that ends before it, because it was made anew.

    Raises ``OffsetsUnknownError``, DeliveryFatal (no such dead-letter topic), DeliveryRetriable.
    """
    ends = await last_ends(settings, topic)
    store = OffsetStore(settings, offsets_topic)
    try:
        known = await store.read(redrive_name(topic, connector))
    except DeliveryFatal as error:
        raise OffsetsUnknownError(str(error)) from error
    finally:
        await store.close()
    redriven = {}
    for place, end in ends.items():
        stored = known.get(canonical_partition(letter_partition(topic, connector, place.partition)), {})
        begin = redriven_to(stored)
        redriven[place.partition] = begin if begin <= end else 0
    return redriven


def offending(payload: bytes | None, path: str) -> str:
    """What stands at a path of a payload; where that is no JSON, the text around the place where it breaks."""
    try:
        value = None if payload is None else json.loads(payload)
    except UnicodeDecodeError as error:
        return f"byte {error.start}: {_shortened(repr(error.object[max(0, error.start - 20) : error.start + 20]))}"
    except json.JSONDecodeError as error:
        return f"character {error.pos}: {_around(error.doc, error.pos)}"
    except (ValueError, RecursionError):
        return _shortened(repr(payload))
    found = _at(value, path)
    if found is _MISSING:
        return f"no {path} in {_shortened(as_json_text(value))}"
    return f"{path}: {_shortened(as_json_text(found))}" if path else _shortened(as_json_text(found))


def _at(value: Any, path: str) -> Any:
    """The value at a path such as ``items[2].price``; names may have dots of their own."""
    rest = path
    while rest:
        index = _INDEX.match(rest)
        if index is not None:
            if not isinstance(value, list) or int(index[1]) >= len(value):
                return _MISSING
            value, rest = value[int(index[1])], rest[index.end() :]
        else:
            name = max(_names_before(value, rest), key=len, default=None)
            if name is None:
                return _MISSING
            value, rest = value[name], rest[len(name) :]
        rest = rest.removeprefix(".")
    return value


def _names_before(value: Any, rest: str) -> Iterator[str]:
    names: Sequence[str] = list(value) if isinstance(value, dict) else ()
    return (name for name in names if name and (rest == name or rest.startswith((f"{name}.", f"{name}["))))


def _around(text: str, position: int) -> str:
    """The text before and behind a place, the place marked."""
    before, behind = text[max(0, position - 40) : position], text[position : position + 40]
    return f"{before}⟨here⟩{behind}".replace("\n", "⏎")


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"
