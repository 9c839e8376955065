"""What a deleted source is told of the connectors that are left."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, cast

from fetchers.sdk import FetchContext, FetcherConfig, Key, Page, Secret, SourceConnector, SystemClock
from service.config.providers import ConfigProviders
from service.pipeline.memory import MemoryBudget
from service.pipeline.task import FlowParts
from service.worker.deleted_sources import DeletedSourceCalls


class LeavingConfig(FetcherConfig):
    """Of a source that leaves something."""

    slot_name: Annotated[str, Key()] = ""
    """What it leaves."""
    slot_password: Annotated[Secret | None, Key()] = None
    """A secret."""


class Leaving(SourceConnector[LeavingConfig]):
    """Keeps what it is told when it is deleted."""

    told: ClassVar[list[Mapping[str, str]]] = []

    async def on_deleted(self, context: FetchContext, others: Sequence[Mapping[str, str]]) -> bool:
        """Nothing is left."""
        del context
        self.told[:] = others
        return True

    async def fetch(self, context: FetchContext) -> AsyncGenerator[Page, None]:
        """Nothing."""
        del context
        if False:
            yield


OWN = f"{__name__}:Leaving"
WORKER = {"key.converter": "string", "value.converter": "json"}


def config(name: str, **keys: str) -> dict[str, str]:
    """A connector's config as it is written."""
    written = {key.replace("_", "."): value for key, value in keys.items()}
    return {"name": name, "connector.class": OWN, "topic": "t", "tasks.max": "1", **written}


async def told_of(*others: dict[str, str]) -> list[Mapping[str, str]]:
    """What a source hears of the others."""
    providers, findings = ConfigProviders.parse({}, environ={"SLOT": "shop", "WORD": "pa55-of-another"})
    assert not findings
    unused = cast("Any", None)
    http = cast("Any", SimpleNamespace(for_task=lambda _: None))
    flow = FlowParts(unused, unused, http, MemoryBudget(2**30), SystemClock(), lambda _event: None, unused)
    calls = DeletedSourceCalls(flow, WORKER, providers.resolve)
    assert await calls.take_away(config("gone", slot_name="${env:SLOT}"), [], others)
    return Leaving.told


async def test_others_of_its_class_have_values_for_their_variables() -> None:
    """Two ways of writing one slot are one slot; passwords are nobody's matter."""
    other = config("twin", slot_name="${env:SLOT}", slot_password="${env:WORD}")
    (told,) = await told_of(other)
    assert (told["name"], told["slot.name"]) == ("twin", "shop")
    assert "pa55" not in str(told)
    assert "slot.password" not in told


async def test_a_variable_without_a_value_stays_as_it_is_written() -> None:
    """And configs of other classes, whose secrets are not for this one."""
    unknown = config("far", slot_name="${vault:slots:shop}")
    sink = config("sink", slot_name="${env:SLOT}") | {"connector.class": "FileSink"}
    told = await told_of(unknown, sink)
    assert [one["slot.name"] for one in told] == ["${vault:slots:shop}", "${env:SLOT}"]
