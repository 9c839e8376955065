"""What is kept of the log's tables: as much as is needed, however long a server runs."""

from __future__ import annotations

from dataclasses import replace

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.descriptions import KNOWN_MAX, Descriptions
from fetchers.mysql_cdc.events import Event
from tests.binlog_server import NAMED, WrittenTable


def test_numbers_of_tables_do_not_pile_up() -> None:
    """A server gives a table another number whenever it opens it again; those in use are kept."""
    found = Descriptions(is_mariadb=True)
    kept = WrittenTable("w", "kept", NAMED, number=1)
    written = WrittenTable("w", "t", NAMED)
    for number in range(2, KNOWN_MAX + 100):
        for one in (kept, replace(written, number=number)):
            body = one.described()
            found.take(Event(events.TABLE_MAP, 0, 1, 0, 0, 0, body, 0, len(body)))
    assert len(found.by_number) == KNOWN_MAX
    assert {table.name for table in found.by_number.values()} == {"w.kept", "w.t"}
    assert found.by_number[kept.described()[:6]].name == "w.kept"
