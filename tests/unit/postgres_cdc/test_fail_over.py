"""How long a replica that cannot serve is waited for, and what a slot that has moved says."""

from __future__ import annotations

from contextlib import aclosing
from types import SimpleNamespace

import pytest

from fetchers.postgres_cdc import fetcher
from fetchers.postgres_cdc.catalogue import ReplicaError, SlotMovedError, refusal
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.fail_over import REPLICA_SECONDS_MAX, Doubts
from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.postgres_cdc.place import Origin, SnapshotPlace
from fetchers.sdk import Fatal, Retriable
from fetchers.sdk.context import partition_key
from fetchers.sdk.testing import FakeContext

SERVER = {"server": "srv"}
READ_ONLY = refusal("25006", "cannot execute ALTER PUBLICATION in a read-only transaction", "db")


@pytest.mark.looptime
async def test_a_replica_is_waited_for_until_a_declared_time_is_over() -> None:
    """From the first time that it is met; a server that serves ends that, and the next one has all of it again."""
    context, doubts = FakeContext(), Doubts()
    assert isinstance(READ_ONLY, ReplicaError)
    assert await doubts.judged(READ_ONLY, context, SERVER) is READ_ONLY
    await context.clock.sleep(REPLICA_SECONDS_MAX - 1)
    assert await doubts.judged(READ_ONLY, context, SERVER) is READ_ONLY
    await context.clock.sleep(1)
    over = await doubts.judged(READ_ONLY, context, SERVER)
    assert isinstance(over, Fatal)
    assert str(over).startswith(f"{READ_ONLY}. It was waited for 300 s. Let it take over (SELECT pg_promote())")
    doubts.end()
    assert await doubts.judged(READ_ONLY, context, SERVER) is READ_ONLY


async def test_a_slot_that_has_moved_is_a_hole_unless_that_is_stored() -> None:
    """Whoever moved it: what is stored by then decides, and not what was stored when the task began."""
    context, doubts = FakeContext(partition=SERVER, offset={"lsn_commit": 5}), Doubts()
    moved = SlotMovedError("moved", 9)
    assert await doubts.judged(moved, context, SERVER) is moved
    context.stored[partition_key(SERVER)] = {"lsn_commit": 8}
    assert await doubts.judged(moved, context, SERVER) is moved
    context.stored[partition_key(SERVER)] = {"lsn_commit": 9}
    assert type(await doubts.judged(moved, context, SERVER)) is Retriable
    assert context.offset_of(SERVER) == {"lsn_commit": 9}


async def test_a_server_of_which_a_snapshot_is_read_is_no_replica_that_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The snapshot may take hours, and another replica is met at its end: that one has all of the time."""
    found = PostgresCdcConfig.parse(
        {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "srv"}
    )
    assert found.config is not None
    source, context = PostgresCdcSource(found.config), FakeContext(partition=SERVER)
    is_replica = True

    def begun(*_: object) -> SnapshotPlace:
        source._origin = Origin()
        if is_replica:
            raise READ_ONLY
        return SnapshotPlace(5)

    monkeypatch.setattr(source, "_begun", begun)
    monkeypatch.setattr(fetcher, "SnapshotReader", lambda _: SimpleNamespace(is_open=True, close=lambda: None))
    for is_replica in (True, False, True):
        async with aclosing(source.fetch(context)) as pages:
            if is_replica:
                with pytest.raises(ReplicaError):
                    await anext(pages)
            else:
                assert not len(await anext(pages))
        await context.clock.sleep(REPLICA_SECONDS_MAX)
