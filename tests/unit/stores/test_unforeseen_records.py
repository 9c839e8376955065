"""A record that breaks the codec in a way nobody has thought of is passed: it must not end the reading."""

from __future__ import annotations

import pytest

from fetchers.sdk.clock import SystemClock
from metrics.events import Event, StateRecordSkipped
from service.domain.ids import ConnectorId
from service.domain.states import State
from service.stores.config_log import ConfigLog
from service.stores.state_log import MemoryStateLog
from service.stores.statuses import Statuses

STATUS = b'{"state":"RUNNING","trace":null,"worker_id":"h:1","generation":4,"version":"4.1.1"}'


class BrokenKey(bytes):
    """A key on which the codec fails."""

    error: Exception

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raise."""
        del encoding, errors
        raise self.error


def broken_key(error: Exception) -> BrokenKey:
    """A key on which the codec fails in this way."""
    key = BrokenKey(b"broken")
    key.error = error
    return key


ERRORS = [ValueError("its value: secret"), RecursionError("secret")]


@pytest.mark.parametrize("error", ERRORS)
async def test_the_config_log_is_read_on(error: Exception) -> None:
    """The record is told of, without its value, and the next one counts."""
    events: list[Event] = []
    log = MemoryStateLog("configs", records=[(broken_key(error), b"x"), (b"connector-c", b'{"properties":{"v":"1"}}')])
    store = ConfigLog(log, emit=events.append)
    await store.start()
    assert list(store.config.connectors) == ["c"]
    assert store.config.offset == 2
    assert events == [skipped("configs", error)]


@pytest.mark.parametrize("error", ERRORS)
async def test_the_status_log_is_read_on(error: Exception) -> None:
    """As the config log."""
    events: list[Event] = []
    log = MemoryStateLog("statuses", records=[(broken_key(error), b"x"), (b"status-connector-c", STATUS)])
    store = Statuses(log, clock=SystemClock(), emit=events.append)
    await store.start()
    told = store.instance(ConnectorId("c"))
    await store.stop()
    assert told is not None
    assert told.state is State.RUNNING
    assert events == [skipped("statuses", error)]


def skipped(topic: str, error: Exception) -> StateRecordSkipped:
    """What is told of the broken record."""
    return StateRecordSkipped(topic=topic, offset=0, reason=f"reading it ended in {type(error).__name__}")
