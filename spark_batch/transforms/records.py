"""Whole records of a sink on their way through its transformations, and their headers as an Arrow column.

A column of headers is a list of structs (name, value in bytes) for each record, as Kafka has them; null is no header.
At sinks they have a third field, which is null for headers that came from Kafka: what a transformation has made as
Connect has it, `{"schema":…,"payload":…}`, which the text that is the header's value does not say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.transforms.form import Side
from spark_batch.transforms.halves import ArrowColumn, Faults, Half, Mask, Origins

_HEADER: Any = pa.struct([("name", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(_HEADER)
SINK_HEADERS: Any = pa.list_(pa.struct([*_HEADER, pa.field("made", pa.string())]))


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one topic, with one type of keys and one of values."""

    rows: npt.NDArray[np.int64]
    """Their rows in the poll."""
    topic: str
    halves: Mapping[Side, Half]
    headers: ArrowColumn
    """Of the type HEADERS, or SINK_HEADERS."""

    def taken(self, mask: Mask) -> Records:
        """Only those that the mask is true for."""
        halves = {side: half.taken(mask) for side, half in self.halves.items()}
        return Records(self.rows[mask], self.topic, halves, self.headers.filter(pa.array(mask)))

    def with_half(self, side: Side, half: Half) -> Records:
        """With other keys, or other values."""
        return replace(self, halves={**self.halves, side: half})


class OfRecords(Protocol):
    """A transformation of whole records at a sink: of their topic, their headers, or of both halves together."""

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """The records afterwards, with what is refused by the row of `records`; who is in neither was dropped.

        What stands in a refused record means nothing any more. Raises Unfit.
        """


def is_null(half: Half) -> Mask:
    """Where there is no key or value."""
    mask: Any = half.column.is_null()
    return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)


def has_header(headers: ArrowColumn, name: str) -> Mask:
    """For each record whether it has a header of the name."""
    found = np.zeros(len(headers), dtype=bool)
    is_named: Any = pc.equal(_names(headers), pa.scalar(name))
    found[_owners(headers)[is_named.to_numpy(zero_copy_only=False)]] = True
    return found


def sink_headers(headers: ArrowColumn) -> ArrowColumn:
    """Headers as they came from Kafka, of which none was made."""
    flat: Any = pc.list_flatten(cast("Any", headers))
    children = [pc.struct_field(flat, "name"), pc.struct_field(flat, "value"), pa.nulls(len(flat), pa.string())]
    items = pa.StructArray.from_arrays(cast("Any", children), fields=list(SINK_HEADERS.value_type))
    return _listed(np.cumsum(_lengths(headers)), items)


def with_header(headers: ArrowColumn, name: str, values: ArrowColumn, made: ArrowColumn | None = None) -> ArrowColumn:
    """One more for each record, behind those that it has; ``values`` are bytes or null.

    ``made``: what they are to Connect; it is kept at sinks, and only there need be given.
    """
    flat: Any = pc.list_flatten(cast("Any", headers))
    count = len(headers)
    ends = np.cumsum(_lengths(headers) + 1)
    picks = np.empty(len(flat) + count, dtype=np.int64)
    is_new = np.zeros(len(picks), dtype=bool)
    is_new[ends - 1] = True
    picks[is_new] = len(flat) + np.arange(count)
    picks[~is_new] = np.arange(len(flat))
    kind: Any = headers.type.value_type
    children = [pa.repeat(pa.scalar(name, pa.string()), count), values]
    if headers.type == SINK_HEADERS:
        children.append(pa.nulls(count, pa.string()) if made is None else made)
    new: Any = pa.StructArray.from_arrays(cast("Any", children), fields=list(kind))
    return _listed(ends, pa.concat_arrays([flat, new]).take(pa.array(picks)))


def without_headers(headers: ArrowColumn, names: Collection[str]) -> ArrowColumn:
    """Without any header of these names."""
    is_named: Any = pc.is_in(_names(headers), value_set=pa.array(list(names), pa.string()))
    is_kept = ~is_named.to_numpy(zero_copy_only=False)
    flat: Any = pc.list_flatten(cast("Any", headers))
    lengths = np.bincount(_owners(headers)[is_kept], minlength=len(headers))
    return _listed(np.cumsum(lengths), flat.filter(pa.array(is_kept)))


def _listed(ends: npt.NDArray[np.int64], items: Any) -> ArrowColumn:
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    listed: Any = pa.ListArray.from_arrays(cast("Any", pa.array(offsets)), items)
    return cast("ArrowColumn", listed.cast(pa.list_(items.type)))


def _names(headers: ArrowColumn) -> Any:
    return pc.struct_field(pc.list_flatten(cast("Any", headers)), "name")


def _owners(headers: ArrowColumn) -> npt.NDArray[np.int64]:
    """The record of each header."""
    owners: Any = pc.list_parent_indices(cast("Any", headers))
    return np.asarray(owners.to_numpy(zero_copy_only=False))


def _lengths(headers: ArrowColumn) -> npt.NDArray[np.int64]:
    lengths: Any = pc.fill_null(pc.list_value_length(cast("Any", headers)), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)
