"""What is done about an error, for every stage, in one place.

==========  ======================================================  ==========================================
recovery    errors                                                  what happens
==========  ======================================================  ==========================================
RETRY       fetch, put: ``Retriable``; convert:                     the same step again, in place, with back-off
            ``ConversionRetriable``
RESTART     deliver: ``DeliveryRetriable``; registry unreachable;   the task starts anew from committed offsets
            put: ``StartAnew``
SUPERSEDED  start: ``TaskSupersededError``                          a quiet end, or FAILED until it is wanted again
FENCED      deliver: ``WriterFenced``                               FAILED, or a quiet end where it moved elsewhere
FAIL        ``Fatal``, ``RecordRejectedError``, anything unknown    FAILED, with its trace
==========  ======================================================  ==========================================
"""

from __future__ import annotations

from enum import StrEnum

from fetchers.sdk import Fatal, FetchError, Retriable
from service.kafka.errors import DeliveryRetriable, KafkaFailure, WriterFenced
from service.registry.errors import RegistryFailure, RegistryRetriable
from spark_batch.errors import ConversionError, ConversionRetriable


class Recovery(StrEnum):
    """What is done about an error; the later in this list, the more severe."""

    RETRY = "retry"
    RESTART = "restart"
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    FAIL = "fail"


class TaskSupersededError(Exception):
    """The config log no longer asks for the task as it was begun: it has newer task configs, or is stopped or gone."""


class ConnectorExitError(Fatal):
    """A connector's own code wanted to end the process, a task or an iteration: ``SystemExit`` and the like.

    Only the connector fails. Raised where its code is called, since an event loop ends with such an exception.
    """

    @classmethod
    def of(cls, error: BaseException) -> ConnectorExitError:
        """What is raised instead of ``error``."""
        return cls(f"the connector's own code raised {type(error).__name__}: {error}")


class RecordRejectedError(Exception):
    """A record failed its contract and ``errors.tolerance`` is ``none``: the task fails, nothing is skipped."""


class StartAnew(Exception):
    """A sink has lost what it had gathered, or may not write it any more: its task begins behind what is committed."""


class TargetFull(Retriable):
    """The target of a sink takes nothing until somebody makes room there, and then by itself.

    Put again as long as ``errors.retry.timeout`` says, however few retries the sink's own ``PutLimits`` allow.
    """


class SourceTransactionTooLargeError(Exception):
    """A transaction of the source is larger than what is held of one, and must not be split."""


class PoisonedBatchError(Exception):
    """A micro-batch broke the conversion again and again: the task fails instead of retrying for ever."""


_RECOVERIES: tuple[tuple[type[BaseException], Recovery], ...] = (
    (Retriable, Recovery.RETRY),
    (ConversionRetriable, Recovery.RETRY),
    (WriterFenced, Recovery.FENCED),
    (TaskSupersededError, Recovery.SUPERSEDED),
    (DeliveryRetriable, Recovery.RESTART),
    (RegistryRetriable, Recovery.RESTART),
    (StartAnew, Recovery.RESTART),
)


def recovery_of(error: BaseException) -> Recovery:
    """What to do about ``error``; of a group, what its most severe member asks for."""
    if isinstance(error, BaseExceptionGroup):
        return max((recovery_of(inner) for inner in error.exceptions), key=list(Recovery).index)
    return next((recovery for kind, recovery in _RECOVERIES if isinstance(error, kind)), Recovery.FAIL)


def root_of(error: BaseException) -> BaseException:
    """The single error to show for a group: its most severe leaf."""
    while isinstance(error, BaseExceptionGroup):
        error = max(error.exceptions, key=lambda inner: list(Recovery).index(recovery_of(inner)))
    return error


_RAISED_ON_PURPOSE = (
    FetchError,
    ConversionError,
    KafkaFailure,
    RegistryFailure,
    TaskSupersededError,
    RecordRejectedError,
    StartAnew,
    SourceTransactionTooLargeError,
    PoisonedBatchError,
)


def is_on_purpose(error: BaseException) -> bool:
    """Whether its message was written for people; otherwise it is a bug."""
    return isinstance(error, _RAISED_ON_PURPOSE)


def described(error: BaseException) -> str:
    """One line for a status: the message too where it was written for people; that of a bug may hold anything."""
    name = type(error).__name__
    return f"{name}: {error}" if is_on_purpose(error) else name
