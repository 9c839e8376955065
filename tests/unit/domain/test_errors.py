"""What is done about an error."""

from __future__ import annotations

import pytest

from fetchers.sdk import Fatal, RateLimited, Retriable
from service.domain.errors import (
    PoisonedBatchError,
    RecordRejectedError,
    Recovery,
    TaskSupersededError,
    described,
    recovery_of,
    root_of,
)
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, WriterFenced
from service.registry.errors import IncompatibleSchema, RegistryRetriable
from spark_batch.errors import ConversionFatal, ConversionRetriable


@pytest.mark.parametrize(
    ("error", "recovery"),
    [
        (Retriable("x"), Recovery.RETRY),
        (RateLimited("x", wait_seconds=3), Recovery.RETRY),
        (ConversionRetriable("x"), Recovery.RETRY),
        (DeliveryRetriable("x"), Recovery.RESTART),
        (RegistryRetriable("x"), Recovery.RESTART),
        (WriterFenced("x"), Recovery.FENCED),
        (TaskSupersededError("x"), Recovery.SUPERSEDED),
        (Fatal("x"), Recovery.FAIL),
        (ConversionFatal("x"), Recovery.FAIL),
        (DeliveryFatal("x"), Recovery.FAIL),
        (IncompatibleSchema("x"), Recovery.FAIL),
        (RecordRejectedError("x"), Recovery.FAIL),
        (PoisonedBatchError("x"), Recovery.FAIL),
        (TimeoutError("x"), Recovery.FAIL),
    ],
)
def test_each_error_has_one_recovery(error: Exception, recovery: Recovery) -> None:
    """What is unknown is a bug, and fails."""
    assert recovery_of(error) is recovery


def test_of_a_group_the_most_severe_member_decides() -> None:
    """However deep it lies; it is also the one that is shown."""
    bug = ValueError("x")
    group = ExceptionGroup("a", [Retriable("x"), ExceptionGroup("b", [DeliveryRetriable("x"), bug])])
    assert recovery_of(group) is Recovery.FAIL
    assert root_of(group) is bug
    assert recovery_of(ExceptionGroup("a", [Retriable("x"), DeliveryRetriable("x")])) is Recovery.RESTART


def test_messages_written_for_people_are_shown_others_are_not() -> None:
    """A bug's message may hold anything, a record or a secret too."""
    assert described(Fatal("wrong key for project 7")) == "Fatal: wrong key for project 7"
    assert described(ValueError("s3cret")) == "ValueError"
