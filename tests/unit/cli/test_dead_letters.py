"""``dead-letters``: what is printed, exported and said where there is nothing to read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli import dead_letters
from service.cli.main import main
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryFatal
from service.pipeline.dead_letters import DeadLetter, dead_letter_headers
from service.redrive.letters import Letter, OffsetsUnknownError
from tests.unit.redrive.test_source import letter


def stored(offset: int, message: str, value: bytes, *, tries: int = 1, is_open: bool = True) -> Letter:
    """A letter of the connector ``orders``."""
    record = letter(offset)
    told = DeadLetter(
        None, value, "VALUE_CONVERTER", "wrong_type", message, "t", '{"file":"x"}', '{"position":1}', tries=tries
    )
    record.headers, record.value = tuple(dead_letter_headers(told, TaskId("orders", 0), class_name="x")), value
    return Letter.of(record, is_open=is_open)


LETTERS = (
    stored(0, "age: expected an integer", b'{"age": "x"}', is_open=False),
    stored(1, "age: expected an integer", b'{"age": "' + b"y" * 500 + b'"}', tries=3),
    stored(2, "name: expected text", b'{"name": \xff}'),
)


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of three letters, of which one was redriven."""

    async def letters(*_: object) -> AsyncIterator[Letter]:
        for each in LETTERS:
            yield each

    async def redriven(*_: object, **__: object) -> dict[int, int]:
        return {0: 1}

    monkeypatch.setattr(dead_letters, "read_letters", letters)
    monkeypatch.setattr(dead_letters, "read_redriven", redriven)


def call(*words: str) -> Result:
    """On a terminal of 80 columns."""
    return CliRunner().invoke(main, ["dead-letters", "orders", *words], env={"COLUMNS": "80"})


def test_open_letters_are_counted_and_shown() -> None:
    """By reason and field, with the offending place, and what can be done."""
    result = call()
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("orders-dead-letters: 2 open; 1 were redriven")
    rows = [line.split() for line in lines]
    assert ["wrong_type", "age", "1", "3", "0:1", "age:"] in [row[:6] for row in rows]
    assert "./headrace redrive orders-dead-letters WORKER_FILE CONNECTOR_FILE" in result.output
    assert max(map(len, lines[1:-1])) <= 80


def test_each_open_letter_can_be_listed() -> None:
    """Its place, its message, where it came from, what stands there."""
    first, second, *_ = call("--open").output.splitlines()
    assert first == '0:1  wrong_type, tried 3 times  age: expected an integer  (from {"file":"x"} {"position":1})'
    assert second.strip().startswith('age: "yyy')
    listed = [json.loads(line) for line in call("--open", "--json").output.splitlines()]
    assert [each["offset"] for each in listed] == [1, 2]


@pytest.mark.parametrize("words", [(), ("--open",), ("--json",), ("--open", "--json"), ("--export", "-")], ids="_".join)
def test_signs_of_control_do_nothing_to_the_terminal(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a source sends, and what is said about it, is text to look at; as JSON it stays the same."""
    escapes = "\x1b[2J\x9b31m"

    async def letters(*_: object) -> AsyncIterator[Letter]:
        value = json.dumps({escapes: escapes}, ensure_ascii=False).encode()
        yield stored(1, f"{escapes}: expected {escapes}", value)

    monkeypatch.setattr(dead_letters, "read_letters", letters)
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert not {"\x1b", "\x9b"} & set(result.output)
    if "--open" in words and "--json" in words:
        assert json.loads(result.output)["message"] == f"{escapes}: expected {escapes}"


def test_an_export_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The payloads as they are; a file that was there stays until the new one is complete."""
    file = tmp_path / "letters.jsonl"
    assert call("--export", str(file)).exit_code == 0
    values = [json.loads(line)["value"] for line in file.read_text().splitlines()]
    assert values[0].encode() == LETTERS[1].record.value
    assert set(values[1]) == {"base64"}
    before = file.read_bytes()

    async def broken(*_: object) -> AsyncIterator[Letter]:
        yield LETTERS[1]
        raise DeliveryFatal("the broker refuses")

    monkeypatch.setattr(dead_letters, "read_letters", broken)
    assert call("--export", str(file)).exit_code == 1
    assert (file.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (before, [file.name])


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Exit code 1 and one line."""
    result = call("--export", str(tmp_path / "no-such-folder" / "x"))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_a_summary_is_json_for_scripts() -> None:
    """With counts and samples."""
    body = json.loads(call("--json").output)
    assert (body["open"], body["redriven"], len(body["groups"])) == (2, 1, 2)


def test_a_topic_that_is_not_there_says_what_it_may_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was rejected yet, or its letters go elsewhere."""

    async def missing(*_: object, **__: object) -> dict[int, int]:
        raise DeliveryFatal("topic 'orders-dead-letters' does not exist")

    monkeypatch.setattr(dead_letters, "read_redriven", missing)
    result = call()
    assert result.exit_code == 1
    assert "nothing of orders was dead-lettered here yet" in result.stderr
    assert "--topic" in result.stderr


def test_without_an_offset_topic_all_letters_are_open_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what was redriven."""

    async def unknown(*_: object, **__: object) -> dict[int, int]:
        raise OffsetsUnknownError("topic 'headrace-offsets' does not exist")

    monkeypatch.setattr(dead_letters, "read_redriven", unknown)
    result = call()
    assert result.exit_code == 0
    assert "every letter is shown as open (--offsets names" in result.stderr
