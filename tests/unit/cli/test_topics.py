"""What ``topic read`` prints: every record, as it comes, whatever its bytes are."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.cli import topics
from service.cli.access import TopicAccess
from service.cli.topics import TABLE_RECORDS_MAX, print_lines, print_tables, print_topic, shown
from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord
from service.reading.decoding import Decoder


def record(number: int, **more: Any) -> dict[str, Any]:
    """A record as it is shown."""
    return {"partition": 0, "offset": number, "timestamp": 0, "key": None, "value": f"v{number}", "headers": {}} | more


async def each(*records: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """As a topic gives them."""
    for one in records:
        yield one


class _Terminal(io.TextIOWrapper):
    """Standard output of another character set."""

    def __init__(self, encoding: str) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding=encoding, write_through=True)

    @property
    def text(self) -> str:
        return self.bytes.getvalue().decode(self.encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
async def test_a_line_is_json_in_every_character_set(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the terminal cannot show is escaped as JSON escapes it."""
    terminal = _Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    records = [record(1, value="é€😀"), record(2, value="\ud800"), record(3, value='{"x":"\\ud800"}')]
    await print_lines(each(*records))
    assert [json.loads(line) for line in terminal.text.splitlines()] == records


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
async def test_a_table_is_printed_in_every_character_set(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing raises; what cannot be shown is escaped."""
    terminal = _Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    await print_tables("tøpic", each(record(1, value="😀", headers={"h": "\udcff", "b": {"base64": "/w=="}})))
    assert "\\udcff" in terminal.text
    assert ("😀" in terminal.text) is (encoding == "utf-8")
    assert '{"base64": "/w=="}' in terminal.text


async def test_a_table_ends_before_the_topic_does(capsys: pytest.CaptureFixture[str]) -> None:
    """No more than a table's records are held at once, and all are shown in order."""
    printed_at: list[int] = []
    out = ""

    async def endless() -> AsyncIterator[dict[str, Any]]:
        nonlocal out
        for number in range(2 * TABLE_RECORDS_MAX + 1):
            new = capsys.readouterr().out
            if new:
                printed_at.append(number)
                out += new
            yield record(number)

    await print_tables("t", endless())
    out += capsys.readouterr().out
    assert printed_at == [TABLE_RECORDS_MAX, 2 * TABLE_RECORDS_MAX]
    places = [out.index(f'v{number}" ') for number in range(2 * TABLE_RECORDS_MAX + 1)]
    assert places == sorted(places)


async def test_large_records_make_small_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held is bounded in characters too."""
    monkeypatch.setattr(topics, "TABLE_CHARACTERS_MAX", 1_000)
    held: list[int] = []

    async def large() -> AsyncIterator[dict[str, Any]]:
        for number in range(6):
            held.append(capsys.readouterr().out.count("offset"))
            yield record(number, value="x" * 600)

    await print_tables("t", large())
    assert held == [0, 0, 1, 0, 1, 0]


async def test_an_empty_topic_is_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    """One sees that it was read."""
    await print_tables("nothing-here", each())
    out = capsys.readouterr().out
    assert "nothing-here" in out
    assert "offset" in out


async def test_headers_that_are_no_text_are_not_lost() -> None:
    """They have the form that values have."""
    raw: StoredRecord = _Raw()
    assert (await shown(raw, Decoder()))["headers"] == {
        "text": "é",
        "none": None,
        "raw": {"base64": "/w=="},
        "json": "1",
        "twice": ["1", None],
    }


@pytest.mark.parametrize(("value", "is_hinted"), [(b"\x00\x00\x00\x00\x01body", True), (b"\x00\x01", False)])
async def test_avro_without_a_registry_is_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, value: bytes, is_hinted: bool
) -> None:
    """On standard error, behind the records: what is shown is not what was written."""

    async def stored(*_: object) -> AsyncIterator[list[StoredRecord]]:
        raw: StoredRecord = _Raw()
        raw.value = value
        yield [raw, raw]

    monkeypatch.setattr(topics, "read_topic", stored)
    access = TopicAccess(kafka=KafkaSettings(bootstrap="nowhere:1"), registry=None)
    assert await print_topic("t", access, records_max=None, is_json=True) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err.replace("\n", " ").count("--registry") == is_hinted


class _Raw:
    partition, offset, timestamp = 0, 1, 2
    key, value = None, b"\x00"
    headers = (
        ("text", "é".encode()),
        ("none", None),
        ("raw", b"\xff"),
        ("json", b"1"),
        ("twice", b"1"),
        ("twice", None),
    )
