"""Writers who wait for each other travel together, in order; an error or a cancellation loses nobody's write."""

from __future__ import annotations

import asyncio

import pytest

from service.kafka.together import CommitTogether


class Commits:
    """Takes a second of virtual time for each commit; those with a "bad" item fail."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        self.written: list[list[str]] = []

    async def __call__(self, items: list[str]) -> None:
        """All or none."""
        await asyncio.sleep(1)
        if "bad" in items:
            raise OSError("refused")
        self.written.append(items)


@pytest.mark.looptime
async def test_who_waits_travels_with_the_next_commit() -> None:
    """A hundred writers need two commits, in the order in which they came."""
    commits = Commits()
    together = CommitTogether(commits)
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(together.write([f"{number}", "x"]))
    assert commits.written == [["0", "x"], [item for number in range(1, 100) for item in (f"{number}", "x")]]


@pytest.mark.looptime
async def test_an_error_is_told_to_all_who_travelled_in_it() -> None:
    """And to nobody else."""
    commits = Commits()
    together = CommitTogether(commits)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_outcome(together, "first"))
        await asyncio.sleep(0.5)
        failing = [group.create_task(_outcome(together, item)) for item in ("bad", "good")]
        await asyncio.sleep(1)
        later = group.create_task(_outcome(together, "later"))
    assert [task.result() for task in (first, *failing, later)] == ["", "refused", "refused", ""]
    assert commits.written == [["first"], ["later"]]


@pytest.mark.looptime
async def test_who_is_cancelled_takes_nobody_along() -> None:
    """A carrier leaves the others to the next; who only waits leaves alone."""
    commits = Commits()
    together = CommitTogether(commits)
    async with asyncio.TaskGroup() as group:
        carrier, waiting, other = (
            group.create_task(together.write([name])) for name in ("carrier", "waiting", "other")
        )
        await asyncio.sleep(0.5)
        carrier.cancel()
        waiting.cancel()
        await asyncio.sleep(0.1)
        last = group.create_task(together.write(["last"]))
    assert (carrier.cancelled(), waiting.cancelled()) == (True, True)
    assert (other.result(), last.result()) == (None, None)
    assert commits.written == [["other"], ["last"]]


async def _outcome(together: CommitTogether[str], item: str) -> str:
    try:
        await together.write([item])
    except OSError as error:
        return str(error)
    return ""
