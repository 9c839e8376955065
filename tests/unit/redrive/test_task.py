"""The connector's other tasks while its letters are redriven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from service.kafka.errors import DeliveryRetriable
from service.redrive.task import FencedTasks, Producer


@dataclass(slots=True)
class FakeCoordinator:
    """Counts the epochs of the producers of tasks, as KIP-98 has it: each initialisation gives the next."""

    epochs: dict[int, int] = field(default_factory=lambda: {1: 7, 2: 0})

    async def initialise(self, tasks: Sequence[int]) -> Mapping[int, Producer]:
        """Fence what these tasks have, by id and epoch of a producer."""
        for task in tasks:
            self.epochs[task] += 1
        return {task: (1000 + task, self.epochs[task]) for task in tasks}


async def test_tasks_that_stay_fenced_let_every_commit_pass() -> None:
    """Whatever epochs they had before."""
    others = FencedTasks(FakeCoordinator().initialise)
    await others.fence([1, 2])
    for _ in range(3):
        await others.confirm()


async def test_a_task_that_was_started_meanwhile_ends_the_commit_and_is_fenced() -> None:
    """It may have read what is remembered before the redrive's records: both would write the same chunks."""
    coordinator = FakeCoordinator()
    others = FencedTasks(coordinator.initialise)
    await others.fence([1, 2])
    await others.confirm()
    started = (await coordinator.initialise([2]))[2]
    with pytest.raises(DeliveryRetriable, match="task 2 of the connector was started during the redrive"):
        await others.confirm()
    assert coordinator.epochs[2] > started[1]


async def test_without_other_tasks_nobody_is_asked() -> None:
    """The first task's place is taken by the redrive's own writer."""
    others = FencedTasks(FakeCoordinator(epochs={}).initialise)
    await others.fence([])
    await others.confirm()
