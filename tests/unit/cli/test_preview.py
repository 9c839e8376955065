"""``headrace preview``: records of the real source with their verdicts, and nothing written anywhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fetchers.file.fetcher import FileStreamSource
from fetchers.sdk import Fatal, Page
from service.cli.main import main

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": ["null", "string"], "default": None}],
}
LINES = ['{"id":1,"by":"ann"}', '{"id":"2"}', "not JSON", '{"by":"bob"}', '{"id":5}']


def previewed(folder: Path, *lines: str, options: tuple[str, ...] = (), **keys: str) -> Result:
    """The command's result for a file source of these lines; dots in keys are written as underscores."""
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    properties = {
        "name": "orders",
        "connector.class": "FileStreamSource",
        "file": str(folder / "in.txt"),
        "topic": "orders",
        **{key.replace("_", "."): value for key, value in keys.items()},
    }
    file = folder / "c.json"
    file.write_text(json.dumps(properties))
    before = {path: path.read_bytes() for path in folder.iterdir()}
    result = CliRunner().invoke(main, ["preview", str(file), *options], env={"COLUMNS": "120"})
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    return result


def as_json(result: Result) -> Any:
    """What it printed with ``--json``."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_table_shows_records_and_reasons_and_counts(tmp_path: Path) -> None:
    """At a width of its own; what is rejected is shown as it came, with the field and what was expected there."""
    result = previewed(tmp_path, *LINES, contract_schema=json.dumps(SCHEMA), key_fields="by", errors_tolerance="all")
    assert result.exit_code == 0, result.output
    for text in ('{"id": 1, "by": "ann"}', "wrong_type: id: expected an integer", "malformed_json", "missing_field"):
        assert text in result.output
    assert "5 records: 2 valid, 3 rejected" in result.output
    assert "dead letter topic orders-dead-letters" in " ".join(result.output.split())


def test_json_has_all_that_the_table_shows_and_the_source_besides(tmp_path: Path) -> None:
    """For programs and pages: the record on both sides, why it is rejected, where the source is, and if it has more."""
    found = as_json(
        previewed(
            tmp_path, *LINES, contract_schema=json.dumps(SCHEMA), key_fields="by", options=("--json", "--max", "4")
        )
    )
    first, second, third, _ = found["records"]
    assert (first["verdict"], first["topic"], first["key"]) == ("valid", "orders", "ann")
    assert (first["value"], first["payload"]) == ({"id": 1, "by": "ann"}, LINES[0])
    assert (second["reason"], second["field"], second["stage"]) == ("wrong_type", "id", "VALUE_CONVERTER")
    assert (third["reason"], third["field"], third["payload"]) == ("malformed_json", None, "not JSON")
    reasons = {"malformed_json": 1, "missing_field": 1, "wrong_type": 1}
    assert found["counts"] == {
        "records": 4,
        "valid": 1,
        "rejected": 3,
        "duplicate": 0,
        "filtered": 0,
        "reasons": reasons,
        "coerced": {},
    }
    source = found["source"]
    assert (source["end"], source["has_more"], source["records_left"]) == ("records", True, 1)
    assert source["offsets"][0]["offset"]["position"] == len("".join(f"{line}\n" for line in LINES))
    assert found["judged_by"] == "exact"


def test_avro_is_decoded_and_no_registry_is_asked_where_none_is_needed(tmp_path: Path) -> None:
    """The registry that the config names is not there: ids are given when a worker registers, not before."""
    keys = {"value.converter": "avro", "value.converter.schema.registry.url": "http://127.0.0.1:9"}
    found = as_json(previewed(tmp_path, LINES[0], contract_schema=json.dumps(SCHEMA), options=("--json",), **keys))
    assert found["records"][0]["value"] == {"id": 1, "by": "ann"}


def test_coerced_fields_are_counted(tmp_path: Path) -> None:
    """What ``contract.coerce`` takes is told of each record, and summed up."""
    keys = {"contract.schema": json.dumps(SCHEMA), "contract.coerce": "numbers"}
    found = as_json(previewed(tmp_path, *LINES[:2], options=("--json",), **keys))
    assert [(record["value"]["id"], record["coerced"]) for record in found["records"]] == [(1, []), (2, ["id"])]
    assert found["counts"]["coerced"] == {"id": 1}
    assert "1 coerced: id" in previewed(tmp_path, *LINES[:2], options=(), **keys).output


def test_avro_needs_no_worker_file_that_names_a_registry(tmp_path: Path) -> None:
    """The connector's file alone says what its records become."""
    result = previewed(tmp_path, *LINES[:1], contract_schema=json.dumps(SCHEMA), value_converter="avro")
    assert result.exit_code == 0, result.output
    assert "1 valid" in result.output


def test_duplicates_in_the_sample_are_told(tmp_path: Path) -> None:
    """A worker writes the first of equal records."""
    found = as_json(
        previewed(tmp_path, *LINES[:1] * 2, contract_schema=json.dumps(SCHEMA), dedupe_fields="id", options=("--json",))
    )
    assert [record["verdict"] for record in found["records"]] == ["valid", "duplicate"]


def test_a_topic_that_a_router_names_is_shown(tmp_path: Path) -> None:
    """Transformations are carried out, on topics and on values."""
    keys = {
        "transforms": "r,h",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "(.*)",
        "transforms.r.replacement": "$1-raw",
        "transforms.h.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.h.field": "line",
    }
    (record,) = as_json(previewed(tmp_path, "a", options=("--json",), **keys))["records"]
    assert (record["topic"], record["value"]) == ("orders-raw", {"line": "a"})


def test_a_sample_without_any_json_says_what_to_try(tmp_path: Path) -> None:
    """CSV under a contract, say."""
    result = previewed(tmp_path, "id,by", "1,ann", contract_schema=json.dumps(SCHEMA))
    assert "None of the records is JSON" in result.output


def test_an_empty_sample_says_what_to_look_at(tmp_path: Path) -> None:
    """One sentence instead of an empty table."""
    result = previewed(tmp_path)
    assert "no records" in result.output
    assert "The source has no records where the connector begins" in " ".join(result.output.split())


def test_huge_records_are_judged_whole_and_shown_in_part(tmp_path: Path) -> None:
    """No answer and no screen is filled by one record."""
    record = '{"id":1,"by":"%s"}' % ("x" * 100_000)
    (shown,) = as_json(previewed(tmp_path, record, contract_schema=json.dumps(SCHEMA), options=("--json",)))["records"]
    assert (shown["verdict"], shown["is_cut"], shown["payload_bytes"]) == ("valid", True, len(record))
    assert len(shown["payload"]) < 40_000
    table = previewed(tmp_path, record, contract_schema=json.dumps(SCHEMA))
    assert len(table.output) < 5_000


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_signs_of_control_in_records_do_nothing_to_the_terminal(tmp_path: Path, options: tuple[str, ...]) -> None:
    """What a source sends is text to look at."""
    output = previewed(tmp_path, "\x1b[31mred\x9b31m", options=options).output
    assert "red" in output
    assert not {"\x1b", "\x9b"} & set(output)


@pytest.mark.parametrize("is_bug", [False, True])
def test_signs_of_control_in_what_a_source_says_do_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_bug: bool
) -> None:
    """An excerpt of an answer in an error, the trace of a mistake in a connector's own code."""
    escapes = "\x1b[2J\x9b31m"

    async def fetch(*_: object) -> AsyncIterator[Page]:
        for page in list[Page]():
            yield page
        raise ValueError(escapes) if is_bug else Fatal(f"status 500: {escapes}")

    monkeypatch.setattr(FileStreamSource, "fetch", fetch)
    result = previewed(tmp_path)
    assert result.exit_code == 1
    assert r"\x1b[2J\x9b31m" in result.output
    assert ("Traceback" in result.output) == is_bug
    assert not {"\x1b", "\x9b"} & set(result.output)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"connector.class": "FileStreamSink", "topics": "t"}, "is a sink"),
        ({"contract.schema": "{"}, "contract.schema"),
        ({"connector.class": "NoSuch"}, "NoSuch"),
    ],
)
def test_what_cannot_be_previewed_is_refused_as_configuration(tmp_path: Path, keys: dict[str, str], told: str) -> None:
    """Exit code 2, with the key, as for every command that reads configs."""
    result = previewed(tmp_path, options=(), **keys)
    assert result.exit_code == 2
    assert told in result.output


def test_secrets_of_the_config_are_hidden_in_what_a_source_echoes(tmp_path: Path) -> None:
    """Records go to screens and logs of others."""
    worker = tmp_path / "w.properties"
    worker.write_text("key.converter=json\n")
    found = as_json(
        previewed(
            tmp_path, '{"got":"sesame-open"}', options=("--json", "--worker", str(worker)), my_password="sesame-open"
        )
    )
    assert found["records"][0]["payload"] == '{"got":"[hidden]"}'
