"""A leader's claim that is lost: who was fenced has heard of it before the claim counts as gone."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from service.kafka.client import KafkaSettings
from service.kafka.errors import WriterFenced
from service.stores.kafka_log import KafkaStateLog, LogClients
from service.stores.state_topic import StateKind, StateTopic


class FencedWriter:
    """Is refused by the broker, and takes its time to disconnect."""

    def __init__(self) -> None:
        """Connected."""
        self.is_stopping = asyncio.Event()
        self.may_end = asyncio.Event()

    async def commit(self, writes: object) -> None:
        """See `Writer`."""
        del writes
        raise WriterFenced("a newer writer took over")

    async def stop(self) -> None:
        """See `Writer`."""
        self.is_stopping.set()
        await self.may_end.wait()


async def test_the_claim_ends_after_its_writer() -> None:
    """While it still disconnects nobody may take this worker for one without a claim, and claim anew."""
    settings = KafkaSettings(bootstrap="nowhere:1")
    log = KafkaStateLog(StateTopic.of(StateKind.CONFIG, "t"), LogClients(settings, settings), emit=lambda _: None)
    writer = FencedWriter()
    log._leader, log._record_bytes_max = cast("Any", writer), 1_000_000
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(refused(log))
        await writer.is_stopping.wait()
        assert log.is_leader
        assert not writing.done()
        writer.may_end.set()
    assert not log.is_leader


async def refused(log: KafkaStateLog) -> None:
    """A write as leader, whose fence is heard of."""
    with pytest.raises(WriterFenced):
        await log.write([(b"k", b"v")], as_leader=True)
