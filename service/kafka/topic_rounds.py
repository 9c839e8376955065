"""Missing topics of many connectors that start at once, made in rounds: one look and one request for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.kafka.rounds import SharedRounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from service.kafka.admin import MissingTopic
    from service.kafka.errors import KafkaFailure
    from service.kafka.standby_admin import StandbyAdmin


class TopicRounds:
    """Makes topics; one instance serves all connectors of a worker."""

    def __init__(self, admin: StandbyAdmin) -> None:
        """`admin` is for these rounds alone, and is stopped with them."""
        self._admin = admin
        self._wishes: dict[int, Mapping[str, MissingTopic]] = {}
        """Of those who wait now: a wish ends with its caller, whatever has become of it."""
        self._rounds = SharedRounds(self._make)

    async def ensure(self, topics: Iterable[MissingTopic]) -> None:
        """Until all of them are there. Of two wishes for one name either counts, as in a race of two workers.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        mine = {topic.name: topic for topic in topics}
        for topic in mine.values():
            topic.demand_sayable()
        self._wishes[id(mine)] = mine
        try:
            outcomes = await self._rounds.answer()
        finally:
            del self._wishes[id(mine)]
        for name in mine:
            failure = outcomes.get(name)
            if failure is not None:
                raise failure

    async def _make(self) -> Mapping[str, KafkaFailure | None]:
        wanted = {name: topic for wish in self._wishes.values() for name, topic in wish.items()}
        return await self._admin.use(lambda admin: admin.ensure_topics(wanted.values()))

    async def close(self) -> None:
        """Disconnect."""
        await self._admin.stop()
