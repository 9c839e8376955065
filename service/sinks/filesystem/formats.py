"""Files of each format, written by columns into a file that is open."""

from __future__ import annotations

import gzip
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as po
import pyarrow.parquet as pq

from service.sinks.filesystem.avro_file import AvroFile
from service.sinks.filesystem.config import FilesConfig
from service.sinks.shapes import Shape

_ROW_GROUP_ROWS = 1_048_576
_PARQUET_NAMES = {"uncompressed": "none", "lz4raw": "lz4"}


class FormatWriter(Protocol):
    """Writes the values of one file."""

    def write(self, values: Any) -> None:
        """Append a column of values."""

    def close(self) -> None:
        """Write what ends the file; the file itself stays open."""


def writer_of(file: IO[bytes], shape: Shape, config: FilesConfig) -> FormatWriter:
    """The writer of the config's format."""
    if config.format == "avro" and shape.avro is not None:
        return AvroFile(file, shape.avro, config.avro_codec)
    if config.format == "parquet":
        return _Parquet(file, shape, config.parquet_codec)
    if config.format == "orc":
        return _Orc(file)
    return _Lines(file, is_gzip=config.extension.endswith(".gz"))


class _Parquet:
    def __init__(self, file: Any, shape: Shape, codec: str) -> None:
        metadata: Any = {} if shape.avro is None else {"parquet.avro.schema": shape.avro}
        self._schema = pa.schema(list(shape.type), metadata=metadata)
        name: Any = _PARQUET_NAMES.get(codec, codec)
        self._writer = pq.ParquetWriter(pa.PythonFile(file, mode="w"), self._schema, compression=name)

    def write(self, values: Any) -> None:
        table = pa.Table.from_arrays(values.flatten(), schema=self._schema)
        self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)

    def close(self) -> None:
        self._writer.close()


class _Orc:
    """ORC has no times of day: they are written as numbers. Instants are times of UTC's clock.

    ORC's own type of instants, ``timestamp with local time zone``, makes a file that Spark does not read at all.
    """

    def __init__(self, file: Any) -> None:
        self._writer = po.ORCWriter(pa.PythonFile(file, mode="w"), compression="ZLIB")

    def write(self, values: Any) -> None:
        fields = [pa.field(field.name, _orc_type(field.type)) for field in values.type]
        columns = [column.cast(field.type) for column, field in zip(values.flatten(), fields, strict=True)]
        self._writer.write(pa.Table.from_arrays(columns, schema=pa.schema(fields)))

    def close(self) -> None:
        self._writer.close()


def unfit_for_orc(values: Any) -> npt.NDArray[np.bool_]:
    """Rows with a time before 1970 that has a fraction of a second.

    Arrow's writer would give it nanoseconds below 0, and nobody who reads ORC in Java could read the file.
    """
    kind = values.type
    found = np.zeros(len(values), dtype=bool)
    if pa.types.is_struct(kind):
        for child in values.flatten():
            found |= unfit_for_orc(child)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        places = values.offsets.to_numpy()
        items = values.items if pa.types.is_map(kind) else values.values
        rows = np.repeat(np.arange(len(values)), np.diff(places))
        found[rows[unfit_for_orc(items.slice(places[0], places[-1] - places[0]))]] = True
    elif pa.types.is_timestamp(kind):
        times = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
        found = (times < 0) & (times % (1000 if kind.unit == "ms" else 1_000_000) != 0)
    return found


def _orc_type(kind: Any) -> Any:
    """The type, with numbers for times of day, and times of no zone, wherever they stand."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_orc_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_orc_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _orc_type(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_time(kind):
        return pa.int32() if pa.types.is_time32(kind) else pa.int64()
    return kind


class _Lines:
    """A text or bytes a line."""

    def __init__(self, file: IO[bytes], *, is_gzip: bool) -> None:
        self._file: Any = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if is_gzip else file
        self._is_gzip = is_gzip

    def write(self, values: Any) -> None:
        raw = values.cast(pa.binary())
        feed = pa.scalar(b"\n", pa.binary())
        lists = pa.ListArray.from_arrays(pa.array([0, len(raw)], pa.int32()), raw)
        joined: Any = pc.binary_join(lists, feed)
        self._file.write(joined[0].as_buffer())
        self._file.write(b"\n")

    def close(self) -> None:
        if self._is_gzip:
            self._file.close()
