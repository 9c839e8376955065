"""Bodies of Avro's binary encoding → Arrow columns, for all records of a schema at once.

What is walked is the schema, not the records: a field's values are read at the places at which the records stand
(Avro 1.12 specification, "Binary Encoding"), and the places move behind them. Nothing is refused here: a record that is
not exactly right, or has a value that is seldom, is left to the reader of single records, which decides and says why.
Schemas with decimals of more than sixteen bytes are left to it as a whole.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from service.sinks.avro_items import Kind, Read, read_lists, read_maps, skip_items
from service.sinks.avro_walk import Flags, Longs, Walk
from service.sinks.readings import Column
from spark_batch.avro_types import Array, Decimal, Enum, Fixed, Map, Primitive, Record, Slot, Temporal, Uuid, unit_range

_WORD_BITS = 64
_DECIMAL_BYTES_MAX = 16


def read_at_once(read: Read, bodies: Walk) -> tuple[Column, Flags]:
    """A column of all records, and which of its rows are records that were exactly right; the others mean nothing."""
    column = read(bodies)
    return column, ~bodies.is_bad & (bodies.at == bodies.ends)


def column_reader_of(document: Any, slot: Slot, kind: Any) -> Read | None:
    """How values of a schema become a column of the Arrow type `kind`; None for schemas that are read one by one.

    ``document`` is the schema as fastavro has parsed it, ``slot`` what the house has made of it.
    """
    try:
        return _kind(document, slot, kind, {}).read
    except _NotAtOnceError:
        return None


class _NotAtOnceError(Exception):
    """A schema with something that is read record by record."""


def _kind(document: Any, slot: Slot, kind: Any, named: dict[str, Any]) -> Kind:
    """``named`` are the definitions of records so far, which a schema uses again by name."""
    if isinstance(document, list):
        null = document.index("null")
        present = _kind(document[1 - null], Slot(slot.type), kind, named)
        return Kind(
            partial(_nullable, null=null, present=present, kind=kind),
            partial(_skip_nullable, null=null, present=present),
        )
    if isinstance(slot.type, Array):
        item = _kind(document["items"], slot.type.items, kind.value_type, named)
        return Kind(partial(read_lists, item=item, kind=kind), partial(skip_items, item=item))
    if isinstance(slot.type, Map):
        values = _kind(document["values"], slot.type.values, kind.item_type, named)
        entry = _struct([_TEXT, values], [kind.key_field, kind.item_field])
        return Kind(partial(read_maps, entry=entry, kind=kind), partial(skip_items, item=entry))
    if isinstance(slot.type, Record):
        definition = named[document] if isinstance(document, str) else document
        named[definition["name"]] = definition
        fields = zip(definition["fields"], slot.type.fields, kind, strict=True)
        return _struct(
            [_kind(field["type"], own.slot, column.type, named) for field, own, column in fields], list(kind)
        )
    return _leaf(slot.type, kind)


def _struct(parts: list[Kind], fields: list[Any]) -> Kind:
    sizes = [part.size for part in parts]
    size = None if None in sizes else sum(cast("list[int]", sizes))
    return Kind(partial(_records, parts=parts, fields=fields), partial(_skip_records, parts=parts), size)


def _leaf(avro: Any, kind: Any) -> Kind:
    if isinstance(avro, Temporal):
        low, high = unit_range(avro)
        return Kind(partial(_wholes, low=low, high=high, kind=kind), Walk.longs)
    if isinstance(avro, Decimal) and (avro.size or 0) <= _DECIMAL_BYTES_MAX:
        read = partial(_decimals, size=avro.size, bound=10**avro.precision, kind=kind)
        return Kind(read, _skip_sized) if avro.size is None else _of_size(avro.size, read)
    if isinstance(avro, Enum):
        return Kind(partial(_symbols, symbols=pa.array(avro.symbols, kind)), Walk.longs)
    if isinstance(avro, Fixed):
        return _of_size(avro.size, partial(_fixed, size=avro.size, kind=kind))
    if isinstance(avro, Uuid):
        return _TEXT
    if isinstance(avro, Primitive):
        return _PRIMITIVES[avro]
    raise _NotAtOnceError


def _of_size(size: int, read: Read) -> Kind:
    return Kind(read, partial(Walk.move, sizes=size), size)


def _records(walk: Walk, *, parts: list[Kind], fields: list[Any]) -> Column:
    return cast("Column", pa.StructArray.from_arrays([part.read(walk) for part in parts], fields=fields))


def _skip_records(walk: Walk, *, parts: list[Kind]) -> None:
    for part in parts:
        part.skip(walk)


def _nullable(walk: Walk, *, null: int, present: Kind, kind: Any) -> Column:
    is_present = _is_present(walk, null)
    if is_present.all():
        return present.read(walk)
    rows = np.flatnonzero(is_present)
    among = walk.among(rows)
    column = present.read(among)
    walk.rejoin(among, rows)
    return _spread(column, is_present, kind)


def _skip_nullable(walk: Walk, *, null: int, present: Kind) -> None:
    rows = np.flatnonzero(_is_present(walk, null))
    among = walk.among(rows)
    present.skip(among)
    walk.rejoin(among, rows)


def _is_present(walk: Walk, null: int) -> Flags:
    branch = walk.longs()
    walk.demand((branch == 0) | (branch == 1))
    return cast("Flags", branch != null)


def _skip_sized(walk: Walk) -> None:
    walk.move(walk.longs())


def _spread(column: Column, is_present: Flags, kind: Any) -> Column:
    """The values in the rows that have one, null in the others; below a null Arrow has empty values, not nulls."""
    rows = np.where(is_present, np.cumsum(is_present) - 1, len(column))
    return pa.concat_arrays([column, nothing(kind)]).take(rows)


def nothing(kind: Any) -> Column:
    """One null, as Arrow makes it of None."""
    return cast("Column", pa.array([None], kind))


def _nulls(walk: Walk) -> Column:
    return pa.nulls(len(walk))


def _truths(walk: Walk) -> Column:
    byte = walk.data[walk.move(1)]
    walk.demand(byte <= 1)
    return cast("Column", pa.array(byte == 1))


def _wholes(walk: Walk, *, low: int, high: int, kind: Any) -> Column:
    value = walk.longs()
    walk.demand((value >= low) & (value <= high))
    if kind.bit_width == _WORD_BITS:
        return cast("Column", pa.array(value).view(kind))
    return cast("Column", pa.array(value.astype(np.int32)).view(kind))


def _floats(walk: Walk) -> Column:
    """By way of a double, as Python does it: a signalling NaN becomes a quiet one."""
    bits = walk.little[walk.move(4)].astype(np.uint32)
    with np.errstate(invalid="ignore"):
        return pa.array(bits.view(np.float32).astype(np.float64).astype(np.float32))


def _doubles(walk: Walk) -> Column:
    return pa.array(walk.little[walk.move(8)].view(np.float64))


def _binaries(walk: Walk) -> Column:
    return walk.cut(*walk.slices(walk.longs()))


def _texts(walk: Walk) -> Column:
    at, sizes = walk.slices(walk.longs())
    column: Any = walk.cut(at, sizes)
    try:
        return cast("Column", column.cast(pa.string()))
    except pa.ArrowInvalid:
        is_text = np.fromiter(map(_is_text, column.to_pylist()), bool, len(walk))
    walk.demand(is_text)
    texts: Any = walk.cut(at, np.where(is_text, sizes, 0))
    return cast("Column", texts.cast(pa.string()))


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _symbols(walk: Walk, *, symbols: Column) -> Column:
    index = walk.longs()
    is_right = (index >= 0) & (index < len(symbols))
    walk.demand(is_right)
    return symbols.take(np.where(is_right, index, 0))


def _fixed(walk: Walk, *, size: int, kind: Any) -> Column:
    at = walk.move(size)
    is_there = ~walk.is_bad
    found: Any = walk.cut(at[is_there], np.full(int(is_there.sum()), size, np.int64))
    return _spread(found.cast(kind), is_there, kind)


def _decimals(walk: Walk, *, size: int | None, bound: int, kind: Any) -> Column:
    """Big-endian two's complement of 1 to 16 bytes, below ``bound``, as two words each, the lower first."""
    sizes = walk.longs() if size is None else np.full(len(walk), size, np.int64)
    walk.demand((sizes >= 1) & (sizes <= _DECIMAL_BYTES_MAX))
    at, sizes = walk.slices(sizes)
    ends, bits = at + sizes, 8 * np.clip(sizes, 1, _DECIMAL_BYTES_MAX)
    low = _extended(walk.big[ends - 8].astype(np.int64), np.minimum(bits, _WORD_BITS))
    high = _extended(walk.big[ends - 16].astype(np.int64), np.maximum(bits - _WORD_BITS, 1))
    words = np.empty((len(walk), 2), np.int64)
    words[:, 0], words[:, 1] = low, np.where(bits > _WORD_BITS, high, low >> (_WORD_BITS - 1))
    walk.demand(_is_at_least(words, 1 - bound) & ~_is_at_least(words, bound))
    return cast("Column", pa.Array.from_buffers(kind, len(walk), [None, pa.py_buffer(cast("Any", words))]))


def _extended(word: Longs, bits: Longs) -> Longs:
    """So many of its lowest bits, 1 to 64, as a signed number."""
    unused = _WORD_BITS - bits
    return cast("Longs", (word << unused) >> unused)


def _is_at_least(words: Longs, bound: int) -> Flags:
    high, low = bound >> _WORD_BITS, np.uint64(bound & (2**_WORD_BITS - 1))
    return cast("Flags", (words[:, 1] > high) | ((words[:, 1] == high) & (words[:, 0].view(np.uint64) >= low)))


_TEXT = Kind(_texts, _skip_sized)
_PRIMITIVES: dict[Primitive, Kind] = {
    Primitive.NULL: _of_size(0, _nulls),
    Primitive.BOOLEAN: _of_size(1, _truths),
    Primitive.INT: Kind(partial(_wholes, low=-(2**31), high=2**31 - 1, kind=pa.int32()), Walk.longs),
    Primitive.LONG: Kind(partial(_wholes, low=-(2**63), high=2**63 - 1, kind=pa.int64()), Walk.longs),
    Primitive.FLOAT: _of_size(4, _floats),
    Primitive.DOUBLE: _of_size(8, _doubles),
    Primitive.STRING: _TEXT,
    Primitive.BYTES: Kind(_binaries, _skip_sized),
}
