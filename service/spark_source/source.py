"""The format ``headrace``, and its registration."""

from __future__ import annotations

from typing import Any

from service.spark_source.feed import SourceFeed
from service.spark_source.options import read_options
from spark_batch import data_source


class HeadraceSource(data_source.FeedSource):
    """Options are a connector's keys; ``load("file.properties")`` takes them from its file."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace"

    def feed(self) -> SourceFeed:
        """Raises OptionsRefusedError."""
        return SourceFeed(read_options(dict(self.options)))


def register(spark: Any) -> None:
    """Make ``format("headrace")`` known to a session, classic or Connect.

    Spark's Python on the driver (with Connect: on the server) and on the executors must be able to import headrace.
    """
    data_source.register(HeadraceSource, spark)


data_source.register(HeadraceSource)
