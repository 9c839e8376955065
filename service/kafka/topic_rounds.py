"""Missing topics of many connectors that start at once, made in rounds: one look and one request for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.kafka.rounds import SharedRounds
from service.kafka.standby_admin import StandbyAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from service.kafka.admin import MissingTopic
    from service.kafka.client import KafkaSettings
    from service.kafka.errors import KafkaFailure


class TopicRounds:
    """Makes topics; one instance serves all connectors of a worker."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connects when asked."""
        self._admin = StandbyAdmin(settings)
        self._wanted: dict[str, MissingTopic] = {}
        self._rounds = SharedRounds(self._make)

    async def ensure(self, topics: Iterable[MissingTopic]) -> None:
        """Until all of them are there. Of two wishes for one name either counts, as in a race of two workers.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        mine = {topic.name: topic for topic in topics}
        self._wanted.update(mine)
        outcomes = await self._rounds.answer()
        for name in mine:
            failure = outcomes.get(name)
            if failure is not None:
                raise failure

    async def _make(self) -> Mapping[str, KafkaFailure | None]:
        wanted = dict(self._wanted)
        outcomes = await self._admin.use(lambda admin: admin.ensure_topics(wanted.values()))
        # Only now: after an error the next round takes over what this one has not made.
        for name, topic in wanted.items():
            if self._wanted.get(name) is topic:
                del self._wanted[name]
        return outcomes

    async def close(self) -> None:
        """Disconnect."""
        await self._admin.stop()
