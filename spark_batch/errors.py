"""Errors of a conversion, by recovery. A bad record is never an error: it is a rejected outcome."""

from __future__ import annotations


class ConversionError(Exception):
    """A whole micro-batch could not be converted."""


class ConversionRetriable(ConversionError):
    """Spark was lost, restarted or too slow: the same micro-batch may be given again."""


class SparkUnavailable(ConversionRetriable):
    """Spark does not start, or the disk it works on is full: no micro-batch is to blame."""


class ConversionFatal(ConversionError):
    """The plan or the job is wrong: the same micro-batch would fail again."""

    @classmethod
    def of_size(cls, records: int) -> ConversionFatal:
        """Of more bytes than one column of Arrow has room for."""
        return cls(
            f"{records} records of one micro-batch have more than 2 GiB as they are written: "
            "lower batch.records.max or batch.bytes.max"
        )
