"""What many callers share: one answer, one commit, one connection for all who ask at the same time.

=================  ======================================================================================
`SharedRounds`     one run of an errand answers everyone who asked before it began
`CommitTogether`   the writes of everyone who waits for the writer go into its next commit
`StandbyWriter`    a writer that stays open between commits and is replaced after an error
`StandbyAdmin`     the same for administration
`TopicRounds`      missing topics of many connectors are made with one look and one request
=================  ======================================================================================
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Generic, TypeVar

from service.kafka.admin import KafkaAdmin
from service.kafka.errors import DeliveryRetriable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from service.kafka.admin import MissingTopic
    from service.kafka.client import KafkaSettings
    from service.kafka.errors import KafkaFailure
    from service.kafka.producer import Writer
    from service.kafka.records import TopicRecords

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Result = TypeVar("Result")

WRITER_RETRY_SECONDS = 0.5


class SharedRounds(Generic[Answer]):
    """Runs `errand`, never twice at a time; an answer is good for `lasting_seconds` from when its run began.

    A thousand tasks that start at once all ask where the offset topic ends. An answer serves whoever asked before the
    question was sent; so the first asks alone, and the second asks for all the others.
    """

    def __init__(self, errand: Callable[[], Awaitable[Answer]], *, lasting_seconds: float = 0.0) -> None:
        """Nothing runs before it is asked for."""
        self._errand = errand
        self._lasting_seconds = lasting_seconds
        self._lasts_until = 0.0
        self._running = asyncio.Lock()
        self._asked = 0
        self._last: tuple[int, Answer] | None = None

    async def answer(self) -> Answer:
        """What a run gave that began after this call, or lasts; an error is the caller's own whose run it was."""
        self._asked += 1
        mine = self._asked
        # Held across the errand on purpose: whoever waits wants what comes of it, or the next one.
        async with self._running:
            began = asyncio.get_running_loop().time()
            if self._last is None or (self._last[0] < mine and began >= self._lasts_until):
                serves = self._asked
                self._last = (serves, await self._errand())
                self._lasts_until = began + self._lasting_seconds
            return self._last[1]


class _Load(Generic[Item]):
    """What one caller wants written, and what became of it."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.is_written = False
        self.error: Exception | None = None


class CommitTogether(Generic[Item]):
    """Calls `commit` with the items of everyone who waits, in the order they came; never twice at a time."""

    def __init__(self, commit: Callable[[list[Item]], Awaitable[None]]) -> None:
        """`commit` writes all it is given, or none."""
        self._commit = commit
        self._waiting: list[_Load[Item]] = []
        self._committing = asyncio.Lock()

    async def write(self, items: Sequence[Item]) -> None:
        """Return once the items are written; an error of their commit is raised to all who travelled in it.

        Whoever is cancelled while carrying the others leaves them to the next.
        """
        load = _Load(items)
        self._waiting.append(load)
        try:
            # Held across the commit: a writer takes one at a time.
            async with self._committing:
                if not load.is_written and load.error is None:
                    await self._carry()
        finally:
            if load in self._waiting:
                self._waiting.remove(load)
        if load.error is not None:
            raise load.error

    async def _carry(self) -> None:
        loads = list(self._waiting)
        try:
            await self._commit([item for load in loads for item in load.items])
        except Exception as error:  # noqa: BLE001 - it is raised again, by each caller
            for load in loads:
                load.error = error
        else:
            for load in loads:
                load.is_written = True
        self._waiting = [load for load in self._waiting if load not in loads]


class StandbyWriter:
    """Commits of many callers, one after the other. For writes that may be repeated, and never fence anyone."""

    def __init__(self, new_writer: Callable[[], Writer]) -> None:
        """`new_writer` gives a writer that is not started; it is called with the first commit and after errors."""
        self._new_writer = new_writer
        self._writer: Writer | None = None
        self._writing = asyncio.Lock()

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """Deliver, trying again for as long as the caller waits.

        Raises DeliveryFatal.
        """
        # Held across the delivery: a writer takes one commit at a time.
        async with self._writing:
            while True:
                try:
                    await self._commit(writes)
                except DeliveryRetriable:
                    await asyncio.sleep(WRITER_RETRY_SECONDS)
                else:
                    return

    async def _commit(self, writes: Sequence[TopicRecords]) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            writer = self._new_writer()
        try:
            if not writer.is_usable:
                await writer.start()
            await writer.commit(writes)
        except BaseException:  # cancelled too: nobody else would stop this writer
            await writer.stop()
            raise
        self._writer = writer

    async def stop(self) -> None:
        """Disconnect; a later commit connects again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()


class _Connection:
    """One that is open, and the way to end it."""

    def __init__(self, admin: KafkaAdmin, stack: AsyncExitStack) -> None:
        self.admin = admin
        self.stack = stack


class StandbyAdmin:
    """An administrator that stays connected. For one caller at a time, and for requests that may be repeated."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connects with the first `use`."""
        self._settings = settings
        self._kept: _Connection | None = None

    async def use(self, work: Callable[[KafkaAdmin], Awaitable[Result]]) -> Result:
        """What `work` gives; a connection that has died since it was last used is replaced, once.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        kept, self._kept = self._kept, None
        if kept is not None:
            try:
                return await self._use(kept, work)
            except DeliveryRetriable:
                pass  # the broker may have been away and be back
        return await self._use(await self._connect(), work)

    async def stop(self) -> None:
        """Disconnect; a later use connects again."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.stack.aclose()

    async def _connect(self) -> _Connection:
        stack = AsyncExitStack()
        return _Connection(await stack.enter_async_context(KafkaAdmin.opened(self._settings)), stack)

    async def _use(self, connection: _Connection, work: Callable[[KafkaAdmin], Awaitable[Result]]) -> Result:
        async with AsyncExitStack() as ending:
            # Until it has worked: an error goes through the connection's own end, which tells its kind.
            ending.push_async_exit(connection.stack)
            result = await work(connection.admin)
            ending.pop_all()
        self._kept = connection
        return result


class TopicRounds:
    """Makes topics that are missing; one instance serves all connectors of a worker."""

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
        """Disconnect; a later wish connects again."""
        await self._admin.stop()
