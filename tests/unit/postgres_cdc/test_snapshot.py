"""What a snapshot of PostgreSQL sees, and the offsets and keys of reading tables beside the log."""

from __future__ import annotations

import pytest

from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.postgres_cdc.snapshot import read_seen
from fetchers.toolkit.table_reading import Progress


def test_a_snapshot_of_the_server_says_what_it_does_not_see() -> None:
    """Also where the log's 32 bits of a number have wrapped."""
    assert read_seen("10:20:12,15").unseen([9, 12, 14, 15, 19, 20, 21]) == [12, 15, 20, 21]
    wrapped = read_seen(f"{(1 << 32) - 2}:{(1 << 32) + 3}:{(1 << 32) + 1}")
    assert wrapped.unseen([(1 << 32) - 1, 0, 1, 2, 3, 4]) == [1, 3, 4]
    assert read_seen("5:5:").unseen([]) == []


def test_offsets_of_both_partitions_are_looked_at() -> None:
    """Those that a person sets."""
    properties = {
        "database.hostname": "h",
        "database.user": "u",
        "database.dbname": "d",
        "topic.prefix": "p",
        "snapshot.request.tables": "(",
    }
    config = PostgresCdcConfig.parse(properties).config
    assert config is not None
    connector = PostgresCdcSource(config)
    assert [finding.key for finding in connector.findings()] == ["snapshot.request.tables"]
    tables = {"server": "p", "snapshot": "tables"}
    connector.check_offsets([({"server": "p"}, {"lsn_commit": 5}), (tables, Progress().offset()), (tables, None)])
    with pytest.raises(ValueError, match="tables_read"):
        connector.check_offsets([(tables, {"tables_read": "x"})])
