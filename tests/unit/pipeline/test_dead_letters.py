"""Dead letters: the original bytes and the headers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from service.domain.ids import TaskId
from service.pipeline.dead_letters import DeadLetter, DeadLetterRules, dead_letter_headers, dead_letter_records

LETTER = DeadLetter(
    key=None,
    value=b"\xff{",
    stage="VALUE_CONVERTER",
    reason="invalid_utf8",
    message="é is not UTF-8 here",
    topic="things",
    partition={"filename": "/ä", "b": 1},
    offset={"position": 2**60, "line": 3},
)


def test_headers_are_connects_and_ours() -> None:
    """Names and texts as KIP-298 has them, and where a source's record came from."""
    headers = dict(dead_letter_headers(LETTER, TaskId("c", 2), class_name="io.x.AvroConverter"))
    assert headers == {
        "__connect.errors.topic": b"things",
        "__connect.errors.connector.name": b"c",
        "__connect.errors.task.id": b"2",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": b"io.x.AvroConverter",
        "__connect.errors.exception.class.name": b"org.apache.kafka.connect.errors.DataException",
        "__connect.errors.exception.message": "é is not UTF-8 here".encode(),
        "__headrace.errors.reason": b"invalid_utf8",
        "__headrace.errors.source.partition": '{"b":1,"filename":"/ä"}'.encode(),
        "__headrace.errors.source.offset": b'{"line":3,"position":1152921504606846976}',
    }


@pytest.mark.parametrize("has_headers", [True, False])
def test_records_keep_bytes_and_order(has_headers: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A null value stays null; headers can be switched off."""
    letters = [LETTER, replace(LETTER, key=b"k", value=None)]
    records = dead_letter_records(letters, TaskId("c", 0), rules=DeadLetterRules("dlq", "x", has_headers=has_headers))
    assert records.topic == "dlq"
    assert records.values.to_pylist() == [b"\xff{", None]
    assert records.keys is not None
    assert records.keys.to_pylist() == [None, b"k"]
    assert (records.headers is not None) == has_headers


def test_a_lone_surrogate_in_an_offset_does_not_stop_the_letter() -> None:
    """Python's texts may hold what UTF-8 cannot say, such as the name of a file that is no UTF-8."""
    letter = replace(LETTER, partition={"filename": "a\udcff"})
    headers = dict(dead_letter_headers(letter, TaskId("c", 0), class_name="x"))
    value = headers["__headrace.errors.source.partition"]
    assert value is not None
    assert json.loads(value) == {"filename": "a\udcff"}
