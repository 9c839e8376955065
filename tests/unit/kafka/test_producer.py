"""What a writer that was fenced finds out about its successor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors as kafka

from service.kafka.client import KafkaSettings
from service.kafka.errors import KafkaFailure, TransactionExpired, WriterFenced
from service.kafka.producer import SUCCESSOR_SECONDS_MAX, _Connection

FENCED = 90
PASSING = [
    kafka.NodeNotReadyError(),
    kafka.KafkaConnectionError(),
    kafka.GroupCoordinatorNotAvailableError(),
    kafka.RequestTimedOutError(),
    ConnectionResetError(),
]


class Coordinator:
    """The connections of a producer, whose coordinator's broker has died: some answers fail, the last one lasts."""

    def __init__(self, answers: list[Exception | int]) -> None:
        """Each of `answers` is what looking the coordinator up raises, or the error code it gives."""
        self._answers = answers

    async def coordinator_lookup(self, *_: object) -> int:
        """As AIOKafkaClient's: by any broker, also by one that is gone."""
        answer = self._answers[0]
        if isinstance(answer, Exception):
            if len(self._answers) > 1:
                self._answers.pop(0)
            raise answer
        return 1

    async def send(self, *_: object, **__: object) -> Any:
        """As AIOKafkaClient's."""
        return SimpleNamespace(error_code=self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])


async def found_out(*answers: Exception | int) -> KafkaFailure:
    """What a fenced writer raises after these answers."""
    connection = _Connection(KafkaSettings(bootstrap="x:1"), transactional_id="x")
    manager = SimpleNamespace(transactional_id="x", transaction_timeout_ms=1000, producer_id=1, producer_epoch=0)
    producer: Any = SimpleNamespace(_txn_manager=manager, client=Coordinator(list(answers)))
    connection._producer = producer
    return await connection._expired_or(WriterFenced("fenced"), open_seconds=0.0)


@pytest.mark.looptime
@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
async def test_a_coordinator_that_is_moving_is_asked_again(error: Exception) -> None:
    """The broker that says nothing says nothing of a successor; the new coordinator knows."""
    assert isinstance(await found_out(error, 14, error, 0), TransactionExpired)
    assert isinstance(await found_out(error, 14, error, FENCED), WriterFenced)


@pytest.mark.looptime
async def test_who_hears_nothing_of_a_successor_does_not_fence_it(looptime: Any) -> None:
    """It asks for as long as it may."""
    assert type(await found_out(kafka.NodeNotReadyError())) is WriterFenced
    assert looptime == pytest.approx(SUCCESSOR_SECONDS_MAX)


@pytest.mark.looptime
async def test_a_refusal_that_lasts_is_not_asked_again(looptime: Any) -> None:
    """The rights of a user do not come back within seconds."""
    assert type(await found_out(kafka.TransactionalIdAuthorizationFailed())) is WriterFenced
    assert looptime == 0
