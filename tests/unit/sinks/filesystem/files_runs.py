"""``FileSystemSink`` in tests: batches put to it, what stands in its folder, and file systems that die."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from fetchers.sdk.reach import AllowedPaths
from metrics.events import discard
from service.sinks.batch import Form, SinkBatch, ValueType
from service.sinks.contract import Partition, SinkContext
from service.sinks.filesystem.config import FileSystemSinkConfig
from service.sinks.filesystem.sink import FilesSink, FileSystemSink
from service.sinks.filesystem.stores import LocalStore

HERE: Partition = ("orders", 0)


class FixedClock(SystemClock):
    """A clock whose hands are set, and time that goes by when it is told to."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        """The time of day; who sets it alone has set the machine's clock."""
        self._seconds = 0.0

    def now(self) -> datetime:
        """The time that was set."""
        return self.at

    def monotonic(self) -> float:
        """Seconds that have gone by, whatever the time of day is."""
        return self._seconds

    def go_on(self, seconds: float) -> None:
        """Let time go by."""
        self.at += timedelta(seconds=seconds)
        self._seconds += seconds


def config_of(folder: Path, **changes: str) -> FileSystemSinkConfig:
    """JSON lines, three records a file where nothing else is said; dots of keys as double underscores."""
    properties = {"store.url": f"file://{folder}", "format.class": "JsonFormat"}
    if "flush__size__bytes" not in changes:
        properties["flush.size"] = "3"
    parsed = FileSystemSinkConfig.parse({**properties, **{k.replace("__", "."): v for k, v in changes.items()}})
    assert parsed.config is not None, parsed.findings
    assert not list(parsed.config.own_findings())
    return parsed.config


def batch_of(
    values: Sequence[Any] | pa.Array[Any],
    *,
    begin: int = 0,
    schema: str | None = None,
    form: Form = Form.JSON,
    times_ms: Sequence[int] | None = None,
    topic: str = "orders",
    refused: list[tuple[int, str, str]] | None = None,
) -> SinkBatch:
    """Records of one partition; values that are no column are written as JSON."""
    column = values
    if not isinstance(values, pa.Array):
        column = pa.array([None if each is None else json.dumps(each) for each in values], pa.string())
    count = len(values)
    records = pa.table(
        {
            "topic": pa.array([topic] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(begin, begin + count), pa.int64()),
            "timestamp": pa.array(times_ms or [1_000] * count, pa.int64()),
            "key": pa.nulls(count, pa.binary()),
            "value": column,
            "original_topic": pa.array(["orders"] * count, pa.string()),
        }
    )
    heard = [] if refused is None else refused
    kind = ValueType(form, schema)
    return SinkBatch(records, ValueType(Form.BYTES), kind, lambda *refusal: heard.append(refusal))


@asynccontextmanager
async def running(
    config: FileSystemSinkConfig, *, store: LocalStore | None = None, clock: SystemClock | None = None
) -> AsyncIterator[FileSystemSink]:
    """A started sink, stopped at the end; behind it nothing is written or removed any more."""
    sink = FileSystemSink(config)
    async with shared_http() as http:
        await sink.start(SinkContext("files", 0, clock or SystemClock(), discard, http))
        sink._store = store or QuickStore(Path(urlsplit(config.url).path))
        try:
            yield sink
        finally:
            await sink.stop()
            await asyncio.to_thread(sink._thread._executor.shutdown)  # `stop` waits for no disk


def found(folder: Path, pattern: str = "topics/orders/**/*.json") -> dict[str, list[Any]]:
    """The JSON of each file, by its path below ``topics``."""
    return {
        str(file.relative_to(folder / "topics")): [json.loads(line) for line in file.read_text().split("\n")[:-1]]
        for file in sorted(folder.glob(pattern))
    }


def commits(folder: Path) -> int:
    """How often files were committed; the log's first entry is the claim."""
    (entry,) = folder.glob("logs/orders/0/*.commit")
    return int(entry.stem) - 1


def every_name(folder: Path) -> set[str]:
    """Paths of all files below ``topics``."""
    return {str(file.relative_to(folder / "topics")) for file in (folder / "topics").rglob("*") if file.is_file()}


class DiedError(Exception):
    """The machine is off."""


class QuickStore(LocalStore):
    """Waits for no disk."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, AllowedPaths())

    def finish(self, file: IO[bytes]) -> None:
        """Close it."""
        file.close()

    def _sync(self, folder: Path) -> None:
        """Nothing dies with its disk here."""


class CountingStore(QuickStore):
    """Knows how many files were open at once, those of the log among them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open_max = 0
        self._opened: list[IO[bytes]] = []

    def create(self, path: str) -> IO[bytes]:
        """As of a folder of this machine."""
        self._opened = [*(file for file in self._opened if not file.closed), super().create(path)]
        self.open_max = max(self.open_max, len(self._opened))
        return self._opened[-1]


class DyingStore(QuickStore):
    """Does so many operations, then none any more: each begins and ends with a moment at which it may die."""

    def __init__(self, root: Path, moments: int, *, is_passing: bool = False) -> None:
        """``is_passing``: it does not die, but one operation fails."""
        super().__init__(root)
        self.moments = moments
        self.is_passing = is_passing
        self.opened: list[IO[bytes]] = []

    def _live(self) -> None:
        self.moments -= 1
        if self.is_passing and self.moments == -1:
            raise OSError(errno.EIO, "it will pass")
        if self.moments < 0 and not self.is_passing:
            raise DiedError

    def _around(self, work: Callable[[], Any]) -> Any:
        self._live()
        done = work()
        self._live()
        return done

    def names(self, folder: str) -> list[str]:
        """As of a folder of this machine."""
        found: list[str] = self._around(lambda: QuickStore.names(self, folder))
        return found

    def create(self, path: str) -> IO[bytes]:
        """As of a folder of this machine."""
        self._live()
        file = super().create(path)
        self.opened.append(file)
        self._live()
        return file

    def finish(self, file: IO[bytes]) -> None:
        """As of a folder of this machine."""
        self._around(lambda: QuickStore.finish(self, file))

    def move(self, source: str, target: str) -> None:
        """In its middle the new name is there and the old one not yet gone."""
        self._around(lambda: QuickStore.move(self, source, target))

    def remove(self, path: str) -> None:
        """As of a folder of this machine."""
        self._around(lambda: QuickStore.remove(self, path))

    def close(self) -> None:
        """What the system does with the files of a process that is gone."""
        for file in self.opened:
            file.close()


async def feed(sink: FileSystemSink, rows: Sequence[Mapping[str, Any]], *, size: int = 4) -> None:
    """Open the partition and put all rows from where the sink wants to begin."""
    begin = (await sink.open({HERE: None})).get(HERE, 0)
    for start in range(begin, len(rows), size):
        await sink.put(batch_of(rows[start : start + size], begin=start))


SET_CLOCK = FixedClock(datetime(2026, 3, 29, tzinfo=UTC))
DAY = timedelta(days=1)
CLOCK_SET = [pytest.param(-DAY, id="back a day"), pytest.param(DAY, id="ahead a day")]
BY_CLOCK = [
    {"rotate__idle__interval__ms": "60000"},
    {"rotate__schedule__interval__ms": "60000", "timezone": "UTC"},
    {"rotate__interval__ms": "60000", "timestamp__extractor": "Wallclock"},
]
"""Keys by which files end by the time of day, or by time that goes by: after a minute each."""
BY_CLOCK_IDS = ["idle", "schedule", "wallclock"]


async def clock_is_set(sink: FilesSink, clock: FixedClock, by: timedelta) -> int:
    """Put a record, set the machine's clock, and let a record come each minute; returns how many came.

    Where no record is needed to end a file, the first is committed by the flush after its minute.
    """
    await sink.open({HERE: None})
    await sink.put(batch_of([{"n": 0}]))
    clock.at += by
    clock.go_on(61)
    by_record = sink.config.rotate_interval_ms > 0
    assert await sink.flush({HERE: 1}) == ({} if by_record else {HERE: 1})
    count = 6
    for number in range(1, count):
        await sink.put(batch_of([{"n": number}], begin=number))
        clock.go_on(61)
    return count
