"""Rows as data files of a table, one for each of its partitions.

PyIceberg's own way, which makes the rows fit once more, turns null lists and maps of structs into empty ones; the rows
here fit already, so its writer gets them as they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import _determine_partitions
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record


def written(table: Table, rows: Any) -> Iterator[DataFile]:
    """Write rows of the table's Arrow schema; they are not the table's before they are committed."""
    metadata = table.metadata
    places = load_location_provider(table_location=metadata.location, table_properties=metadata.properties)
    model = FileFormatFactory.get(FileFormat.PARQUET)
    for key, part in _parts(table, rows):
        path = places.new_data_location(f"{uuid.uuid4()}.{model.file_extension()}", key)
        output = table.io.new_output(path)
        writer = model.create_writer(output, metadata.schema(), metadata.properties)
        with writer:
            writer.write(part)
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record() if key is None else key.partition,
            file_size_in_bytes=len(output),
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **writer.result().to_serialized_dict(),
        )
        made.spec_id = metadata.default_spec_id
        yield made


def _parts(table: Table, rows: Any) -> Iterator[tuple[PartitionKey | None, Any]]:
    spec = table.metadata.spec()
    if spec.is_unpartitioned():
        yield None, rows
        return
    for part in _determine_partitions(spec, table.metadata.schema(), rows):
        yield part.partition_key, part.arrow_table_partition
