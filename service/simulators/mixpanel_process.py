"""The simulator in a process of its own, so that its work is not measured as the fetcher's.

The child ends with its parent: it watches a pipe whose other end dies with the parent, however that dies.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from service.simulators.mixpanel import MixpanelSimulator
from service.simulators.mixpanel_ledger import Truth
from service.simulators.mixpanel_settings import MixpanelSettings

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 10.0


class SimulatorProcessError(RuntimeError):
    """The child did not answer in time."""


@dataclass(frozen=True, slots=True)
class RunningSimulator:
    """A simulator in another process."""

    url: str
    _pipe: Connection

    def truth(self) -> Truth:
        """What must have come out by now."""
        self._pipe.send("truth")
        answer = _received(self._pipe)
        if not isinstance(answer, Truth):
            raise SimulatorProcessError("the simulator's process sent something else than its accounts")
        return answer


@contextmanager
def simulator_process(
    settings: MixpanelSettings, *, port: int = 0, is_prepared: bool = False
) -> Iterator[RunningSimulator]:
    """Run a simulator; with ``is_prepared`` every day is rendered before the block begins. Blocks while it starts."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(settings, port, is_prepared, theirs), name="mixpanel-simulator")
    process.start()
    theirs.close()
    try:
        yield RunningSimulator(str(_received(ours)), ours)
    finally:
        ours.close()
        process.join(STOP_SECONDS_MAX)
        if process.is_alive():
            process.kill()
            process.join()


def _received(pipe: Connection) -> object:
    try:
        if pipe.poll(START_SECONDS_MAX):
            return pipe.recv()
    except EOFError as error:
        raise SimulatorProcessError("the simulator's process ended") from error
    raise SimulatorProcessError("the simulator's process does not answer")


def _serve(settings: MixpanelSettings, port: int, is_prepared: bool, pipe: Connection) -> None:  # noqa: FBT001 - sent over spawn
    asyncio.run(_serve_until_closed(settings, port, pipe, is_prepared=is_prepared))


async def _serve_until_closed(settings: MixpanelSettings, port: int, pipe: Connection, *, is_prepared: bool) -> None:
    async with MixpanelSimulator(settings, port=port) as simulator:
        if is_prepared:
            await simulator.prepare()
        pipe.send(simulator.url)
        while await asyncio.to_thread(_asked, pipe):
            pipe.send(simulator.truth())


def _asked(pipe: Connection) -> bool:
    """Wait for a question; False when the parent is gone."""
    try:
        pipe.recv()
    except (EOFError, ConnectionResetError):
        return False
    return True
