"""Each key that bounds a task's flow reaches the setting it is about, and no other."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pytest

from fetchers.sdk import SystemClock
from service.config.definition import ConnectorDefinition, read_definition
from service.domain.ids import TaskId
from service.kafka.client import KafkaSettings
from service.pipeline.batching import BatchLimits
from service.pipeline.memory import MemoryBudget
from service.pipeline.queue import QueueLimits
from service.pipeline.task import FlowParts, FlowSettings
from service.stores.dedupe_store import DedupeStore, StoredDedupe
from service.worker.connectors import ConnectorParts, flow_settings, make_source_task
from service.worker.lending import DedupeStates

SOURCE = {"name": "c", "connector.class": "HttpSource", "topic": "t", "http.url": "http://api"}
WORKER = {"key.converter": "string", "value.converter": "json"}
PLACES = {
    "queue.records.max": ("queue.records_max", 7),
    "queue.bytes.max": ("queue.bytes_max", 7),
    "batch.records.max": ("batch.records_max", 7),
    "batch.bytes.max": ("batch.bytes_max", 7),
    "batch.age.ms.max": ("batch.age_seconds_max", 0.007),
    "batch.conversions.max": ("conversions_max", 7),
    "source.transaction.bytes.max": ("batch.transaction_bytes_max", 7),
}


def defined(**keys: str) -> ConnectorDefinition:
    """A connector with these keys, dots written as underscores."""
    own = {key.replace("_", "."): value for key, value in keys.items()}
    definition = read_definition(SOURCE | own, worker=WORKER).definition
    assert definition is not None
    return definition


def bounds(definition: ConnectorDefinition) -> dict[str, float]:
    """All settings in the table, as the task gets them."""
    settings: FlowSettings = flow_settings(definition, definition.plan(None))
    return {place: attrgetter(place)(settings) for place, _ in PLACES.values()}


@pytest.mark.parametrize("key", PLACES)
def test_a_key_changes_its_own_bound_and_no_other(key: str) -> None:
    """In the unit of the setting."""
    place, value = PLACES[key]
    assert bounds(defined(**{key: "7"})) == bounds(defined()) | {place: value}


def test_the_table_has_every_bound_of_queue_and_micro_batches() -> None:
    """A new one needs a line."""
    for name, limits in (("queue", QueueLimits), ("batch", BatchLimits)):
        own = {field for field in limits.__dataclass_fields__ if not field.startswith("is_")}
        assert {f"{name}.{field}" for field in own} <= {place for place, _ in PLACES.values()}


@pytest.mark.parametrize(("overflow", "is_split"), [("split", True), ("fail", False)])
def test_what_is_done_about_a_large_transaction_is_declared(overflow: str, *, is_split: bool) -> None:
    """Split unless the config says otherwise."""
    config = defined(source_transaction_overflow=overflow)
    assert flow_settings(config, config.plan(None)).batch.is_transaction_split is is_split
    assert flow_settings(defined(), defined().plan(None)).batch.is_transaction_split


class Lent:
    """Topics that are there, and offsets in one topic."""

    topics = frozenset({"offsets"})

    async def ensure(self, _: ConnectorDefinition) -> None:
        """Nothing is missing."""

    def of(self, _: str | None) -> Lent:
        """The same for every connector."""
        return self


async def test_the_memory_of_de_duplication_is_as_large_as_the_key_says(tmp_path: Path) -> None:
    """``dedupe.records.max``."""
    dedupe = DedupeStates(DedupeStore(KafkaSettings(bootstrap="nowhere:1"), "dedupe"), tmp_path)
    definition = defined(dedupe_records_max="7", dedupe_fields="a")
    unused = cast("Any", None)
    lent = cast("Any", Lent())
    flow = FlowParts(lent, unused, unused, MemoryBudget(2**30), SystemClock(), lambda _event: None, unused)
    parts = ConnectorParts(flow, lent, unused, dedupe, unused, lent, unused)
    task = await make_source_task(
        TaskId("c", 0), definition, parts, connector=definition.for_task({}), plan=definition.plan(None)
    )
    state = task.open_dedupe()
    assert isinstance(state, StoredDedupe)
    assert state.index.limits.records_max == 7
