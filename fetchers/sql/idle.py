# ruff: noqa: S608 - names are quoted
"""Which tables have nothing new, by one statement over many of them, so that an idle poll is not five for each table.

Nothing is read on the strength of it, and no bound is taken. A table is left out of a round only where its highest id
is the one up to which it was read. Everybody who could commit a row up to that id had gone by then (``settling``), so
what is committed later has a higher one, and a later look sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from fetchers.sdk import FetchError
from fetchers.sql.database import Database, Range
from fetchers.sql.walk import Walk

TABLES_MAX = 50
"""Of one statement, which takes a lock for reading on each of them and on their indexes."""


async def idle_tables(database: Database, walks: Mapping[str, Walk]) -> frozenset[str]:
    """Names of the walks of which a round would find nothing; those that cannot be told are not among them."""
    found: set[str] = set()
    asked = [(name, walk.looked_for) for name, walk in walks.items()]
    known = [(name, wanted) for name, wanted in asked if wanted is not None]
    for start in range(0, len(known), TABLES_MAX):
        part = known[start : start + TABLES_MAX]
        try:
            highest = await _highest(database, [wanted for _, wanted in part])
        except FetchError:
            continue  # whatever it is, such as a table that is gone: the round over each of them tells it
        found |= {name for at, (name, _) in enumerate(part) if at in highest and walks[name].is_read_to(highest[at])}
    return frozenset(found)


async def _highest(database: Database, ranges: Sequence[Range]) -> dict[int, str | None]:
    """The highest id of each, by its place in the list."""
    selects = []
    for at, wanted in enumerate(ranges):
        text = database.text_of(f"max({wanted.identity})", wanted.relation, wanted.identity_column)
        selects.append(f"select {at} as headrace_0, {text} as headrace_1 from {wanted.relation.source}")
    found: dict[int, str | None] = {}
    async with aclosing(database.read(" union all ".join(selects), rows_max=TABLES_MAX)) as batches:
        async for batch in batches:
            for place, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                found[int(str(place))] = None if value == "NULL" else value
    return found
