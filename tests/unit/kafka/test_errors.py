"""Client errors come out sorted by what the caller can do."""

from __future__ import annotations

import pyarrow as pa
import pytest
from aiokafka import errors as kafka

from service.kafka.errors import DeliveryFatal, DeliveryRetriable, RecordsRefused, RefusedRecord, WriterFenced, classify
from service.kafka.records import TopicRecords


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """An error raised from another."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [kafka.ProducerFenced(), kafka.InvalidProducerEpoch(), kafka.for_code(90)()])
def test_a_newer_writer_means_fenced(error: BaseException) -> None:
    """Every code that says "there is a newer one" ends the writer for good."""
    assert isinstance(classify(error, doing="writing"), WriterFenced)


@pytest.mark.parametrize(
    "error",
    [
        kafka.TopicAuthorizationFailedError("secret-topic"),
        kafka.MessageSizeTooLargeError(),
        kafka.InvalidTransactionTimeout(),
        kafka.for_code(87)(),
    ],
)
def test_what_would_fail_again_is_fatal(error: BaseException) -> None:
    """Permission, size, configuration and refused records are not retried."""
    assert isinstance(classify(error, doing="writing"), DeliveryFatal)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError("gone"),
        kafka.KafkaConnectionError("no broker"),
        kafka.NotCoordinatorError(),
        kafka.OutOfOrderSequenceNumber(),
        kafka.InvalidProducerIdMapping(),
        kafka.InvalidTxnState(),
        kafka.UnknownError(),
    ],
)
def test_what_may_pass_is_retriable(error: BaseException) -> None:
    """Lost brokers, moves, time-outs and torn producer state are worth a new writer."""
    assert isinstance(classify(error, doing="writing"), DeliveryRetriable)


def test_the_cause_decides() -> None:
    """The library wraps what ended its sender; the class comes from inside the wrapper or the group."""
    wrapped = caused(kafka.KafkaError("Unexpected error during batch delivery"), kafka.InvalidProducerEpoch())
    assert isinstance(classify(wrapped, doing="x"), WriterFenced)
    group = ExceptionGroup("lanes", [kafka.KafkaConnectionError("gone"), wrapped])
    assert isinstance(classify(group, doing="x"), WriterFenced)


def test_messages_say_what_and_when() -> None:
    """A message names the error and what was being done, also for a bare time-out."""
    assert str(classify(TimeoutError(), doing="delivering")) == "TimeoutError, while delivering"
    refused = RecordsRefused(TopicRecords("t", pa.nulls(4, pa.binary())), [RefusedRecord(3, "too_large", "takes 20")])
    assert str(refused) == "record 3 for topic 't': takes 20"
