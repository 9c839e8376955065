"""The middle of a transaction as Debezium stores it: where it begins, how many of its events are delivered, and rows.

``event`` of its offsets counts what the server has sent of the transaction, from the event that begins it on (MySQL's
BEGIN, MariaDB's GTID), and ``row`` the delivered rows of the event behind those. Offsets of ours have neither: they
say up to which position events are delivered.
"""

from __future__ import annotations

from fetchers.mysql_cdc.events import GTID, MARIADB_GTID, QUERY, Event
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.table_map import NotDescribed

_MENDS = (
    'Take "event" and "row" out of the offset (PATCH /connectors/NAME/offsets): then the transaction comes again from '
    "its beginning"
)


class Underway:
    """Counts the events of that one transaction."""

    def __init__(self, place: Place, *, is_mariadb: bool) -> None:
        """``place``: has ``events`` or ``rows``."""
        self._place = place
        self._opening = MARIADB_GTID if is_mariadb else QUERY
        self._count = 0
        self._is_found = False

    def take(self, event: Event) -> None:
        """The next event of the log; raises ``NotDescribed`` where the transaction does not begin at the place."""
        if not self._is_found and event.kind in (MARIADB_GTID, GTID, QUERY):
            # Debezium's place is MySQL's BEGIN, before which a GTID is sent where the log is asked for by GTIDs.
            if self._place.position not in (event.begin_position, event.end_position):
                raise self.elsewhere(f"position {event.begin_position}")
            self._is_found = True
        if self._count or event.kind == self._opening:
            self._count += 1

    def elsewhere(self, where: str) -> NotDescribed:
        """What is told where the server begins to send elsewhere."""
        place = self._place
        return NotDescribed(
            f"the stored offset is in the middle of the transaction at {place.file}:{place.position}, and the log goes "
            f"on at {where}: its GTIDs are not all that was read. {_MENDS}"
        )

    @property
    def is_delivered(self) -> bool:
        """Whether the event that was taken last is one of those."""
        return self._count <= self._place.events

    def rows_of(self, count: int) -> int:
        """How many rows of the event that was taken last, which has ``count``, are delivered.

        Raises ``NotDescribed`` where these are more.
        """
        if self._count != self._place.events + 1:
            return 0
        if self._place.rows > count:
            raise NotDescribed(
                f"the stored offset has {self._place.rows} rows of an event that has {count} of them. {_MENDS}"
            )
        return self._place.rows

    def end(self) -> None:
        """The transaction has ended; raises ``NotDescribed`` where it has fewer events than are delivered."""
        if self.is_delivered:
            raise NotDescribed(
                f"the stored offset has {self._place.events} events of a transaction that has {self._count}. {_MENDS}"
            )
