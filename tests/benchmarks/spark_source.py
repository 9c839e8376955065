"""A Mixpanel backfill by Spark's data source, in local mode on two cores, to Parquet: measured beside the service.

Run as a program it is the driver. It writes one day first, whole: the service's rate is taken from its first readable
micro-batch on, when its processes are there and its JVM has compiled what it does. A read that is broken off would
not do, since Spark ends the Python process of such a task.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from service.simulators.mixpanel_process import simulator_process
from service.spark_source import HeadraceSource, register
from tests.benchmarks.processes import ROOT
from tests.benchmarks.throughput import Field, mixpanel_properties, mixpanel_settings
from tests.benchmarks.watching import Passage, processor_seconds

BEGUN, WRITTEN, COUNTED = "begun", "written", "counted"


async def from_mixpanel(field: Field, run: str, *, records: int) -> Passage:
    """From the start of the job that reads everything to its end, the planning of it included."""
    return await asyncio.to_thread(_backfill, field, run, records=records)


def _backfill(field: Field, run: str, *, records: int) -> Passage:
    settings = mixpanel_settings(records)
    with simulator_process(settings, is_prepared=True) as simulator:
        options = mixpanel_properties(settings, simulator.url)
        command = [sys.executable, "-m", "tests.benchmarks.spark_source", str(field.folder / f"spark-{run}")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        log = (field.folder / f"spark-{run}.log").open("wb")
        with (
            log,
            subprocess.Popen(
                [*command, json.dumps(options)],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as driver,
        ):
            sample = processor_seconds({"Python": driver.pid})
            _line(driver, BEGUN)
            begun, before = time.monotonic(), sample()
            _line(driver, WRITTEN)
            done, after = time.monotonic(), sample()
            read = int(_line(driver, COUNTED))
    if read != records:
        raise ValueError(f"{read} records were read of {records}")
    used = {part: seconds - before.get(part, 0.0) for part, seconds in after.items()}
    return Passage(records, 0, begun, done, used)


def _line(driver: subprocess.Popen[str], word: str) -> str:
    """What the driver says after a word; raises where it has ended instead."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith(word):
            return line.removeprefix(word)
    raise ValueError("the driver ended before its time: see its log")


def main(folder: Path, options: dict[str, str]) -> None:
    """Warm up, read all, wait until the other side has looked."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    first_day = {"mixpanel.to.date": options["from_date"]}
    warming = spark.read.format(HeadraceSource.name()).options(**{**options, **first_day}).load()
    warming.write.parquet(f"{folder}-warming")
    whole = spark.read.format(HeadraceSource.name()).options(**options).load()
    print(BEGUN, flush=True)
    whole.write.parquet(str(folder))
    print(WRITTEN, flush=True)
    print(COUNTED, spark.read.parquet(str(folder)).count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
