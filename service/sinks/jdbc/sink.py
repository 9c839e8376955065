"""``JdbcSink``: each record a row; a put is one transaction.

With ``insert.mode=upsert`` what is put again changes nothing, so records are written effectively once. With
``offsets.table`` they are in every mode: the offsets are written in the transaction of the rows (``offsets``).

A statement that fails for what its rows hold is undone to a savepoint and tried with each half of the rows, until the
row is found that will never be taken; the others are written once, in order.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fetchers.sdk import FetchError
from service.sinks.batch import RefusalReason, Selection
from service.sinks.contract import (
    Fatal,
    Finding,
    Form,
    Offsets,
    Partition,
    Retriable,
    SinkBatch,
    SinkConnector,
    SinkContext,
)
from service.sinks.jdbc.config import JdbcSinkConfig
from service.sinks.jdbc.database import (
    Database,
    RowsRefused,
    Target,
    TargetChanged,
    add_sql,
    create_sql,
    lost,
    name_of,
    table_name,
)
from service.sinks.jdbc.mysql import MySqlTarget
from service.sinks.jdbc.offsets import OffsetsTable
from service.sinks.jdbc.postgresql import PostgresTarget
from service.sinks.jdbc.rows import FieldColumn, Rows, rows_of
from service.sinks.jdbc.sqlite import SqliteTarget

T = TypeVar("T")
_CODE = re.compile(r" \(\w+\)$")
_SAVEPOINT = "headrace_rows"
_STOP_SECONDS_MAX = 0.5
TARGETS_MAX = 500
"""Tables that are kept in mind between puts; another one is looked at anew when it is written to."""


@dataclass(slots=True)
class _Written:
    """What becomes of the records of one put; told to the worker when its transaction is committed."""

    refusals: list[tuple[int, str, str]] = field(default_factory=list)

    def refuse(self, row: int, reason: str, message: str) -> None:
        self.refusals.append((row, reason, message))


class JdbcSink(SinkConnector[JdbcSinkConfig]):
    """Writes rows to tables of PostgreSQL, MySQL, MariaDB or SQLite."""

    accepts = frozenset({Form.JSON, Form.RECORD})

    def __init__(self, config: JdbcSinkConfig) -> None:
        """The database is first asked when partitions come, or with the first put."""
        super().__init__(config)
        self.put_limits = config.limits
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sink-jdbc")
        self._database: Database | None = None
        self._offsets: OffsetsTable | None = None
        self._targets: OrderedDict[str, Target] = OrderedDict()
        """Tables as they are, those that were written to last at the end."""
        self._request_flush: Callable[[], None] = lambda: None

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the keys taken together."""
        return tuple(self.config.own_findings())

    async def start(self, context: SinkContext) -> None:
        """Choose the driver; a database that is away fails no start."""
        self._request_flush = context.request_flush
        self._database = self.made_target()
        if self.config.offsets_table:
            name = table_name(self._database, self.config.offsets_table, is_folded=self._is_folded)
            self._offsets = OffsetsTable(self._database, name, context.connector)

    def made_target(self) -> Database:
        """The database of the URL, not connected to yet."""
        match self.config.login.url.dialect:
            case "sqlite":
                return SqliteTarget(self.config, self.allowed_paths)
            case "postgresql":
                return PostgresTarget(self.config, self.allowed_addresses)
            case _:
                return MySqlTarget(self.config, self.allowed_addresses)

    async def open(self, partitions: Mapping[Partition, int | None]) -> Offsets:
        """Begin where the database is, if it keeps the offsets."""
        offsets = self._offsets
        if offsets is None:
            return {}

        def claim() -> Offsets:
            self._ready.connect()
            offsets.ensure()
            return self._transaction(partial(offsets.claim, partitions))

        return await self._call(claim)

    async def put(self, batch: SinkBatch) -> None:
        """Write the batch in one transaction; returns when that is committed."""
        written = _Written()
        await self._call(partial(self._write_batch, batch, written))
        for refusal in written.refusals:
            batch.refuse(*refusal)
        if written.refusals and self._offsets is not None:
            self._request_flush()

    async def committed(self, offsets: Offsets) -> None:
        """Note it, where the database keeps the offsets."""
        table = self._offsets
        if table is not None:
            await self._call(lambda: self._transaction(partial(table.committed, offsets)))

    async def close(self, partitions: Collection[Partition]) -> None:
        """They are others' now."""
        if self._offsets is not None:
            self._offsets.forget(partitions)

    async def stop(self) -> None:
        """Let go of the connection; a statement that still runs is cancelled and undone."""
        database, self._database = self._database, None
        if database is not None:
            loop = asyncio.get_running_loop()
            closing = loop.run_in_executor(self._thread, database.close)
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS_MAX):
                    await loop.run_in_executor(None, database.cancel)
                    await asyncio.shield(closing)
        self._thread.shutdown(wait=False)

    @property
    def _ready(self) -> Database:
        if self._database is None:
            raise Fatal("the sink is not started")
        self._database.connect()
        return self._database

    @property
    def _is_folded(self) -> bool:
        return self.config.quote_sql_identifiers == "NEVER"

    async def _call(self, work: Callable[[], T]) -> T:
        """Do blocking work in the sink's own thread; where nobody waits for it any more, its statement is cancelled."""
        database = self._database
        if database is None:
            raise Fatal("the sink is not started")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(self._guarded, work))
        except asyncio.CancelledError:
            asyncio.get_running_loop().run_in_executor(None, database.cancel)
            raise

    def _guarded(self, work: Callable[[], T]) -> T:
        """A connection that failed is not used again; what was not committed is undone with it."""
        try:
            return work()
        except RowsRefused as error:
            self._drop()
            raise Fatal(str(error)) from error
        except BaseException as error:
            # Whatever it was, it is raised again, and nobody knows what the session has done of it.
            self._drop()
            if isinstance(error, TargetChanged | Fatal):
                self._targets.clear()
            raise

    def _drop(self) -> None:
        if self._database is not None:
            self._database.close()

    def _transaction(self, work: Callable[[], T]) -> T:
        database = self._ready
        database.begin()
        made = work()
        database.commit()
        return made

    def _write_batch(self, batch: SinkBatch, written: _Written) -> None:
        watched = SinkBatch(batch.records, batch.key, batch.value, written.refuse)
        found = Selection(watched)
        rows = rows_of(watched, self.config, found)
        tables = list(self._by_table(batch, rows)) if len(rows) else []
        for name, part in tables:
            self._prepare(name, part)
        tables = [
            (name, self._fitting(name, self._folded(part), found)) for name, part in tables if name in self._targets
        ]

        def write() -> None:
            offsets = self._offsets
            if offsets is None:
                for name, part in tables:
                    self._write(name, part, written)
                return
            is_done, known = offsets.done(batch)
            # Written before: nothing of it is told once more.
            written.refusals[:] = [each for each in written.refusals if not is_done[each[0]]]
            for name, part in tables:
                self._write(name, part.taken(np.flatnonzero(~is_done[part.numbers])), written)
            offsets.advance(batch, known, {row for row, _, _ in written.refusals})

        self._transaction(write)
        while len(self._targets) > TARGETS_MAX:  # not before: those of this batch are all needed
            self._targets.popitem(last=False)

    def _by_table(self, batch: SinkBatch, rows: Rows) -> Iterator[tuple[str, Rows]]:
        topics: Any = batch.records.column("topic").combine_chunks().take(rows.numbers)
        for topic in pc.unique(topics).to_pylist():
            text = self.config.table_name_format.replace("${topic}", topic)
            here = np.flatnonzero(np.asarray(topics.to_numpy(zero_copy_only=False) == topic))
            name = table_name(self._ready, text, is_folded=self._is_folded)
            yield name, rows if len(here) == len(rows) else rows.taken(here)

    def _folded(self, rows: Rows) -> Rows:
        """Columns under the names that the database makes of them."""
        if not self._is_folded:
            return rows

        def folded(column: FieldColumn) -> FieldColumn:
            name = name_of(self._ready, column.name, is_folded=True)
            return replace(column, name=name)

        return Rows(rows.numbers, tuple(map(folded, rows.keys)), tuple(map(folded, rows.values)), rows.is_delete)

    def _prepare(self, name: str, rows: Rows) -> None:
        """See to it that the table has the columns; raises Fatal where that is not to be done."""
        database, rows = self._ready, self._folded(rows)
        target = self._targets.get(name) or database.target(name)
        if target is None and rows.is_delete.all():
            return  # nothing to be deleted
        if not rows.columns:
            raise Fatal(f"no field of the records is to be written to {name}: see fields.whitelist and pk.mode")
        if target is None:
            statement = create_sql(database, name, rows)
            if not self.config.auto_create:
                raise Fatal(f"there is no table {name}: set auto.create=true, or run: {statement}")
            self._define(name, [statement], "give the user the right to create tables")
            target = self._looked_at(name)
        missing = [column for column in rows.columns if target.column(column.name) is None]
        if missing:
            statements = [add_sql(database, name, column) for column in missing]
            if not self.config.auto_evolve:
                told = "; ".join(statements)
                raise Fatal(f"table {name} has no column {missing[0].name}: set auto.evolve=true, or run: {told}")
            keys = [column.name for column in rows.keys if column in missing]
            if keys:
                raise Fatal(f"table {name} has no column {keys[0]}, which pk.fields names: add it by hand, as a key")
            self._define(name, statements, "give the user the right to alter the table")
            target = self._looked_at(name)
        left = self._needed(target, rows)
        if left and self.config.insert_mode != "update" and not rows.is_delete.all():
            raise Fatal(
                f"column {left[0]} of {name} takes no null, has no default, and no field of the records is of it"
            )
        self._targets[name] = target
        self._targets.move_to_end(name)
        database.prepare(rows, target)

    @staticmethod
    def _needed(target: Target, rows: Rows) -> list[str]:
        given = {found.name for column in rows.columns if (found := target.column(column.name)) is not None}
        return [name for name, column in target.columns.items() if column.is_needed and name not in given]

    def _define(self, name: str, statements: Sequence[str], mend: str) -> None:
        """Run statements that another task may run at the same time: what counts is the table, looked at next."""
        for statement in statements:
            try:
                self._ready.run(statement)
            except (FetchError, RowsRefused) as error:
                if isinstance(error, Retriable) and not isinstance(error, TargetChanged):
                    raise
                self._targets.pop(name, None)
                if not self._is_defined(name, statement):
                    raise Fatal(f"{error}; {mend}, or run: {statement}") from error

    def _is_defined(self, name: str, statement: str) -> bool:
        found = self._ready.target(name)
        if found is None or statement.startswith("CREATE TABLE"):
            return found is not None
        return any(f" ADD {self._ready.quoted(column)} " in statement for column in found.columns)

    def _looked_at(self, name: str) -> Target:
        found = self._ready.target(name)
        if found is None:
            raise TargetChanged(f"there is no table {name}, which was there a moment ago")
        return found

    def _fitting(self, name: str, rows: Rows, found: Selection) -> Rows:
        """The rows whose values the columns can hold; the others are refused."""
        losses = self._losses(self._targets[name], rows)
        if losses:
            # A person may have widened a column since it was looked at, so that they fit.
            target = self._looked_at(name)
            if target != self._targets[name]:
                self._targets[name] = target
                losses = self._losses(target, rows)
        is_sent = np.ones(len(rows), dtype=bool)
        for unfit, message in losses:
            is_sent &= ~unfit
            whole = np.zeros(len(found.is_sent), dtype=bool)
            whole[rows.numbers[unfit]] = True
            found.refuse(whole, RefusalReason.OUT_OF_RANGE, message)
        return rows if is_sent.all() else rows.taken(np.flatnonzero(is_sent))

    def _losses(self, target: Target, rows: Rows) -> list[tuple[npt.NDArray[np.bool_], str]]:
        """Which rows have values that their columns cannot hold, column by column, and why."""
        losses = []
        for place, column in enumerate(rows.columns):
            goal = target.column(column.name)
            if goal is None:
                continue
            unfit, message = lost(column.values, goal, self._ready.calendar)
            if place >= len(rows.keys):
                unfit &= ~rows.is_delete
            if unfit.any():
                losses.append((unfit, message))
        return losses

    def _write(self, name: str, rows: Rows, written: _Written) -> None:
        """Write rows, and find those among them that will never be taken."""
        if not len(rows):
            return
        database = self._ready
        database.run(f"savepoint {_SAVEPOINT}")
        try:
            self._apply(rows, self._targets[name])
        except RowsRefused as error:
            database.run(f"rollback to savepoint {_SAVEPOINT}")
            if len(rows) == 1:
                message = f"{name}: {self._told(error)}"
                written.refuse(int(rows.numbers[0]), RefusalReason.REFUSED_BY_TARGET, message)
                return
            middle = len(rows) // 2
            self._write(name, rows.taken(np.arange(middle)), written)
            self._write(name, rows.taken(np.arange(middle, len(rows))), written)
            return
        database.run(f"release savepoint {_SAVEPOINT}")

    def _told(self, error: RowsRefused) -> str:
        """What the database says of a row, which may repeat its values; or the code that the text ends with, if any."""
        if not self.config.trim_sensitive_log:
            return str(error)
        code = _CODE.search(str(error))
        return f"refused by the database{code[0] if code else ''}"

    def _apply(self, rows: Rows, target: Target) -> None:
        """Deletes and writes as if they were done one after another."""
        database, mode = self._ready, self.config.insert_mode
        if mode == "insert":
            ends = [*(np.flatnonzero(np.diff(rows.is_delete)) + 1).tolist(), len(rows)]
            begin = 0
            for end in ends:
                part = rows.taken(np.arange(begin, end)) if end - begin < len(rows) else rows
                if rows.is_delete[begin]:
                    database.delete(part, target)
                else:
                    database.insert(part, target, mode=mode)
                begin = end
            return
        if rows.is_delete.any():
            # Also the row of a key that is written once more later: its other columns begin anew.
            database.delete(rows.taken(np.flatnonzero(rows.is_delete)), target)
        last = rows.last_of_keys()
        last = last[~rows.is_delete[last]]
        if len(last):
            database.insert(rows if len(last) == len(rows) else rows.taken(last), target, mode=mode)
