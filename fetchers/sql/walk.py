"""One table's way: from the place where reading stands, bound after bound."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import Fatal, FetchContext, Offset, Page, Retriable, RowSchema
from fetchers.sdk.rows import row_json
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Database, MistypedError, Range, Relation, Table
from fetchers.sql.kinds import ColumnPlan, joined, to_rows
from fetchers.sql.load import LOADING, Load, Part, load_of
from fetchers.sql.places import (
    Place,
    is_before,
    query_partition,
    shifted,
    stored_offset,
    stored_query_offset,
    table_partition,
    written,
)
from fetchers.sql.ranges import Selection, wanted_range, whole_number
from fetchers.sql.settling import Bound
from metrics.events import LateCommitsAwaited

CARRIED_ROWS_MAX = 1_000_000
"""Most rows of one timestamp in a table without a key: they are one page, because nothing tells them apart."""
KEY_LETTERS_MAX = 200
"""Letters of a key that a rejection tells."""
TOLD_SECONDS = 60.0
"""How long a range waits before that is told, and how often it is told again."""


class Walk:
    """Reads one table, or a part of one, or the query, of a task."""

    def __init__(
        self,
        config: JdbcConfig,
        database: Database,
        context: FetchContext,
        table: Table | None,
        *,
        part: Part | None = None,
    ) -> None:
        """``table``: None for the query; ``part``: None for what its first load does not cover, mostly all of it."""
        self._config = config
        self._database = database
        self._context = context
        self._table = table
        self._part = part
        self.is_done = False
        """Whether a part has been read to its end."""
        self.is_settled = False
        """Whether the range of a part needs no look: another part of the split was seen to be settled."""
        self.partition = query_partition(config.query)
        if table is not None:
            self.partition = table_partition(table.full_name) if part is None else part.partition(table)
        self._place: Place | None = None
        self._has_read = False
        """Whether the place is that of a row, which this walk has read."""
        self._loading: Load | None = None
        """The table's first load in parts, as the offsets tell it at the beginning of a round."""
        self._bound: Bound | None = None
        self._wanted: Range | None = None
        """What was asked for in the last round."""
        self._since = 0.0
        self._told = 0.0
        self._schemas: tuple[tuple[ColumnPlan, ...], RowSchema, RowSchema | None] | None = None

    @property
    def is_held(self) -> bool:
        """Whether a range waits for transactions that are still open."""
        return self._bound is not None

    @property
    def looked_for(self) -> Range | None:
        """What was read before, up to an id, so that the highest id alone tells whether there is more; else None."""
        is_told_by_id = self._config.mode == "incrementing" and self._table is not None and self._part is None
        is_between_rounds = self._place is not None and self._bound is None and self._loading is None
        return self._wanted if is_told_by_id and is_between_rounds else None

    def is_read_to(self, highest: str | None) -> bool:
        """Whether the row with the highest id (None: there are no rows) was the last to be read."""
        last = None if self._place is None else self._place.incrementing
        return highest == (None if last is None else str(last))

    def is_before(self, other: Walk) -> bool:
        """Whether the other is a later part of the same table, whose end was found in the same moment as this one's."""
        return self._table is not None and self._table == other._table and None not in {self._part, other._part}

    async def round(self) -> AsyncGenerator[Page, None]:
        """What is new, if it is settled."""
        relation = await self._relation()
        is_bulk = self._config.mode == "bulk"
        try:
            async with aclosing(self._all(relation) if is_bulk else self._new(relation)) as pages:
                async for page in pages:
                    yield page
        except MistypedError as error:
            if _types(await self._relation()) == _types(relation):
                raise
            raise Retriable(f"{error}; what was read has changed meanwhile") from error

    async def _all(self, relation: Relation) -> AsyncGenerator[Page, None]:
        if self._table is not None:  # a migration that is under way is waited for by this, and may change the columns
            nothing = f"select 1 as headrace_0 from {relation.source} where 1 = 0"  # noqa: S608 - names are quoted
            async with aclosing(self._database.read(nothing, rows_max=1)) as waited:
                _ = [batch async for batch in waited]
            relation = await self._relation()
        async with aclosing(self._database.read(self._everything(relation), rows_max=self._rows_max)) as batches:
            async for batch in batches:
                yield self._page(relation, batch, {})

    async def _new(self, relation: Relation) -> AsyncGenerator[Page, None]:
        wanted = self._wanted = wanted_range(self._config, relation, self._database)
        zone = None if wanted.is_zoned else self._config.db_timezone
        self._loading = self._load()
        if self._place is None:
            self._place = await self._first_place(wanted, zone)
            if self._place != Place() and self._part is None and not self._stored():
                yield self._page(relation, None, self._offset(self._place, zone))  # so that a restart begins there too
        for page in self._end_of_load(relation, zone):
            yield page
        if not await self._is_settled(wanted):
            return
        relation = await self._relation()  # a migration that was under way has added columns, and rows with them
        wanted = self._wanted = wanted_range(self._config, relation, self._database)
        zone = None if wanted.is_zoned else self._config.db_timezone
        bound, self._bound = self._bound, None
        if bound is not None:
            async with aclosing(self._read(wanted, self._place, bound.value, zone)) as pages:
                async for page in pages:
                    yield page
        if self._part is not None:
            self.is_done = True
            if self._place.incrementing != self._part.to:  # the row with the last id is gone by now
                yield self._page(relation, None, Place(self._part.to).offset(zone=zone))

    def _load(self) -> Load | None:
        """The table's first load in parts, while it goes on."""
        if self._table is None or self._part is not None or self._config.mode != "incrementing":
            return None
        stored = self._stored()
        if stored and LOADING not in stored:
            return None
        return load_of(
            self._table, stored, self._context.offsets, self._config.ends_of_parts.get(self._table.full_name, ())
        )

    def _end_of_load(self, relation: Relation, zone: str | None) -> Iterator[Page]:
        """Once all parts are read their offsets are forgotten, and the table's says no more of them: all at once."""
        load = self._loading
        if load is None or load.unread or self._table is None or self._place is None:
            return
        self._loading = None
        for part in load.parts:
            page = self._page(relation, None, {})
            yield replace(page, partition=part.partition(self._table), ends_transaction=False)
        yield self._page(relation, None, self._place.offset(zone=zone))

    def _offset(self, place: Place, zone: str | None) -> Offset:
        load = self._loading
        return place.offset(zone=zone) if load is None else {**place.offset(zone=zone), LOADING: load.to}

    async def _relation(self) -> Relation:
        if self._table is None:
            return await self._database.query(self._config.query)
        return await self._database.relation(self._table)

    @property
    def _rows_max(self) -> int:
        return self._config.batch_max_rows

    def _everything(self, relation: Relation) -> str:
        return Selection(self._database, Range(relation, None, None)).sql(Place(), None)

    def _stored(self) -> Offset:
        """Our own offset, else one that another connector has left."""
        if self._table is None:
            return stored_query_offset(self._context, self._config.query)
        if self._part is not None:
            return self._context.offset_of(self.partition)
        return stored_offset(self._context, self._table)

    async def _first_place(self, wanted: Range, zone: str | None) -> Place:
        place = Place.read(self._stored(), zone=zone)
        if self._part is not None:
            return Place(self._part.after) if place.incrementing is None else place
        if place.incrementing is None and self._loading is not None:
            return Place(self._loading.to)
        initial = self._config.timestamp_initial
        if wanted.time is None or place.at is not None or initial is None:
            return place
        at = await self._database.bound(wanted) if initial == -1 else written(initial, 0, zone=zone)
        return Place(place.incrementing, at, None)

    async def _is_settled(self, wanted: Range) -> bool:
        """Take a bound where there is none, or look whether those who held it have gone."""
        waits = self._config.late_commits == "wait" and not self.is_settled
        if self._bound is None:
            # The end of a part was a bound when the work was split: who holds it is looked at later, as it must be.
            value = await self._database.bound(wanted) if self._part is None else str(self._part.to)
            await self._check_counter(wanted, value)
            self._check_clock(wanted, value)
            if value is None:
                return False
            self._bound = Bound(value, await self._database.holders(wanted) if waits else frozenset())
            self._since = self._told = self._context.clock.monotonic()
        else:
            self._bound.look(await self._database.holders(wanted))
        now = self._context.clock.monotonic()
        if not self._bound.is_settled and now - self._told >= TOLD_SECONDS:
            self._told = now
            who = sorted(holder.told or holder.name for holder in self._bound.holders)[:3]
            self._context.emit(
                LateCommitsAwaited(
                    connector=self._context.connector,
                    task=self._context.task,
                    table=wanted.relation.name,
                    holders=", ".join(who),
                    seconds=now - self._since,
                )
            )
        return self._bound.is_settled

    async def _check_counter(self, wanted: Range, bound: str | None) -> None:
        """A counter that was set back gives numbers that lie before the place, and would never be read."""
        last = self._place.incrementing if self._place is not None else None
        if wanted.time is not None or last is None or (bound is not None and whole_number(bound, wanted) >= last):
            return
        counter = await self._database.counter(wanted)
        if counter is not None and counter < last:
            raise Fatal(
                f"{wanted.relation.name}: the last number given out is {counter}, but rows up to {last} were read: the "
                "table was emptied or restored. Set its counter behind that, or forget the connector's offset of this "
                "table (DELETE or PATCH /connectors/NAME/offsets) to read it from the beginning"
            )

    def _check_clock(self, wanted: Range, bound: str | None) -> None:
        """A clock that was set back gives times that lie before the place: such rows would never be read."""
        place = self._place
        if wanted.time is None or bound is None or place is None or place.at is None:
            return
        is_of_a_row = self._has_read or place.incrementing is not None or place.after is not None
        clock = shifted(bound, self._database.settling_ms + wanted.delay_ms)
        if is_of_a_row and clock is not None and is_before(clock, place.at):
            raise Fatal(
                f"{wanted.relation.name}: the database's clock is at {clock}, but rows up to {place.at} were read: it "
                "was set back, or db.timezone was changed, and rows that are written now would never be read. Set them "
                "right. If rows were written meanwhile, set the connector's offset of this table to the time before "
                "(PATCH /connectors/NAME/offsets), from which on rows come again"
            )

    async def _read(self, wanted: Range, place: Place, bound: str, zone: str | None) -> AsyncGenerator[Page, None]:
        selection = Selection(self._database, wanted)
        width = len(wanted.relation.columns)
        carried: pa.Table | None = None
        sql = selection.sql(place, bound)
        async with aclosing(self._database.read(sql, rows_max=self._rows_max)) as batches:
            async for batch in batches:
                ready: pa.RecordBatch | None = batch
                if not selection.splits_timestamps:
                    ready, carried = _cut(carried, batch, width)
                if ready is not None and ready.num_rows:
                    yield self._placed(selection, ready, width, zone)
        if carried is not None:
            yield self._placed(selection, carried.combine_chunks().to_batches()[0], width, zone)

    def _placed(self, selection: Selection, batch: pa.RecordBatch, width: int, zone: str | None) -> Page:
        values = [batch.column(at)[-1].as_py() for at in range(width, width + len(selection.order))]
        if None in values:
            name = selection.wanted.relation.name
            raise Fatal(f"{name}: a row has no place to go on from: {selection.order[values.index(None)]} has no text")
        self._place, self._has_read = selection.place_of([str(value) for value in values]), True
        return self._page(selection.wanted.relation, batch, self._offset(self._place, zone))

    def _page(self, relation: Relation, batch: pa.RecordBatch | None, offset: Offset) -> Page:
        schema, key_schema = self._schemas_of(relation)
        topic = self._config.topic_prefix + (relation.name if self._table is not None else "")
        if batch is None:
            return Page([], offset, partition=self.partition, topic=topic)
        rows, rejections = to_rows(batch, relation.columns)
        keys = None
        if key_schema is not None:
            keys = rows.select(list(key_schema.columns))
        told = relation.keys or (key_schema.columns if key_schema is not None else ())
        if not told and self._wanted is not None and self._wanted.identity is not None:
            told = (self._wanted.identity_column,)
        rejections = tuple(
            replace(one, message=f"{relation.name}{_key_of(rows, told, one.index)}: {one.message}")
            for one in rejections
        )
        return Page(
            rows,
            offset,
            partition=self.partition,
            topic=topic,
            schema=schema,
            keys=keys,
            key_schema=key_schema,
            rejections=rejections,
        )

    def _schemas_of(self, relation: Relation) -> tuple[RowSchema, RowSchema | None]:
        """Of the columns as they are now; made anew only where they have changed."""
        if self._schemas is None or self._schemas[0] != relation.columns:
            keys = [relation.column(name) for name in self._config.key_columns]
            forms = {column.name: column.form for column in relation.columns}
            key_forms = {column.name: column.form for column in keys}
            self._schemas = (
                relation.columns,
                RowSchema.of(relation.name, forms),
                RowSchema.of(f"{relation.name}.Key", key_forms) if keys else None,
            )
        return self._schemas[1], self._schemas[2]


def _key_of(rows: pa.RecordBatch, names: Sequence[str], at: int) -> str:
    """Of a row, for a person; empty where nothing tells it."""
    if not names:
        return ""
    row = pa.Table.from_batches([rows.slice(at, 1)]).select(list(names)).to_struct_array()[0]
    text = (row_json(row) or b"").decode()
    return f", key {text[:KEY_LETTERS_MAX]}{'…' * (len(text) > KEY_LETTERS_MAX)}"


def _types(relation: Relation) -> list[tuple[object, ...]]:
    """What tells whether the columns are as they were."""
    return [(column.name, column.expression, column.form, column.tells) for column in relation.columns]


def _cut(carried: pa.Table | None, batch: pa.RecordBatch, at: int) -> tuple[pa.RecordBatch | None, pa.Table]:
    """Rows up to the last change of timestamp, and the rest, to which more rows of its timestamp may belong."""
    table = pa.Table.from_batches([batch])
    if carried is not None:
        table = joined(carried, table)
    times = table.column(at)
    first = pc.index(times, times[-1]).as_py()
    if table.num_rows - first > CARRIED_ROWS_MAX:
        raise Fatal(
            f"more than {CARRIED_ROWS_MAX} rows have the timestamp {times[-1].as_py()}, and the table has no primary "
            "key to tell them apart: give it one, or use mode timestamp+incrementing"
        )
    ready = table.slice(0, first).combine_chunks().to_batches()
    return (ready[0] if ready else None), table.slice(first)
