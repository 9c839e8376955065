"""What the log has said of its tables so far: by the numbers that its rows have, and the last of each name."""

from __future__ import annotations

from fetchers.mysql_cdc.events import Event, Query
from fetchers.mysql_cdc.statements import emptied_table, first_words, names_in
from fetchers.mysql_cdc.table_map import NotDescribed, TableMap, read_table_map

KNOWN_MAX = 10_000
"""Descriptions of tables that are kept; a server with more pays for reading them anew."""


class Descriptions:
    """Reads each description once, however often the log repeats it."""

    def __init__(self, *, is_mariadb: bool) -> None:
        """None yet."""
        self._is_mariadb = is_mariadb
        self._known: dict[bytes, TableMap] = {}
        self.by_number: dict[bytes, TableMap] = {}
        """By the six bytes with which events name a table."""
        self.last: dict[str, TableMap] = {}
        """Tables as they were described last, by name; none that a statement may have altered since."""

    def take(self, event: Event) -> TableMap:
        """The table of a TABLE_MAP; raises ``MalformedError``."""
        body = event.data[event.start + 6 : event.end]
        table = self._known.get(body)
        if table is None:
            if len(self._known) >= KNOWN_MAX:
                self._clear()
                self.last.clear()
            table = self._known[body] = read_table_map(event, is_mariadb=self._is_mariadb)
            self.last[table.name] = table
        number = event.data[event.start : event.start + 6]
        self.by_number.pop(number, None)  # so that what is used is never the oldest
        self.by_number[number] = table
        if len(self.by_number) > KNOWN_MAX:  # a table that the server opens again gets another number
            del self.by_number[next(iter(self.by_number))]
        return table

    def forget(self, statement: str) -> None:
        """Tables whose columns or names a statement outside of transactions may have changed."""
        if first_words(statement)[0] == "TRUNCATE":
            return
        self._clear()  # so that the next description of each is the last one
        names = names_in(statement)
        for name, table in list(self.last.items()):
            if names is None or not names.isdisjoint((table.database.lower(), table.table.lower())):
                del self.last[name]

    def _clear(self) -> None:
        self._known.clear()
        self.by_number.clear()


def emptied_by(query: Query, *, has_small_names: bool) -> TableMap | None:
    """The table of a TRUNCATE, without columns, which the log does not describe there; None: it is another statement.

    Raises ``NotDescribed`` where its name cannot be read.
    """
    names = emptied_table(query.text, query.database)
    if names is None:
        return None
    if "\ufffd" in "".join(names):
        raise NotDescribed("a TRUNCATE was logged in a character set that is not read: its table is not known")
    database, table = (name.lower() for name in names) if has_small_names else names
    return TableMap(database, table, ())
