"""Committed offsets of consumer groups, read and changed from outside the group: what sinks have instead of a topic."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka import errors as kafka
from aiokafka.protocol.admin import DeleteGroupsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String

from service.kafka.admin import ADMIN_SECONDS_MAX, connected
from service.kafka.coordinators import Coordinators
from service.kafka.errors import DeliveryFatal, GroupHasMembers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from aiokafka.admin import AIOKafkaAdminClient

    from service.kafka.client import KafkaSettings

TopicPartition: TypeAlias = tuple[str, int]


class _GroupSubscribed(kafka.BrokerResponseError):  # type: ignore[misc]
    """The broker deletes no offsets of topics that members of the group read (KIP-496)."""

    errno = 86
    message = "GROUP_SUBSCRIBED_TO_TOPIC"
    description = "Members of the group read the topic."


kafka.kafka_errors.setdefault(_GroupSubscribed.errno, _GroupSubscribed)

_HAS_MEMBERS = (
    kafka.UnknownMemberIdError,
    kafka.IllegalGenerationError,
    kafka.RebalanceInProgressError,
    kafka.NonEmptyGroup,
    kafka.for_code(_GroupSubscribed.errno),
)


class _OffsetDeleteResponse(Response):  # type: ignore[misc]
    """The client library does not have this call; its format is Kafka's, version 0."""

    API_KEY = 47
    API_VERSION = 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("throttle_time_ms", Int32),
        ("topics", Array(("name", String()), ("partitions", Array(("partition", Int32), ("error_code", Int16))))),
    )


class _OffsetDeleteCall(RequestStruct):  # type: ignore[misc]
    API_KEY = 47
    API_VERSION = 0
    RESPONSE_TYPE = _OffsetDeleteResponse
    SCHEMA = Schema(
        ("group_id", String()),
        ("topics", Array(("name", String()), ("partitions", Array(Int32)))),
    )


class _OffsetDeleteRequest(Request[_OffsetDeleteCall]):  # type: ignore[misc]
    API_KEY = 47

    def __init__(self, group_id: str, topics: list[tuple[str, list[int]]]) -> None:
        self._fields = (group_id, topics)

    def build(self, request_struct_class: type[_OffsetDeleteCall]) -> _OffsetDeleteCall:
        return request_struct_class(*self._fields)


class ConsumerGroups:
    """One connection for questions and changes about groups; use it inside `opened`."""

    def __init__(self, client: AIOKafkaAdminClient) -> None:
        """Ask over a client that is started already; `opened` starts one."""
        self._coordinators = Coordinators(client)

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: KafkaSettings) -> AsyncIterator[ConsumerGroups]:
        """Connect for the length of a block. Raises DeliveryFatal, DeliveryRetriable, GroupHasMembers."""
        async with connected(settings, doing="administering consumer groups") as client:
            yield cls(client)

    async def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Committed offset of each partition; nothing for a group that does not exist."""
        answer = await self._ask(
            group_id,
            OffsetFetchRequest(group_id, None),
            errors_of=lambda answer: [answer.error_code, *_errors(answer.topics)],
        )
        return {
            (topic, partition): offset
            for topic, partitions in answer.topics
            for partition, offset, *_ in partitions
            if offset >= 0
        }

    async def alter(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets in the group's name; others stay.

        Raises GroupHasMembers while somebody reads as this group, DeliveryFatal for a topic that does not exist.
        """
        topics = [
            (topic, [(partition, offsets[topic, partition], "") for partition in partitions])
            for topic, partitions in _by_topic(offsets).items()
        ]
        if topics:
            await self._ask(
                group_id,
                OffsetCommitRequest(group_id, -1, "", -1, topics),
                errors_of=lambda answer: _errors(answer.topics),
            )

    async def forget(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Remove the committed offsets of these partitions, where there are any. Raises GroupHasMembers."""
        topics = list(_by_topic(partitions).items())
        if not topics:
            return
        with suppress(kafka.GroupIdNotFound):
            await self._ask(
                group_id,
                _OffsetDeleteRequest(group_id, topics),
                errors_of=lambda answer: [answer.error_code, *_errors(answer.topics)],
            )

    async def delete(self, group_id: str) -> None:
        """Remove the group with all its offsets, if there is one. Raises GroupHasMembers."""
        with suppress(kafka.GroupIdNotFound):
            await self._ask(
                group_id,
                DeleteGroupsRequest([group_id]),
                errors_of=lambda answer: [code for _, code in answer.results],
            )

    async def _ask(self, group_id: str, request: Any, **asked: Any) -> Any:
        try:
            async with asyncio.timeout(ADMIN_SECONDS_MAX):
                return await self._coordinators.ask(group_id, request, **asked)
        except kafka.UnknownTopicOrPartitionError as error:
            raise DeliveryFatal(f"consumer group '{group_id}': a topic or partition does not exist") from error
        except _HAS_MEMBERS as error:
            raise GroupHasMembers(f"consumer group '{group_id}' has members") from error


def _errors(topics: Iterable[tuple[str, Iterable[tuple[int, ...]]]]) -> list[int]:
    """Error codes of partitions: the last field of each."""
    return [partition[-1] for _, partitions in topics for partition in partitions]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics
