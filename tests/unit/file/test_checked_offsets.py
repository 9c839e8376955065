"""Offsets that a person wants to set are looked at as Kafka Connect's file source does."""

from __future__ import annotations

from typing import Any

import pytest

from fetchers.file.config import FileStreamConfig
from fetchers.file.fetcher import FileStreamSource

PARTITION = {"filename": "/in"}


def source(**keys: str) -> FileStreamSource:
    """A source of this config."""
    parsed = FileStreamConfig.parse({"topic": "t", **keys})
    assert parsed.config is not None
    return FileStreamSource(parsed.config)


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        (PARTITION, {"place": 1}, "Offset objects should either be null or contain the key 'position'"),
        (
            PARTITION,
            {"position": "1"},
            "The value for the 'position' key in the offset is expected to be a Long value",
        ),
        (
            PARTITION,
            {"position": True},
            "The value for the 'position' key in the offset is expected to be a Long value",
        ),
        (
            PARTITION,
            {"position": -1},
            "The value for the 'position' key in the offset should be a non-negative value",
        ),
        ({}, {"position": 1}, "Partition objects should contain the key 'filename'"),
    ],
)
def test_a_wrong_offset_is_refused_with_its_text(partition: Any, offset: Any, text: str) -> None:
    """One mistake each."""
    with pytest.raises(ValueError, match=r".") as refused:
        source(file="/in").check_offsets([(partition, offset)])
    assert str(refused.value) == text


def test_standard_input_has_no_offsets_to_be_set() -> None:
    """Nothing could be read again."""
    with pytest.raises(ValueError, match="'file' configuration is unspecified"):
        source().check_offsets([(PARTITION, {"position": 1})])


def test_positions_and_forgetting_are_accepted() -> None:
    """Also forgetting a partition that makes no sense."""
    source(file="/in").check_offsets([(PARTITION, {"position": 0}), (PARTITION, None), ({"x": 1}, None)])
