"""What a snapshot of PostgreSQL sees, and the offsets and keys of reading tables beside the log."""

from __future__ import annotations

import adbc_driver_postgresql.dbapi as adbc
import pytest
from adbc_driver_manager import AdbcStatusCode

from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.postgres_cdc.snapshot import SnapshotReader, read_seen
from fetchers.sdk import Fatal, Retriable
from fetchers.toolkit.table_reading import Progress


def test_a_snapshot_of_the_server_says_what_it_does_not_see() -> None:
    """Also where the log's 32 bits of a number have wrapped."""
    assert read_seen("10:20:12,15").unseen([9, 12, 14, 15, 19, 20, 21]) == [12, 15, 20, 21]
    wrapped = read_seen(f"{(1 << 32) - 2}:{(1 << 32) + 3}:{(1 << 32) + 1}")
    assert wrapped.unseen([(1 << 32) - 1, 0, 1, 2, 3, 4]) == [1, 3, 4]
    assert read_seen("5:5:").unseen([]) == []


def test_offsets_of_both_partitions_are_looked_at() -> None:
    """Those that a person sets."""
    config = config_of({"snapshot.request.tables": "("})
    connector = PostgresCdcSource(config)
    assert [finding.key for finding in connector.findings()] == ["snapshot.request.tables"]
    tables = {"server": "p", "snapshot": "tables"}
    connector.check_offsets([({"server": "p"}, {"lsn_commit": 5}), (tables, Progress().offset()), (tables, None)])
    with pytest.raises(ValueError, match="tables_read"):
        connector.check_offsets([(tables, {"tables_read": "x"})])
    with pytest.raises(ValueError, match="timeline"):
        connector.check_offsets([({"server": "p"}, {"lsn_commit": 5, "log_of": "7", "timeline": "first"})])


@pytest.mark.parametrize("state", ["25P03", "25P04", "72000", "40001", "57014", "57P01", "42P01", "42703"])
def test_a_transaction_that_the_server_ends_and_a_table_that_is_dropped_are_tried_again(state: str) -> None:
    """What was broken off goes on in stretches, whose transactions are short, and with the tables that there are."""
    reader = SnapshotReader(config_of({}))
    with pytest.raises(Retriable, match=state), reader._called():
        raise adbc.OperationalError("ERROR: as it is", status_code=AdbcStatusCode.IO, sqlstate=state)


@pytest.mark.parametrize("state", ["22012", "25006", "42501", "XX001"])
def test_what_a_person_must_mend_ends_the_task(state: str) -> None:
    """The same row would fail for ever."""
    reader = SnapshotReader(config_of({}))
    with pytest.raises(Fatal, match=state), reader._called():
        raise adbc.OperationalError("ERROR: as it is", status_code=AdbcStatusCode.IO, sqlstate=state)


def config_of(properties: dict[str, str]) -> PostgresCdcConfig:
    """Of a server that nobody asks."""
    own = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    config = PostgresCdcConfig.parse(own | properties).config
    assert config is not None
    return config
