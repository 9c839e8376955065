"""Tells how each request to the group's coordinator went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from metrics.events import Emit, GroupRequest, GroupRequestEnded
from service.kafka.client import KafkaSettings
from service.kafka.errors import KafkaFailure
from service.kafka.group import Calls
from service.kafka.group_calls import GroupCalls, GroupSettings, Joined, PlaceLost, RoundBegan


@asynccontextmanager
async def opened_timed(kafka: KafkaSettings, group: GroupSettings, *, emit: Emit) -> AsyncIterator[Calls]:
    """`GroupCalls.opened`, each request told to ``emit`` as a `GroupRequestEnded`."""
    async with GroupCalls.opened(kafka, group) as calls:
        yield TimedCalls(calls, kafka.client_id, emit)


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """The ``Calls`` of a member, as they are; leaving and closing are nobody's figures."""

    calls: Calls
    client_id: str
    emit: Emit

    async def join(self, member_id: str, claim: bytes, *, on_member_id: Callable[[str], None]) -> Joined:
        """See ``Calls``."""
        with self._timed("join"):
            return await self.calls.join(member_id, claim, on_member_id=on_member_id)

    async def sync(self, joined: Joined, parts: Mapping[str, bytes]) -> bytes:
        """See ``Calls``."""
        with self._timed("sync"):
            return await self.calls.sync(joined, parts)

    async def heartbeat(self, generation: int, member_id: str) -> None:
        """See ``Calls``."""
        with self._timed("heartbeat"):
            await self.calls.heartbeat(generation, member_id)

    async def leave(self, member_id: str) -> None:
        """See ``Calls``."""
        await self.calls.leave(member_id)

    async def close(self) -> None:
        """See ``Calls``."""
        await self.calls.close()

    @contextmanager
    def _timed(self, request: GroupRequest) -> Iterator[None]:
        """A heartbeat that hears of a round was answered; a join or sync that does has come to nothing."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except (KafkaFailure, PlaceLost):
            self._tell(request, began, is_success=False)
            raise
        except RoundBegan:
            self._tell(request, began, is_success=request == "heartbeat")
            raise
        self._tell(request, began, is_success=True)

    def _tell(self, request: GroupRequest, began: float, *, is_success: bool) -> None:
        seconds = asyncio.get_running_loop().time() - began
        self.emit(GroupRequestEnded(client_id=self.client_id, request=request, seconds=seconds, is_success=is_success))
