"""Runs files of SQL in Spark with Hive's catalogue, then a query; prints a JSON text for each row of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(folder: str, query: str, *files: str) -> None:
    """Run the statements in order, and tell the query's rows."""
    settings: dict[str, bool | float | int | str | None] = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    spark: SparkSession = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    for file in files:
        for statement in Path(file).read_text(encoding="utf-8").split(";\n"):
            if statement.strip():
                spark.sql(statement)
    for row in spark.sql(query).toJSON().collect():
        sys.stdout.write(json.dumps(json.loads(row), sort_keys=True) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
