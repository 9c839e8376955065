"""Pages: what a fetcher hands over, and what crosses the queue.

A page is a batch of raw payloads of one source partition and the source offset to resume from *after* it.
Payloads are held as one Arrow binary column, so that nothing later costs Python work for each record. What is typed
already, such as the rows of a database, is one Arrow struct column with a schema instead (``fetchers.sdk.rows``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, cast

import pyarrow as pa

from fetchers.sdk.rows import RowSchema, row_json

Scalar: TypeAlias = "str | bool | int | float | None"
Partition: TypeAlias = Mapping[str, Scalar]
"""Which part of the source: the key of a source offset (Connect's "source partition"). Flat, JSON-like."""
Offset: TypeAlias = Mapping[str, Scalar]
"""Where to resume in a source partition. Flat: Connect stores no nested structures."""
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
Payload: TypeAlias = "bytes | None"
"""One raw payload; None is a tombstone."""
Column: TypeAlias = "pa.Array[Any]"


class PayloadKind(StrEnum):
    """What the payloads of a connector are, before any contract is applied."""

    JSON = "json"
    """One JSON value each (RFC 8259)."""
    TEXT = "text"
    """UTF-8 text, such as the line of a file; read as JSON when a contract is given."""
    BYTES = "bytes"
    """Anything."""
    ROWS = "rows"
    """Typed rows: the pages of such a connector have a ``schema``, which is the contract where none is configured."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A payload the fetcher itself cannot vouch for; it goes to the dead letters with its bytes."""

    index: int
    """Position of the payload in its page, from 0."""
    reason: str
    """A short word for metrics, such as ``too_large``."""
    message: str
    """One sentence for the dead letter's header; never the payload or a secret."""


@dataclass(frozen=True, slots=True)
class DedupeScope:
    """Which de-duplication window a page belongs to (windows are ordered by their text)."""

    window: str
    """Label of the window, such as the day ``2016-03-22``."""
    oldest_open: str
    """Windows before this one are closed: their state is dropped with this page's commit."""


@dataclass(frozen=True, slots=True)
class Page:
    """A batch of raw payloads of one source partition.

    A page may be empty: it then only moves the source offset. It is never split, and it is committed as a whole.
    """

    payloads: Sequence[bytes | None] | Column | pa.RecordBatch | pa.Table
    """Raw payloads in source order; null is a tombstone. Kept as a ``pa.binary()`` array. With a ``schema`` rows: a
    struct column (or a record batch, a table), in which a null row, not a row of nulls, is a tombstone."""
    offset: Offset
    """Where to resume after this page."""
    partition: Partition | None = None
    """Source partition; the connector's only one when not given."""
    topic: str | None = None
    """Topic of these records; the config's ``topic`` when not given."""
    keys: Sequence[bytes | None] | Column | pa.RecordBatch | pa.Table | None = None
    """Keys as bytes; with a ``key_schema`` structs, as ``payloads`` has them, a null for a record without a key."""
    timestamps_ms: Sequence[int | None] | Column | None = None
    """Record timestamps, milliseconds since the epoch, UTC; null = the time of delivery."""
    headers: Sequence[Headers] | None = None
    positions: Sequence[int] | Column | None = None
    """For each record a number that finds it again in the source (a byte position, a line number)."""
    position_name: str = "position"
    origins: Sequence[tuple[Partition, Offset]] | None = None
    """Where each record really came from, when it comes through another place (a dead letter put in again)."""
    tries: Sequence[int] | None = None
    """How often each record was tried before, one and more, when it was rejected then (a dead letter put in again)."""
    told_offset: Offset | None = None
    """What dead letters and logs tell of the offset where the whole is long; None: all of it."""
    rejections: tuple[Rejection, ...] = ()
    dedupe: DedupeScope | None = None
    ends_transaction: bool = True
    """False while a transaction of the source goes on: it is committed to Kafka as one, up to a limit by bytes."""
    schema: RowSchema | None = None
    """Of payloads that are rows; None: they are bytes. Each (topic, schema) has a plan of its own, and its schema is
    registered, and checked for compatibility, before its first row is converted. Pages of any number of topics and
    schemas may follow each other; the pages of one topic in the order in which their schemas came to be."""
    key_schema: RowSchema | None = None
    """Of keys that are structs, for pages with a ``schema``. The bytes of a key come from its key columns and this
    schema alone, so that they are the same for a row's insert, update and delete; keep it as it is for as long as
    consumers, and compacted topics, know the row by it. ``key.fields`` of a config go before it."""
    bytes: int = field(init=False, default=0)  # keep last: it hides the builtin from what follows
    """Memory of the payload column: the payloads and what Arrow needs to find them. What bounds are counted in."""

    def __post_init__(self) -> None:
        """Bring every column into its Arrow form, and refuse columns of unequal length.

        Offset and partition are copied: a fetcher may go on with the same dict while the page waits to be delivered.
        """
        self._set("offset", dict(self.offset))
        if self.partition is not None:
            self._set("partition", dict(self.partition))
        self._read_columns()
        for name in ("keys", "timestamps_ms", "positions", "headers", "origins", "tries"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.payloads):
                message = f"page has {len(self.payloads)} payloads and {len(values)} {name}"
                raise ValueError(message)
        # What columns share, such as the nulls before an insert, counts for each of them, which may be twice what the
        # page holds: so much it takes when pages are joined to be converted. A part of a large column counts alone.
        self._set("bytes", self.payload_column.nbytes)

    def _read_columns(self) -> None:
        """Rows and structured keys are held as they are; their schemas say which columns they must have."""
        if self.key_schema is not None and (self.schema is None or self.keys is None):
            message = "a page with a key_schema has keys, and rows with a schema"
            raise ValueError(message)
        columns = (("payloads", self.schema, pa.binary()), ("keys", self.key_schema, pa.binary()))
        for name, schema, kind in columns:
            values = getattr(self, name)
            if schema is not None:
                self._set(name, schema.column(values, what=f"{name} of a page"))
            elif values is not None:
                self._set(name, _column(values, kind))
        for name in ("timestamps_ms", "positions"):
            values = getattr(self, name)
            if values is not None:
                self._set(name, _column(values, pa.int64()))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """How many records there are, tombstones included."""
        return len(self.payloads)

    def values(self) -> Iterator[Payload]:
        """Payloads one by one, rows as ``row_json`` writes them; for tests and debugging, not for the flow."""
        if self.schema is None:
            yield from self.payload_column.to_pylist()
        else:
            yield from map(row_json, cast("Any", self.payload_column))

    def original(self, index: int) -> tuple[Payload, Payload]:
        """Key and payload of one record as its dead letter holds them: rows as ``row_json`` writes them."""
        found = []
        for column, schema in ((self.keys, self.key_schema), (self.payloads, self.schema)):
            value = None if column is None else cast("Any", column)[index]
            found.append(value if value is None else value.as_py() if schema is None else row_json(value))
        return found[0], found[1]

    @property
    def payload_bytes(self) -> int:
        """Bytes of the payloads alone, from where the first begins to where the last ends; of rows all their memory."""
        return cast("pa.BinaryArray", self.payloads).total_values_length if self.schema is None else self.bytes

    @property
    def payload_column(self) -> Column:
        """The payloads as one ``pa.binary()`` array, or struct array with a schema; nothing is copied."""
        return cast("Column", self.payloads)


def _column(values: object, kind: pa.DataType) -> Column:
    """One contiguous array of the wanted type; a chunked array is joined."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    return pa.array(cast("Sequence[Any]", values), type=kind)
