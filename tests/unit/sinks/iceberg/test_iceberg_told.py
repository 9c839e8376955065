"""What is told of a payload that is not of its schema, and of a catalogue's answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import BadRequestError, NoSuchTableError, OAuthError, ServerError, UnauthorizedError

from service.sinks.contract import Fatal, StartAnew
from service.sinks.iceberg.catalog import told
from service.sinks.iceberg.config import IcebergSinkConfig
from tests.unit.sinks.iceberg.iceberg_runs import LakeFolder, put


@pytest.fixture
def lake(tmp_path: Path) -> LakeFolder:
    """An empty folder for a warehouse."""
    return LakeFolder(tmp_path)


async def test_which_field_of_a_payload_is_not_of_its_schema(lake: LakeFolder) -> None:
    """Its path is told, and never a value or the key of a map."""
    schema = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"field": "n", "type": "int32"},
                {
                    "field": "deep",
                    "type": "struct",
                    "optional": True,
                    "fields": [
                        {"field": "list", "type": "array", "optional": True, "items": {"type": "boolean"}},
                        {"field": "map", "type": "map", "keys": {"type": "string"}, "values": {"type": "double"},
                         "optional": True},
                        {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date",
                         "optional": True},
                    ],
                },
            ],
        }
    )  # fmt: skip
    values: list[Any] = [
        {"n": 1},
        {"n": "x"},
        {},
        {"n": 2**40},
        {"n": 2, "deep": {"list": [True, 1]}},
        {"n": 2, "deep": {"map": {"secret": "y"}}},
        {"n": 2, "deep": {"day": 2**40}},
        {"n": 2, "deep": 7},
        [],
    ]
    async with lake.running() as sink:
        refused = await put(sink, values, schema=schema)
    assert {row: message for row, _, message in refused} == {
        1: "field 'n' is not of its schema, INT32",
        2: "field 'n' is null or missing, and its schema says that it is not optional",
        3: "field 'n' is beyond what its schema says, int32",
        4: "field 'deep.list[1]' is not of its schema, BOOLEAN",
        5: "field 'deep.map{}' is not of its schema, FLOAT64",
        6: "field 'deep.day' is beyond what its schema says, date32[day]",
        7: "field 'deep' is not of its schema, STRUCT",
        8: "the payload is not of its schema, STRUCT",
    }
    assert lake.rows("n") == [1]


async def test_a_number_beyond_all_doubles_is_refused_alone(lake: LakeFolder) -> None:
    """However it is written; it does not become infinite. Infinity itself has a word of its own."""
    schema = json.dumps({"type": "struct", "fields": [{"field": "n", "type": "double", "optional": True}]})
    async with lake.running() as sink:
        refused = await put(sink, [{"n": 1.5}, {"n": 10**400}, {"n": "Infinity"}, {"n": None}], schema=schema)
        alone = await put(sink, [{"n": -(10**400)}, {"n": 2}], begin=4, schema=schema)
    assert [(row, reason, message) for row, reason, message in refused] == [
        (1, "wrong_type", "field 'n' is not of its schema, FLOAT64")
    ]
    assert [row for row, _, _ in alone] == [0]
    assert set(lake.table.scan().to_arrow()["n"].to_pylist()) == {1.5, 2.0, float("inf"), None}


@pytest.mark.parametrize("kind", [UnauthorizedError, OAuthError, BadRequestError, ServerError, NoSuchTableError])
def test_no_answer_of_a_catalogue_shows_a_secret_of_the_config(kind: type[Exception]) -> None:
    """Whatever it repeats of what it was sent, also where a long answer is cut within a secret."""
    secrets = {
        "credential": "reader:s3cr3t-of-client",
        "token": "tok-0123456789",
        "s3.secret-access-key": "AKIA/very+secret",
        "header.X-Tenant": "tenant-of-us",
    }
    given = {f"iceberg.catalog.{name}": secret for name, secret in secrets.items()}
    config = IcebergSinkConfig.parse(
        {"iceberg.tables": "a.b", "iceberg.catalog.type": "rest", "iceberg.catalog.uri": "https://c:8181", **given}
    ).config
    assert config is not None
    said = [*secrets.values(), "s3cr3t-of-client", "AKIA%2Fvery%2Bsecret"]
    for text in (" ".join(said), "x" * 490 + "s3cr3t-of-client" + "y" * 100, "z" * 495 + "tok-0123456789"):
        with pytest.raises((Fatal, StartAnew)) as raised, told(config):
            raise kind(text)
        shown = str(raised.value)
        for secret in ("s3cr3t", "tok-0", "AKIA", "tenant-of-us"):
            assert secret not in shown
