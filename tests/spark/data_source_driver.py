"""A driver of Spark's, as a user writes one: reads by ``format("headrace")`` and says what it found, a JSON line each.

In a process of its own, because Spark has one context a process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.counting_source import grow_to

SLOW_START = "connect back"
"""What Spark says when a Python process of its own has not started within ten seconds: the query is started again."""
LOOK_SECONDS = 1


def main(master: str, folder: Path, options: Mapping[str, Mapping[str, str]]) -> None:
    """All of it; ``options``: of ``mixpanel``, ``gated`` and ``streamed``."""
    spark = _session(master)
    import service.spark_source  # noqa: F401, PLC0415 - this is what registers the format

    _read(spark, options["mixpanel"]).write.parquet(str(folder / "events"))
    events = spark.read.parquet(str(folder / "events"))
    valid = events.where("_rejected is null")
    key = ("event", "properties.distinct_id", "properties.time", "properties.insert_id")
    _say(
        "backfill",
        valid=valid.count(),
        distinct=valid.select(*key).distinct().count(),
        rejected=events.where("_rejected.payload is not null").count(),
    )
    _read(spark, options["gated"]).write.parquet(str(folder / "gated"))
    _say("killed", numbers=_numbers(spark, folder / "gated"))

    _stream(spark, options["streamed"], folder, is_stopped_early=True)
    _say("stopped", numbers=_numbers(spark, folder / "streamed"))
    until = Path(options["streamed"]["counting.until"])
    grow_to(until, int(until.read_text()) + 60)
    _stream(spark, options["streamed"], folder, is_stopped_early=False)
    _say("resumed", numbers=_numbers(spark, folder / "streamed"))
    spark.stop()


def _session(master: str) -> SparkSession:
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    builder = SparkSession.builder.master(master).appName("data source").config(map=settings)
    spark: SparkSession = builder.config("spark.log.level", "ERROR").getOrCreate()
    return spark


def _read(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("headrace").options(**options).load()


def _stream(spark: SparkSession, options: Mapping[str, str], folder: Path, *, is_stopped_early: bool) -> None:
    """A query into Parquet from its checkpoint on: until it has written a batch, or everything there is now."""
    source = spark.readStream.format("headrace").options(**options).option("headrace.pages.path", str(folder / "pages"))
    sink = source.load().writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    while True:
        query = sink.start(str(folder / "streamed"), format="parquet")
        try:
            _run(query, is_stopped_early=is_stopped_early)
        except StreamingQueryException as error:
            if SLOW_START not in str(error):
                raise
        else:
            return
        finally:
            query.stop()


def _run(query: StreamingQuery, *, is_stopped_early: bool) -> None:
    if not is_stopped_early:
        query.processAllAvailable()
        return
    while not any(progress.numInputRows for progress in query.recentProgress):
        query.awaitTermination(LOOK_SECONDS)  # raises what ends it


def _numbers(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.n for row in spark.read.parquet(str(folder)).collect())


def _say(step: str, **found: Any) -> None:
    print(json.dumps({"step": step, **found}), flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
