"""Avro records that are decoded at once are read, and refused, as those that are looked at one by one."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from itertools import count, dropwhile
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.registry.client import RegistryClient
from service.sinks.converters import AvroReader
from service.sinks.readings import Column

AT_ONCE = 64
"""So many records of a schema are decoded at once, and no fewer."""
FRAME_BYTES = 5
Kind: TypeAlias = "tuple[Any, st.SearchStrategy[bytes]]"
"""A schema and bodies of it, good ones and those that lie."""
DAY = 86_400
DAYS = (-719_162, 2_932_896)
"""The first and the last day that Python has, from the epoch."""


class Registry:
    """One schema, whatever the id."""

    def __init__(self, schema: object) -> None:
        self.schema = json.dumps(schema)

    async def by_id(self, _: int) -> str:
        """As the registry does."""
        return self.schema


def varint(number: int) -> bytes:
    """A long as Avro writes it."""
    rest, out = ((number << 1) ^ (number >> 63)) & (2**64 - 1), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def sized(data: bytes) -> bytes:
    """Bytes behind their length."""
    return varint(len(data)) + data


def around(*edges: int) -> st.SearchStrategy[bytes]:
    """Numbers of all sizes, and those beside the edges."""
    beside = st.sampled_from([edge + step for edge in edges for step in (-1, 0, 1)])
    return (st.integers(-(2**63), 2**63 - 1) | beside | st.integers(-70, 70)).map(varint)


def decimals(precision: int, size: int | None) -> st.SearchStrategy[bytes]:
    """Numbers below the precision and beside it, in more bytes than they need, and in none."""

    def written(number: int, spare: int) -> bytes:
        data = number.to_bytes(max(1, (number.bit_length() + 8) // 8) + spare, "big", signed=True)
        return sized(data) if size is None else data[-size:].rjust(size, b"\xff" if number < 0 else b"\0")

    edge = 10**precision
    numbers = st.integers(-edge, edge) | st.sampled_from([edge - 1, edge, -edge, 1 - edge]) | st.integers(-300, 300)
    written_ones = st.builds(written, numbers, st.integers(0, 17))
    return written_ones if size is not None else written_ones | st.just(b"\0")


def decimal(precision: int, size: int | None) -> Callable[[str], Kind]:
    """A decimal as bytes, or as a fixed of that size."""
    marks = {"logicalType": "decimal", "precision": precision, "scale": precision // 3}
    if size is None:
        return lambda _: ({"type": "bytes", **marks}, decimals(precision, size))
    return lambda name: ({"type": "fixed", "name": name, "size": size, **marks}, decimals(precision, size))


def plain(document: object, bodies: st.SearchStrategy[bytes]) -> Callable[[str], Kind]:
    """A type that needs no name."""
    return lambda _: (document, bodies)


def logical(base: str, name: str, *edges: int) -> Callable[[str], Kind]:
    """A number that means a date or a time."""
    return plain({"type": base, "logicalType": name}, around(*edges))


TEXTS = st.text(max_size=12).map(str.encode).map(sized)
BYTES = st.binary(max_size=12).map(sized)
LEAVES: list[Callable[[str], Kind]] = [
    plain("null", st.just(b"")),
    plain("boolean", st.sampled_from([b"\0", b"\1", b"\2"])),
    plain("int", around(-(2**31), 2**31 - 1)),
    plain("long", around(-(2**63) + 1, 2**63 - 2, 2**55, -(2**55), 2**62)),
    plain("float", st.binary(min_size=4, max_size=4) | st.sampled_from([b"\1\0\x80\x7f", b"\1\0\x80\xff"])),
    plain("double", st.binary(min_size=8, max_size=8) | st.just(struct.pack("<Q", 0x7FF0_0000_0000_0001))),
    plain("string", TEXTS),
    plain("string", TEXTS | BYTES),
    plain({"type": "string", "logicalType": "uuid"}, TEXTS),
    plain({"type": "bytes"}, BYTES),
    logical("int", "date", *DAYS),
    logical("int", "time-millis", 0, DAY * 1000),
    logical("long", "time-micros", 0, DAY * 1_000_000),
    *(
        logical("long", f"{zone}timestamp-{unit}", DAYS[0] * DAY * scale, (DAYS[1] + 1) * DAY * scale)
        for zone in ("", "local-")
        for unit, scale in (("millis", 1000), ("micros", 1_000_000))
    ),
    lambda name: ({"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, st.integers(-4, 4).map(varint)),
    lambda name: ({"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)),
    *(decimal(precision, None) for precision in (1, 6, 18, 19, 38)),
    *(decimal(precision, size) for precision, size in ((2, 1), (18, 8), (19, 9), (38, 16), (38, 20))),
]


@st.composite
def kinds(draw: st.DrawFn, depth: int, names: Iterator[int]) -> Kind:
    """A schema of any form, and bodies of it."""
    if depth == 0 or draw(st.booleans()):
        document, bodies = draw(st.sampled_from(LEAVES))(f"N{next(names)}")
    else:
        document, bodies = draw(draw(st.sampled_from([records, arrays, maps]))(depth, names))
    if document == "null" or draw(st.booleans()):
        return document, bodies
    null = draw(st.integers(0, 1))
    branches = [document]
    branches.insert(null, "null")
    lies = st.integers(-3, 3).map(lambda branch: varint(branch) + b"\0")
    present = bodies.map(lambda body: varint(1 - null) + body)
    return branches, st.one_of(present, present, st.just(varint(null)), lies)


@st.composite
def arrays(draw: st.DrawFn, depth: int, names: Iterator[int]) -> Kind:
    """An array of anything."""
    items, bodies = draw(kinds(depth - 1, names))
    return {"type": "array", "items": items}, in_blocks(bodies)


@st.composite
def maps(draw: st.DrawFn, depth: int, names: Iterator[int]) -> Kind:
    """A map of anything, at times with a key twice."""
    values, bodies = draw(kinds(depth - 1, names))
    keys = st.sampled_from([b"\2a", b"\2b", b"\0"]) | TEXTS
    return {"type": "map", "values": values}, in_blocks(st.tuples(keys, bodies).map(b"".join))


def in_blocks(items: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Items in blocks, some of which tell of their size in bytes, or lie about that, or about their count."""

    def block(within: list[bytes], size: int | None, lie: int) -> bytes:
        data = b"".join(within)
        count = len(within) + lie
        return varint(count) + data if size is None else varint(-count) + varint(size or len(data)) + data

    lies = st.sampled_from([0] * 30 + [1, -1, 2**60, 2**31, -(2**63)])
    blocks = st.builds(block, st.lists(items, min_size=1, max_size=4), st.none() | st.integers(0, 3), lies)
    one = st.builds(lambda block: block + b"\0", blocks)
    return one | st.lists(blocks, max_size=3).map(lambda each: b"".join(each) + b"\0")


@st.composite
def records(draw: st.DrawFn, depth: int, names: Iterator[int]) -> Kind:
    """A record, perhaps with a field whose type is that of another field, by its name."""
    name = f"N{next(names)}"
    fields = [draw(kinds(depth - 1, names)) for _ in range(draw(st.integers(1, 4)))]
    for document, bodies in list(fields):
        if isinstance(document, dict) and "name" in document and draw(st.booleans()):
            fields.append((document["name"], bodies))
    columns = [{"name": f"f{at}", "type": document} for at, (document, _) in enumerate(fields)]
    whole = st.tuples(*(bodies for _, bodies in fields)).map(b"".join)
    return {"type": "record", "name": name, "fields": columns}, whole


def damaged(body: bytes, how: int, at: int, byte: int) -> bytes:
    """The body, changed somewhere."""
    at = at % (len(body) + 1)
    changes = {
        1: lambda: body[:at],
        2: lambda: body[:at] + bytes([byte]) + body[at:],
        3: lambda: body[:at] + bytes([byte]) + body[at + 1 :],
        4: lambda: body + bytes([byte]),
        5: lambda: body[:at] + bytes(each | 0x80 for each in body[at : at + 1]) + b"\0" + body[at + 1 :],
        6: lambda: body[:at] + bytes([byte | 0x80] * (at % 11)) + b"\1" + body[at:],
        7: lambda: body[:at] + varint(2 ** (byte % 64) - 1) + body[at:],
    }
    return changes.get(how, lambda: body)()


def rows_of(bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes | None]]:
    """Records of two ids of one schema, most of them good, with tombstones and rubbish between them."""
    changed = st.builds(damaged, bodies, st.integers(0, 7), st.integers(0, 40), st.integers(0, 255))
    framed = st.builds(
        lambda schema_id, body: b"\0" + schema_id.to_bytes(4, "big") + body,
        st.sampled_from([1, 1, 1, 2**31 - 1]),
        st.one_of(bodies, bodies, changed),
    )
    rubbish = st.sampled_from([b"", b"\0\0\0\0", b"x", b"x\0\0\0\1\0", b"\0\x80\0\0\0"])
    rows = st.lists(st.one_of(framed, framed, framed, st.none(), rubbish), max_size=12)
    # Rows before the first of an id would follow another neighbour when all rows come again.
    return rows.map(lambda each: list(dropwhile(is_stranger, each)))


def is_stranger(row: bytes | None) -> bool:
    """Whether the row names no schema."""
    return row is None or row[:2] not in {b"\0\0", b"\0\x7f"} or len(row) < FRAME_BYTES


@pytest.mark.parametrize("leaf", range(len(LEAVES)))
@given(st.data())
@settings(max_examples=30)
async def test_a_type_at_once_is_as_one_by_one(leaf: int, data: st.DataObject) -> None:
    """Every type that a field may have, alone."""
    document, bodies = LEAVES[leaf]("Leaf")
    await demand_as_one_by_one(document, data.draw(rows_of(bodies)))


@given(st.data())
@settings(max_examples=200)
async def test_a_schema_at_once_is_as_one_by_one(data: st.DataObject) -> None:
    """Whatever types are put together."""
    document, bodies = data.draw(kinds(2, count()))
    await demand_as_one_by_one(document, data.draw(rows_of(bodies)))


async def demand_as_one_by_one(document: object, rows: list[bytes | None]) -> None:
    """The same columns to the bit, also below nulls, the same types, and the same refusals in the same words."""
    reader = AvroReader(cast("RegistryClient", Registry(document)))
    single = await reader.read(pa.array(rows, pa.binary()))
    # A slice, as it comes where a column was cut.
    many = cast("Column", pa.array([b"cut", *rows * AT_ONCE], pa.binary()).slice(1))
    reading = await reader.read(many)
    assert reading.groups.tolist() == single.groups.tolist() * AT_ONCE
    assert reading.types == single.types
    assert dict(reading.refused) == {
        turn * len(rows) + row: told for turn in range(AT_ONCE) for row, told in single.refused.items()
    }
    for column, one in zip(reading.columns, single.columns, strict=True):
        cast("Any", column).validate(full=True)
        assert column.type == one.type
        assert held(column) == held(pa.concat_arrays([one] * AT_ONCE))


def lengths_of(column: Any) -> Any:
    """How many items each row has, null where it has no array."""
    return pc.list_value_length(column.cast(pa.list_(column.type.field(0))))


def held(column: Any) -> list[object]:
    """What the column and the columns in it hold, floats by their bits."""
    if isinstance(column, pa.StructArray):
        fields = [held(column.field(at)) for at in range(column.type.num_fields)]
        return [column.is_valid().to_pylist(), *fields]
    if isinstance(column, pa.MapArray):
        return [*held(lengths_of(column)), held(column.keys), held(column.items)]
    if isinstance(column, pa.ListArray):
        return [*held(lengths_of(column)), held(column.values)]
    if pa.types.is_floating(column.type):
        column = column.view(pa.int32() if column.type == pa.float32() else pa.int64())
    return cast("list[object]", column.to_pylist())
