"""The memory budget under every order of pages, commits and ends: its accounts, its bound, its fairness."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.domain.ids import TaskId
from service.pipeline.memory import MemoryBudget, MemoryShare

BUDGET = 1_000
TASKS = [TaskId(connector, number) for connector in "abc" for number in range(3)]


@dataclass
class Incarnation:
    """A running task: what it holds, page by page, and its wait for memory."""

    share: MemoryShare
    pages: list[int] = field(default_factory=list)
    last_page: int = 0
    wait: asyncio.Task[None] | None = None

    @property
    def may_ask(self) -> bool:
        """Whether it waits for nothing."""
        return self.wait is None or self.wait.done()


class BudgetMachine(RuleBasedStateMachine):
    """Tasks fetch whenever they may, commit in any order, and end at any time."""

    def __init__(self) -> None:
        """Nothing runs."""
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.budget = MemoryBudget(BUDGET)
        self.running: dict[TaskId, Incarnation] = {}

    @rule(task=st.sampled_from(TASKS), size=st.integers(1, 400))
    def fetch(self, task: TaskId, size: int) -> None:
        """A page comes if the task was let to ask for one, however long ago; then it waits, as the fetch stage does."""
        incarnation = self.running.setdefault(task, Incarnation(self.budget.share(task)))
        if not incarnation.may_ask:
            return
        incarnation.share.add(size)
        incarnation.pages.append(size)
        incarnation.last_page = size
        incarnation.wait = self.loop.create_task(incarnation.share.wait_for_room())
        self._settle()

    @precondition(lambda self: any(each.pages for each in self.running.values()))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """The oldest page of a task is given back."""
        task = data.draw(st.sampled_from([task for task, each in self.running.items() if each.pages]))
        incarnation = self.running[task]
        incarnation.share.add(-incarnation.pages.pop(0))
        self._settle()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """With everything it holds, even while it waits."""
        incarnation = self.running.pop(data.draw(st.sampled_from(list(self.running))))
        if incarnation.wait is not None:
            incarnation.wait.cancel()
        self._settle()
        with incarnation.share:
            pass
        self._settle()

    @invariant()
    def accounts_are_true(self) -> None:
        """The whole is the sum of what all hold."""
        assert all(each.share.bytes_held == sum(each.pages) for each in self.running.values())
        assert self.budget.bytes_held == sum(each.share.bytes_held for each in self.running.values())

    @invariant()
    def no_more_is_held_than_the_budget_and_a_page_of_each(self) -> None:
        """The last page of each may have come when the budget was nearly full, or as its only one."""
        assert self.budget.bytes_held <= BUDGET + sum(each.last_page for each in self.running.values())

    @invariant()
    def nobody_waits_for_room_that_is_there(self) -> None:
        """And a task that holds nothing always has room."""
        for each in self.running.values():
            assert each.may_ask or not each.share.has_room
            assert each.pages or each.may_ask

    @invariant()
    def who_holds_more_is_not_served_first(self) -> None:
        """Where one may ask, so may each that holds no more, of a connector that holds no more."""
        held = {
            connector: sum(each.share.bytes_held for task, each in self.running.items() if task.connector == connector)
            for connector in "abc"
        }
        for task, each in self.running.items():
            for other, less in self.running.items():
                is_less = less.share.bytes_held <= each.share.bytes_held
                if each.pages and is_less and held[other.connector] <= held[task.connector] and each.share.has_room:
                    assert less.share.has_room

    def teardown(self) -> None:
        """End who still waits."""
        for each in self.running.values():
            if each.wait is not None:
                each.wait.cancel()
        self._settle()
        self.loop.close()

    def _settle(self) -> None:
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))


TestBudgetMachine = BudgetMachine.TestCase
TestBudgetMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
