"""JSON by Arrow: the bytes that the exact path writes, which are Jackson's, for any text, any name and any place."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_batch.avro_types import Field, Primitive, Record, Slot
from spark_batch.errors import ConversionFatal
from spark_batch.literals.writing import json_text
from spark_batch.plan import ConverterKind, ConverterSpec
from spark_batch.serialize.json_columns import JsonColumns
from spark_batch.serialize.json_pieces import json_bytes, json_documents

JSON = ConverterSpec(ConverterKind.JSON)
ENVELOPED = ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)
TEXT = Slot(Primitive.STRING)
ANY: Any = None
"""A column of Spark's, which is not looked at here."""
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.text(
    '"\\/\x00\x1f\n\t\x7fé💧\u2028', max_size=9
)


def record(*names: str) -> Record:
    """Of texts."""
    return Record("r", tuple(Field(name, name, TEXT) for name in names))


@given(values=st.lists(st.none() | texts, max_size=9), name=texts, start=st.integers(0, 3))
def test_texts_and_names_are_escaped_as_by_the_exact_path(values: list[str | None], name: str, start: int) -> None:
    """Also in a column that does not begin where its memory does, and where all texts are the same."""
    for made in (values, values[:1] * len(values)):
        # Of either type: a session may be told to give large texts.
        for column in (pa.array(made, pa.string()), pa.array(made, pa.large_string())):
            rows: Any = pa.StructArray.from_arrays([column], names=[name]).slice(start)
            found = json_bytes(record(name), rows, spec=JSON).to_pylist()
            assert found == [json_text({name: value}).encode() for value in made[start:]]


def test_a_value_that_is_null_is_written_and_one_that_is_not_there_is_not() -> None:
    """As Connect does, which has a form of null in JSON."""
    values = pa.array(["a", None, "b", None])
    is_there = pa.array([True, True, False, None])
    assert json_documents(TEXT, values, is_there, spec=JSON).to_pylist() == [b'"a"', b"null", None, None]
    enveloped = json_documents(TEXT, values, is_there, spec=ENVELOPED).to_pylist()
    assert enveloped[1] == b'{"schema":{"type":"string","optional":false},"payload":null}'


def test_a_record_without_fields_is_an_empty_object() -> None:
    """As a row, in another record, and as what a job gives; where it is not there, it is null."""
    empty = record()
    rows: Any = pa.array([{}, None, {}], pa.struct([]))
    assert json_bytes(empty, rows, spec=JSON).to_pylist() == [b"{}", None, b"{}"]
    outer = Slot(Record("outer", (Field("inner", "inner", Slot(empty)),)))
    columns = JsonColumns((ANY, ANY, ANY), outer, None, JSON)
    given_rows: Any = pa.table(
        {"v_0": [True, True, True, None], "v_1": [True, True, False, True], "v_2": [True, False, None, True]}
    )
    for start, expected in enumerate([[b'{"inner":{}}', b'{"inner":null}', b"null", None]] * 2):
        found = columns.put_together(given_rows.slice(start), "v")
        assert found.column("v").to_pylist() == expected[start:]


def test_documents_that_no_column_has_room_for_are_no_fault_of_a_record() -> None:
    """The micro-batch is too large, which the error says, and what to lower."""
    documented = Record("r", (Field("n", "n", Slot(Primitive.INT), doc="x" * (1 << 20)),))
    rows: Any = pa.table(
        {"v_0": [True] * 3_000, "v_1": [True] * 3_000, "v_2": pa.array([7] * 3_000, pa.int32()), "other": range(3_000)}
    )
    columns = JsonColumns((ANY, ANY, ANY), Slot(documented), None, ENVELOPED)
    with pytest.raises(ConversionFatal, match=r"3000 records of one micro-batch .* lower batch\.records\.max"):
        columns.put_together(rows, "v")
    written = columns.put_together(rows.slice(0, 2), "v")
    assert written.column_names == ["other", "v"]
    assert [b'"payload":{"n":7}}' in (value or b"") for value in written.column("v").to_pylist()] == [True, True]
