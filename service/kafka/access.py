"""What the user of a connection may do at a cluster, as its brokers say: nothing is made, changed or tried.

With a topic's metadata brokers name the operations that the one who asks is allowed on it (KIP-430, since Kafka 2.3);
without an authorizer these are all. Of a topic that does not exist they say whether they would make it (KIP-4,
``validate_only``), and who may not look for the coordinator of a group or of a transactional id is told so as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from aiokafka import errors as kafka
from aiokafka.client import CoordinationType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from service.kafka import library
from service.kafka.admin import ADMIN_SECONDS_MAX, REPLICATION_MAX, MissingTopic, connected

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

    from service.kafka.client import KafkaSettings

_NOT_TOLD = -(2**31)
"""In place of operations, from a broker that was not asked for them, or of a topic it tells nothing of."""


class Operation(IntEnum):
    """Numbers of ``org.apache.kafka.common.acl.AclOperation``, as far as they are asked for here."""

    READ = 3
    WRITE = 4


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """A topic as the one who asks sees it."""

    is_there: bool
    """Whether it exists; True too where the user may not know."""
    operations: frozenset[Operation] | None
    """Those that are allowed; None where the broker does not say."""


class _AccessResponse(Response):  # type: ignore[misc]
    """Metadata, version 8; the library knows them up to 5."""

    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            Array(("node_id", Int32), ("host", String("utf-8")), ("port", Int32), ("rack", String("utf-8"))),
        ),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("operations", Int32),
            ),
        ),
        ("cluster_operations", Int32),
    )


class _AccessCall(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _AccessResponse
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
    )


class _AccessRequest(Request[_AccessCall]):  # type: ignore[misc]
    """Which of these topics there are, and what is allowed on them; creates none."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def build(self, request_struct_class: type[_AccessCall]) -> _AccessCall:
        return request_struct_class(self._topics, False, False, True)  # noqa: FBT003 - fields of the protocol


@dataclass(frozen=True, slots=True)
class AccessQuestions:
    """One connection, on which a user asks for itself; use it inside ``opened``."""

    client: AIOKafkaAdminClient

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: KafkaSettings) -> AsyncIterator[AccessQuestions]:
        """Connect for the length of a block; errors inside come out by recovery: DeliveryFatal, DeliveryRetriable."""
        async with connected(settings, doing="asking what this user may do") as client:
            yield cls(client)

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicAccess]:
        """What there is of these topics, by name. Raises NotImplementedError for brokers before 2.3."""
        async with asyncio.timeout(ADMIN_SECONDS_MAX):
            answer = await library.ask(self.client, _AccessRequest(names))
        return {
            name: TopicAccess(
                error_code not in {kafka.UnknownTopicOrPartitionError.errno, kafka.InvalidTopicError.errno},
                frozenset() if error_code == kafka.TopicAuthorizationFailedError.errno else _operations(bits),
            )
            for error_code, name, _, _, bits in answer.topics
        }

    async def refused_creations(self, topics: Sequence[MissingTopic]) -> Mapping[str, str]:
        """Of topics that do not exist, why brokers would not make them; those that they would make are left out."""
        if not topics:
            return {}
        async with asyncio.timeout(ADMIN_SECONDS_MAX):
            brokers = (await self.client.describe_cluster())["brokers"]
            requests = [topic.request(min(REPLICATION_MAX, len(brokers))) for topic in topics]
            answer = await self.client.create_topics(requests, validate_only=True)
        return {
            name: (rest[0] if rest else None) or kafka.for_code(error_code).__name__
            for name, error_code, *rest in answer.topic_errors
            if error_code not in {0, kafka.TopicAlreadyExistsError.errno}
        }

    async def may_transact(self, transactional_id: str) -> bool:
        """Whether producers of this user may have this id, as far as looking for its coordinator tells."""
        return await self._may_look(CoordinationType.TRANSACTION, transactional_id)

    async def may_join(self, group: str) -> bool:
        """Whether consumers of this user may be in this group, as far as looking for its coordinator tells."""
        return await self._may_look(CoordinationType.GROUP, group)

    async def _may_look(self, kind: CoordinationType, key: str) -> bool:
        try:
            async with asyncio.timeout(ADMIN_SECONDS_MAX):
                await library.client_of(self.client).coordinator_lookup(kind, key)
        except (kafka.GroupAuthorizationFailedError, kafka.TransactionalIdAuthorizationFailed):
            return False
        except kafka.GroupCoordinatorNotAvailableError:
            # Of a cluster that has had none yet: its topic is made by the first who looks.
            return True
        return True


def _operations(bits: int) -> frozenset[Operation] | None:
    if bits == _NOT_TOLD:
        return None
    return frozenset(operation for operation in Operation if bits >> operation & 1)
