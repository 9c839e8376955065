"""What the herder is given beside its ports: who owns what, validation, offsets, other workers, settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.domain.cluster import Member, Properties
from service.domain.ids import InstanceId
from service.herder.api import OffsetEntry, Signature


class Owners(Protocol):
    """Who runs what, as every worker works it out from the roster and the config log."""

    def owner(self, instance: InstanceId) -> Member | None:
        """Its owner; None while nobody is (or the group is not known yet)."""

    def take_moved(self) -> frozenset[str] | None:
        """Connectors of which something may have got another owner since the last call; None: all of them."""


class Validator(Protocol):
    """Looks at connector configs before they are written."""

    async def errors_of(self, config: Properties) -> Sequence[str]:
        """Texts of all errors, in Connect's order; warnings are told by event."""


class OffsetBook(Protocol):
    """Offsets of one kind of connector: sources in their topic, sinks in their consumer group."""

    async def read(self, name: str, config: Properties) -> Sequence[OffsetEntry]:
        """All of them."""

    async def alter(self, name: str, config: Properties, offsets: Sequence[OffsetEntry]) -> bool:
        """Write these (None = forget); whether the connector itself took part."""

    async def reset(self, name: str, config: Properties) -> bool:
        """Forget all; whether the connector itself took part."""


class Peers(Protocol):
    """Requests to other workers of the group."""

    async def publish_tasks(self, url: str, connector: str, body: bytes, signature: Signature | None) -> None:
        """Hand task configs to the leader; raises ``PeerError``."""


class PeerError(Exception):
    """Another worker could not be asked, or has refused; the text says which."""


@dataclass(frozen=True, slots=True)
class HerderSettings:
    """Keys of the worker that concern its herder."""

    group_id: str
    is_standalone: bool = False
    has_topic_tracking: bool = True
    may_reset_topics: bool = True
    graceful_seconds: float = 8.0
    """How long a task's former owner may take to let go."""
    doubt_seconds: float = 10.0
    """After another has taken the lead: how long until this worker would know, if it led still. Session time-out."""
    key_seconds_max: float = 3600.0
    """Age at which the session key is replaced."""
    key_algorithm: str = "HmacSHA256"
    signature_algorithm: str = "HmacSHA256"
    verification_algorithms: tuple[str, ...] = ("HmacSHA256",)


@dataclass(frozen=True, slots=True)
class ClusterDoors:
    """What the herder may ask of Kafka and of other workers."""

    validator: Validator
    source_offsets: OffsetBook
    sink_offsets: OffsetBook
    peers: Peers
    fence_producers: Callable[[Properties, Sequence[str]], Awaitable[None]]
    """With the client settings of a connector of this config, ends older incarnations of these transactional ids."""
    cluster_id: Callable[[], Awaitable[str | None]]
    type_of: Callable[[Properties], str]
    """``source``, ``sink`` or ``unknown``."""
    set_log_level: Callable[[str, str], None] = lambda _namespace, _level: None
