"""A driver of Spark's, as a user writes one: reads by ``format("headrace")`` and says what it found, a JSON line each.

In a process of its own, because Spark has one context a process: first on the cluster that it is told of, then in local
mode.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

SLOW_START = "connect back"
"""What Spark says when a Python process of its own has not started within ten seconds: the query is started again."""


def main(master: str, folder: Path, options: Mapping[str, Mapping[str, str]]) -> None:
    """All of it; ``options``: of ``mixpanel``, ``gated``, ``counted`` and ``wrong``."""
    spark = _session(master)
    import service.spark_source  # noqa: PLC0415 - this is what registers the format

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
    _read(spark, options["gated"]).write.parquet(str(folder / "counted"))
    _say("killed", numbers=_numbers(spark, folder / "counted"))
    spark.stop()

    spark = _session("local[2]")
    service.spark_source.register(spark)
    _say("local", numbers=sorted(row.n for row in _read(spark, options["counted"]).collect()))
    try:
        _read(spark, options["wrong"])
    except AnalysisException as error:
        _say("wrong", message=str(error))
    until = Path(options["counted"]["counting.until"])
    for _ in range(2):
        _stream(spark, options["counted"], folder)
        _say("streamed", numbers=_numbers(spark, folder / "streamed"))
        until.write_text(str(int(until.read_text()) * 2))
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


def _stream(spark: SparkSession, options: Mapping[str, str], folder: Path) -> None:
    """What there is now, into Parquet; the checkpoint says where to go on."""
    source = spark.readStream.format("headrace").options(**options).option("headrace.pages.path", str(folder / "pages"))
    sink = source.load().writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    while True:
        try:
            sink.trigger(availableNow=True).start(str(folder / "streamed"), format="parquet").awaitTermination()
        except StreamingQueryException as error:
            if SLOW_START not in str(error):
                raise
        else:
            return


def _numbers(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.n for row in spark.read.parquet(str(folder)).collect())


def _say(step: str, **found: Any) -> None:
    print(json.dumps({"step": step, **found}), flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
