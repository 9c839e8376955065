"""What a broker answers about a topic's settings, sorted by what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from aiokafka import errors as kafka
from aiokafka.admin import AIOKafkaAdminClient

from service.kafka.admin import KafkaAdmin
from service.kafka.errors import DeliveryFatal, DeliveryRetriable


class Answer:
    """One broker's answer to a question about settings."""

    def __init__(self, error: type[kafka.KafkaError], text: str | None = None, *entries: tuple[str, str]) -> None:
        """In the protocol's order of fields."""
        self.resources = [(error.errno, text, 2, "t", list(entries))]


class Brokers:
    """Answers one question after the other."""

    def __init__(self, *answers: Answer) -> None:
        """The answers, in order."""
        self._answers = list(answers)

    async def describe_configs(self, resources: Sequence[object]) -> list[Answer]:
        """As the client's method."""
        del resources
        return [self._answers.pop(0)]


def asking(*answers: Answer) -> KafkaAdmin:
    """An administrator whose brokers answer so."""
    return KafkaAdmin(cast("AIOKafkaAdminClient", cast("Any", Brokers(*answers))))


@pytest.mark.parametrize(
    "error", [kafka.UnknownTopicOrPartitionError, kafka.LeaderNotAvailableError, kafka.RequestTimedOutError]
)
async def test_a_broker_that_lags_behind_is_asked_again(error: type[kafka.KafkaError]) -> None:
    """It may not have heard of a topic that another broker has just made: nobody has to change anything."""
    admin = asking(Answer(error), Answer(kafka.NoError, None, ("cleanup.policy", "compact")))
    with pytest.raises(DeliveryRetriable, match=rf"settings of topic 't' cannot be read: {error.__name__}"):
        await admin.demand_compacted("t", worker_key="offset.storage.topic", purpose="offsets")
    await admin.demand_compacted("t", worker_key="offset.storage.topic", purpose="offsets")


async def test_settings_that_may_not_be_read_are_fatal() -> None:
    """Somebody has to give the permission; the broker's own text says which."""
    admin = asking(Answer(kafka.TopicAuthorizationFailedError, "no DESCRIBE_CONFIGS"))
    with pytest.raises(DeliveryFatal, match=r"settings of topic 't' cannot be read: no DESCRIBE_CONFIGS"):
        await admin.topic_config("t")
