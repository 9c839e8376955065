"""What a sink is asked about its group's offsets before they are changed, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from service.domain.cluster import Properties
from service.herder import offsets as module
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError
from service.herder.offsets import SinkOffsetAccess
from service.kafka.client import KafkaSettings

Place = tuple[str, int]


@dataclass
class OneGroup:
    """A group without members, in the place of ``ConsumerGroups``."""

    known: dict[Place, int]
    is_deleted: bool = False

    @asynccontextmanager
    async def opened(self, _settings: KafkaSettings) -> AsyncIterator[OneGroup]:
        """As connected."""
        yield self

    async def offsets(self, _group_id: str) -> dict[Place, int]:
        """What is committed."""
        return dict(self.known)

    async def alter(self, _group_id: str, changed: Mapping[Place, int]) -> None:
        """Commit."""
        self.known |= changed

    async def forget(self, _group_id: str, forgotten: Sequence[Place]) -> None:
        """Forget some."""
        for place in forgotten:
            self.known.pop(place, None)

    async def delete(self, _group_id: str) -> None:
        """Forget all."""
        self.known.clear()
        self.is_deleted = True


@dataclass
class Asked:
    """A sink whose target answers, or never does."""

    is_silent: bool = False
    seen: list[Mapping[Place, int | None]] = field(default_factory=list)

    async def check(self, _config: Properties, entries: Mapping[Place, int | None]) -> None:
        """Note what is asked; wait for ever where the target is silent."""
        self.seen.append(dict(entries))
        if self.is_silent:
            await asyncio.Event().wait()


def access(monkeypatch: pytest.MonkeyPatch, group: OneGroup, asked: Asked) -> SinkOffsetAccess:
    """To the group, with topics that have any partition asked for."""

    async def no_remark(*_: object) -> str:
        return ""

    monkeypatch.setattr(module, "ConsumerGroups", group)
    monkeypatch.setattr(SinkOffsetAccess, "_remark", no_remark)
    settings = KafkaSettings(bootstrap="nowhere:1")
    return SinkOffsetAccess(lambda _role, _config: settings, lambda name, _config: f"connect-{name}", asked.check)


def entry(number: int, offset: int | None) -> OffsetEntry:
    """As a request has it."""
    known = None if offset is None else {"kafka_offset": offset}
    return ({"kafka_topic": "t", "kafka_partition": number}, known)


@pytest.mark.looptime
async def test_a_target_that_does_not_answer_is_waited_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than REST waits: whoever asked is told the reason, and nothing is changed."""
    group, asked = OneGroup({("t", 0): 3}), Asked(is_silent=True)
    offsets = access(monkeypatch, group, asked)
    for change in (offsets.alter("s", {}, [entry(0, 1)]), offsets.reset("s", {})):
        begun = asyncio.get_running_loop().time()
        with pytest.raises(BadRequestError, match=r"could not be asked within 60 s how far it is, which decides"):
            await change
        assert asyncio.get_running_loop().time() - begun == pytest.approx(60)
    assert (group.known, group.is_deleted) == ({("t", 0): 3}, False)


async def test_a_group_without_offsets_is_reset_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing that the target could decide; it may be away."""
    group, asked = OneGroup({}), Asked()
    assert await access(monkeypatch, group, asked).reset("s", {})
    assert (group.is_deleted, asked.seen) == (True, [])


async def test_only_offsets_that_change_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash the target may be further than its group: the same offset given back is no step back."""
    group, asked = OneGroup({("t", 0): 3, ("t", 1): 5}), Asked()
    offsets = access(monkeypatch, group, asked)
    await offsets.alter("s", {}, [entry(0, 3), entry(1, 7), entry(2, None), entry(3, 0)])
    assert asked.seen == [{("t", 1): 7, ("t", 3): 0}]
    await offsets.alter("s", {}, [entry(0, 3), entry(1, 7)])
    assert len(asked.seen) == 1
    assert group.known == {("t", 0): 3, ("t", 1): 7, ("t", 3): 0}
    await offsets.alter("s", {}, [entry(0, None)])
    assert asked.seen[1:] == [{("t", 0): None}]
