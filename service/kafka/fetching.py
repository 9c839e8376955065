"""Polls of a consumer in columns: what stands in for the client library's own records of a fetch.

The library makes an object of every record as it is asked for. Here it hands out tables instead, each as large as
there is room for in the poll, and keeps doing all else: fetching, positions, rebalances. Like `service.kafka.library`
this reaches inside of it, and the same test pins the version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiokafka.consumer.fetcher
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from service.kafka.fetched import RECORDS_SCHEMA, Batch, batches_of, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from aiokafka import AIOKafkaConsumer


class KeptRecords(MemoryRecords):  # type: ignore[misc, unused-ignore] # the library has it in C or in Python
    """The library's reader of a fetch, which does not give the bytes back by itself."""

    def __init__(self, data: bytes) -> None:
        """Keep them."""
        super().__init__(data)
        self.data = data


aiokafka.consumer.fetcher.MemoryRecords = KeptRecords


@dataclass(slots=True)
class Room:
    """How much more a poll may take; set before each, and used up as tables are given out."""

    records: int = 0
    size_bytes: int = 0
    """Of keys and values, decompressed. The record that passes it is the last one taken."""

    @property
    def is_left(self) -> bool:
        """Whether one more record may be taken."""
        return self.records > 0 and self.size_bytes > 0

    def fitting(self, sizes_bytes: npt.NDArray[np.int64]) -> int:
        """How many of records of these sizes there is room for, at least one."""
        ends = np.cumsum(sizes_bytes[: self.records])
        return min(len(ends), int(np.searchsorted(ends, self.size_bytes)) + 1)

    def take(self, sizes_bytes: npt.NDArray[np.int64]) -> None:
        """Use it for records of these sizes."""
        self.records -= len(sizes_bytes)
        self.size_bytes -= int(sizes_bytes.sum())


class FetchedTables(PartitionRecords):  # type: ignore[misc]
    """Records of one partition of one fetch, in tables with `RECORDS_SCHEMA`.

    The library asks for one after another, and reads after each from `next_fetch_offset` what comes next. Nothing here
    or in what it replaces refers to itself: the megabytes of a fetch go with the last who reads it. In a cycle, such as
    a generator makes that is an attribute of its ``self``, they would stay until Python looks for garbage, and it looks
    by the number of objects, of which a fetch has hardly any.
    """

    next_fetch_offset: int
    _records_iterator: Iterator[Batch]

    def __init__(self, records: PartitionRecords, room: Room) -> None:
        """Take the place of ``records``, which nothing has been asked of, nor will be."""
        super().__init__(
            records._tp,  # noqa: SLF001
            records._records,  # noqa: SLF001
            records._aborted_transactions,  # noqa: SLF001
            records.next_fetch_offset,
            None,
            None,
            records._check_crcs,  # noqa: SLF001
            records._isolation_level,  # noqa: SLF001
        )
        records._records_iterator = None  # noqa: SLF001 - a generator that refers to them
        self._room = room
        self._rest = RECORDS_SCHEMA.empty_table()
        self._rest_end = self.next_fetch_offset

    def __next__(self) -> pa.Table:
        """As many records as there is room for; called only while there is some."""
        pieces: list[pa.Table] = []
        # What raises ends it, and the library fetches again what was not taken.
        batches, self._records_iterator = self._records_iterator, iter(())
        while self._room.is_left and (self._rest.num_rows or self._has_more(batches)):
            pieces.append(self._cut())
        self._records_iterator = batches
        if not pieces:
            raise StopIteration
        return pa.concat_tables(pieces)

    def _unpack_records(self) -> Iterator[Batch]:
        return batches_of(self._records.data)

    def _has_more(self, batches: Iterator[Batch]) -> bool:
        """Read up to the next records that are somebody's; False where there are none."""
        for batch in batches:
            if self._check_crcs:
                batch.demand_checksum()
            if self._is_for_readers(batch):
                table = self._table(batch)
                # A fetch begins with the batch that has the offset, which may have records before it.
                first = int(np.searchsorted(table.column("offset").to_numpy(), self.next_fetch_offset))
                self._rest, self._rest_end = table.slice(first), batch.next_offset
            if self._rest.num_rows:
                return True
            self.next_fetch_offset = max(self.next_fetch_offset, batch.next_offset)
        return False

    def _cut(self) -> pa.Table:
        """Of the records at hand as many as there is room for."""
        sizes = sizes_bytes(self._rest.slice(0, self._room.records))
        count = self._room.fitting(sizes)
        self._room.take(sizes[:count])
        piece, self._rest = self._rest.slice(0, count), self._rest.slice(count)
        self.next_fetch_offset = piece.column("offset")[-1].as_py() + 1
        if not self._rest.num_rows:
            # After compaction a batch may end before the offsets that it had.
            self.next_fetch_offset = max(self.next_fetch_offset, self._rest_end)
        return piece

    def _is_for_readers(self, batch: Batch) -> bool:
        """Whether the records of a batch are somebody's to read; notes where an aborted transaction begins and ends."""
        if batch.producer_id < 0 or self._isolation_level != aiokafka.consumer.fetcher.READ_COMMITTED:
            return not batch.is_control
        self._consume_aborted_up_to(batch.base_offset)
        if batch.is_control:
            marks = self._table(batch).column("key").to_pylist()
            if marks and ControlRecord.parse(marks[0]) == ABORT_MARKER:
                self._aborted_producers.discard(batch.producer_id)
            return False
        return not (batch.is_transactional and batch.producer_id in self._aborted_producers)

    def _table(self, batch: Batch) -> pa.Table:
        return table_of(batch, topic=self._tp.topic, partition=self._tp.partition)


def sizes_bytes(records: pa.Table) -> npt.NDArray[np.int64]:
    """For each record the bytes of its key and value."""
    total = np.zeros(records.num_rows, np.int64)
    for name in ("key", "value"):
        lengths: Any = pc.binary_length(records.column(name))
        total += pc.fill_null(lengths, 0).to_numpy()
    return total


def poll_tables(consumer: AIOKafkaConsumer, room: Room) -> None:
    """Let a started consumer that has no partitions yet give tables, one from a call, where it would give records."""
    fetcher = consumer._fetcher  # noqa: SLF001
    fetch = fetcher._proc_fetch_request  # noqa: SLF001

    async def fetch_tables(*arguments: Any) -> bool:
        has_come = await fetch(*arguments)
        # Nothing is awaited between the library's putting them there and this.
        for result in fetcher._records.values():  # noqa: SLF001
            records = getattr(result, "_partition_records", None)
            if records is not None and not isinstance(records, FetchedTables):
                result._partition_records = FetchedTables(records, room)  # noqa: SLF001
        return bool(has_come)

    fetcher._proc_fetch_request = fetch_tables  # noqa: SLF001
