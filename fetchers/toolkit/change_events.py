"""Changes of rows as Debezium's consumers know them: envelope, key, tombstone and topic, whole columns at a time.

The form is that of Debezium 3 (``io.debezium.data.Envelope``; chapter "Data change events" of the connectors' manual at
https://debezium.io/documentation/reference/stable/connectors/). A fetcher makes a ``ChangeTable`` for each table and
each state of its columns, and gives it ``Changes``: Arrow structs of the rows before and after, one operation each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.sdk import Offset, Page, Partition, Rejection, RowSchema
from fetchers.sdk import rows as forms
from fetchers.sdk.page import Column
from fetchers.sdk.rows import row_json
from fetchers.toolkit.change_form import CREATE, DELETE, TRUNCATE, UPDATE, ChangeForm
from fetchers.toolkit.name_lists import adjusted

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
Rows: TypeAlias = Any
"""A ``pa.StructArray``, whose stubs know too little of it."""
DELETED = "__deleted"
UNREADABLE = "unreadable_value"
"""Why a change is rejected whose values its columns cannot hold."""
KEY_LETTERS_MAX = 200
"""Letters of a key that a rejection tells."""
_PLACE = ("file", "pos", "row", "lsn")
"""Fields of ``source`` that say where in its log a change is."""
NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
"""Headers of the two events that a changed key becomes: JSON of the other key."""
_SNAPSHOT = forms.named(
    "io.debezium.data.Enum",
    forms.STRING,
    parameters={"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
)
_COMMON: Final[Mapping[str, forms.Form]] = {
    "version": forms.STRING,
    "connector": forms.STRING,
    "name": forms.STRING,
    "ts_ms": forms.INT64,
    "snapshot": forms.optional(_SNAPSHOT),
    "db": forms.STRING,
    "sequence": forms.optional(forms.STRING),
    "ts_us": forms.optional(forms.INT64),
    "ts_ns": forms.optional(forms.INT64),
}
"""The fields of ``source`` that every connector has; its own follow."""
_TRANSACTION = forms.struct(
    "event.block",
    {"id": forms.STRING, "total_order": forms.INT64, "data_collection_order": forms.INT64},
    version=1,
)
_ARROW = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "boolean": pa.bool_()}


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one table, in their order; every column has as many values as there are operations."""

    operations: np.ndarray
    """Codes as ``np.uint8``."""
    before: Rows | None
    """Rows before; null where none is known. With the columns of the table, null in what the log does not say."""
    after: Rows | None
    """Rows after; null for ``d`` and ``t``."""
    committed_us: Column | int
    """When the database committed, microseconds since the epoch: ``source.ts_ms``, ``ts_us``, ``ts_ns``."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of ``source`` by name, an Arrow column or one value for all; what is not given is null."""
    wrong_before: Mapping[int, str] = field(default_factory=dict)
    """Changes whose row before has a value that its column cannot hold (which is null here), with what is the matter.
    Records that show such a row are rejected, and tombstones only where the value is of their key."""
    wrong_after: Mapping[int, str] = field(default_factory=dict)
    """The same of rows after."""


class ChangeTable:
    """One table in one state of its columns: its topic, its schemas, and pages of its changes."""

    def __init__(
        self, form: ChangeForm, names: Sequence[str], columns: Mapping[str, forms.Form], keys: Sequence[str]
    ) -> None:
        """``names``: parts of the table's name, such as schema and table; ``columns``: forms by column.

        ``keys``: columns of the key in their order; none: events have no key, and there are no tombstones. Raises
        ``ValueError`` where two columns are one under Avro's rules.
        """
        self.form = form
        self.title = ".".join(names)
        """How rejections name the table."""
        self.topic = form.topic(*names)
        self.columns = tuple(columns)
        self.keys = tuple(keys)
        self._fields = {name: adjusted(name, form.field_names) for name in columns}
        name = adjusted(".".join((form.prefix, *names)), form.schema_names)
        fields = {self._fields[column]: own for column, own in columns.items()}
        self._source = dict(_COMMON) | dict(form.source_fields)
        self.schema = self._schema(name, fields)
        self.key_schema = (
            RowSchema.of(f"{name}.Key", {self._fields[key]: _required(columns[key]) for key in keys}) if keys else None
        )

    def _schema(self, name: str, fields: Mapping[str, forms.Form]) -> RowSchema:
        if self.form.is_flattened:
            return RowSchema.of(f"{name}.Value", {**fields, DELETED: forms.optional(forms.STRING)})
        value = forms.struct(f"{name}.Value", fields)
        space = value.get("namespace")
        envelope = {
            "before": forms.optional(value),
            "after": forms.optional(f"{space}.{value['name']}" if space else value["name"]),
            "source": forms.struct(f"io.debezium.connector.{self.form.connector}.Source", self._source, version=1),
            "transaction": forms.optional(_TRANSACTION),
            "op": forms.STRING,
            **{f"ts_{unit}": forms.optional(forms.INT64) for unit in ("ms", "us", "ns")},
        }
        return RowSchema.of(f"{name}.Envelope", envelope, version=2)

    def page(
        self,
        changes: Changes,
        *,
        handled_us: int,
        offset: Offset,
        partition: Partition,
        ends_transaction: bool = True,
    ) -> Page:
        """One page of the changes: deletes with their tombstones, changed keys as delete, tombstone and create.

        ``handled_us``: now, for the event's own ``ts_ms``, ``ts_us`` and ``ts_ns``. It may have no records.
        """
        made = _Expanded(self, _wanted(changes, self.form))
        keys = made.keys()
        return Page(
            self._rows(made, handled_us),
            offset=offset,
            partition=partition,
            topic=self.topic,
            schema=self.schema,
            keys=None if self.key_schema is None else keys,
            key_schema=self.key_schema,
            headers=made.headers(),
            rejections=made.rejections(),
            ends_transaction=ends_transaction,
        )

    def _rows(self, made: _Expanded, handled_us: int) -> Rows:
        count, mask = len(made), made.tombstone_mask()
        if self.form.is_flattened:
            is_deleted = pa.array(made.operations == DELETE).cast(pa.string())
            names = [self._fields[name] for name in self.columns]
            return pa.StructArray.from_arrays([*made.either(), is_deleted], names=[*names, DELETED], mask=mask)
        names = ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
        block = pa.struct([("id", pa.string()), ("total_order", pa.int64()), ("data_collection_order", pa.int64())])
        columns = [
            self._named(made.before),
            self._named(made.after),
            self._source_rows(made),
            pa.nulls(count, block),
            _code_texts(made.operations),
            *(pa.repeat(pa.scalar(value, pa.int64()), count) for value in _units(handled_us)),
        ]
        return pa.StructArray.from_arrays(columns, names=names, mask=mask)

    def _named(self, rows: Rows) -> Rows:
        """Rows under the fields' names, and in the order of the schema."""
        if all(own == name for own, name in self._fields.items()):
            return rows
        children = [rows.field(name) for name in self.columns]
        names = [self._fields[name] for name in self.columns]
        return pa.StructArray.from_arrays(children, names=names, mask=rows.is_null())

    def _source_rows(self, made: _Expanded) -> Rows:
        form = self.form
        given: dict[str, Any] = {
            "version": form.version,
            "connector": form.connector,
            "name": form.prefix,
            "db": form.database,
            "snapshot": "false",
        }
        micros = made.source_column(made.changes.committed_us, pa.int64())
        units = {"ts_ms": pc.divide(micros, 1000), "ts_us": micros, "ts_ns": pc.multiply(micros, 1000)}
        columns: list[Any] = []
        for name, own in self._source.items():
            kind = _arrow_of(own)
            value = units[name] if name in units else {**given, **made.changes.source}.get(name)
            columns.append(value if name in units else made.source_column(value, kind))
        return pa.StructArray.from_arrays(columns, names=list(self._source))


class _Expanded:
    """Changes, with a place for each tombstone and for each of the two events of a changed key."""

    def __init__(self, table: ChangeTable, changes: Changes) -> None:
        self.table = table
        self.changes = changes
        form, operations = table.form, changes.operations
        self._count = len(operations)
        kind = _struct_type(table, changes)
        self._before = changes.before if changes.before is not None else pa.nulls(self._count, kind)
        self._after = changes.after if changes.after is not None else pa.nulls(self._count, kind)
        is_moved = self._find_moved()
        sizes = np.ones(self._count, dtype=np.int64)
        if form.has_tombstones and table.keys:
            sizes[operations == DELETE] += 1
            sizes[is_moved] += 1
        sizes[is_moved] += 1
        self._is_same = bool((sizes == 1).all())
        self.rows: Any = np.repeat(np.arange(self._count), sizes)
        """Of each record, the change that it is of."""
        place = np.arange(len(self.rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        is_moved = is_moved[self.rows]
        is_new = is_moved & (place == sizes[self.rows] - 1)
        skipped = form.skipped if form.skips_halves else ()
        is_skipped = is_new & (CREATE in skipped) | is_moved & ~is_new & (DELETE in skipped)
        if is_skipped.any():
            self.rows, place = self.rows[~is_skipped], place[~is_skipped]
            is_moved, is_new = is_moved[~is_skipped], is_new[~is_skipped]
        self._is_moved = is_moved
        self._is_gone = is_moved & (place == 0)
        self._is_new = is_new
        self._is_tombstone = (place > 0) & ~self._is_new
        self.operations = np.where(self._is_gone, DELETE, np.where(self._is_new, CREATE, operations[self.rows]))
        self.operations = self.operations.astype(np.uint8)
        self.before = self._taken(self._before, is_null=self._is_new)
        self.after = self._taken(self._after, is_null=self._is_gone)

    def __len__(self) -> int:
        return len(self.rows)

    def _find_moved(self) -> np.ndarray:
        """Updates after which the row has another key."""
        found = np.zeros(self._count, dtype=bool)
        is_update = self.changes.operations == UPDATE
        if self.table.keys and is_update.any() and self._before.null_count < self._count:
            wrong_before, wrong_after = self.changes.wrong_before, self.changes.wrong_after
            for key in self.table.keys:
                before, after = self._before.field(key), self._after.field(key)
                found |= np.asarray(pc.fill_null(pc.not_equal(before, after), fill_value=False))
                if wrong_before or wrong_after:  # a key that can be held is another one than a key that cannot
                    has_before, has_after = np.asarray(before.is_valid()), np.asarray(after.is_valid())
                    rows = np.arange(self._count)
                    found |= has_after & ~has_before & np.isin(rows, list(wrong_before))
                    found |= has_before & ~has_after & np.isin(rows, list(wrong_after))
            found &= is_update & np.asarray(self._before.is_valid())
        return found

    def _taken(self, rows: Any, *, is_null: np.ndarray) -> Any:
        return rows if self._is_same else rows.take(pa.array(self.rows, pa.int64(), mask=is_null))

    def tombstone_mask(self) -> Any:
        """Where records are tombstones; None where none is."""
        return pa.array(self._is_tombstone) if self._is_tombstone.any() else None

    def either(self) -> list[Any]:
        """Columns of the rows after, or before where they are gone."""
        return [self._side(self.before.field(name), self.after.field(name)) for name in self.table.columns]

    def _side(self, before: Any, after: Any) -> Any:
        is_before = (self.operations == DELETE) | self._is_tombstone
        return pc.if_else(pa.array(is_before), before, after) if is_before.any() else after

    def keys(self) -> Any:
        """Of every record: the old key where a row goes, the same that it came with; null for ``t``."""
        if not self.table.keys:
            return None
        before = self._before if self._is_same else self._before.take(pa.array(self.rows, pa.int64()))
        after = self._after if self._is_same else self._after.take(pa.array(self.rows, pa.int64()))
        children = [self._side(before.field(key), after.field(key)) for key in self.table.keys]
        mask = pa.array(self.operations == TRUNCATE) if (self.operations == TRUNCATE).any() else None
        return self._key_rows(children, mask)

    def _key_rows(self, children: list[Any], mask: Any = None) -> Any:
        names = [adjusted(key, self.table.form.field_names) for key in self.table.keys]
        return pa.StructArray.from_arrays(children, names=names, mask=mask)

    def headers(self) -> list[tuple[tuple[str, bytes | None], ...]] | None:
        """The other key, of events of a changed key and their tombstones alone; None where there are none.

        A key with a value that cannot be held is not told.
        """
        if not self._is_moved.any():
            return None
        old, new = (
            self._key_rows([rows.field(key) for key in self.table.keys]) for rows in (self._before, self._after)
        )
        found: list[tuple[tuple[str, bytes | None], ...]] = [()] * len(self)
        for at in np.flatnonzero(self._is_moved).tolist():  # a changed key is rare
            row, is_new = int(self.rows[at]), bool(self._is_new[at])
            wrong = self.changes.wrong_before if is_new else self.changes.wrong_after
            if not (row in wrong and self._has_no_key(self._before if is_new else self._after, row)):
                found[at] = ((OLD_KEY, row_json(old[row])),) if is_new else ((NEW_KEY, row_json(new[row])),)
        return found

    def rejections(self) -> tuple[Rejection, ...]:
        """Of records that show a wrong value, and of tombstones with one in their key."""
        changes = self.changes
        wrong = [*changes.wrong_before, *changes.wrong_after]
        places = np.flatnonzero(np.isin(self.rows, wrong)).tolist() if wrong else ()
        found = ((at, self._shown_wrong(at, int(self.rows[at]))) for at in places)
        return tuple(Rejection(at, UNREADABLE, self._told(at, wrong)) for at, wrong in found if wrong)

    def _shown_wrong(self, at: int, row: int) -> list[str]:
        """What is the matter with the values that a record shows."""
        is_gone = self.operations[at] == DELETE
        sides = [(self.changes.wrong_before, not self._is_new[at]), (self.changes.wrong_after, not is_gone)]
        if self._is_tombstone[at]:
            sides = [(self.changes.wrong_before, self._has_no_key(self._before, row))]
        elif self.table.form.is_flattened:
            sides = sides[:1] if is_gone else sides[1:]
        return list(dict.fromkeys(wrong[row] for wrong, is_shown in sides if is_shown and row in wrong))

    def _has_no_key(self, rows: Any, row: int) -> bool:
        return any(not rows.field(key)[row].is_valid for key in self.table.keys)

    def _told(self, at: int, wrong: Sequence[str]) -> str:
        rows = self._before if self.operations[at] == DELETE or self._is_tombstone[at] else self._after
        row, key = int(self.rows[at]), ""
        if self.table.keys:
            one = self._key_rows([rows.field(name).slice(row, 1) for name in self.table.keys])[0]
            text = (row_json(one) or b"").decode()
            key = f", key {text[:KEY_LETTERS_MAX]}{'…' * (len(text) > KEY_LETTERS_MAX)}"
        source = self.changes.source
        where = ", in a snapshot" if "snapshot" in source else ""
        for name in (name for name in _PLACE if name in source):
            value = source[name]
            where += f", {name} {value[row] if isinstance(value, pa.Array | pa.ChunkedArray) else value}"
        return f"{self.table.title}{key}{where}: {'; '.join(wrong)}"

    def source_column(self, value: Any, kind: Any) -> Any:
        """A column of ``source``, whatever it was given as."""
        if isinstance(value, pa.Array | pa.ChunkedArray):
            column = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
            column = column if column.type == kind else column.cast(kind)
            return column if self._is_same else column.take(pa.array(self.rows, pa.int64()))
        return pa.repeat(pa.scalar(value, kind), len(self)) if value is not None else pa.nulls(len(self), kind)


def _wanted(changes: Changes, form: ChangeForm) -> Changes:
    """Without the operations that are skipped; a flattened row cannot say ``t``."""
    skipped = form.skipped | ({TRUNCATE} if form.is_flattened else set())
    is_skipped = np.isin(changes.operations, list(skipped))
    if not is_skipped.any():
        return changes
    mask: Any = pa.array(~is_skipped)
    places = (np.cumsum(~is_skipped) - 1).tolist()
    source = {
        name: value.filter(mask) if isinstance(value, pa.Array | pa.ChunkedArray) else value
        for name, value in changes.source.items()
    }
    return Changes(
        changes.operations[~is_skipped],
        changes.before.filter(mask) if changes.before is not None else None,
        changes.after.filter(mask) if changes.after is not None else None,
        changes.committed_us.filter(mask) if not isinstance(changes.committed_us, int) else changes.committed_us,
        source,
        *(
            {places[row]: told for row, told in wrong.items() if not is_skipped[row]}
            for wrong in (changes.wrong_before, changes.wrong_after)
        ),
    )


def _struct_type(table: ChangeTable, changes: Changes) -> Any:
    for rows in (changes.after, changes.before):
        if rows is not None:
            return rows.type
    return pa.struct([(name, pa.null()) for name in table.columns])


def _required(form: forms.Form) -> forms.Form:
    return form[1] if isinstance(form, list) else form


def _arrow_of(form: forms.Form) -> Any:
    base = _required(form)
    return _ARROW[base if isinstance(base, str) else base["type"]]


def _units(micros: int) -> tuple[int, int, int]:
    return micros // 1000, micros, micros * 1000


def _code_texts(codes: np.ndarray) -> Any:
    """One letter each, as a text column made of the codes themselves."""
    offsets = np.arange(len(codes) + 1, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(codes.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(codes), buffers)
