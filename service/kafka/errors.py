"""What went wrong with Kafka, sorted by what the caller can do about it.

A writer that raised any of these but `RecordsRefused` is used up: drop it with `stop()`. What to do next is the error's
class.

```
KafkaFailure
├── WriterFenced       a newer incarnation owns the transactional id: end, never retry
├── GroupHasMembers    offsets of a group can be changed only while nobody reads as it
├── DeliveryRetriable  nothing is known to be delivered: start a new writer, read the offsets again
│   └── TransactionExpired  by its time limit, and nobody has taken over the transactional id
└── DeliveryFatal      the same write would fail again: someone has to change something
    ├── BatchRefused   by a broker, for a size or a time that the topic's settings allow
    └── RecordsRefused says which records; nothing was sent, and the writer may be used without them
```
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka import errors as kafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from service.kafka.records import TopicRecords


class KafkaFailure(Exception):
    """Any failure of this package's readers and writers."""


class WriterFenced(KafkaFailure):
    """A newer writer with the same transactional id exists; this one may never write again."""


class GroupHasMembers(KafkaFailure):
    """Somebody still reads as this consumer group, so its offsets are not to be touched from outside."""


class DeliveryRetriable(KafkaFailure):
    """The broker was lost, too slow or moving: the transaction is aborted, or its fate is unknown.

    Only the offset topic knows the fate, so the caller starts a new writer (which ends the old
    transaction one way or the other) and reads its offsets again.
    """


class TransactionExpired(DeliveryRetriable):
    """The coordinator ended the transaction, as old as it was, and no other writer has started since.

    For example because the machine was suspended, or the broker's clock was set.
    """


class DeliveryFatal(KafkaFailure):
    """Missing permission, missing topic, wrong configuration: the message says which."""


class BatchRefused(DeliveryFatal):
    """A broker refuses a size or a time, and the topic's settings, asked for anew, do not say why."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that its topic does not take."""

    row: int
    """Of its `TopicRecords`."""
    reason: str
    """A word for metrics, one of those of dead letters."""
    message: str
    """What is wrong with the record, and which setting of the topic says so; never its content."""


class RecordsRefused(DeliveryFatal):
    """The settings of a topic do not allow some records, and nothing was sent; a source's own are rejected instead."""

    def __init__(self, write: TopicRecords, refused: Sequence[RefusedRecord]) -> None:
        """All of one write, so that the caller can write the others."""
        first = refused[0]
        super().__init__(f"record {first.row} for topic '{write.topic}': {first.message}")
        self.write = write
        self.refused = refused


class CommitOutdated(DeliveryRetriable):
    """The group has rebalanced meanwhile: whoever owns the partitions now reads the records again."""


class _InvalidRecord(kafka.BrokerResponseError):  # type: ignore[misc]
    """The broker refuses a record, for example one without key in a compacted topic (KIP-467)."""

    errno = 87
    message = "INVALID_RECORD"
    description = "The broker refused a record: a compacted topic needs keys, for example."


class _ProducerFencedByCoordinator(kafka.BrokerResponseError):  # type: ignore[misc]
    """The code that newer brokers send where older ones said INVALID_PRODUCER_EPOCH (KIP-588)."""

    errno = 90
    message = "PRODUCER_FENCED"
    description = "There is a newer producer with the same transactional id."


# The client knows codes up to 79 and calls all others "unknown", which hides a lasting failure.
for _known in (_InvalidRecord, _ProducerFencedByCoordinator):
    kafka.kafka_errors.setdefault(_known.errno, _known)

GIVEN_UP = (kafka.IllegalGenerationError, kafka.UnknownMemberIdError, kafka.RebalanceInProgressError)
"""What a group answers a member that it goes on without."""
FENCED_CODES = frozenset({kafka.InvalidProducerEpoch.errno, _ProducerFencedByCoordinator.errno})
_FENCED = (kafka.ProducerFenced, kafka.InvalidProducerEpoch, _ProducerFencedByCoordinator)
_FATAL = (
    _InvalidRecord,
    kafka.AuthenticationFailedError,
    kafka.AuthenticationMethodNotSupported,
    kafka.ClusterAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.IncompatibleBrokerVersion,
    kafka.InvalidConfigurationError,
    kafka.InvalidPartitionsError,
    kafka.InvalidReplicationFactorError,
    kafka.InvalidTopicError,
    kafka.InvalidTransactionTimeout,
    kafka.PolicyViolationError,
    kafka.SaslAuthenticationFailed,
    kafka.TopicAuthorizationFailedError,
    kafka.TransactionalIdAuthorizationFailed,
    kafka.UnsupportedSaslMechanismError,
    kafka.UnsupportedVersionError,
)

_BY_LIMITS = (kafka.InvalidTimestampError, kafka.MessageSizeTooLargeError, kafka.RecordListTooLargeError)

_MENDS = {
    kafka.InvalidTimestampError: (
        ": a record's time is further ahead of the broker's clock than message.timestamp.after.max.ms (one hour unless "
        "set), or behind it than message.timestamp.before.max.ms; set the clocks right, or raise that at the topic"
    ),
}

# What a call into the client may raise when Kafka, not our code, is at fault. The client asserts what a cluster that
# has just been started does not keep: that it names at least one broker.
CLIENT_ERRORS = (kafka.KafkaError, OSError, TimeoutError, asyncio.IncompleteReadError, AssertionError)


def classify(error: BaseException, *, doing: str) -> KafkaFailure:
    """Turn a client error into the class that says what to do; `doing` completes "while …".

    A transaction that the coordinator ended because of its age comes out as WriterFenced: the protocol's versions that
    the library speaks report it like a newer writer, and only the coordinator can say more (`TransactionExpired`).
    """
    chain = tuple(_causes(error))
    for cause in chain:
        if isinstance(cause, _FENCED):
            return WriterFenced(f"a newer writer with the same transactional id took over, seen while {doing}")
        if isinstance(cause, _FATAL + _BY_LIMITS):
            kind = BatchRefused if isinstance(cause, _BY_LIMITS) else DeliveryFatal
            return kind(f"{_told(cause)}, while {doing}{_MENDS.get(type(cause), '')}")
    telling = [cause for cause in chain if not isinstance(cause, BaseExceptionGroup | asyncio.CancelledError)]
    return DeliveryRetriable(f"{_told(telling[-1] if telling else error)}, while {doing}")


def _told(error: BaseException) -> str:
    name = type(error).__name__.strip("_")
    text = str(error).strip()
    if isinstance(error, kafka.BrokerResponseError):
        # The text repeats class and number; what helps is the argument (a topic) and what the code means.
        told = ", ".join(map(str, error.args))
        text = " ".join(part for part in (told, getattr(error, "description", "")) if part)
    return f"{name}: {text}" if text else name


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what is grouped in it, and what caused it, outermost first."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _causes(part)
    elif error.__cause__ is not None:
        yield from _causes(error.__cause__)
