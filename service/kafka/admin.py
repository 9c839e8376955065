"""Topics: make those that are missing, look at those that are there, never change them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka import errors as kafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from service.kafka import library
from service.kafka.client import TRANSACTION_SECONDS_MAX
from service.kafka.closing import close_admin
from service.kafka.coordinators import Coordinators
from service.kafka.errors import CLIENT_ERRORS, DeliveryFatal, DeliveryRetriable, KafkaFailure, classify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from service.kafka.client import KafkaSettings

ADMIN_SECONDS_MAX = 30.0
LEADERS_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 5.0
BROKER_DEFAULT = -1
REPLICATION_MAX = 3
_POLL_SECONDS = 0.1
_QUOTED_LETTERS_MAX = 250
"""As long as a legal name; what is none may be of any length."""


@dataclass(frozen=True)
class MissingTopic:
    """A topic as it is made if it does not exist."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication: int | None = None
    """None = one copy a broker, three at most; -1 = the broker's default."""
    config: Mapping[str, str] = field(default_factory=dict)

    def request(self, replication: int) -> NewTopic:
        """As the client wants it."""
        topic = NewTopic(self.name, 1, 1, topic_configs=dict(self.config))
        # Set afterwards, because the class takes -1, the protocol's "the broker's default" (KIP-464), for nothing.
        topic.num_partitions = self.partitions
        topic.replication_factor = replication if self.replication is None else self.replication
        return topic

    def demand_sayable(self) -> None:
        """Raise DeliveryFatal where no request can carry it: it would spoil one that carries others as well."""
        try:
            library.demand_encodable(self.request(1))
        except ValueError as error:
            raise DeliveryFatal(
                f"topic {self.name[:_QUOTED_LETTERS_MAX]!a} cannot be created: Kafka's protocol cannot say its name, "
                f"its numbers or its settings: {str(error)[:_QUOTED_LETTERS_MAX]!a}"
            ) from error


@asynccontextmanager
async def connected(settings: KafkaSettings, *, doing: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A client of the administration; errors inside come out by recovery, `doing` completes "while …"."""
    try:
        client = AIOKafkaAdminClient(**settings.connection_arguments())
        library.mend_bootstrap(library.client_of(client))
        try:
            async with asyncio.timeout(ADMIN_SECONDS_MAX):
                await client.start()
            yield client
        finally:
            await close_admin(client, seconds_max=CLOSE_SECONDS_MAX)
    except CLIENT_ERRORS as error:
        raise classify(error, doing=doing) from error


class KafkaAdmin:
    """One connection for questions and changes about topics; use it inside `opened`."""

    def __init__(self, client: AIOKafkaAdminClient) -> None:
        """Wrap a started client."""
        self._client = client

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: KafkaSettings) -> AsyncIterator[KafkaAdmin]:
        """Connect for the length of a block; errors inside come out by recovery.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        async with connected(settings, doing="administering topics") as client:
            yield cls(client)

    async def ensure_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic unless it exists, see `ensure_topics`; True = created.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        topic = MissingTopic(name, partitions, replication, config or {})
        topic.demand_sayable()
        outcomes = await self.ensure_topics([topic])
        failure = outcomes.get(name)
        if failure is not None:
            raise failure
        return name in outcomes

    async def ensure_topics(self, wanted: Iterable[MissingTopic]) -> Mapping[str, KafkaFailure | None]:
        """Create those that do not exist, in one request, and wait until all partitions have leaders.

        Topics that exist are never changed, nor waited for where a partition has no leader: some of their records may
        still be written. Gives what became of the others: None = created, else what went wrong, which may be that one
        has partitions without leaders. Raises DeliveryFatal, DeliveryRetriable for what concerns all.
        """
        outcomes: dict[str, KafkaFailure | None] = {}
        async with asyncio.timeout(ADMIN_SECONDS_MAX):
            wanted = list(wanted)
            there = {
                topic["topic"] for topic in await self._described([each.name for each in wanted]) if _exists(topic)
            }
            missing = [topic for topic in wanted if topic.name not in there]
            if not missing:
                return outcomes
            # A cluster that has just started may not have counted its brokers yet.
            while not (brokers := await self.brokers()):
                await asyncio.sleep(_POLL_SECONDS)
            replication = min(REPLICATION_MAX, len(brokers))
            response = await self._client.create_topics([topic.request(replication) for topic in missing])
            for name, error_code, *rest in response.topic_errors:
                if error_code != kafka.TopicAlreadyExistsError.errno:
                    outcomes[name] = _failure(
                        error_code, rest[0] if rest else None, about=f"topic '{name}' cannot be created"
                    )
            leaderless = await self._leaderless({topic.name for topic in missing if outcomes.get(topic.name) is None})
        return outcomes | {name: _without_leaders(name) for name in leaderless}

    async def brokers(self) -> list[int]:
        """Ids of the live brokers."""
        async with asyncio.timeout(ADMIN_SECONDS_MAX):
            cluster = await self._client.describe_cluster()
        return [broker["node_id"] for broker in cluster["brokers"]]

    async def cluster_id(self) -> str | None:
        """Name that the cluster gave itself; None from brokers that do not tell."""
        async with asyncio.timeout(ADMIN_SECONDS_MAX):
            cluster = await self._client.describe_cluster()
        cluster_id: str | None = cluster.get("cluster_id")
        return cluster_id

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """End what producers with these ids have open, and bar them from writing; on return it is done.

        Gives the producer id and epoch of each transactional id from now on: fenced again, it has the next epoch,
        unless somebody else has initialised a producer with it meanwhile.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        coordinators, initialised = Coordinators(self._client), {}
        for transactional_id in transactional_ids:
            async with asyncio.timeout(ADMIN_SECONDS_MAX):
                answer = await coordinators.ask(
                    transactional_id,
                    InitProducerIdRequest(transactional_id, round(TRANSACTION_SECONDS_MAX * 1000)),
                    errors_of=lambda answer: [answer.error_code],
                    is_transactional=True,
                )
            initialised[transactional_id] = (int(answer.producer_id), int(answer.producer_epoch))
        return initialised

    async def topics(self) -> list[str]:
        """Names of all topics that this user may see."""
        async with asyncio.timeout(ADMIN_SECONDS_MAX):
            names: list[str] = await self._client.list_topics()
        return names

    async def partition_count(self, name: str) -> int:
        """How many partitions a topic has; 0 = it does not exist, or not all have leaders yet."""
        async with asyncio.timeout(ADMIN_SECONDS_MAX):
            [described] = await self._described([name])
            return len(described["partitions"]) if _has_leaders(described) else 0

    async def topic_config(self, name: str) -> dict[str, str | None]:
        """Effective settings of a topic.

        Raises DeliveryFatal when it may not be described; DeliveryRetriable when the broker does not know it, for that
        broker may only lag behind another that has made it.
        """
        async with asyncio.timeout(ADMIN_SECONDS_MAX):
            responses = await self._client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        error_code, text, _, _, entries = responses[0].resources[0]
        failure = _failure(error_code, text, about=f"settings of topic '{name}' cannot be read")
        if failure is not None:
            raise failure
        return {entry[0]: entry[1] for entry in entries}

    async def demand_compacted(self, name: str, *, worker_key: str, purpose: str) -> None:
        """Check that a state topic's clean-up is exactly `compact`.

        Raises DeliveryFatal with Kafka Connect's text otherwise: a topic that deletes by age forgets state; and as
        `topic_config` does.
        """
        policy = (await self.topic_config(name)).get("cleanup.policy")
        if policy != "compact":
            raise DeliveryFatal(
                f"Topic '{name}' supplied via the '{worker_key}' property is required to have "
                f"'cleanup.policy=compact' to guarantee consistency and durability of {purpose}, but found the "
                f"topic currently has 'cleanup.policy={policy}'. Continuing would likely result in eventually "
                f"losing {purpose} and problems restarting this Connect cluster in the future. Change the "
                f"'{worker_key}' property in the Connect worker configurations to use a topic with "
                "'cleanup.policy=compact'."
            )

    async def _leaderless(self, names: set[str]) -> set[str]:
        """Those that do not have all their leaders after a while: a broker may be away that the others do not need."""
        try:
            async with asyncio.timeout(LEADERS_SECONDS_MAX):
                # The cluster has no way to tell a client that a leader is elected, so it is asked.
                while names := names - await self._with_leaders(sorted(names)):
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            return names
        return names

    async def _with_leaders(self, names: Sequence[str]) -> set[str]:
        """Those that exist and all of whose partitions have leaders."""
        return {topic["topic"] for topic in await self._described(names) if _has_leaders(topic)}

    async def _described(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """As the cluster sees these topics; one that does not exist is there without partitions."""
        if not names:
            return []
        # Not by the client's own method: that has the broker create what it is asked about.
        request = MetadataRequest(list(names), allow_auto_topic_creation=False)
        answer = await library.ask(self._client, request)
        topics: list[dict[str, Any]] = answer.to_object()["topics"]
        return topics


def _without_leaders(name: str) -> DeliveryRetriable:
    return DeliveryRetriable(f"not all partitions of topic '{name}' have leaders: a broker may be away")


def _exists(topic: Mapping[str, Any]) -> bool:
    return bool(topic["partitions"]) or topic["error_code"] == kafka.LeaderNotAvailableError.errno


def _has_leaders(topic: Mapping[str, Any]) -> bool:
    return bool(topic["partitions"]) and all(partition["leader"] >= 0 for partition in topic["partitions"])


def _failure(error_code: int, text: str | None, *, about: str) -> KafkaFailure | None:
    """Judge the answer about one topic; None = it was done."""
    error = kafka.for_code(error_code)
    if error is kafka.NoError:
        return None
    told = f"{about}: {text or error.__name__}"
    if error.retriable or error in (kafka.RequestTimedOutError, kafka.NotControllerError):
        return DeliveryRetriable(told)
    return DeliveryFatal(told)
