"""A driver of Spark's, as a user writes one: reads by ``format("headrace")`` and says what it found, a JSON line each.

In a process of its own, because Spark has one context a process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def main(master: str, folder: Path, options: Mapping[str, Mapping[str, str]]) -> None:
    """All of it; ``options``: of ``mixpanel``."""
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


def _say(step: str, **found: Any) -> None:
    print(json.dumps({"step": step, **found}), flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
