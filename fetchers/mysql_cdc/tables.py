"""Pages of a table: what its columns become, and its rows from the log or from a snapshot as changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.kinds import Kind, Mapped
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.rows import Numbers
from fetchers.mysql_cdc.segment import Run
from fetchers.mysql_cdc.table_map import NotDescribed, TableMap
from fetchers.sdk import Page, Partition
from fetchers.sdk import rows as forms
from fetchers.toolkit.change_events import Changes, ChangeTable
from fetchers.toolkit.change_form import DELETE, READ, TRUNCATE, UPDATE, ChangeForm, operation_codes
from fetchers.toolkit.mysql_texts import UnknownCharset
from fetchers.toolkit.name_lists import NameFilter

SOURCE_FIELDS = {
    "table": forms.optional(forms.STRING),
    "server_id": forms.INT64,
    "gtid": forms.optional(forms.STRING),
    "file": forms.STRING,
    "pos": forms.INT64,
    "row": forms.INT32,
    "thread": forms.optional(forms.INT64),
    "query": forms.optional(forms.STRING),
}
"""What Debezium's ``source`` has in both connectors, behind the common fields."""

TABLES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Delivered:
    """A table in one state of its columns, as it is delivered."""

    kinds: tuple[Kind | None, ...]
    """By column; None for a column that is left out."""
    changes: ChangeTable


class Tables:
    """Makes pages; knows each table in each state of its columns that it has seen."""

    def __init__(self, config: MySqlCdcConfig, *, connector: str, charsets: Mapping[int, str]) -> None:
        """``connector``: ``mysql`` or ``mariadb``; ``charsets``: the server's, by the numbers of collations."""
        self._mapped = Mapped(
            config.decimal_handling_mode,
            config.bigint_unsigned_handling_mode,
            config.time_precision_mode,
            config.binary_handling_mode,
            charsets,
        )
        self._columns = NameFilter(config.column_include_list, config.column_exclude_list)
        self._form = ChangeForm(
            config.topic_prefix,
            connector,
            "",
            SOURCE_FIELDS,
            has_tombstones=config.tombstones_on_delete,
            is_flattened=config.event_form == "row",
            skipped=operation_codes(config.skipped_operations),
            skips_halves=False,
            schema_names=config.schema_name_adjustment_mode,
            field_names=config.field_name_adjustment_mode,
        )
        self._known: dict[TableMap, Delivered] = {}
        self.is_mariadb = connector == "mariadb"
        """Rather than MySQL."""
        self.partition: Partition = {"server": config.topic_prefix}

    def of(self, table: TableMap) -> Delivered:
        """As it is delivered; raises ``NotDescribed``."""
        found = self._known.get(table)
        if found is None:
            if len(self._known) >= TABLES_MAX:
                self._known.clear()
            found = self._known[table] = self._delivered(table)
        return found

    def _delivered(self, table: TableMap) -> Delivered:
        kinds = []
        try:
            for column in table.columns:
                is_taken = column.name in table.key or self._columns.takes(f"{table.name}.{column.name}")
                kinds.append(self._mapped.kind(column) if is_taken else None)
        except (NotDescribed, UnknownCharset) as trouble:
            raise NotDescribed(f"{table.name}: {trouble}") from None
        columns = {kind.column.name: kind.form for kind in kinds if kind is not None}
        if not columns:
            raise NotDescribed(f"{table.name}: no column is left of it by column.include.list and column.exclude.list")
        names = (table.database, table.table)
        return Delivered(tuple(kinds), ChangeTable(self._form, names, columns, table.key))

    def logged(self, run: Run, *, place: Place, file: str, handled_us: int, ends_transaction: bool) -> Page:
        """A page of what the log has; ``place``: where to go on behind it."""
        if not run.table.columns and not run.table.trouble:
            return self._emptied(run, place=place, file=file, handled_us=handled_us, ends_transaction=ends_transaction)
        delivered = self.of(run.table)
        rows, wrong = _rows(delivered, run)
        kinds, images, committed, positions, servers, gtids, threads = zip(*run.marks, strict=True)
        codes = np.frombuffer("".join(kinds).encode(), np.uint8)
        sides = np.where(codes == ord("u"), 2, 1)
        counts = np.asarray(images) // sides
        operations = np.repeat(codes, counts)
        first = np.cumsum(np.repeat(sides, counts)) - np.repeat(sides, counts)
        before = after = None
        if (codes == ord("c")).all():
            after = rows
        else:
            before = rows.take(pa.array(first, mask=operations == ord("c")))
            after = rows.take(pa.array(first + (operations == ord("u")), mask=operations == ord("d")))
        each = pa.array(np.repeat(np.arange(len(codes)), counts))
        numbers = np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts, counts)
        wrong_before, wrong_after = _sides(wrong, first, operations, delivered=run.delivered) if wrong else ({}, {})
        if run.delivered:
            operations, each, numbers = operations[run.delivered :], each[run.delivered :], numbers[run.delivered :]
            before, after = (None if one is None else one[run.delivered :] for one in (before, after))

        def column(values: Any, kind: Any) -> Any:
            return pa.array(values, kind).take(each)

        source = {
            "db": run.table.database,
            "table": run.table.table,
            "file": file,
            "server_id": column(servers, pa.int64()),
            "gtid": column(gtids, pa.string()),
            "pos": column(positions, pa.int64()),
            "row": pa.array(numbers, pa.int32()),
            "thread": column(threads, pa.int64()),
        }
        return delivered.changes.page(
            Changes(operations, before, after, column(committed, pa.int64()), source, wrong_before, wrong_after),
            handled_us=handled_us,
            offset=place.offset(),
            partition=self.partition,
            ends_transaction=ends_transaction,
        )

    def _emptied(self, run: Run, *, place: Place, file: str, handled_us: int, ends_transaction: bool) -> Page:
        """Of TRUNCATEs; no records where the table is not known, because it is not there any more."""
        table, count = run.described, len(run.marks)
        if table is None:
            return Page([], place.offset(), partition=self.partition, ends_transaction=ends_transaction)
        delivered = self.of(table)
        kinds = [kind for kind in delivered.kinds if kind is not None]
        rows = pa.nulls(count, pa.struct([(kind.column.name, kind.arrow) for kind in kinds]))
        source = {
            "db": table.database,
            "table": table.table,
            "file": file,
            "row": 0,
            "server_id": pa.array([mark.server_id for mark in run.marks], pa.int64()),
            "gtid": pa.array([mark.gtid for mark in run.marks], pa.string()),
            "pos": pa.array([mark.position for mark in run.marks], pa.int64()),
            "thread": pa.array([mark.thread for mark in run.marks], pa.int64()),
        }
        committed = pa.array([mark.committed_us for mark in run.marks], pa.int64())
        return delivered.changes.page(
            Changes(np.full(count, TRUNCATE, np.uint8), rows, rows, committed, source),
            handled_us=handled_us,
            offset=place.offset(),
            partition=self.partition,
            ends_transaction=ends_transaction,
        )

    def heartbeat(self, place: Place, *, now_us: int, topic_prefix: str) -> Page:
        """A page for the topic of heartbeats; ``place``: where to go on behind it."""
        return self._form.heartbeat(now_us, offset=place.offset(), partition=self.partition, topic_prefix=topic_prefix)

    def read(
        self, table: TableMap, batch: pa.RecordBatch, *, place: Place, handled_us: int, snapshot: str = "true"
    ) -> Page:
        """A page of a snapshot; the batch has the texts of the columns that are delivered, and may have more."""
        delivered = self.of(table)
        kinds = [kind for kind in delivered.kinds if kind is not None]
        rows, wrong = _struct((kind.column.name, *kind.hold(batch.column(at))) for at, kind in enumerate(kinds))
        source = {
            "db": table.database,
            "table": table.table,
            "file": place.file,
            "pos": place.position,
            "server_id": 0,
            "row": 0,
            "snapshot": snapshot,
        }
        return delivered.changes.page(
            Changes(np.full(batch.num_rows, READ, np.uint8), None, rows, handled_us, source, wrong_after=wrong),
            handled_us=handled_us,
            offset=place.offset(),
            partition=self.partition,
        )


def _rows(delivered: Delivered, run: Run) -> tuple[Any, dict[int, str]]:
    """All row images of a run as one struct column, and what is wrong with which of them."""
    images = run.rows.images()
    found = ((kind, images.next_values()) for kind in delivered.kinds)  # of a column that is left out as well
    return _struct((kind.column.name, *kind.read(images, *where)) for kind, where in found if kind is not None)


def _struct(columns: Iterable[tuple[str, Any, Mapping[int, str]]]) -> tuple[Any, dict[int, str]]:
    """Names, columns and what is wrong in them by row, as one struct column and all that is wrong with each row."""
    names, made = [], []
    wrong: dict[int, str] = {}
    for name, column, odd in columns:
        names.append(name)
        made.append(column)
        for row, told in odd.items():
            wrong[row] = f"{wrong[row]}; column {name}: {told}" if row in wrong else f"column {name}: {told}"
    return pa.StructArray.from_arrays(made, names=names), wrong


def _sides(
    wrong: Mapping[int, str], first: Numbers, operations: Numbers, *, delivered: int
) -> tuple[dict[int, str], dict[int, str]]:
    """What is wrong with images as what is wrong with changes, before and after, of which the first are delivered.

    ``first``: of each change its first image.
    """
    before: dict[int, str] = {}
    after: dict[int, str] = {}
    for image, told in wrong.items():
        change = int(np.searchsorted(first, image, side="right")) - 1
        is_before = operations[change] == DELETE or (operations[change] == UPDATE and image == first[change])
        if change >= delivered:
            (before if is_before else after)[change - delivered] = told
    return before, after
