"""Texts of rows, of the log or of a snapshot, as pages of change events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.postgres_cdc.columns import Kind, Type
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.kinds import kind_of
from fetchers.postgres_cdc.log import Batch, Group
from fetchers.postgres_cdc.pgoutput import LogRelation, RowMessages, RowTexts, read_rows
from fetchers.sdk import Page
from fetchers.sdk import rows as forms
from fetchers.sdk.page import Offset
from fetchers.toolkit.change_events import Changes, ChangeTable, Rows
from fetchers.toolkit.change_form import READ, ChangeForm, operation_codes
from fetchers.toolkit.name_lists import NameFilter
from fetchers.toolkit.postgres_texts import utf8

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
_SOURCE: Mapping[str, forms.Form] = {
    "schema": forms.STRING,
    "table": forms.STRING,
    "txId": forms.optional(forms.INT64),
    "lsn": forms.optional(forms.INT64),
    "xmin": forms.optional(forms.INT64),
    "origin": forms.optional(forms.STRING),
    "origin_lsn": forms.optional(forms.INT64),
}


def change_form(config: PostgresCdcConfig, version: str) -> ChangeForm:
    """What all events of a connector have in common."""
    return ChangeForm(
        config.topic_prefix,
        "postgresql",
        config.database_dbname,
        _SOURCE,
        version=version,
        has_tombstones=config.tombstones_on_delete,
        is_flattened=config.change_form == "flattened",
        skipped=operation_codes(config.skipped_operations),
        schema_names=config.schema_name_adjustment_mode,
        field_names=config.field_name_adjustment_mode,
    )


class CapturedTable:
    """A table in one state of its columns: how its texts become columns, and its events pages."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        form: ChangeForm,
        relation: LogRelation,
        types: Mapping[str, Type],
        *,
        keys: Sequence[str],
        ask: Callable[[], Mapping[str, Type]],
    ) -> None:
        """``types`` and ``keys``: of the columns, by the server's catalogue; ``ask``: what it says of the types now.

        Raises ``ValueError`` for columns that cannot stand in one schema. Columns that are not of the key may be null,
        whatever the table says: the log has them neither in all rows before a change, nor where they are large and have
        not changed.
        """
        self.relation = relation
        self.keys = tuple(keys)
        self._config = config
        self._form = form
        self._ask = ask
        wanted = NameFilter(config.column_include_list, config.column_exclude_list)
        full = f"{relation.schema}.{relation.name}"
        self._places = [
            at
            for at, column in enumerate(relation.columns)
            if column.name in self.keys or wanted.takes(f"{full}.{column.name}")
        ]
        self._partition = config.source_partition
        self._types: Mapping[str, Type] | None = None
        self.kinds: dict[str, Kind] = {}
        self._words: dict[str, Any] = {}
        """Of columns with enums all texts that are known, as an array."""
        self.heed(types)

    @property
    def has_enums(self) -> bool:
        """Whether a type of it may come to mean more without a word in the log (``ALTER TYPE … ADD VALUE``)."""
        return bool(self._words)

    def heed(self, types: Mapping[str, Type]) -> None:
        """Go on with what the catalogue says of the types now; an enum that was dropped stays as it was."""
        known = self._types or {}
        types = {name: known.get(name, told) if told.words is None else told for name, told in types.items()}
        if types == self._types:
            return
        relation, self._types = self.relation, types
        names = [relation.columns[at].name for at in self._places]
        self.kinds = {name: kind_of(types[name], self._config.modes) for name in names}
        columns = {
            name: kind.form if name in self.keys else forms.optional(kind.form) for name, kind in self.kinds.items()
        }
        self._table = ChangeTable(self._form, (relation.schema, relation.name), columns, self.keys)
        words_of = {name: types[name].words for name in names}
        beside = [self._config.unavailable_value_placeholder, None]
        self._words = {
            name: pa.array([*words, *beside], pa.string()) for name, words in words_of.items() if words is not None
        }

    def _learn(self, rows: Rows | None) -> None:
        """Ask for the types anew where a label is not known: as Debezium does, for the log tells of no ``ALTER TYPE``.

        Where it is not known then either, it was renamed since; rows of before still have it.
        """
        if rows is None:
            return
        for name, words in self._words.items():
            column = rows.field(name)
            texts = column.flatten() if pa.types.is_list(column.type) else column
            if not pc.all(pc.is_in(texts, value_set=words), min_count=0).as_py():
                self.heed(self._ask())
                return

    def log_page(self, batch: Batch, group: Group, *, handled_us: int, offset: Offset, ends_transaction: bool) -> Page:
        """All changes of the table in a batch."""
        rows = read_rows(group.messages, len(self.relation.columns))
        wrong_before: dict[int, str] = {}
        wrong_after: dict[int, str] = {}
        before, after = self._side(rows, rows.old, wrong_before), self._side(rows, rows.new, wrong_after)
        self._learn(before)
        self._learn(after)
        transaction = batch.transaction_of(group.numbers)
        transactions = np.asarray(batch.transactions, np.int64).reshape(-1, 2)[transaction]
        positions = np.asarray(batch.positions, np.int64)[np.asarray(group.numbers)]
        commits = pa.array(np.asarray(batch.previous_commits, np.int64)[transaction]).cast(pa.string())
        lsn = pa.array(positions)
        sequence = pc.binary_join_element_wise('["', commits, '","', lsn.cast(pa.string()), '"]', "")
        changes = Changes(
            rows.operations,
            before,
            after,
            pa.array(transactions[:, 1]),
            {
                "schema": self.relation.schema,
                "table": self.relation.name,
                "txId": pa.array(transactions[:, 0]),
                "lsn": lsn,
                "sequence": sequence,
            },
            wrong_before,
            wrong_after,
        )
        return self._table.page(
            changes,
            handled_us=handled_us,
            offset=offset,
            partition=self._partition,
            ends_transaction=ends_transaction,
        )

    def snapshot_page(
        self, batch: pa.RecordBatch, *, handled_us: int, position: int, offset: Offset, snapshot: str = "true"
    ) -> Page:
        """Rows as a snapshot has them: columns that the driver gives as they are, or texts.

        ``snapshot``: ``true``, or ``incremental`` for rows that are read beside the log.
        """
        wrong: dict[int, str] = {}
        columns = []
        for at, (name, kind) in enumerate(self.kinds.items()):
            column = batch.column(at)
            if kind.selects and not pa.types.is_string(kind.arrow):
                columns.append(column if column.type == kind.arrow else column.cast(kind.arrow))
                continue
            texts, unread = utf8(column)
            made, odd = kind.read(texts)
            wrong |= {row: f"column {name}: {told}" for row, told in (odd | unread).items()}
            columns.append(made)
        rows = pa.StructArray.from_arrays(columns, names=list(self.kinds))
        self._learn(rows)
        changes = Changes(
            np.full(batch.num_rows, READ, np.uint8),
            None,
            rows,
            handled_us,
            {
                "schema": self.relation.schema,
                "table": self.relation.name,
                "lsn": position,
                "sequence": f'[null,"{position}"]',
                "snapshot": snapshot,
            },
            wrong_after=wrong,
        )
        return self._table.page(changes, handled_us=handled_us, offset=offset, partition=self._partition)

    def _side(self, rows: RowMessages, side: RowTexts | None, wrong: dict[int, str]) -> Rows | None:
        """The rows of one side, at the places of their messages."""
        if side is None:
            return None
        has_side = rows.has_old if side is rows.old else rows.has_new
        places = np.flatnonzero(has_side)
        columns = []
        for at in self._places:
            name = self.relation.columns[at].name
            kind = self.kinds[name]
            texts, missing = self._filled(rows, side, at, kind)
            texts, unread = utf8(texts)
            column, odd = kind.read(texts)
            wrong |= {int(places[row]): f"column {name}: {told}" for row, told in (odd | unread).items()}
            for row in np.flatnonzero(missing) if missing is not None else ():
                wrong[int(places[row])] = (
                    f"column {name} is large and has not changed, so that the log has no value of it. Run: "
                    f"ALTER TABLE {self.relation.schema}.{self.relation.name} REPLICA IDENTITY FULL"
                )
            columns.append(column)
        made: Any = pa.StructArray.from_arrays(columns, names=list(self.kinds))
        return made if has_side.all() else made.take(pa.array(np.cumsum(has_side) - 1, mask=~has_side))

    def _filled(self, rows: RowMessages, side: RowTexts, at: int, kind: Kind) -> tuple[Any, np.ndarray | None]:
        """A column with what the log has not: from the row before where that has it, else the placeholder.

        And where neither is to be had; None: nowhere.
        """
        texts, missing = side.columns[at], side.unchanged[at]
        if missing is None:
            return texts, None
        if side is rows.new and rows.old is not None:
            is_told = rows.has_old if self.relation.columns[at].is_identity else rows.is_old_whole
            is_known = missing & is_told[rows.has_new]
            places = np.where(is_known, (np.cumsum(rows.has_old) - 1)[rows.has_new], 0)
            before = rows.old.columns[at].take(pa.array(places, mask=~is_known))
            texts = pc.if_else(pa.array(is_known), before, texts)
            missing &= ~is_known
        is_key = self.relation.columns[at].name in self.keys  # of which a placeholder would be another row's
        if kind.stand_in is not None and not is_key and missing.any():
            word = kind.stand_in(self._config.unavailable_value_placeholder).encode()
            return pc.if_else(pa.array(missing), pa.scalar(word, pa.binary()), texts), None
        return texts, missing
