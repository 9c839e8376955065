"""The face of a Python data source to Spark (``pyspark.sql.datasource``, Spark 4.0 and later), without what it reads.

Whoever has something to read gives a ``Feed`` and a subclass of ``FeedSource``. Spark pickles instances of the classes
here by their names, to processes of its own on the driver and to executors: their modules must be installed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

Offset = dict[str, Any]
"""JSON-like; what Spark keeps in the checkpoint of a query."""


class StreamFeed(Protocol):
    """One run of a streaming query, in a process of the driver; Spark calls one method at a time."""

    def first_offset(self) -> Offset:
        """Where the query began, or begins; called when its first batch is read."""

    def resume(self, offset: Offset) -> None:
        """Go on from the newest offset of the checkpoint; called first where there is one, then for later batches."""

    def latest_offset(self) -> Offset:
        """The end of the next batch; the end of the last one where there is nothing new. Blocks for seconds at most."""

    def tasks(self, start: Offset, end: Offset) -> Sequence[Any]:
        """The batch between two offsets in parts, each pickled for ``Feed.read``; the same ones every time."""

    def commit(self, end: Offset) -> None:
        """Hear that everything up to an offset is in Spark's sink, and will never be asked for again."""

    def stop(self) -> None:
        """The run ends; may be called twice."""


class Feed(Protocol):
    """What is read: pickled to executors, so it holds no connection."""

    @property
    def schema(self) -> pa.Schema:
        """Of every batch that is read."""

    def tasks(self) -> Sequence[Any]:
        """A batch read in parts, each pickled for ``read``; called on the driver."""

    def read(self, task: Any) -> Iterator[pa.RecordBatch]:
        """One part, on an executor; from its beginning, as often as Spark tries it."""

    def open_stream(self) -> StreamFeed:
        """A run of a streaming query; raises what is wrong with that."""


class FeedSource(DataSource):
    """A format that Spark reads. Its subclasses say what, in ``feed``."""

    reader_class: ClassVar[type[FeedReader]]
    stream_reader_class: ClassVar[type[FeedStreamReader]]

    def feed(self) -> Feed:
        """What the options name; raises ValueError with everything that is wrong with them."""
        raise NotImplementedError

    def schema(self) -> StructType:
        """By the feed; called on ``load()``."""
        return from_arrow_schema(self.feed().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch; called once Spark runs it."""
        return self.reader_class(self._checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For a query, in a process that lives as long as its run."""
        return self.stream_reader_class(self._checked(schema))

    def _checked(self, schema: StructType) -> Feed:
        """Raises ValueError for a schema of the user's own: Spark would read columns of one type as another's."""
        feed = self.feed()
        own = from_arrow_schema(feed.schema)
        if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in own]:
            message = f"the schema is given by the contract; leave .schema(...) out, or give {own.simpleString()}"
            raise ValueError(message)
        return feed


class FeedReader(DataSourceReader):
    """A batch."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def partitions(self) -> list[InputPartition]:
        """One for each task."""
        return [InputPartition(task) for task in self.feed.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        yield from self.feed.read(partition.value)


class FeedStreamReader(DataSourceStreamReader):
    """A query's source. Spark pickles it to executors before it asks for anything, so a run opens late."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._stream: StreamFeed | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """See ``StreamFeed``."""
        return self._opened().first_offset()

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """See ``StreamFeed``."""
        return self._opened().latest_offset()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The parts of a batch. At the restart of a query Spark asks for an empty one, at its newest offset."""
        stream = self._opened()
        stream.resume(end)
        return [InputPartition(task) for task in stream.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        yield from self.feed.read(partition.value)

    def commit(self, end: Offset) -> None:
        """See ``StreamFeed``."""
        self._opened().commit(end)

    def stop(self) -> None:
        """See ``StreamFeed``."""
        if self._stream is not None:
            self._stream.stop()

    def _opened(self) -> StreamFeed:
        if self._stream is None:
            self._stream = self.feed.open_stream()
        return self._stream


FeedSource.reader_class, FeedSource.stream_reader_class = FeedReader, FeedStreamReader


def register(source: type[FeedSource], session: SparkSession | None = None) -> bool:
    """Make the format known to a session, or to the active one; False where there is none."""
    if session is None:
        try:
            session = SparkSession.getActiveSession()
        except PySparkException:
            session = None
    if session is None:
        return False
    session.dataSource.register(source)
    return True
