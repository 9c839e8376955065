"""The contract suite of sinks: what every sink must do, wherever it writes.

A case gives configs, good and bad ones, and reads back what stands at the other side; the suite does the rest. Make a
subclass in a test file and pytest runs it (``asyncio_mode = auto``)::

    class TestWebhook(SinkContract):
        case = WebhookCase()
"""

# ruff: noqa: S101 - this is test code that ships: assert is how it speaks

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, Retriable, SystemClock
from fetchers.sdk.config import HIDDEN
from metrics.events import discard
from service.kafka.fetched import RECORDS_SCHEMA
from service.sinks.contract import Partition, SinkBatch, SinkConnector, SinkContext, StartAnew
from service.sinks.converters import BytesReader, ColumnReader, TextReader
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoding, SideReader

STOP_SECONDS_MAX = 60.0
"""A stop that hangs is found; a machine that is slow is not taken for one."""
GIVEN_UP_AFTER = (1, 16, 256)
"""Turns of the event loop after which a put is given up: at the first thing that it waits for, and further on."""
GIVEN_UP_RECORDS = 20
TRIES_MAX = 100
"""Of one put that the sink wants again and again."""
BAD_ROW = 2
BAD_ROWS = (0, 5, 6, 11)
"""The first and the last of both parts of a batch."""
BUSY_ROWS = (1, 4, 8)
"""Neither all of a part of a batch, nor its first row, so that something of it is taken."""
ROWS, CUT = 12, 6
RECORDS_MAX = 3000
HERE: Partition = ("lines", 0)
THERE: Partition = ("lines", 1)


class Target(ABC):
    """One place that a sink writes to."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """The sink's own config."""

    @abstractmethod
    async def written(self) -> Sequence[str]:
        """The values that stand there."""


class SinkCase(ABC):
    """One sink, as the suite sees it."""

    connector: ClassVar[type[SinkConnector[Any]]]
    bad_configs: ClassVar[tuple[tuple[Mapping[str, str], frozenset[str]], ...]] = ()
    """Changes that make the config wrong, and the keys that must be named."""
    is_exactly_once: ClassVar[bool] = False
    """Whether what is put again, uncommitted, is written once."""
    values: ClassVar[ColumnReader] = TextReader()
    """The converter of values."""
    records_max: ClassVar[int] = RECORDS_MAX
    """Of a batch that the suite makes, whatever the sink would take."""

    bad_payload: ClassVar[bytes | None] = None
    """A value that its converter takes and the sink refuses; None where there is no such value."""
    has_partial_outcomes: ClassVar[bool] = False
    """Whether it says by ``Retriable(rows=…)`` which records of a batch its target had no time for."""
    tombstone: ClassVar[str | None] = None
    """What a null value is at the other side; None where it is nothing, or refused."""

    def payload(self, value: str) -> bytes:
        """A text as it is in the topic."""
        return value.encode()

    @abstractmethod
    def target(self, folder: Path) -> AbstractAsyncContextManager[Target]:
        """An empty place."""

    def busy_target(self, folder: Path, texts: Collection[str]) -> AbstractAsyncContextManager[Target]:
        """An empty place that has no time, once, for the record of each of these texts; of ``has_partial_outcomes``."""
        del texts
        return self.target(folder)


async def batch_of(
    payloads: Sequence[bytes | None],
    values: ColumnReader,
    *,
    begin: int = 0,
    partition: Partition = HERE,
    refused: list[int],
) -> SinkBatch:
    """Records of one partition without keys, as a worker hands them to a sink; ``refused`` gets refused rows."""
    count = len(payloads)
    columns: list[Any] = [
        [partition[0]] * count, [partition[1]] * count, range(begin, begin + count), [1_000] * count, [0] * count,
        [None] * count, payloads, [None] * count,
    ]  # fmt: skip
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, RECORDS_SCHEMA, strict=True)]
    keys, sides = SideReader(BytesReader(), "key", KEY_STAGE), SideReader(values, "value", VALUE_STAGE)
    decoded = await Decoding(keys, sides, "sink").decode(
        pa.table(arrays, schema=RECORDS_SCHEMA), refuse=lambda refusal: refused.append(refusal.row)
    )
    return decoded.batches[0]


class SinkContract:
    """Tests of one sink; ``case`` is set by the subclass."""

    case: ClassVar[SinkCase]

    async def test_what_is_flushed_is_there(self, tmp_path: Path) -> None:
        """All of it, in order, and the sink says so."""
        values = [f"{number} ä€🙂" for number in range(100)]
        async with self.case.target(tmp_path) as target:
            async with self._running(target) as sink:
                await sink.open({HERE: None})
                for begin in range(0, 100, 30):
                    await sink.put(await self._batch(values[begin : begin + 30], begin=begin))
                assert await sink.flush({HERE: 100}) == {HERE: 100}
                assert list(await target.written()) == values
                await sink.committed({HERE: 100})
                await sink.close([HERE])
            assert list(await target.written()) == values

    async def test_flushed_records_survive_a_sink_that_is_dropped(self, tmp_path: Path) -> None:
        """Nobody closes or stops a sink that is killed; the next one goes on behind it."""
        async with self.case.target(tmp_path) as target, self._running(target) as dropped:
            await dropped.open({HERE: None})
            await dropped.put(await self._batch(["a", "b"]))
            safe = await dropped.flush({HERE: 2})
            async with self._running(target) as sink:
                await sink.open({HERE: safe[HERE]})
                await sink.put(await self._batch(["c"], begin=2))
                await sink.flush({HERE: 3})
            assert list(await target.written()) == ["a", "b", "c"]

    async def test_what_is_put_again_is_not_lost(self, tmp_path: Path) -> None:
        """After a crash before the commit the same records come; whoever promises it writes them once."""
        async with self.case.target(tmp_path) as target:
            for values in (["a", "b"], ["a", "b", "c"]):
                async with self._running(target) as sink:
                    begin = await self._opened(sink)
                    if values[begin:]:
                        await sink.put(await self._batch(values[begin:], begin=begin))
                    await sink.flush({HERE: len(values)})
            written = list(await target.written())
        assert set(written) == {"a", "b", "c"}
        if self.case.is_exactly_once:
            assert written == ["a", "b", "c"]

    async def test_a_put_that_is_given_up_in_the_middle(self, tmp_path: Path) -> None:
        """A rebalance cannot wait for a put: the partitions go and come, the records too."""

        async def come_and_go(sink: SinkConnector[Any], values: Sequence[str]) -> None:
            await sink.close([HERE])
            begin = await self._opened(sink)
            if values[begin:]:
                await self._put(sink, await self._batch(values[begin:], begin=begin))

        await self._given_up(tmp_path, come_and_go)

    async def test_a_slow_put_comes_again_in_halves(self, tmp_path: Path) -> None:
        """Beyond its time limit a put is given up, and the same sink gets its records again, half as many at once."""

        async def halve(sink: SinkConnector[Any], values: Sequence[str]) -> None:
            middle = len(values) // 2
            for begin, end in ((0, middle), (middle, len(values))):
                await self._put(sink, await self._batch(values[begin:end], begin=begin))

        await self._given_up(tmp_path, halve)

    async def test_batches_of_its_own_bounds(self, tmp_path: Path) -> None:
        """As many records as it says that it takes, then one, then a part of a batch that is larger."""
        async with self.case.target(tmp_path) as target, self._running(target) as sink:
            count = min(sink.put_limits.records_max, self.case.records_max)
            values = [str(number) for number in range(count + 3)]
            await sink.open({HERE: None})
            await sink.put(await self._batch(values[:count]))
            await sink.put(await self._batch(values[count : count + 1], begin=count))
            rest = await self._batch(values[count:], begin=count)
            await sink.put(rest.slice(1, 2))
            await sink.flush({HERE: count + 3})
            assert list(await target.written()) == values

    async def test_tombstones_and_refused_records_leave_the_others_alone(self, tmp_path: Path) -> None:
        """A null value and a bad one among good ones: refused where they must be, and the good ones are written."""
        payloads = [self.case.payload("a"), None, self.case.bad_payload, self.case.payload("b")]
        if self.case.bad_payload is None:
            payloads[2] = self.case.payload("c")
        refused: list[int] = []
        async with self.case.target(tmp_path) as target, self._running(target) as sink:
            await sink.open({HERE: None})
            with suppress(Fatal):  # some fail the task for a bad record, after the others of its batch
                await sink.put(await self._batch(payloads, refused=refused))
                await sink.flush({HERE: 4})
            written = list(await target.written())
        tombstone = [] if self.case.tombstone is None else [self.case.tombstone]
        good = [] if self.case.bad_payload is not None else ["c"]
        assert written == ["a", *tombstone, *good, "b"]
        assert set(refused) <= {1, BAD_ROW}
        assert (BAD_ROW in refused) is (self.case.bad_payload is not None)

    async def test_bad_records_are_refused_alone_wherever_they_are(self, tmp_path: Path) -> None:
        """In both parts of a batch that was cut: each is told of once, by its own row, and all others are written."""
        texts = [str(number) for number in range(ROWS)]
        bad = () if self.case.bad_payload is None else BAD_ROWS
        payloads = [self.case.bad_payload if row in bad else self.case.payload(text) for row, text in enumerate(texts)]
        refused: list[int] = []
        async with self.case.target(tmp_path) as target, self._running(target) as sink:
            await sink.open({HERE: None})
            batch = await self._batch(payloads, refused=refused)
            for part in (batch.slice(0, CUT), batch.take(np.arange(CUT, ROWS, dtype=np.int64))):
                with suppress(Fatal):  # some fail the task for a bad record, after the others of its batch
                    await sink.put(part)
            with suppress(Fatal):
                await sink.flush({HERE: ROWS})
            assert list(await target.written()) == [text for row, text in enumerate(texts) if row not in bad]
        assert sorted(refused) == list(bad)

    async def test_only_what_was_not_taken_comes_again(self, tmp_path: Path) -> None:
        """The rows of a batch that the target had no time for are named as that batch has them, and not refused."""
        texts, refused, partial = [str(number) for number in range(ROWS)], list[int](), 0
        places = self.case.busy_target(tmp_path, [texts[row] for row in BUSY_ROWS])
        async with places as target, self._running(target) as sink:
            await sink.open({HERE: None})
            batch = await self._batch(texts, refused=refused)
            for part in (batch.slice(0, CUT), batch.take(np.arange(CUT, ROWS, dtype=np.int64))):
                partial += await self._put(sink, part)
            await sink.flush({HERE: ROWS})
            written = list(await target.written())
        assert (refused, set(written)) == ([], set(texts))
        assert written == texts or not self.case.is_exactly_once
        assert (partial > 0) is self.case.has_partial_outcomes

    async def test_a_zombie_that_puts_once_more(self, tmp_path: Path) -> None:
        """Two own a partition for a moment: what the first still writes loses nothing of the second's."""
        async with self.case.target(tmp_path) as target:
            async with self._running(target) as zombie, self._running(target, task=1) as sink:
                await zombie.open({HERE: None})
                await zombie.put(await self._batch(["a", "b"]))
                begin = await self._opened(sink)
                await sink.put(await self._batch(["a", "b", "c"][begin:], begin=begin))
                with suppress(Fatal, Retriable, StartAnew):
                    await zombie.put(await self._batch(["b", "c"], begin=1))
                await sink.flush({HERE: 3})
            assert set(await target.written()) == {"a", "b", "c"}

    async def test_partitions_come_and_go(self, tmp_path: Path) -> None:
        """A sink goes on with those it keeps, and takes back those that return."""
        async with self.case.target(tmp_path) as target, self._running(target) as sink:
            await sink.open({HERE: None, THERE: None})
            await sink.put(await self._batch(["here 0"]))
            await sink.put(await self._batch(["there 0"], partition=THERE))
            await sink.flush({HERE: 1, THERE: 1})
            await sink.committed({HERE: 1, THERE: 1})
            await sink.close([HERE, THERE])
            await sink.open({THERE: 1})
            await sink.put(await self._batch(["there 1"], begin=1, partition=THERE))
            await sink.flush({THERE: 2})
            await sink.close([THERE])
            await sink.open({HERE: 1, THERE: 2})
            await sink.put(await self._batch(["here 1"], begin=1))
            await sink.flush({HERE: 2, THERE: 2})
            assert sorted(await target.written()) == ["here 0", "here 1", "there 0", "there 1"]

    async def test_tasks_side_by_side(self, tmp_path: Path) -> None:
        """Each with a partition of its own; none disturbs the other."""
        async with self.case.target(tmp_path) as target:

            async def work(task: int, partition: Partition) -> None:
                async with self._running(target, task=task) as sink:
                    await sink.open({partition: None})
                    for number in range(10):
                        await sink.put(
                            await self._batch([f"{partition[1]} {number}"], begin=number, partition=partition)
                        )
                    await sink.flush({partition: 10})

            async with asyncio.TaskGroup() as group:
                group.create_task(work(0, HERE))
                group.create_task(work(1, THERE))
            expected = sorted(f"{partition} {number}" for partition in (0, 1) for number in range(10))
            assert sorted(await target.written()) == expected

    async def test_stops_without_having_started_and_twice(self, tmp_path: Path) -> None:
        """``stop`` comes after every error, wherever it was."""
        async with self.case.target(tmp_path) as target, asyncio.timeout(STOP_SECONDS_MAX):
            sink = self._connector(target.properties)
            await sink.stop()
            await sink.stop()

    async def test_refuses_bad_configs_with_all_findings(self, tmp_path: Path) -> None:
        """Every mistake of a config is named in one answer, and the good config has none."""
        async with self.case.target(tmp_path) as target:
            assert self._findings(target.properties) == set()
            for changes, keys in self.case.bad_configs:
                assert self._findings({**target.properties, **changes}) == keys

    async def test_shows_no_secret(self, tmp_path: Path) -> None:
        """A config as text hides what is of type PASSWORD."""
        async with self.case.target(tmp_path) as target:
            config = self.case.connector.config_class.parse(target.properties).config
            assert config is not None
            secrets = [key.name for key in config.config_keys() if key.kind == "PASSWORD"]
            assert {config.texts().get(name, HIDDEN) for name in secrets} <= {HIDDEN}

    async def _given_up(
        self, tmp_path: Path, again: Callable[[SinkConnector[Any], Sequence[str]], Awaitable[None]]
    ) -> None:
        """Give a put up, earlier and later; ``again`` puts its records once more, unless it was over by then."""
        values = [str(number) for number in range(min(GIVEN_UP_RECORDS, self.case.records_max))]
        for turns in GIVEN_UP_AFTER:
            folder = tmp_path / str(turns)
            folder.mkdir()
            async with self.case.target(folder) as target:
                async with self._running(target) as sink:
                    await sink.open({HERE: None})
                    batch = await self._batch(values)
                    async with asyncio.TaskGroup() as group:
                        put = group.create_task(sink.put(batch), name="given up")
                        for _ in range(turns):
                            await asyncio.sleep(0)
                        put.cancel()
                    if put.cancelled():
                        await again(sink, values)
                    await sink.flush({HERE: len(values)})
                written = list(await target.written())
            assert set(written) == set(values)
            if self.case.is_exactly_once:
                assert written == values
            if not put.cancelled():
                return

    async def _put(self, sink: SinkConnector[Any], batch: SinkBatch) -> int:
        """Put, and put again what the sink wants again, as the worker does; how often that was a part of it."""
        partial = 0
        for _ in range(TRIES_MAX):
            try:
                await sink.put(batch)
            except Retriable as error:
                if error.rows is not None:
                    rows = sorted(set(error.rows))
                    assert set() < set(rows) <= set(range(len(batch))), "no rows of this batch are to come again"
                    partial += len(rows) < len(batch)
                    batch = batch.take(np.array(rows, np.int64))
            else:
                return partial
        raise AssertionError(f"the sink wants its records again for the {TRIES_MAX}th time")

    async def _opened(self, sink: SinkConnector[Any]) -> int:
        """Open as a worker does for a group that has committed nothing: records come from where the sink says."""
        return (await sink.open({HERE: None})).get(HERE, 0)

    async def _batch(
        self,
        values: Sequence[str | bytes | None],
        *,
        begin: int = 0,
        partition: Partition = HERE,
        refused: list[int] | None = None,
    ) -> SinkBatch:
        """Records from an offset on, without keys; ``refused`` hears of rows. Bytes are payloads as they are."""
        payloads = [self.case.payload(value) if isinstance(value, str) else value for value in values]
        heard = [] if refused is None else refused
        return await batch_of(payloads, self.case.values, begin=begin, partition=partition, refused=heard)

    def _connector(self, properties: Mapping[str, str]) -> SinkConnector[Any]:
        config = self.case.connector.config_class.parse(properties).config
        assert config is not None
        return self.case.connector(config)

    def _findings(self, properties: Mapping[str, str]) -> set[str]:
        parsed = self.case.connector.config_class.parse(properties)
        own = () if parsed.config is None else self.case.connector(parsed.config).findings()
        return {finding.key for finding in (*parsed.findings, *own) if finding.is_error}

    @asynccontextmanager
    async def _running(self, target: Target, *, task: int = 0) -> AsyncIterator[SinkConnector[Any]]:
        sink = self._connector(target.properties)
        async with shared_http() as http:
            try:
                await sink.start(SinkContext("sink", task, SystemClock(), discard, http))
                yield sink
            finally:
                async with asyncio.timeout(STOP_SECONDS_MAX):
                    await sink.stop()
