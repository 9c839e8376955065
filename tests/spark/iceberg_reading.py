"""Reads an Iceberg table by Spark SQL: ``iceberg_reading.py CATALOG_URL JARS QUERY``; prints a JSON text a row."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(address: str, jars: str, query: str) -> None:
    """Run the query and print its rows, one a line."""
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": jars,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": address,
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    spark: SparkSession = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    for row in spark.sql(query).toJSON().collect():
        sys.stdout.write(json.dumps(json.loads(row), sort_keys=True) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
