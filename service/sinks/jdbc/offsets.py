# ruff: noqa: S608 - names are quoted, and texts are literals of the database
"""Offsets in the database itself, written in the transaction of the rows: so each record is written exactly once.

A row for each partition says up to where its records are in the database, which of them were refused and have no dead
letter yet, and what Kafka's group had committed. Each assignment counts its generation up: whoever was given the
partition before, and does not know yet that it is gone, finds another number than its own and writes nothing.
Offsets that were altered or reset by hand are others than those noted at the last commit, and are obeyed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fetchers.sdk import Fatal, Retriable
from service.sinks.batch import Offsets, Partition, SinkBatch
from service.sinks.jdbc.database import Database, RowsRefused


@dataclass(frozen=True, slots=True)
class Progress:
    """What the table says of a partition."""

    next_offset: int
    committed_offset: int | None
    generation: int
    refused: tuple[int, ...]
    """Offsets below ``next_offset`` whose records were not written, and may have no dead letter."""


class OffsetsTable:
    """The table ``offsets.table``, as one connector sees it. Each call is made within a transaction."""

    def __init__(self, database: Database, name: str, connector: str) -> None:
        """``name``: quoted."""
        self._database = database
        self._name = name
        self._connector = connector
        self._generations: dict[Partition, int] = {}

    def ensure(self) -> None:
        """Make the table where it is missing: who may write to it need not be one who may make tables."""
        there = self._database.target(self._name)
        if there is not None:
            if there.engine:
                raise Fatal(
                    f"{self._name} is kept by {there.engine}, which has no transactions: offsets are none there. Run: "
                    f"ALTER TABLE {self._name} ENGINE=InnoDB"
                )
            return
        kind = self._database.text_key_type
        try:
            self._database.run(
                f"create table if not exists {self._name} (connector {kind} not null, topic {kind} not null, "
                "kafka_partition int not null, next_offset bigint not null, committed_offset bigint, "
                f"generation bigint not null, refused {self._database.long_text_type} not null, "
                "primary key (connector, topic, kafka_partition))"
            )
        except RowsRefused as error:
            message = "another task makes the table of offsets"
            raise Retriable(message) from error

    def claim(self, partitions: Mapping[Partition, int | None]) -> Offsets:
        """Take partitions over, and say where to begin."""
        begins: dict[Partition, int] = {}
        for partition, committed in partitions.items():
            known = self._progress(partition)
            if known is None:
                where = self._values(partition)
                begin = "null" if committed is None else str(committed)
                values = f"{where}, {committed or 0}, {begin}, 1, '[]'"
                names = "connector, topic, kafka_partition, next_offset, committed_offset, generation, refused"
                try:
                    self._database.run(f"insert into {self._name} ({names}) values ({values})")
                except RowsRefused as error:
                    message = f"another task takes over partition {partition[1]} of {partition[0]}"
                    raise Retriable(message) from error
                self._generations[partition] = 1
                continue
            is_altered = known.committed_offset is not None and (
                committed is None or committed < known.committed_offset
            )
            if is_altered or (committed or 0) > known.next_offset:
                known = Progress(committed or 0, committed, known.generation, ())
            elif known.next_offset > 0:
                begins[partition] = min([known.next_offset, *known.refused])
            self._generations[partition] = known.generation + 1
            self._write(partition, Progress(known.next_offset, committed, known.generation + 1, known.refused))
        return begins

    def done(self, batch: SinkBatch) -> tuple[npt.NDArray[np.bool_], dict[Partition, Progress]]:
        """Which rows of a batch are in the database already; raises Retriable where a partition is another task's."""
        is_done = np.zeros(len(batch), dtype=bool)
        known: dict[Partition, Progress] = {}
        for partition in sorted(batch.ends):
            progress = self._progress(partition)
            if progress is None or progress.generation != self._generations.get(partition):
                message = f"another task has taken over partition {partition[1]} of {partition[0]}"
                raise Retriable(message)
            known[partition] = progress
            here, offsets = of_partition(batch, partition)
            is_done[here] = (offsets < progress.next_offset) & ~np.isin(offsets, progress.refused)
        return is_done, known

    def advance(self, batch: SinkBatch, known: Mapping[Partition, Progress], refused: Collection[int]) -> None:
        """The batch is written, but for the refused rows of it."""
        ends = batch.ends
        for partition, progress in known.items():
            here, offsets = of_partition(batch, partition)
            is_refused = np.isin(here, list(refused))
            kept = set(progress.refused) - set(offsets.tolist())
            pending = tuple(sorted({*kept, *offsets[is_refused].tolist()}))
            end = max(progress.next_offset, ends[partition])
            self._write(partition, Progress(end, progress.committed_offset, progress.generation, pending))

    def committed(self, offsets: Offsets) -> None:
        """Kafka's group has committed, and before that the dead letters were written."""
        for partition, offset in offsets.items():
            progress = self._progress(partition)
            if progress is not None and progress.generation == self._generations.get(partition):
                pending = tuple(each for each in progress.refused if each >= offset)
                self._write(partition, Progress(progress.next_offset, offset, progress.generation, pending))

    def forget(self, partitions: Collection[Partition]) -> None:
        """They are others' now."""
        for partition in partitions:
            self._generations.pop(partition, None)

    def _progress(self, partition: Partition) -> Progress | None:
        rows = self._database.rows(
            f"select next_offset, committed_offset, generation, refused from {self._name} "
            f"where {self._where(partition)}{self._database.locking}"
        )
        if not rows:
            return None
        begin, committed, generation, refused = rows[0]
        return Progress(
            int(begin), None if committed is None else int(committed), int(generation), tuple(json.loads(refused))
        )

    def _write(self, partition: Partition, progress: Progress) -> None:
        committed = "null" if progress.committed_offset is None else progress.committed_offset
        self._database.run(
            f"update {self._name} set next_offset = {progress.next_offset}, committed_offset = {committed}, "
            f"generation = {progress.generation}, refused = '{json.dumps(progress.refused)}' "
            f"where {self._where(partition)}"
        )

    def _values(self, partition: Partition) -> str:
        connector, topic = (self._database.literal(each) for each in (self._connector, partition[0]))
        return f"{connector}, {topic}, {partition[1]}"

    def _where(self, partition: Partition) -> str:
        connector, topic = (self._database.literal(each) for each in (self._connector, partition[0]))
        return f"connector = {connector} and topic = {topic} and kafka_partition = {partition[1]}"


def of_partition(batch: SinkBatch, partition: Partition) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows of a partition in a batch, and their offsets."""
    topics, numbers, offsets = (
        batch.records.column(name).combine_chunks() for name in ("original_topic", "partition", "offset")
    )
    is_topic = np.asarray(topics.to_numpy(zero_copy_only=False) == partition[0])
    here = np.flatnonzero(is_topic & (numbers.to_numpy() == partition[1]))
    return here, offsets.to_numpy()[here].astype(np.int64)
