"""Records of several schemas: when a new file begins, and what projection makes of a record."""

from __future__ import annotations

import json
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form, SinkBatch
from tests.unit.sinks.filesystem.files_runs import HERE, batch_of, config_of, running

N, M = {"name": "n", "type": "int"}, {"name": "m", "type": ["null", "string"], "default": None}
FLAG = {"name": "flag", "type": "boolean", "default": True}


def schema(*fields: Any, **more: Any) -> str:
    """An Avro record."""
    return json.dumps({"type": "record", "name": "Row", "fields": fields, **more})


OLD, NEW = schema(N), schema(N, M, FLAG)


def rows(of: str, begin: int, *values: dict[str, Any], refused: list[tuple[int, str, str]] | None = None) -> SinkBatch:
    """Records of a schema."""
    column = pa.array(values, avro_shape(of).type)
    return batch_of(column, begin=begin, schema=of, form=Form.RECORD, refused=refused)


async def written(folder: Path, mode: str, *batches: SinkBatch, form: str = "Parquet") -> list[list[dict[str, Any]]]:
    """The rows of each file that was committed, and, last, those of the one that is still open."""
    config = config_of(folder, format__class=f"{form}Format", schema__compatibility=mode, flush__size="100")
    async with running(config) as sink:
        begin = (await sink.open({HERE: None})).get(HERE, 0)
        for batch in batches:
            if batch.records.column("offset")[0].as_py() >= begin:
                await sink.put(batch)
        sink._partitions[HERE].commit()
    if form == "Avro":
        opened = [BytesIO(file.read_bytes()) for file in sorted((folder / "topics").rglob("*.avro"))]
        return [[cast("dict[str, Any]", row) for row in fastavro.reader(file)] for file in opened]
    files = sorted((folder / "topics").rglob("*.parquet"))
    return [pq.read_table(file, partitioning=None).to_pylist() for file in files]


OLD_ROW, NEW_ROW = {"n": 1}, {"n": 2, "m": "x", "flag": False}
FILLED = {"n": 1, "m": None, "flag": True}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("NONE", [[OLD_ROW], [NEW_ROW], [OLD_ROW]]),
        ("BACKWARD", [[OLD_ROW], [NEW_ROW, FILLED]]),
        ("FULL", [[OLD_ROW], [NEW_ROW, FILLED]]),
        ("FORWARD", [[OLD_ROW, {"n": 2}, OLD_ROW]]),
    ],
)
async def test_old_new_old(mode: str, expected: list[Any], tmp_path: Path) -> None:
    """One file switch under BACKWARD, none under FORWARD, one with each change where nothing is projected."""
    batches = rows(OLD, 0, OLD_ROW), rows(NEW, 1, NEW_ROW), rows(OLD, 2, OLD_ROW)
    assert await written(tmp_path, mode, *batches) == expected


async def test_the_schema_in_force_outlives_the_task(tmp_path: Path) -> None:
    """Who comes next projects to it too, so that files are the same whenever the task dies."""
    first = rows(NEW, 0, NEW_ROW)
    await written(tmp_path, "BACKWARD", first)
    assert await written(tmp_path, "BACKWARD", first, rows(OLD, 1, OLD_ROW)) == [[NEW_ROW], [FILLED]]


async def test_versions_say_which_schema_is_newer(tmp_path: Path) -> None:
    """Also where the newer one has fewer fields."""
    first, second = schema(N, M, **{"connect.version": 1}), schema(N, **{"connect.version": 2})
    batches = rows(first, 0, {"n": 1, "m": "x"}), rows(second, 1, OLD_ROW), rows(first, 2, {"n": 3, "m": "y"})
    assert await written(tmp_path, "BACKWARD", *batches) == [[{"n": 1, "m": "x"}], [OLD_ROW, {"n": 3}]]


async def test_numbers_get_wider_and_nothing_else(tmp_path: Path) -> None:
    """A whole number that the file's floating point has not is refused alone; a text for a number, with its name."""
    refused: list[tuple[int, str, str]] = []
    wide, long = schema({"name": "n", "type": "double"}), schema({"name": "n", "type": "long"})
    text = schema({"name": "n", "type": "string"})
    batches = (
        rows(wide, 0, {"n": 0.5}),
        rows(long, 1, {"n": 7}, {"n": 2**53 + 1}, {"n": -7}, refused=refused),
        rows(text, 4, {"n": "x"}, refused=refused),
    )
    assert await written(tmp_path, "BACKWARD", *batches) == [[{"n": 0.5}, {"n": 7.0}, {"n": -7.0}]]
    assert [(row, reason) for row, reason, _ in refused] == [(1, "wrong_type"), (0, "wrong_type")]
    assert refused[1][2].startswith("value.n: STRING where the file has FLOAT64")


async def test_a_missing_field_without_default_is_refused(tmp_path: Path) -> None:
    """Under FORWARD the file stays as it is, and the record says what it lacks."""
    refused: list[tuple[int, str, str]] = []
    needed, other = schema(N, {"name": "k", "type": "string"}), schema(N, M)
    batches = rows(needed, 0, {"n": 1, "k": "k"}), rows(other, 1, {"n": 2, "m": None}, refused=refused)
    assert await written(tmp_path, "FORWARD", *batches) == [[{"n": 1, "k": "k"}]]
    assert "value.k: is missing, and has no default" in refused[0][2]


def enum(*symbols: str) -> Any:
    """A type of texts."""
    return {"type": "enum", "name": "Colour", "symbols": symbols}


def listed(items: Any) -> Any:
    """A type of lists."""
    return {"type": "array", "items": items}


def mapped(values: Any) -> Any:
    """A type of maps."""
    return {"type": "map", "values": values}


MORE = [
    pytest.param(enum("RED"), "RED", enum("RED", "BLUE"), "BLUE", id="a symbol of an enum"),
    pytest.param(enum("RED"), "RED", "string", "green", id="any text"),
    pytest.param(listed(enum("RED")), ["RED"], listed(enum("RED", "BLUE")), ["RED", "BLUE"], id="of items"),
    pytest.param(listed("long"), [1], listed(["null", "long"]), [7, None], id="a null in a list"),
    pytest.param(mapped("long"), [("a", 1)], mapped(["null", "long"]), [("a", None)], id="a null in a map"),
    pytest.param(
        listed(listed("long")),
        [[1]],
        listed(listed(["null", "long"])),
        [[1], [None, 2]],
        id="a null in a list of lists",
    ),
]
"""Types of a file, of records that may hold more, and a value of each. Arrow has one type for both of nearly all."""


@pytest.mark.parametrize(("narrow", "plain", "wide", "more"), MORE)
@pytest.mark.parametrize("form", ["Avro", "Parquet"])
async def test_what_the_file_has_no_room_for_is_never_another_value(  # noqa: PLR0917 - parameters
    form: str, narrow: Any, plain: Any, wide: Any, more: Any, tmp_path: Path
) -> None:
    """A record that may hold more is newer: its file has room for it. Where none may begin, it alone is refused."""
    few, many = schema({"name": "v", "type": narrow}), schema({"name": "v", "type": wide})
    for mode in ("BACKWARD", "FULL", "FORWARD"):
        refused: list[tuple[int, str, str]] = []
        batches = (
            rows(few, 0, {"v": plain}),
            rows(many, 1, {"v": plain}, {"v": more}, {"v": plain}, refused=refused),
            rows(few, 4, {"v": plain}),
        )
        found = [
            [as_pairs(row["v"]) for row in file] for file in await written(tmp_path / mode, mode, *batches, form=form)
        ]
        if mode == "FORWARD":
            assert found == [[plain] * 4]
            assert [row for row, *_ in refused] == [1]
        else:
            assert (found, refused) == ([[plain], [plain, more, plain, plain]], [])


def as_pairs(value: Any) -> Any:
    """Maps as Arrow has them."""
    return list(value.items()) if isinstance(value, dict) else value


@pytest.mark.parametrize("form", ["Avro", "Parquet"])
async def test_microseconds_that_the_file_has_not_are_refused(form: str, tmp_path: Path) -> None:
    """Both are whole numbers to Connect; those that are whole milliseconds fit."""
    refused: list[tuple[int, str, str]] = []
    millis, micros = (
        schema({"name": "at", "type": {"type": "long", "logicalType": f"local-timestamp-{unit}"}})
        for unit in ("millis", "micros")
    )
    whole, cut = datetime(2026, 1, 1, 0, 0, 0, 123_000), datetime(2026, 1, 1, 0, 0, 0, 123_456)  # noqa: DTZ001 - local
    batches = rows(millis, 0, {"at": whole}), rows(micros, 1, {"at": cut}, {"at": whole}, refused=refused)
    assert await written(tmp_path, "BACKWARD", *batches, form=form) == [[{"at": whole}, {"at": whole}]]
    assert [row for row, *_ in refused] == [0]


async def test_numbers_that_are_none_get_wider(tmp_path: Path) -> None:
    """A NaN of 32 bits is one of 64."""
    wide, narrow = schema({"name": "n", "type": "double"}), schema({"name": "n", "type": "float"})
    batches = rows(wide, 0, {"n": 0.5}), rows(narrow, 1, {"n": float("nan")}, {"n": float("inf")})
    [[_, nan, infinite]] = await written(tmp_path, "BACKWARD", *batches)
    assert nan["n"] != nan["n"]
    assert infinite == {"n": float("inf")}


async def test_a_time_of_day_is_no_instant(tmp_path: Path) -> None:
    """Though both are whole numbers to Connect: what Arrow does not make of each other is refused."""
    refused: list[tuple[int, str, str]] = []
    instant, time = (
        schema({"name": "at", "type": {"type": "long", "logicalType": f"{what}-micros"}})
        for what in ("timestamp", "time")
    )
    batches = rows(instant, 0, {"at": 5}), rows(time, 1, {"at": 5}, refused=refused)
    assert len(await written(tmp_path, "BACKWARD", *batches)) == 1
    assert "value.at: time64[us] where the file has timestamp[us, tz=UTC]" in refused[0][2]
