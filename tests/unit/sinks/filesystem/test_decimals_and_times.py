"""Decimals and times of day in files of every format: what no column holds is refused, and ends nothing."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form
from tests.unit.sinks.filesystem.files_runs import HERE, batch_of, config_of, every_name, running
from tests.unit.sinks.iceberg.iceberg_runs import LakeFolder, put

FORMATS = ["ParquetFormat", "OrcFormat", "AvroFormat"]
UNHELD = [
    pytest.param({"scale": "-2"}, id="digits before the point"),
    pytest.param({"scale": "39"}, id="too many behind it"),
    pytest.param({"scale": "100000000"}, id="absurdly many"),
]
"""Parquet's writer raises for the first, and ORC's ends the process."""


def of_decimal(parameters: dict[str, str]) -> str:
    """The schema of a struct with one Decimal, as JsonConverter brings it."""
    name = "org.apache.kafka.connect.data.Decimal"
    field = {"field": "n", "type": "bytes", "name": name, "version": 1, "parameters": parameters}
    return json.dumps({"type": "struct", "fields": [field]})


def rows(*unscaled: int) -> list[dict[str, str]]:
    """Their values."""
    return [{"n": base64.b64encode(each.to_bytes(17, "big", signed=True)).decode()} for each in unscaled]


@pytest.mark.parametrize("format_class", FORMATS)
@pytest.mark.parametrize("parameters", UNHELD)
async def test_a_decimal_that_no_column_holds_is_refused(
    format_class: str, parameters: dict[str, str], tmp_path: Path
) -> None:
    """Each record of it, with the reason; records of other schemas go to files as before."""
    refused: list[tuple[int, str, str]] = []
    async with running(config_of(tmp_path, format__class=format_class)) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(rows(1, 2, 3), schema=of_decimal(parameters), refused=refused))
        assert [row for row, _, _ in refused] == [0, 1, 2]
        assert f"a Decimal of scale {parameters['scale']}" in refused[0][2]
        assert every_name(tmp_path) == set()
        await sink.put(batch_of(rows(1, 2, 3), begin=3, schema=of_decimal({"scale": "2"}), refused=refused))
    assert len(refused) == 3
    assert len(every_name(tmp_path)) == 1


@pytest.mark.parametrize("parameters", UNHELD)
async def test_a_table_refuses_it_too(parameters: dict[str, str], tmp_path: Path) -> None:
    """It is made by the first record that has a place."""
    lake = LakeFolder(tmp_path)
    async with lake.running() as sink:
        refused = await put(sink, rows(1, 2), schema=of_decimal(parameters))
        assert [(row, f"a Decimal of scale {parameters['scale']}" in told) for row, _, told in refused] == [
            (0, True),
            (1, True),
        ]
        assert await put(sink, rows(12345), begin=2, schema=of_decimal({"scale": "2"})) == []
    assert lake.rows() == [Decimal("123.45")]


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({"scale": "38"}, pa.decimal128(38, 38)),
        ({"scale": "10", "connect.decimal.precision": "5"}, pa.decimal128(10, 10)),
        ({"scale": "2", "connect.decimal.precision": "60"}, pa.decimal128(38, 2)),
        ({"scale": "2", "connect.decimal.precision": "0"}, pa.decimal128(2, 2)),
    ],
)
async def test_a_decimal_of_odd_digits_has_a_column_that_holds_it(
    parameters: dict[str, str], kind: Any, tmp_path: Path
) -> None:
    """The column has the schema's scale and as many digits as that needs; a number beyond it is refused alone."""
    refused: list[tuple[int, str, str]] = []
    async with running(config_of(tmp_path, format__class="ParquetFormat")) as sink:
        await sink.open({HERE: None})
        await sink.put(
            batch_of(rows(12, 10**39, -12, 0), schema=of_decimal(parameters), refused=refused),
        )
    assert [row for row, _, _ in refused] == [1]
    (file,) = (tmp_path / "topics/orders").rglob("*.parquet")
    column = pq.read_table(file).column("n")
    assert column.type == kind
    assert [each.as_py().scaleb(kind.scale) for each in column] == [12, -12, 0]


TIMES: dict[str, Any] = {
    "millis": {"type": "int", "logicalType": "time-millis"},
    "micros": {"type": "long", "logicalType": "time-micros"},
}


@pytest.mark.parametrize("unit", TIMES)
@pytest.mark.parametrize("place", ["field", "struct", "list", "map"])
async def test_orc_has_times_of_day_as_numbers_wherever_they_stand(unit: str, place: str, tmp_path: Path) -> None:
    """ORC has no such type; a null stays one."""
    kind, number = TIMES[unit], 1_000_000
    kinds: dict[str, Any] = {
        "field": ["null", kind],
        "struct": {"type": "record", "name": "Inner", "fields": [{"name": "at", "type": kind}]},
        "list": {"type": "array", "items": kind},
        "map": {"type": "map", "values": kind},
    }
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": kinds[place]}]})
    shape = avro_shape(schema).type
    values: dict[str, list[Any]] = {
        "field": [number, None, 0],
        "struct": [{"at": number}, {"at": 1}, {"at": 0}],
        "list": [[number, 0], [], [1]],
        "map": [[("a", number)], [], [("b", 0)]],
    }
    numbers = pa.array([{"n": each} for each in values[place]], pa.struct([pa.field("n", _numbered(shape[0].type))]))
    column = numbers.cast(shape)
    async with running(config_of(tmp_path, format__class="OrcFormat")) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(column, schema=schema, form=Form.RECORD))
    (file,) = (tmp_path / "topics/orders").rglob("*.orc")
    assert po.read_table(file).column("n").to_pylist() == values[place]


def _numbered(kind: Any) -> Any:
    """The type with numbers for times of day."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _numbered(field.type), field.nullable) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_numbered(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _numbered(kind.item_type))
    return pa.int32() if pa.types.is_time32(kind) else pa.int64()


@pytest.mark.parametrize("place", ["field", "list", "map"])
@pytest.mark.parametrize("kind", ["timestamp-millis", "timestamp-micros", "local-timestamp-micros"])
async def test_orc_has_instants_as_times_of_utc(kind: str, place: str, tmp_path: Path) -> None:
    """Spark reads no file with ORC's own type of instants, nor one with a fraction of a second before 1970."""
    instant = {"type": "long", "logicalType": kind}
    kinds: dict[str, Any] = {
        "field": ["null", instant],
        "list": {"type": "array", "items": instant},
        "map": {"type": "map", "values": instant},
    }
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "at", "type": kinds[place]}]})
    second = 1000 if kind.endswith("millis") else 1_000_000
    times = [-second, -1, 0, 1, -second - 1, second, -31_536_000 * second]
    wrapped: dict[str, list[Any]] = {
        "field": times,
        "list": [[0, time] for time in times],
        "map": [[("a", 0), ("b", time)] for time in times],
    }
    refused: list[tuple[int, str, str]] = []
    column = pa.array([{"at": each} for each in wrapped[place]], avro_shape(schema).type)
    async with running(config_of(tmp_path, format__class="OrcFormat", flush__size="5")) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(column, schema=schema, form=Form.RECORD, refused=refused))
    assert [row for row, *_ in refused] == [1, 4]
    (file,) = (tmp_path / "topics/orders").rglob("*.orc")
    found = po.read_table(file).column("at")
    assert "tz=" not in str(found.type)
    assert len(found) == len(times) - 2
    if place == "field":
        whole = found.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        kept = [time for row, time in enumerate(times) if row not in {1, 4}]
        assert whole == [time * 1_000_000 // second for time in kept]
