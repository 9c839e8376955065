"""Typed pages: rows with a schema, structured keys, and rows as JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from fetchers.sdk import FetcherConfig, Page, RowSchema, TopicsConfig
from fetchers.sdk.rows import (
    BYTES,
    DATE,
    INT16,
    INT64,
    STRING,
    TIMESTAMP,
    array,
    decimal,
    map_of,
    named,
    optional,
    row_json,
    struct,
)

USERS = RowSchema.of("app.public.my-users", {"id": INT64, "last name": optional(STRING)})


def test_a_schema_is_written_as_connect_s_avro_converter_writes_it() -> None:
    """Names that Avro does not allow are changed for Avro alone; what Connect knows goes along as attributes."""
    written = json.loads(USERS.avro)
    assert (written["name"], written["namespace"], USERS.name) == ("my_users", "app.public", "app.public.my-users")
    assert written["fields"][1] == {
        "name": "last_name",
        "type": ["null", "string"],
        "default": None,
        "json.name": "last name",
    }
    assert USERS.columns == ("id", "last name")
    assert RowSchema(USERS.avro) == USERS
    assert hash(USERS) == hash(RowSchema(USERS.avro))
    assert decimal(10, 2)["connect.parameters"] == {"scale": "2", "connect.decimal.precision": "10"}
    assert named("io.debezium.time.Year", INT16)["connect.name"] == "io.debezium.time.Year"


@pytest.mark.parametrize("text", ['"string"', '{"type":"record","name":"a","fields":[]}', "{"])
def test_what_is_no_record_is_no_schema_of_rows(text: str) -> None:
    """Nor is what is no JSON."""
    with pytest.raises(ValueError, match=r"Avro record|Expecting"):
        RowSchema(text)


def test_two_columns_that_avro_cannot_tell_apart_are_refused() -> None:
    """Rather than let one hide the other."""
    with pytest.raises(ValueError, match="a name of its own"):
        RowSchema.of("t", {"a-b": INT64, "a b": INT64})


def test_a_page_of_rows_takes_what_drivers_give() -> None:
    """A table, a record batch, a struct column; a null row is a tombstone, and every record is told as JSON."""
    table = pa.table({"id": [1, 2], "last name": ["x", None]})
    rows = pa.StructArray.from_arrays(
        [pa.array([1, 2]), pa.array(["x", None])], names=["id", "last name"], mask=pa.array([False, True])
    )
    key = RowSchema.of("key", {"id": INT64})
    forms: list[Any] = [table, table.to_batches()[0], table.to_struct_array(), rows]
    pages = [Page(form, {}, schema=USERS, keys=table.select(["id"]), key_schema=key) for form in forms]
    assert [list(page.values()) for page in pages[:3]] == [
        [b'{"id":1,"last name":"x"}', b'{"id":2,"last name":null}']
    ] * 3
    assert [pages[3].original(at) for at in (0, 1)] == [(b'{"id":1}', b'{"id":1,"last name":"x"}'), (b'{"id":2}', None)]
    assert pages[0].bytes == pages[0].payload_bytes > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"payloads": pa.table({"id": [1]})}, r"missing columns \['last name'\]"),
        ({"payloads": pa.table({"id": [1], "last name": ["x"], "more": [1]})}, r"unknown columns \['more'\]"),
        ({"payloads": [b"{}"]}, "an Arrow struct column"),
        ({"keys": pa.table({"id": [1, 2]}), "key_schema": RowSchema.of("k", {"id": INT64})}, "1 payloads and 2 keys"),
        ({"key_schema": USERS}, "has keys"),
    ],
)
def test_a_page_that_is_not_of_its_schema_is_refused(options: dict[str, Any], words: str) -> None:
    """With the columns that are missing or too many."""
    good = {"payloads": pa.table({"id": [1], "last name": ["x"]}), "offset": {}, "schema": USERS}
    with pytest.raises((ValueError, TypeError), match=words):
        Page(**{**good, **options})


def test_a_row_is_told_as_json_with_every_digit() -> None:
    """In the columns' order; years that no calendar of four digits has are numbers."""
    kinds: dict[str, pa.DataType] = {
        "big": pa.uint64(),
        "money": pa.decimal128(38, 10),
        "at": pa.timestamp("us", "Europe/Berlin"),
        "local": pa.timestamp("ms"),
        "far": pa.timestamp("us"),
        "day": pa.date32(),
        "time": pa.time64("us"),
        "odd": pa.float64(),
        "raw": pa.binary(),
        "list": pa.list_(pa.int32()),
        "map": pa.map_(pa.string(), pa.int32()),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "yes": pa.bool_(),
    }
    values = {
        "big": 2**64 - 1, "money": Decimal("0.0000000001"), "at": 1, "local": 1, "far": 2**62, "day": -1,
        "time": 1_000_000, "odd": float("-inf"), "raw": b"\x00", "list": [1, None], "map": [("a", 1)], "word": 'é"',
        "yes": True,
    }  # fmt: skip
    columns = [pa.array([values[name]], kind) for name, kind in kinds.items() if name != "word"]
    columns.insert(11, pa.array([values["word"]], pa.string()).dictionary_encode())
    row = pa.StructArray.from_arrays(columns, names=list(kinds))[0]
    assert (
        row_json(row)
        == (
            '{"big":18446744073709551615,"money":0.0000000001,"at":"1970-01-01T00:00:00.000001Z",'
            '"local":"1970-01-01T00:00:00.001","far":4611686018427387904,"day":"1969-12-31","time":"00:00:01.000000",'
            '"odd":"-Infinity","raw":"AA==","list":[1,null],"map":{"a":1},"word":"é\\"","yes":true}'
        ).encode()
    )


def test_connect_s_forms_nest() -> None:
    """Lists and maps of forms are forms."""
    schema = RowSchema.of("t", {"days": array(optional(DATE)), "by": map_of(TIMESTAMP)})
    kinds = [entry["type"]["type"] for entry in schema.document["fields"]]
    assert kinds == ["array", "map"]


def test_a_config_without_a_topic_has_no_such_key() -> None:
    """Sources whose pages name their topics have nothing to say there."""
    assert "topic" in {key.name for key in FetcherConfig.config_keys()}
    assert "topic" not in {key.name for key in TopicsConfig.config_keys()}
    config = TopicsConfig.parse({}).config
    assert config is not None
    assert config.topic == ""


def test_a_struct_that_several_fields_have_is_defined_once() -> None:
    """Avro refuses a second definition of a name, even of the same type: the other fields name it."""
    shape = struct("shapes.Geometry", {"wkb": BYTES, "srid": optional(INT64)})
    schema = RowSchema.of("t", {"a": optional(shape), "b": array(shape), "c": map_of(optional(shape)), "d": shape})
    types = [entry["type"] for entry in schema.document["fields"]]
    assert types == [
        ["null", shape],
        {"type": "array", "items": "shapes.Geometry"},
        {"type": "map", "values": ["null", "shapes.Geometry"]},
        "shapes.Geometry",
    ]
    assert fastavro.parse_schema(schema.document)


def test_a_schema_holds_its_text_alone() -> None:
    """Read, the schema of one table takes six times the memory of its text, and a source may have a thousand tables."""
    schema = RowSchema.of("s.t", {"a": INT64, "b-c": optional(INT64)})
    assert vars(schema) == {"avro": schema.avro, "name": "s.t", "columns": ("a", "b-c")}
    assert schema.document == json.loads(schema.avro)


@pytest.mark.parametrize("name", [None, 5])
def test_rows_have_a_record_with_a_name(name: object) -> None:
    """Without one there is no schema to register, and no words for what is wrong with it."""
    document = {"type": "record", "fields": [{"name": "a", "type": "long"}]}
    with pytest.raises(ValueError, match="with a name"):
        RowSchema(json.dumps(document if name is None else {**document, "name": name}))
