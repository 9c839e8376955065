"""What ``topic read`` prints: every record, as it comes, whatever its bytes are."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from service.cli import topics
from service.cli.access import TopicAccess
from service.cli.topics import (
    TABLE_RECORDS_MAX,
    Wanted,
    print_as_they_come,
    print_lines,
    print_tables,
    print_topic,
    read_place,
    shown,
)
from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord
from service.kafka.span import END, Place
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
    await print_tables(
        "tøpic", each(record(1, value="😀", headers={"h": "\udcff", "b": {"base64": "/w=="}})), has_headers=True
    )
    assert "\\udcff" in terminal.text
    assert ("😀" in terminal.text) is (encoding == "utf-8")
    assert '{"base64": "/w=="}' in terminal.text


ESCAPES = "\x1b[2J\x9b31m\x07\x7f"
"""What clears a screen, colours it, rings, and deletes."""


async def test_signs_of_control_do_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever may write into a topic does not command the terminal of its reader, by no part of a record."""
    evil = record(1, key=ESCAPES, value={ESCAPES: ESCAPES}, headers={ESCAPES: ESCAPES, "list": [ESCAPES]})
    await print_tables(f"t{ESCAPES}", each(evil), has_headers=True)
    await print_as_they_come(each(evil), has_headers=True)
    await print_lines(each(evil))
    out = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\x07", "\x7f"} & set(out)
    assert json.loads(out.splitlines()[-1]) == evil


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

    monkeypatch.setattr(topics, "read_span", stored)
    access = TopicAccess(kafka=KafkaSettings(bootstrap="nowhere:1"), registry=None)
    assert await print_topic("t", access, Wanted(is_json=True)) == 0
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


NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("120", Place(offset=120)),
        ("-5", Place(offset=-5)),
        ("beginning", Place(offset=0)),
        ("end", Place(offset=END)),
        ("10m", Place(timestamp_ms=1769860200000)),
        ("1.5h", Place(timestamp_ms=1769855400000)),
        ("2026-01-31", Place(timestamp_ms=1769817600000)),
        ("2026-01-31T12:00:00Z", Place(timestamp_ms=1769860800000)),
        ("2026-01-31T13:00:00+01:00", Place(timestamp_ms=1769860800000)),
    ],
)
def test_places_are_offsets_and_times(text: str, place: Place) -> None:
    """Without a zone a time is UTC."""
    assert read_place(text, now=NOW) == place


@pytest.mark.parametrize("text", ["", "yesterday", "1x", "1e3", "9" * 19])
def test_what_is_no_place_is_said_with_all_that_are(text: str) -> None:
    """One sentence that names every form."""
    with pytest.raises(ValueError, match=r"no place in a topic: expected an offset .*beginning, end, a time .*10m"):
        read_place(text, now=NOW)


@pytest.mark.parametrize(("key", "found"), [("a", 1), ('"a"', 1), ('{"id": 1}', 1), ("b", 0)])
async def test_a_key_is_wanted_as_it_is_shown(
    key: str, found: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text with or without quotation marks, else JSON; ``--max`` counts what is shown."""

    async def stored(*_: object) -> AsyncIterator[list[StoredRecord]]:
        for written in (b"a", b'{"id": 1}', None, b"a"):
            raw: StoredRecord = _Raw()
            raw.key = written
            yield [raw]

    monkeypatch.setattr(topics, "read_span", stored)
    access = TopicAccess(kafka=KafkaSettings(bootstrap="nowhere:1"), registry=None)
    assert await print_topic("t", access, Wanted(key=key, records_max=1, is_json=True)) == 0
    assert len(capsys.readouterr().out.splitlines()) == found


@pytest.mark.parametrize("has_headers", [True, False])
async def test_a_table_is_read_on_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, has_headers: bool
) -> None:
    """Whatever the length of keys and values; times and headers are there where they are wanted."""
    monkeypatch.setenv("COLUMNS", "80")
    long = record(
        123_456_789, key="k" * 100, value={"text": "v" * 300}, timestamp=1769860800000, headers={"who": "x" * 90}
    )
    await print_tables("t", each(long), has_headers=has_headers)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "0:123456789" in out
    assert ("2026-01-31 12:00:00" in out, "who:" in out) == (has_headers, has_headers)


async def test_what_is_followed_is_shown_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each record, however long, before the next has come."""
    seen: list[int] = []

    async def coming() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            seen.append(len(capsys.readouterr().out.splitlines()))
            yield record(number, key="k", value="x" * 500)

    await print_as_they_come(coming(), has_headers=False)
    assert seen == [0, 1, 1]
