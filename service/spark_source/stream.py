"""One run of a streaming query: the driver fetches, keeps pages, and tells Spark how far it is.

An offset of Spark's is ``{"stream", "run", "number", "offsets"}``: the query, the run that wrote up to it, the last
file of pages, and the source offset after them for each source partition. Spark's checkpoint holds it, nothing else is
remembered. A batch between two offsets is the files in between, so that executors judge what is the same every time.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

from fetchers.sdk import Finding, Offset, Page, Partition
from fetchers.sdk.context import partition_key
from service.config.definition import ConnectorDefinition
from service.embedded.running import Running, running
from service.spark_source.fetching import TaskFetch, fetching
from service.spark_source.options import OptionsRefusedError, SourceOptions
from service.spark_source.pages_folder import KeptPages, delete_up_to, places

FIRST_SECONDS_MAX = 60.0
"""How long a trigger waits for the first page of a source that has not told all it had."""
TRIGGER_SECONDS_MAX = 10.0
"""How long it goes on collecting after that, until the source has told all it had."""
REST_SECONDS = 0.5
"""How long it waits for a source that has: triggers follow each other at once."""


@dataclass
class Stream:
    """The ``StreamFeed`` of a connector; all its work is one task's, on the driver."""

    definition: ConnectorDefinition
    folder: str
    records_max: int
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _end: dict[str, Any] | None = None
    """The newest offset told."""
    _fetch: Running[TaskFetch] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _unreceipted: deque[tuple[int, Partition, Offset]] = field(default_factory=deque)
    """Pages whose fetcher has not yet heard of their commit, by the number of their file."""

    @classmethod
    def opened(cls, options: SourceOptions, definition: ConnectorDefinition) -> Stream:
        """Raises OptionsRefusedError."""
        findings = []
        if options.pages_path is None:
            text = "expected a folder that driver and executors reach, for pages until Spark has committed them"
            findings.append(Finding("headrace.pages.path", None, text))
        if options.plan.dedupe_fields:
            told = ",".join(options.plan.dedupe_fields)
            text = "expected to be empty: in a stream Spark remembers what it has seen (dropDuplicatesWithinWatermark)"
            findings.append(Finding("dedupe.fields", told, text))
        if findings or options.pages_path is None:
            raise OptionsRefusedError(findings)
        return cls(definition, options.pages_path, options.trigger_records_max)

    def first_offset(self) -> dict[str, Any]:
        """Before all files; a new query is given a name for its files that no other query has.

        Spark may ask for the newest offset first, and for this one when it reads the first batch, or reads it again.
        """
        if self._end is None:
            self._end = {"stream": uuid.uuid4().hex, "run": self.run, "number": 0, "offsets": []}
        return {**self._end, "number": 0, "offsets": []}

    def resume(self, offset: dict[str, Any]) -> None:
        """See ``StreamFeed``; once something was fetched here, this run knows better."""
        if self._fetch is None:
            self._end = offset

    def latest_offset(self) -> dict[str, Any]:
        """Keep what has come, and tell its end."""
        end = self._end or self.first_offset()
        fetch = self._fetching(end)
        records, begun_at = 0, time.monotonic()
        seconds_max, rest_seconds = FIRST_SECONDS_MAX, REST_SECONDS
        while records < self.records_max and (pages := self._next(fetch, seconds_max, rest_seconds)) is not None:
            end = self._keep(pages, end)
            records += sum(map(len, pages))
            seconds_max, rest_seconds = max(0.0, begun_at + TRIGGER_SECONDS_MAX - time.monotonic()), 0.0
        self._end = end
        return end

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[KeptPages]:
        """The files between two offsets; all of them were written by the run that told the second."""
        return list(places(self.folder, end["stream"], end["run"], range(start["number"] + 1, end["number"] + 1)))

    def commit(self, end: dict[str, Any]) -> None:
        """Delete the files up to an offset, and tell the fetcher of their pages."""
        delete_up_to(self.folder, end["stream"], end["number"])
        while self._fetch is not None and self._unreceipted and self._unreceipted[0][0] <= end["number"]:
            _, partition, offset = self._unreceipted.popleft()
            self._fetch.call(methodcaller("committed", partition, offset))

    def stop(self) -> None:
        """End the fetcher; files that are not committed stay for the next run."""
        self._stack.close()

    def _fetching(self, end: dict[str, Any]) -> Running[TaskFetch]:
        if self._fetch is None:
            offsets = [(partition, offset) for partition, offset in end["offsets"]]
            split = self.definition.for_task({}).task_configs(1)
            opening = fetching(self.definition, next(iter(split), {}), offsets=offsets, is_batch=False)
            self._fetch = self._stack.enter_context(running(opening, name="stream"))
        return self._fetch

    def _next(self, fetch: Running[TaskFetch], seconds_max: float, rest_seconds: float) -> tuple[Page, ...] | None:
        common = self.definition.common
        taking = fetch.server.next_batch(
            records_max=common.batch_records_max,
            bytes_max=common.batch_bytes_max,
            seconds_max=seconds_max,
            rest_seconds=rest_seconds,
        )
        return asyncio.run_coroutine_threadsafe(taking, fetch.loop).result()

    def _keep(self, pages: Sequence[Page], end: dict[str, Any]) -> dict[str, Any]:
        """Write one file; the offset after it."""
        number = end["number"] + 1
        (place,) = places(self.folder, end["stream"], self.run, range(number, number + 1))
        place.write(pages)
        offsets = {partition_key(partition): (partition, offset) for partition, offset in end["offsets"]}
        own = self.definition.for_task({}).partition()
        for page in pages:
            partition = own if page.partition is None else page.partition
            offsets[partition_key(partition)] = (dict(partition), dict(page.offset))
            self._unreceipted.append((number, partition, page.offset))
        return {"stream": end["stream"], "run": self.run, "number": number, "offsets": list(offsets.values())}
