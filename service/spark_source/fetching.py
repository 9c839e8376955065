"""One task's fetcher beside a thread of Spark's: pages are fetched ahead while those before are judged.

The fetch stage is the service's own, with its retries and its bounded queue; only what happens to the pages differs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any

from fetchers.catalog import shared_http
from fetchers.sdk import BackOff, Offset, Page, Partition, SystemClock
from fetchers.sdk.context import partition_key
from metrics.events import ConfigWarning, Event, RetryScheduled, TaskEvents
from service.config.definition import ConnectorDefinition
from service.domain.ids import TaskId
from service.embedded.running import running
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from service.pipeline.fetching import FetchRetry, FetchStage
from service.pipeline.memory import MemoryBudget
from service.pipeline.queue import BoundedQueue, QueueLimits
from service.version import VERSION
from service.worker.foreign_calls import ForeignCalls

logger = logging.getLogger("headrace.spark")

BATCH_PATIENCE_SECONDS = 300.0
"""How long a batch read tries a source that fails, where ``errors.retry.timeout`` says nothing: a worker waits for
ever, but a job that hangs holds a cluster, and is tried again as a whole."""
TOLD_AFTER_SECONDS = 10.0
"""How long a wait for a limit of the source lasts before it is told; shorter ones are a part of keeping to it."""
_CLOSE_SECONDS_MAX = 5.0
"""For a fetcher to end once it is told to."""


class EndlessSourceError(ValueError):
    """A batch read of a listener."""


class TaskFetch:
    """The pages of one task, as they come. Made by ``fetching``, on the event loop that it is used on."""

    def __init__(self, stage: FetchStage, activity: _Rounds, news: asyncio.Event) -> None:
        self._stage, self._activity, self._news = stage, activity, news
        # In no TaskGroup, which would wait for ever for a fetcher that swallows its cancellation.
        self._task = asyncio.get_running_loop().create_task(stage.run(), name="fetch")
        self._task.add_done_callback(lambda _: news.set())

    async def next_batch(
        self, *, records_max: int, bytes_max: int, seconds_max: float | None = None, rest_seconds: float = 0.0
    ) -> tuple[Page, ...] | None:
        """Pages up to a limit, at least one; None at the end. Raises what the fetcher raises, after its pages.

        The end of a batch read (``seconds_max`` None) is that of the source's first full round, or of the source. In a
        stream None means that nothing has come: for ``rest_seconds`` from a source that has told all it had, or for
        ``seconds_max``.
        """
        pages: list[Page] = []
        records = size = 0
        now = asyncio.get_running_loop().time()
        while records < records_max and size < bytes_max:
            self._news.clear()
            while (item := self._stage.queue.peek()) is not None:
                page = item.page
                if pages and (records + len(page) > records_max or size + page.bytes > bytes_max):
                    return tuple(pages)
                await self._stage.queue.take()
                pages.append(page)
                records, size = records + len(page), size + page.bytes
            deadline = None if seconds_max is None else now + seconds_max
            if await self._is_at_rest():
                if pages or self._task.done():
                    return self._ended(pages)
                if seconds_max is None:
                    return None
                deadline = now + rest_seconds
            if self._stage.queue.peek() is None and not await self._has_news(deadline):
                break
        return tuple(pages) or None

    async def committed(self, partition: Partition, offset: Offset) -> None:
        """Tell the fetcher of a page that will not be asked for again."""
        await self._stage.connector.on_committed(partition, offset)

    async def aclose(self) -> None:
        """End the fetcher; one that does not is left behind with its process."""
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=_CLOSE_SECONDS_MAX)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # taken note of: it was told, or nobody asks any more

    async def _is_at_rest(self) -> bool:
        """Whether the source has been asked for everything, and nothing of it is on its way here."""
        # A fetcher may say so just before it hands over the last page.
        await asyncio.sleep(0)
        is_asked = self._activity.rounds > 0 or self._task.done()
        is_on_its_way = self._activity.pages_in_hand > self._stage.pages_handed_over and not self._task.done()
        return is_asked and not is_on_its_way and self._stage.queue.peek() is None

    async def _has_news(self, deadline: float | None) -> bool:
        if deadline is None:
            await self._news.wait()
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._news.wait()
        return self._news.is_set()

    def _ended(self, pages: Sequence[Page]) -> tuple[Page, ...] | None:
        if not pages and self._task.done():
            self._task.result()
        return tuple(pages) or None


class _Rounds(Activity):
    """Tells of rounds."""

    def __init__(self, clock: SystemClock, news: asyncio.Event) -> None:
        super().__init__(clock)
        self._news = news

    def finish_round(self) -> None:
        super().finish_round()
        self._news.set()


@asynccontextmanager
async def fetching(
    definition: ConnectorDefinition,
    task: Mapping[str, str],
    *,
    number: int = 0,
    offsets: Sequence[tuple[Partition, Offset]] = (),
    is_batch: bool,
) -> AsyncIterator[TaskFetch]:
    """Run one task's fetcher from these offsets on. Raises ValueError for a task config that is not valid."""
    connector = definition.for_task(task)
    common, reach, clock, news = definition.common, definition.reach, SystemClock(), asyncio.Event()
    activity = _Rounds(clock, news)
    blocking = ForeignCalls()
    seconds = common.errors_retry_timeout / 1000
    patience = seconds if seconds > 0 else BATCH_PATIENCE_SECONDS if is_batch else None
    task_id = TaskId(definition.name, number)
    limits = QueueLimits(common.queue_records_max, common.queue_bytes_max)
    async with shared_http(version=VERSION, paths=reach.paths, addresses=reach.addresses) as http:
        context = _BatchContext if is_batch else JobContext
        stage = FetchStage(
            connector=connector,
            context=context(
                task_id,
                partition=connector.partition(),
                offsets={partition_key(partition): offset for partition, offset in offsets},
                http=http,
                clock=clock,
                emit=_tell,
                activity=activity,
                blocking=blocking,
            ),
            queue=BoundedQueue(limits, on_change=lambda _: news.set()),
            # Of one task alone: the queue bounds it, what is judged is bounded by the batch.
            memory=MemoryBudget(1 << 62).share(task_id),
            activity=activity,
            events=TaskEvents(_tell, definition.name, number),
            clock=clock,
            retry=FetchRetry(BackOff(cap_seconds=common.errors_retry_delay_max_ms / 1000), patience),
        )
        try:
            async with aclosing(TaskFetch(stage, activity, news)) as fetch:
                yield fetch
        finally:
            blocking.close()


class JobContext(TaskContext):
    """Says of a long wait that it is one: a job of Spark's shows nothing else of it than that it does not end."""

    @contextmanager
    def waiting_for_limit(self) -> Iterator[None]:
        """Tell after a while, once a wait."""
        text = "%s: the source's limit of requests is used up; waiting until more are allowed"
        telling = asyncio.get_running_loop().call_later(TOLD_AFTER_SECONDS, logger.warning, text, self.connector)
        try:
            with super().waiting_for_limit():
                yield
        finally:
            telling.cancel()


class _BatchContext(JobContext):
    """Refuses what has no end."""

    def inbox(self, limits: Any = None) -> Any:
        """Raise EndlessSourceError: whoever asks for one is a listener."""
        del limits
        message = f"{self.connector} listens to a source that has no end: read it with readStream"
        raise EndlessSourceError(message)


def _tell(event: Event) -> None:
    """What a fetcher tells goes to the log of its process; there is no worker to count it."""
    if isinstance(event, (RetryScheduled, ConfigWarning)):
        logger.warning("%s: %s", type(event).__name__, event.message)


@contextmanager
def batches_of(
    definition: ConnectorDefinition, task: Mapping[str, str], *, number: int
) -> Iterator[Iterator[tuple[Page, ...]]]:
    """The pages of a batch read, for a thread without an event loop; the next are fetched while it works."""
    common = definition.common
    with running(fetching(definition, task, number=number, is_batch=True), name="fetch") as fetch:

        def batches() -> Iterator[tuple[Page, ...]]:
            while True:
                taking = fetch.server.next_batch(records_max=common.batch_records_max, bytes_max=common.batch_bytes_max)
                pages = asyncio.run_coroutine_threadsafe(taking, fetch.loop).result()
                if pages is None:
                    return
                yield pages

        yield batches()
