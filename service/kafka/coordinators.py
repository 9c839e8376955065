"""Requests that only one broker answers: the one that coordinates a consumer group or a transactional id."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import errors as kafka

from service.kafka import library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiokafka.admin import AIOKafkaAdminClient

_GROUP, _TRANSACTION = 0, 1


class Coordinators:
    """Finds coordinators and asks them, again and again while the answer is "not now": call it under a time limit."""

    def __init__(self, client: AIOKafkaAdminClient) -> None:
        """Ask over a started client."""
        self._client = client

    async def ask(
        self, name: str, request: Any, *, errors_of: Callable[[Any], Iterable[int]], is_transactional: bool = False
    ) -> Any:
        """The answer, once it has no error that passes by itself.

        Raises the client's class for the first error in it that does not.
        """
        while True:
            try:
                node = await self._client.find_coordinator(name, _TRANSACTION if is_transactional else _GROUP)
                answer = await library.ask(self._client, request, node)
            except (kafka.GroupCoordinatorNotAvailableError, kafka.NodeNotReadyError):
                await asyncio.sleep(library.ASK_AGAIN_SECONDS)
                continue
            codes = {code for code in errors_of(answer) if code}
            if not codes:
                return answer
            lasting = sorted(codes - library.PASSING_CODES)
            if lasting:
                raise kafka.for_code(lasting[0])(name)
            await asyncio.sleep(library.ASK_AGAIN_SECONDS)
