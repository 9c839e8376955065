"""Of which log a position is: of which server's, and of which of its timelines.

A replica that takes over has the log of its primary as far as it had received it, and begins another timeline there.
Behind that place the two logs have other changes at the same positions. So an offset that is nothing but a position
would be gone on from in the middle of changes that were never read. Facts: the chapters "Streaming Replication
Protocol" (``IDENTIFY_SYSTEM``, ``TIMELINE_HISTORY``) and "Continuous Archiving" (timelines) of PostgreSQL's manual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
import psycopg.errors
from psycopg.rows import dict_row

from fetchers.postgres_cdc.catalogue import Catalogue, choices
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.place import Origin, Place, SnapshotPlace, position_text, read_position
from fetchers.sdk import Fatal, Retriable
from fetchers.toolkit.databases import PASSING


@dataclass(frozen=True)
class History:
    """What log a server has."""

    log_of: str
    """The system identifier, which a primary shares with its replicas and nobody else."""
    timeline: int
    """That it is on now."""
    ends: Mapping[tuple[int, int], int] | None = field(default_factory=dict)
    """Of each timeline before it, by its number and where it began: up to where it is this server's, too. None: the
    server does not say."""
    is_replica: bool = False

    @property
    def begin(self) -> int | None:
        """Of the timeline; None: not known."""
        return None if self.ends is None else max(self.ends.values(), default=0)

    @property
    def origin(self) -> Origin:
        """Of what is read now; a replica's without a timeline, which becomes another one while it is read."""
        if self.is_replica or self.begin is None:
            return Origin(self.log_of)
        return Origin(self.log_of, self.timeline, self.begin)


def read_timelines(text: str) -> Iterator[tuple[tuple[int, int], int]]:
    """Of a timeline's history file: each timeline before it and where that began, and where it was left."""
    begin = 0
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            number, position, *_ = line.split()
            yield (int(number), begin), (begin := read_position(position))


def history(connection: psycopg.Connection[Any]) -> History:
    """Of the server of a session that speaks the replication protocol. Blocks; raises ``psycopg.Error``."""
    # In this order: a replica that takes over in between is told as one, and its timeline is left open.
    ((is_replica,),) = connection.execute(b"select pg_is_in_recovery()").fetchall()
    ((log_of, number, *_),) = connection.execute(b"IDENTIFY_SYSTEM").fetchall()
    timeline = int(number)
    ends = _ends(connection, timeline) if timeline > 1 else {}
    return History(str(log_of), timeline, ends, is_replica=is_replica)


def _ends(connection: psycopg.Connection[Any], timeline: int) -> Mapping[tuple[int, int], int] | None:
    try:
        found = connection.execute(f"TIMELINE_HISTORY {timeline}".encode())
    except psycopg.Error as error:
        # Somebody has removed the file, or the server, one that is run for others, does not give it out.
        if isinstance(error, psycopg.errors.UndefinedFile) or not (error.sqlstate or "08").startswith(PASSING):
            return None
        raise
    text = found.pgresult.get_value(0, 1) if found.pgresult else None
    return dict(read_timelines((text or b"").decode(errors="replace")))


def demand_history(here: History, origin: Origin, place: Place | SnapshotPlace, slot: str) -> None:
    """See that the server has the log of a stored place up to there; raises ``Fatal``, or ``Retriable`` for a replica.

    ``origin``: of the place; without a server in it, such as Debezium's, nothing is known, and nothing demanded.
    """
    if not origin.log_of:
        return
    if origin.log_of != here.log_of:
        raise Fatal(
            f"the stored offset is one of the server with the system identifier {origin.log_of}, and this one has "
            f"{here.log_of}: it is no replica of that, and their positions have nothing to do with each other. "
            'Where you know that they have, take "log_of", "timeline" and "timeline_begin" out of the offset (PATCH '
            f"/connectors/<name>/offsets while it is stopped). {choices(slot)}"
        )
    is_same = here.timeline == origin.timeline and here.begin in {None, origin.begin}
    if not origin.timeline or is_same:
        return
    end, reached = (here.ends or {}).get((origin.timeline, origin.begin)), place.reached
    read = f"the log was read on timeline {origin.timeline} up to {position_text(reached)}"
    if here.is_replica and here.timeline < origin.timeline:
        raise Retriable(f"{read}, and this server is a replica that is still on timeline {here.timeline}")
    if here.ends is None:
        raise Fatal(
            f"{read}, and this server is on timeline {here.timeline} and does not tell (TIMELINE_HISTORY) where that "
            f"began: whether it has that log is not known. {choices(slot)}"
        )
    if end is None:
        raise Fatal(
            f"{read}, and this server is on timeline {here.timeline}, which did not come from there: it is a primary "
            f"or a replica that was left behind, or another one that took over. {choices(slot)}"
        )
    if end < reached:
        raise Fatal(
            f"{read}, and this server, which has taken over, has that timeline up to {position_text(end)} alone: "
            "changes may have been delivered that it never had, and it has others in their place. "
            f"{choices(slot)}"
        )
    if isinstance(place, Place) and place.is_inside:
        raise Fatal(
            f"{read}, where part of a transaction is delivered, and this server has taken over at "
            f"{position_text(end)}: whether it has that transaction is not known. Take "
            '"events", "tables_done", "tables_until" and "tables_until_events" out of the offset (PATCH '
            "/connectors/<name>/offsets while it is stopped): then that transaction comes again from its beginning, if "
            f"it is there. {choices(slot)}"
        )


def demand_server(here: History, origin: Origin, place: Place | SnapshotPlace) -> None:
    """See that a slot of the connector's name is its own on this server; raises ``Fatal``, or ``Retriable``.

    ``place``: the last that was stored, ``origin``: its. By its name and position alone it could be that of another
    connector, where the address leads to another server by now.
    """
    if not origin.log_of:
        return
    is_there = origin.log_of == here.log_of
    if is_there and origin.timeline:
        if here.is_replica:
            raise Retriable("it is a replica, and the slot of its primary would stay")
        if here.ends is not None and (here.timeline, here.begin) != (origin.timeline, origin.begin):
            is_there = here.ends.get((origin.timeline, origin.begin), 0) >= place.reached
    if not is_there:
        raise Fatal(
            f"this is another server than the connector has read: its log is {here.log_of}, timeline {here.timeline}, "
            f"and {origin.log_of} was read, on timeline {origin.timeline or '?'} up to {position_text(place.reached)}"
        )


def demand_log(
    connection: psycopg.Connection[Any], config: PostgresCdcConfig, place: Place | SnapshotPlace, origin: Origin
) -> History:
    """See that the server of this session has the log from a stored place on; raises ``Fatal``, or ``Retriable``."""
    here = history(connection)
    demand_history(here, origin, place, config.slot_name)
    connection.row_factory = dict_row
    Catalogue(config, connection).demand_log(place.start)
    return here
