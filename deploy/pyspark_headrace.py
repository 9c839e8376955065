"""headrace's format for Spark that has the wheel: Spark itself looks for top-level modules named ``pyspark_…``.

It imports them on the driver (with Connect: on the server) and takes ``DefaultSource``; see
``pyspark/sql/worker/lookup_data_sources.py`` of Spark 4.1. What Spark pickles by name is of this module, so that the
processes which unpickle it import headrace first, and with it the path to its packages (decision 47).
"""

import headrace  # noqa: F401 - puts the packages below on the path

from service.spark_source.source import HeadraceSource
from spark_batch.data_source import FeedReader, FeedStreamReader


class Reader(FeedReader):
    """A batch."""


class StreamReader(FeedStreamReader):
    """A query's source."""


class DefaultSource(HeadraceSource):
    """The format ``headrace``."""

    reader_class = Reader
    stream_reader_class = StreamReader
