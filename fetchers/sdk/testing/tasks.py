"""Finds asyncio tasks that somebody has left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any


class TaskFamily:
    """A task, and every task that it or its descendants have started."""

    def __init__(self) -> None:
        self._members: set[asyncio.Task[Any]] = set()

    def found(self, task: asyncio.Task[Any]) -> None:
        """Make this task the first of the family, or one more of it."""
        self._members.add(task)

    def is_relative(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this task belongs to the family."""
        return task in self._members

    @property
    def alive(self) -> tuple[asyncio.Task[Any], ...]:
        """Members that have not ended."""
        return tuple(task for task in self._members if not task.done())


@contextmanager
def watched_family() -> Iterator[TaskFamily]:
    """Watch the tasks of the running loop; servers on the same loop do not belong to the family."""
    family = TaskFamily()
    loop = asyncio.get_running_loop()

    def make(
        on_loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **extras: Any,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=on_loop, **extras)
        if family.is_relative(asyncio.current_task(on_loop)):
            family.found(task)
        return task

    before = loop.get_task_factory()
    loop.set_task_factory(make)
    try:
        yield family
    finally:
        loop.set_task_factory(before)
