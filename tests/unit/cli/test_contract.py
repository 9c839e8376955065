"""``headrace contract``: a schema from a sample that the sample meets, and what a schema says of a sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from service.cli.main import main

ROWS = [{"id": number, "at": "2026-11-21T09:30:00Z", "note": None if number else "x"} for number in range(3)]
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS)
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def called(*arguments: object) -> Result:
    """The result of ``headrace contract`` with these arguments."""
    return CliRunner().invoke(main, ["contract", *map(str, arguments)], env={"COLUMNS": "200"})


def fields_of(result: Result) -> dict[str, Any]:
    """Types of the schema that was printed, by field."""
    assert result.exit_code == 0, result.output
    return {field["name"]: field["type"] for field in json.loads(result.stdout)["fields"]}


@pytest.mark.parametrize(
    "text",
    [LINES, LINES.replace("\n", "\r\n"), f"\n{LINES}\n\n", json.dumps(ROWS), f"\n {json.dumps(ROWS, indent=2)}\n"],
    ids=["lines", "carriage returns", "blank lines", "array", "array over lines"],
)
def test_every_form_of_a_file_gives_the_same_schema(tmp_path: Path, text: str) -> None:
    """And the file meets it: ``check`` says so and exits with 0."""
    file = tmp_path / "orders.sample.json"
    file.write_text(text)
    result = called("infer", file)
    assert fields_of(result) == {
        "id": "long",
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "note": ["null", "string"],
    }
    assert json.loads(result.stdout)["name"] == "Orders"
    assert "every one of 3 records meets this schema" in result.stderr
    schema = tmp_path / "orders.avsc"
    schema.write_text(result.stdout)
    checked = called("check", schema, file)
    assert (checked.exit_code, checked.stdout) == (0, "3 records: 3 valid, 0 rejected\n")


def test_one_object_over_several_lines_is_one_record(tmp_path: Path) -> None:
    """As a person saves what an API has answered."""
    (tmp_path / "one.json").write_text(json.dumps(ROWS[0], indent=2))
    assert fields_of(called("infer", tmp_path / "one.json"))["note"] == "string"


def test_the_schema_goes_to_a_new_file_only(tmp_path: Path) -> None:
    """One that is there may have been worked on."""
    file, out = tmp_path / "in.json", tmp_path / "out.avsc"
    file.write_text(LINES)
    assert called("infer", file, "--out", out).exit_code == 0
    written = out.read_bytes()
    assert json.loads(written)["name"] == "In"
    refused = called("infer", file, "--out", out)
    assert (refused.exit_code, out.read_bytes()) == (2, written)
    assert "is there already" in refused.stderr
    for nowhere in (tmp_path / "no" / "folder", file / "below"):
        assert "cannot be written" in called("infer", file, "--out", nowhere).stderr


def test_a_sample_has_a_limit(tmp_path: Path) -> None:
    """What comes behind it is not looked at."""
    file = tmp_path / "in.json"
    file.write_text(f'{LINES}{{"id":"text"}}\n')
    assert fields_of(called("infer", file, "--max", 3))["id"] == "long"


def test_a_connector_s_source_is_sampled_without_its_contract(tmp_path: Path) -> None:
    """Whose schema may be the one that is to be made."""
    (tmp_path / "in.txt").write_text(LINES)
    config = tmp_path / "orders.properties"
    keys = {"name": "orders", "connector.class": "FileStreamSource", "topic": "t", "file": tmp_path / "in.txt"}
    keys |= {"contract.schema": f"file:{tmp_path}/orders.avsc", "value.converter": "avro", "key.fields": "id"}
    config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    assert fields_of(called("infer", config))["id"] == "long"
    config.write_text("name=orders\n")
    refused = called("infer", config)
    assert refused.exit_code == 2
    assert "connector.class" in refused.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the sample is empty: try again"),
        (" \n\n", "the sample is empty"),
        ("id,name\n1,ann\n", "the sample has no JSON object (2 of the sample left out as malformed_json"),
        ("[1,", "begins as a JSON array and is none"),
        ("{\n", "malformed_json"),
        ("[]", "the sample is empty"),
    ],
)
def test_files_of_which_no_schema_can_be_had(tmp_path: Path, text: str, words: str) -> None:
    """One sentence, exit code 2, nothing on standard output."""
    file = tmp_path / "in.json"
    file.write_text(text)
    result = called("infer", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.startswith("headrace: ")


def test_a_file_that_is_not_there() -> None:
    """Is not looked for as a topic where it can be none."""
    result = called("infer", "no/such.json")
    assert result.exit_code == 2
    assert "there is no such file" in result.stderr


def test_verdicts_by_reason(tmp_path: Path) -> None:
    """Counted, the most frequent first, with the first record of each; exit code 2."""
    (tmp_path / "s.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "in.json").write_text('{"id":1}\n{"id":"2"}\n{}\nno\n{"id":"3"}\n')
    result = called("check", tmp_path / "s.avsc", tmp_path / "in.json")
    assert result.exit_code == 2
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["2", "wrong_type", "id:", "expected", "an", "integer", "2"] in lines
    assert ["1", "missing_field", "id:", "expected", "a", "value", "3"] in lines
    assert lines[-1] == ["5", "records:", "1", "valid,", "4", "rejected"]
    told = json.loads(called("check", tmp_path / "s.avsc", tmp_path / "in.json", "--json").stdout)
    assert (told["records"], told["valid"], told["rejected"]) == (5, 1, 4)
    assert told["reasons"][0] == {
        "reason": "wrong_type",
        "message": "id: expected an integer",
        "records": 2,
        "first": 2,
    }


def test_texts_can_be_taken_for_values_and_unknown_fields_refused(tmp_path: Path) -> None:
    """As the connector's keys of the same names."""
    (tmp_path / "s.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "in.json").write_text('{"id":"1"}\n{"id":2}\n')
    result = called("check", tmp_path / "s.avsc", tmp_path / "in.json", "--coerce", "numbers")
    assert (result.exit_code, result.stdout) == (0, "1 coerced in id\n2 records: 2 valid, 0 rejected\n")
    (tmp_path / "in.json").write_text('{"id":1,"x":2}\n')
    assert called("check", tmp_path / "s.avsc", tmp_path / "in.json").exit_code == 0
    assert called("check", tmp_path / "s.avsc", tmp_path / "in.json", "--unknown-fields", "reject").exit_code == 2
    assert "expected words of" in called("check", tmp_path / "s.avsc", tmp_path / "in.json", "--coerce", "no").stderr


@pytest.mark.parametrize(
    ("schema", "text", "words"),
    [
        ("{", "{}", "expected an Avro schema as JSON"),
        ('"string"', "{}", "expected a record at the top"),
        ("\udcff", "{}", "headrace: "),
        (json.dumps(SCHEMA), "", "has no records: expected JSON"),
        (json.dumps(SCHEMA), "[", "begins as a JSON array and is none"),
    ],
    ids=["no JSON", "no record", "no text", "no records", "no array"],
)
def test_what_cannot_be_checked(tmp_path: Path, schema: str, text: str, words: str) -> None:
    """One sentence and exit code 2."""
    (tmp_path / "s.avsc").write_bytes(schema.encode("utf-8", "surrogateescape"))
    (tmp_path / "in.json").write_text(text)
    result = called("check", tmp_path / "s.avsc", tmp_path / "in.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
