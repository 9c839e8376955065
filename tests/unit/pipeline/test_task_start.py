"""In which order an incarnation of a task begins, and when it does not."""

from __future__ import annotations

import pytest

from service.domain.errors import Recovery, TaskSupersededError, recovery_of
from tests.unit.pipeline.fake_kafka import FakeKafka
from tests.unit.pipeline.fakes import World, fail, numbers, payloads, running, wait_until

pytestmark = pytest.mark.looptime


async def test_the_writer_starts_before_the_offsets_are_read() -> None:
    """Otherwise a zombie could commit between the reading and the fencing (KIP-618)."""
    places: list[str] = []

    async def turn(place: str) -> None:
        places.append(place)

    world = World(FakeKafka(turn=turn), has_dedupe=True)
    task = world.task(numbers(payloads(2)))
    async with running(task):
        await wait_until(lambda: bool(world.kafka.transactions))
    assert places[:5] == ["confirm", "writer.start", "confirm", "offsets.read", "dedupe.load"]


@pytest.mark.parametrize("wanted_for", [0, 1])
async def test_a_zombie_that_starts_again_delivers_nothing(wanted_for: int) -> None:
    """Its work may be another task's by now, whom its start does not fence; and it fences nobody if it knows before."""
    places: list[str] = []

    async def turn(place: str) -> None:
        if place == "confirm" and places.count("confirm") == wanted_for:
            raise TaskSupersededError("newer configs")
        places.append(place)

    world, source = World(FakeKafka(turn=turn)), numbers(payloads(2))
    error = await fail(world.task(source))
    assert recovery_of(error) is Recovery.SUPERSEDED
    assert places == ["confirm", "writer.start"] * wanted_for
    assert source.opened == 0
    assert not any(writer.is_usable for writer in world.writers)
