"""Dead letters as pages: whose they are, and what no contract can decide about them."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pyarrow as pa
import pytest
from aiokafka import ConsumerRecord

from fetchers.sdk import Fatal, Page, Rejection
from service.config.definition import ConnectorDefinition, read_definition
from service.domain.ids import TaskId
from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord
from service.pipeline.dead_letters import (
    PARTITION_HEADER,
    TIMESTAMP_HEADER,
    DeadLetter,
    DeadLetterRules,
    dead_letter_headers,
    dead_letter_records,
)
from service.redrive.run import nameless_of
from service.redrive.source import DeadLetterFeed, DeadLetterSource, Nameless, PassedOver, RedriveConfig

NAMES = ("named", "silent", "mute")


def definition(name: str, *, has_headers: bool) -> ConnectorDefinition:
    """A connector by its setting."""
    properties = {"name": name, "connector.class": "FileStreamSource", "topic": "t", "file": "/tmp/x"}
    own = {"errors.deadletterqueue.context.headers.enable": str(has_headers).lower()}
    read = read_definition(properties | own, worker={"key.converter": "string", "value.converter": "json"}).definition
    assert read is not None
    return read


def letter(offset: int, *, owner: str | None = "c", stage: str = "VALUE_CONVERTER", reason: str = "x") -> StoredRecord:
    """A letter of this connector; without an owner it has no headers."""
    told = DeadLetter(None, b"", stage, reason, f"about {offset}", "t", "{}", '{"position":1}')
    headers = () if owner is None else tuple(dead_letter_headers(told, TaskId(owner, 0), class_name="x"))
    value = b"%d" % offset
    return ConsumerRecord("letters", 0, offset, 0, 0, None, value, None, -1, len(value), headers)


def pages(*letters: StoredRecord, nameless: Nameless = Nameless.OTHERS, passed: PassedOver | None = None) -> list[Page]:
    """What the connector ``c`` gets of them."""
    feed = DeadLetterFeed(KafkaSettings(bootstrap="unused:1"), "c", nameless, passed or PassedOver())
    return list(DeadLetterSource(RedriveConfig.model_validate({"topic": "letters"}), feed).pages(letters))


def test_what_its_fetcher_rejected_is_rejected_again_and_for_the_same_reason() -> None:
    """A footer of a CSV that is JSON by itself must not pass for a record."""
    (page,) = pages(
        letter(0),
        letter(1, stage="TASK_POLL", reason="malformed_json"),
        letter(2, owner="other", stage="TASK_POLL"),
        letter(3, stage="TASK_POLL", reason="too_large"),
        letter(4, stage="KAFKA_PRODUCE", reason="too_large"),
    )
    assert list(page.values()) == [b"0", b"1", b"3", b"4"]
    assert page.rejections == (Rejection(1, "malformed_json", "about 1"), Rejection(2, "too_large", "about 3"))


def test_a_letter_without_headers_is_passed_over_by_who_writes_them_and_counted_once() -> None:
    """It is somebody else's, to be judged by another contract."""
    passed = PassedOver()
    letters = (letter(0), letter(1, owner=None), letter(2))
    for _ in range(2):
        (page,) = pages(*letters, passed=passed)
        assert list(page.values()) == [b"0", b"2"]
    assert passed.count == 1


def test_a_letter_without_headers_is_of_the_only_one_who_writes_none() -> None:
    """Of several of them nobody knows whose it is."""
    (page,) = pages(letter(0, owner=None), nameless=Nameless.OWN)
    assert list(page.values()) == [b"0"]
    with pytest.raises(Fatal, match="does not say whose it is"):
        pages(letter(0, owner=None), nameless=Nameless.UNKNOWN)


@pytest.mark.parametrize("has_headers", [True, False])
def test_a_record_has_its_own_headers_and_timestamp_again(*, has_headers: bool) -> None:
    """Those that made it a letter are cut off, so that a second redrive finds them once."""
    own = (("trace", b"abc"), ("x", None))
    told = DeadLetter(None, b"1", "s", "r", "m", "t", "{}", "{}", timestamp_ms=-5, headers=own)
    rules = DeadLetterRules("letters", "x", has_headers=has_headers)
    (headers,) = dead_letter_records([told], TaskId("c", 0), rules=rules).headers or ()
    written = dataclasses.replace(letter(0), headers=tuple(headers))
    (page,) = pages(written, letter(1), nameless=Nameless.OWN)
    assert page.headers is not None
    assert [tuple(each) for each in page.headers] == [own, ()]
    timestamps = cast("pa.Array[Any]", page.timestamps_ms).to_pylist()
    assert timestamps == [-5 if has_headers else None, None]


@pytest.mark.parametrize("told", [b"", b"x", b"9" * 19, b"9" * 5_000, "٣".encode(), None])
def test_a_timestamp_that_is_none_is_passed_over(told: bytes | None) -> None:
    """Anybody may write such a header."""
    foreign = letter(7)
    (page,) = pages(dataclasses.replace(foreign, headers=(*foreign.headers, (TIMESTAMP_HEADER, told))))
    assert cast("pa.Array[Any]", page.timestamps_ms).to_pylist() == [None]


@pytest.mark.parametrize("told", [b"1", b"[]", b'"x"', b"[" * 100_000, b"{", None])
def test_an_origin_that_is_no_map_is_where_the_letter_lies(told: bytes | None) -> None:
    """Anybody may write such a header; it stops no redrive."""
    foreign = letter(7)
    headers = {**dict(foreign.headers), PARTITION_HEADER: told}
    (page,) = pages(dataclasses.replace(foreign, headers=tuple(headers.items())))
    assert page.origins is not None
    assert page.origins[0][1] == {"offset": 7}


@pytest.mark.parametrize(
    ("has_headers", "expected"),
    [
        ((True,), (Nameless.OTHERS,)),
        ((False,), (Nameless.OWN,)),
        ((True, False), (Nameless.OTHERS, Nameless.OWN)),
        ((True, False, False), (Nameless.OTHERS, Nameless.UNKNOWN, Nameless.UNKNOWN)),
    ],
)
def test_the_connectors_of_a_job_share_a_topic(has_headers: tuple[bool, ...], expected: tuple[Nameless, ...]) -> None:
    """By their own settings."""
    definitions = [definition(name, has_headers=has) for name, has in zip(NAMES, has_headers, strict=False)]
    assert tuple(nameless_of(each, definitions) for each in definitions) == expected
