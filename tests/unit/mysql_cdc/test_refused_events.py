"""What would lose changes if it were passed over ends the reading of the log; what changes nothing does not."""

from __future__ import annotations

import pytest

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.table_map import NotDescribed
from tests.binlog_server import FILE, WrittenLog, named
from tests.unit.mysql_cdc.test_segments import TABLES, delivered, segments_of

REFUSED = {
    "insert into t values (1)": "SET GLOBAL binlog_format = ROW",
    "/* app */ -- x\n UPDATE t SET a = 1": "SET GLOBAL binlog_format = ROW",
    "/*!40000 UPDATE */ t SET a = 1": "SET GLOBAL binlog_format = ROW",
    "WITH w AS (SELECT 1) DELETE FROM t": "SET GLOBAL binlog_format = ROW",
    "SELECT `w`.`f`(1)": "SET GLOBAL binlog_format = ROW",
    "DO f(1)": "SET GLOBAL binlog_format = ROW",
    "SET STATEMENT max_statement_time=1 FOR INSERT INTO t VALUES (1)": "SET GLOBAL binlog_format = ROW",
    "DELETE FROM mysql.rds_sysinfo, w.t USING w.t": "SET GLOBAL binlog_format = ROW",
}


@pytest.mark.parametrize(("statement", "told"), REFUSED.items())
def test_changes_that_are_no_rows_are_refused(statement: str, told: str) -> None:
    """Rather than passed over."""
    log = WrittenLog()
    log.begin()
    log.query(statement)
    with pytest.raises(NotDescribed, match=told):
        segments_of(log, Place(FILE), bytes_max=1000)


LOST = {
    26: "has lost changes",
    18: "LOAD DATA.*SET GLOBAL binlog_format = ROW",
    events.PARTIAL_UPDATE: "binlog_row_value_options",
    200: "unknown type 200",
}


@pytest.mark.parametrize(("kind", "told"), LOST.items())
def test_an_event_that_may_hold_changes_is_not_passed_over(kind: int, told: str) -> None:
    """Incidents, files of LOAD DATA, and whatever a newer server may log; but for what that says may be ignored."""
    log = WrittenLog()
    log.transaction((TABLES[0], events.WRITE_V1, [named(1, "x")]))
    log.add(kind, bytes(30))
    with pytest.raises(NotDescribed, match=told):
        segments_of(log, Place(FILE), bytes_max=1000)


def test_an_event_that_may_be_ignored_is_passed_over() -> None:
    """As the flag of its header says (``LOG_EVENT_IGNORABLE_F``); one of a known kind is no news either."""
    log = WrittenLog()
    for kind in sorted(events.PASSED - {events.FORMAT_DESCRIPTION}):
        log.add(kind, bytes(30))
    log.add(200, bytes(30))
    position, data = log.events.pop()
    log.events.append((position, log.event(200, data[events.HEADER_BYTES : -4], position=position, flags=0x80)))
    log.transaction((TABLES[0], events.WRITE_V1, [named(1, "x")]))
    assert sum(len(rows) for rows in delivered(segments_of(log, Place(FILE), bytes_max=1000)).values()) == 1


def test_what_may_be_taken_back_is_refused() -> None:
    """Rows of a transaction that was rolled back after it was logged."""
    log = WrittenLog()
    log.begin()
    log.add(events.TABLE_MAP, TABLES[0].described())
    log.add(events.WRITE_V1, TABLES[0].rows([named(1, "x")]))
    log.query("ROLLBACK")
    with pytest.raises(NotDescribed, match="rolled back"):
        segments_of(log, Place(FILE), bytes_max=1000)
