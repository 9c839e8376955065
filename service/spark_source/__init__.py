"""Any fetcher as a data source of Spark: ``spark.read.format("headrace")`` and ``spark.readStream`` (decision 50).

Importing this registers the format with the active session; ``register(spark)`` with any other.

    options  what the options mean, and what is wrong with them
    feed     what is read, in parts
    fetching one task's fetcher beside a thread of Spark's
    rows     judged pages as columns
    stream   a streaming query's run on the driver; pages_folder keeps what it has fetched
"""

from service.spark_source.source import HeadraceSource, register

__all__ = ["HeadraceSource", "register"]
