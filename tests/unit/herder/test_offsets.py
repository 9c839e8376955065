"""Requests about offsets: who may, when, and what may stand in them."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.states import TargetState
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError, ConflictError, ElsewhereError, NotFoundError, RequestError
from service.herder.offsets import sink_entries, source_entries
from service.kafka.errors import DeliveryRetriable
from tests.unit.herder.world import ME, OTHER, SINK, SOURCE, HerderWorld

ENTRY: OffsetEntry = ({"filename": "/in"}, {"position": 3})


@pytest.mark.looptime
async def test_offsets_are_those_of_the_kind_of_connector() -> None:
    """A source's from its topic, a sink's from its group; unknown connectors have none."""
    async with HerderWorld().started() as world:
        herder = world.herder
        world.offsets.known["c"] = [ENTRY]
        world.sink_offsets.known["s"] = [({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 1})]
        await herder.changes.create("c", SOURCE, None)
        await herder.changes.create("s", SINK, None)
        assert await herder.offsets.read("c") == [ENTRY]
        assert await herder.offsets.read("s") == world.sink_offsets.known["s"]
        with pytest.raises(NotFoundError, match="Connector x not found"):
            await herder.offsets.read("x")
        world.offsets.failure = DeliveryRetriable("away")
        with pytest.raises(RequestError, match="away") as failed:
            await herder.offsets.read("c")
        assert failed.value.status == 500


@pytest.mark.looptime
@pytest.mark.parametrize("state", [TargetState.STARTED, TargetState.PAUSED])
async def test_only_offsets_of_a_stopped_connector_are_changed(state: TargetState) -> None:
    """PAUSED is not enough: its tasks may come back with what they remember."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, state)
        await world.settled()
        text = (
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            "specified connector by issuing a 'PUT' request to the '/connectors/c/stop' endpoint"
        )
        for change in (herder.offsets.alter("c", [ENTRY]), herder.offsets.reset("c")):
            with pytest.raises(BadRequestError) as refused:
                await change
            assert str(refused.value) == text
        assert world.offsets.altered == []


@pytest.mark.looptime
@pytest.mark.parametrize("is_whole", [True, False])
async def test_success_says_whether_the_connector_took_part(*, is_whole: bool) -> None:
    """Else offsets that it keeps elsewhere are to be changed there."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, TargetState.STOPPED)
        world.offsets.is_whole = is_whole
        altered, reset = await herder.offsets.alter("c", [ENTRY]), await herder.offsets.reset("c")
        assert world.offsets.altered == [ENTRY]
        assert await herder.offsets.read("c") == []
        if is_whole:
            assert altered == "The offsets for this connector have been altered successfully"
            assert reset == "The offsets for this connector have been reset successfully"
        else:
            assert altered == (
                "The Connect framework-managed offsets for this connector have been altered successfully. However, if "
                "this connector manages offsets externally, they will need to be manually altered in the system that "
                "the connector uses."
            )
            assert reset == altered.replace("altered", "reset")


@pytest.mark.looptime
async def test_changes_are_the_leaders_and_wait_for_a_rebalance() -> None:
    """An empty request is wrong wherever it goes; an unknown connector is the leader's to say."""
    async with HerderWorld().started() as world:
        herder = world.herder
        with pytest.raises(BadRequestError, match="Partitions / offsets need to be provided"):
            await herder.offsets.alter("x", [])
        with pytest.raises(NotFoundError, match="Connector x not found"):
            await herder.offsets.reset("x")
        world.membership.become(OTHER, ME)
        with pytest.raises(ElsewhereError):
            await herder.offsets.reset("x")
        world.membership.is_rebalancing = True
        with pytest.raises(ConflictError):
            await herder.offsets.alter("x", [ENTRY])


@pytest.mark.parametrize("value", [None, "text", True, 3, 2**62, 1.5])
def test_source_offsets_are_flat_maps_of_primitive_values(value: object) -> None:
    """Any of them."""
    assert source_entries([({"a": value}, {"b": value})]) == [({"a": value}, {"b": value})]


@pytest.mark.parametrize(("value", "shown"), [([1], "ARRAY"), ({"a": 1}, "MAP")])
def test_nested_source_offsets_are_refused(value: object, shown: str) -> None:
    """In the partition or in the offset; the text names the field."""
    text = f"Offsets may only contain primitive types as values, but field a contains {shown}"
    entries: tuple[OffsetEntry, ...] = (({"a": value}, None), ({}, {"a": value}))
    for entry in entries:
        with pytest.raises(BadRequestError) as refused:
            source_entries([entry])
        assert str(refused.value) == text


def test_a_source_entry_without_a_partition_means_the_empty_one() -> None:
    """As in Connect, where ``[{}]`` is accepted."""
    assert source_entries([(None, None)]) == [({}, None)]
    with pytest.raises(BadRequestError, match="Partition objects cannot be null"):
        source_entries([(None, {"position": 1})])


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        (None, None, "The partition for a sink connector offset cannot be null or missing"),
        (
            {"kafka_topic": "t"},
            None,
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'",
        ),
        (
            {"kafka_topic": None, "kafka_partition": 1},
            None,
            "Kafka topic names must be valid strings and may not be null",
        ),
        (
            {"kafka_topic": "t", "kafka_partition": None},
            None,
            "Kafka partitions must be valid numbers and may not be null",
        ),
        (
            {"kafka_topic": "t", "kafka_partition": "x"},
            None,
            (
                "Failed to parse the following Kafka partition value in the provided offsets: 'x'. "
                "Partition values for sink connectors need to be integers."
            ),
        ),
        (
            {"kafka_topic": "t", "kafka_partition": 1},
            {"offset": 1},
            "The offset for a sink connector should either be null or contain the key 'kafka_offset'",
        ),
        *(
            (
                {"kafka_topic": "t", "kafka_partition": 1},
                {"kafka_offset": value},
                (
                    f"Failed to parse the following Kafka offset value in the provided offsets: '{shown}'. "
                    "Offset values for sink connectors need to be integers."
                ),
            )
            for value, shown in (("x", "x"), (None, "null"), (1.5, "1.5"), (True, "true"), (-1, "-1"), (2**63, 2**63))
        ),
    ],
)
def test_wrong_sink_offsets_are_refused_with_connects_texts(
    partition: dict[str, Any] | None, offset: dict[str, Any] | None, text: str
) -> None:
    """One row of the table each."""
    with pytest.raises(BadRequestError) as refused:
        sink_entries([(partition, offset)])
    assert str(refused.value) == text


def test_numbers_of_sinks_may_be_text() -> None:
    """The last entry of a partition counts."""
    entries: list[OffsetEntry] = [
        ({"kafka_topic": "t", "kafka_partition": "1"}, {"kafka_offset": "10"}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 5}),
        ({"kafka_topic": "t", "kafka_partition": 0}, None),
    ]
    assert sink_entries(entries) == {("t", 1): 10, ("t", 0): None}
