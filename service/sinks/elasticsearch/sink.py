"""``ElasticsearchSink``: each record a document, effectively once by ids and external versions.

A put is one bulk request, or several where the server takes no larger ones. Documents whose id is the record's key
carry the record's offset as an external version, which a server replaces only by a greater one: what is sent again,
and what overtakes, changes nothing. Documents whose id is topic, partition and offset are unique to the record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import HttpLimits, HttpResponse, RateLimited, StatusTable, StatusVerdict
from fetchers.toolkit.auth import BasicAuth
from service.sinks.batch import RefusalReason
from service.sinks.contract import (
    Fatal,
    Finding,
    Form,
    Partition,
    Retriable,
    SinkBatch,
    SinkConnector,
    SinkContext,
    TargetFull,
)
from service.sinks.converters import in_thread
from service.sinks.elasticsearch.bulk import DISK_FULL, FULL_WAIT_SECONDS, Chunk, Item, Verdict, chunks, items_of
from service.sinks.elasticsearch.config import ElasticsearchSinkConfig
from service.sinks.elasticsearch.documents import Lines, lines_of
from service.sinks.elasticsearch.indices import INDEX_STATUSES, MEND_ACCESS, Indices, target_of
from service.sinks.schemas import Schema, SchemaUnreadable, schema_of

_BULK_STATUSES = StatusTable().with_verdict(StatusVerdict.ACCEPT, (413,))
_TOO_LARGE = 413
_MADE_ANEW = (
    "partition {1} of topic {0} ends at offset {end}, and a record of offset {version} has written a document of the "
    "index: the topic was made anew, or keys have moved to another partition, and the index takes new records for old "
    "ones. Remove the index or write into another one, or set external.version=timestamp or external.version.header, "
    "then set the connector's offsets back and restart it"
)
_REFUSED = "Indexing record failed. Please check DLQ topic for errors."


class _Left:
    """What of one put is to come again."""

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.reasons: list[str] = []
        self.wait_seconds: float | None = None
        self.is_limited = False
        self.full: str | None = None
        """What a person has to do before anything of it is taken."""
        self.failure: str | None = None
        """What fails the task, when everything else of the put is done."""

    def add(self, rows: Sequence[int], reason: str) -> None:
        self.rows.update(rows)
        self.reasons.append(reason)

    def add_item(self, row: int, item: Item) -> None:
        """A document that the server has no time or no room for."""
        self.add([row], f"the server was too busy for some documents: {item.reason}")
        if item.is_disk_full and self.full is None:
            self.full = DISK_FULL.format(reason=item.reason, seconds=FULL_WAIT_SECONDS)

    def demand(self) -> None:
        """Raise what there is to be raised."""
        if self.failure is not None:
            raise Fatal(self.failure)
        if self.full is not None:
            wait_seconds = max(FULL_WAIT_SECONDS, self.wait_seconds or 0)
            raise TargetFull(self.full, wait_seconds=wait_seconds, rows=self.rows)
        if self.rows:
            kind = RateLimited if self.is_limited else Retriable
            raise kind(self.reasons[0], wait_seconds=self.wait_seconds, rows=self.rows)


class ElasticsearchSink(SinkConnector[ElasticsearchSinkConfig]):
    """Writes documents to Elasticsearch or OpenSearch."""

    accepts = frozenset({Form.JSON, Form.RECORD})

    def __init__(self, config: ElasticsearchSinkConfig) -> None:
        """Nothing is asked before the first put."""
        super().__init__(config)
        self.put_limits = config.limits
        self._context: SinkContext | None = None
        self._url_index = 0
        self._indices = Indices(config, self._ask)
        self._making = asyncio.Lock()
        password = config.connection_password
        user = config.connection_username
        self._auth = None if user is None or password is None else BasicAuth(user, password.get_secret_value())
        self._limits = HttpLimits(
            connect_seconds=config.connection_timeout_ms / 1000, read_seconds=config.read_timeout_ms / 1000
        )

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the keys taken together."""
        return tuple(self.config.own_findings())

    async def start(self, context: SinkContext) -> None:
        """Keep the http client; a server that is away fails no start."""
        self._context = context

    async def put(self, batch: SinkBatch) -> None:
        """Send the batch; returns when each document is in the server's log, or was refused."""
        targets = {topic: target_of(topic, self.config) for topic in _distinct(batch, "topic")}
        unmapped = await self._prepare(batch, targets)
        lines = await in_thread(lambda: self._lines(batch, targets, unmapped), records=len(batch))
        left = _Left()
        for chunk in chunks(lines.rows, lines.texts, bytes_max=self.config.bulk_size_bytes):
            await self._send(chunk, batch, left)
        if self.config.write_method == "UPSERT" and left.rows:
            left.rows |= _later_of_same_ids(lines, left.rows)
        left.demand()

    async def _prepare(self, batch: SinkBatch, targets: Mapping[str, str]) -> set[str]:
        """Make what is not there yet; returns the topics for whose values no mapping can be made."""
        unmapped: set[str] = set()
        async with self._making:
            for topic, name in targets.items():
                await self._indices.ensure(name)
                is_ignored = self.config.schema_ignore or topic in self.config.topic_schema_ignore
                if not is_ignored and not self.config.is_data_stream and not self.config.has_resources:
                    is_mapped = await self._indices.map(name, _schema(batch), batch.value.form)
                    unmapped |= set() if is_mapped else {topic}
        return unmapped

    def _lines(self, batch: SinkBatch, targets: Mapping[str, str], unmapped: set[str]) -> Lines:
        topics: Any = batch.records.column("topic").combine_chunks()
        known = pa.array(list(targets))
        names = pa.array(list(targets.values()), pa.string()).take(pc.index_in(topics, value_set=known))
        lines = lines_of(batch, self.config, cast("Any", names))
        if not unmapped:
            return lines
        values: Any = batch.records.column("value")
        is_unmapped = pc.and_(pc.is_in(topics, value_set=pa.array(sorted(unmapped))), pc.is_valid(values))
        unfit = is_unmapped.to_numpy()[lines.rows]
        for row in lines.rows[unfit].tolist():
            batch.refuse(row, RefusalReason.NO_SCHEMA, "Cannot infer mapping without schema.")
        kept = pa.array(~unfit)
        return Lines(
            lines.rows[~unfit], lines.texts.filter(kept), None if lines.ids is None else lines.ids.filter(kept)
        )

    async def _send(self, chunk: Chunk, batch: SinkBatch, left: _Left) -> None:
        """Send lines, in halves where they are too many for the server, and note what each item is answered."""
        config = self.config
        body = chunk.body(is_compressed=config.connection_compression)
        headers = {"Content-Type": "application/x-ndjson"}
        if config.connection_compression:
            headers["Content-Encoding"] = "gzip"
        try:
            answer = await self._request("POST", "/_bulk", headers=headers, body=body, statuses=_BULK_STATUSES)
            items = [] if answer.status == _TOO_LARGE else items_of(answer, count=len(chunk.rows))
        except Retriable as error:
            left.add(chunk.rows.tolist(), str(error))
            left.wait_seconds = max(left.wait_seconds or 0, error.wait_seconds or 0) or None
            left.is_limited |= isinstance(error, RateLimited)
            return
        if answer.status != _TOO_LARGE:
            await self._judge(chunk, items, batch, left)
        elif len(chunk.rows) > 1:
            for half in chunk.halves():
                await self._send(half, batch, left)
        else:
            row = int(chunk.rows[0])
            batch.refuse(row, RefusalReason.TOO_LARGE, f"the server takes no request of {len(body)} bytes (status 413)")
            self._fail_if_asked(left)

    async def _judge(self, chunk: Chunk, items: Sequence[Item], batch: SinkBatch, left: _Left) -> None:
        config = self.config
        for row, item in zip(chunk.rows.tolist() if items else (), items, strict=False):
            match item.verdict(is_versioned=config.write_method == "INSERT"):
                case Verdict.DONE:
                    continue
                case Verdict.RETRIED | Verdict.FULL:
                    left.add_item(row, item)
                case Verdict.INDEX_MISSING:
                    self._indices.forget(target_of(batch.records.column("topic")[row].as_py(), config))
                    left.add([row], item.reason)
                case Verdict.CLOSED:
                    name = target_of(batch.records.column("topic")[row].as_py(), config)
                    left.failure = f"'{name}' takes no documents: {item.reason}: {MEND_ACCESS}"
                case Verdict.MALFORMED:
                    batch.refuse(row, RefusalReason.REFUSED_BY_TARGET, f"Indexing failed: {item.reason}")
                    self._fail_if_asked(left)
                case Verdict.OUTRUN:
                    batch.refuse(row, RefusalReason.REFUSED_BY_TARGET, f"changed by others meanwhile: {item.reason}")
                case Verdict.UNKNOWN:
                    batch.refuse(row, RefusalReason.REFUSED_BY_TARGET, f"Indexing failed: {item.reason}")
                    left.failure = left.failure or _REFUSED
        if items and config.is_versioned_by_offset:
            left.failure = left.failure or await self._topic_made_anew(chunk, items, batch)

    async def _topic_made_anew(self, chunk: Chunk, items: Sequence[Item], batch: SinkBatch) -> str | None:
        """Why versions that are offsets, and were not replaced, are of no record of these partitions: those end before.

        As long as a new topic of the same name is shorter than the old one was.
        """
        versions = zip(chunk.rows.tolist(), (item.held_version for item in items), strict=True)
        held = {row: version for row, version in versions if version is not None}
        if self._context is None:
            return None
        columns = [batch.records.column(name) for name in ("original_topic", "partition", "offset")]
        greatest: dict[Partition, int] = {}
        for row, version in held.items():
            topic, partition, offset = (column[row].as_py() for column in columns)
            if version > offset:  # equal is the record itself, sent again
                greatest[topic, partition] = max(version, greatest.get((topic, partition), version))
        ends = await self._context.ends(greatest) if greatest else {}
        for partition, version in greatest.items():
            if version >= ends.get(partition, version + 1):
                return _MADE_ANEW.format(*partition, end=ends[partition], version=version)
        return None

    def _fail_if_asked(self, left: _Left) -> None:
        if self.config.behavior_on_malformed_documents == "FAIL":
            left.failure = left.failure or _REFUSED

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpResponse:
        """A request about indices."""
        encoded = None if body is None else json.dumps(body).encode()
        headers = {} if encoded is None else {"Content-Type": "application/json"}
        return await self._request(method, path, headers=headers, body=encoded, statuses=INDEX_STATUSES)

    async def _request(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None, statuses: StatusTable
    ) -> HttpResponse:
        """Ask the server; after a failure it is another of its addresses that is asked next."""
        if self._context is None:
            message = "the sink is not started"
            raise Fatal(message)
        urls = self.config.connection_url
        url = urls[self._url_index % len(urls)].rstrip("/")
        try:
            return await self._context.http.request(
                method,
                f"{url}{path}",
                headers=headers,
                body=body,
                auth=self._auth,
                limits=self._limits,
                statuses=statuses,
                tls=self.config.tls(),
            )
        except Retriable:
            self._url_index += 1
            raise


def _distinct(batch: SinkBatch, name: str) -> list[str]:
    found: Any = pc.unique(batch.records.column(name))
    return [str(each) for each in found.to_pylist()]


def _schema(batch: SinkBatch) -> Schema | None:
    """Of the values; only of objects a mapping can be made."""
    if batch.value.form is Form.TEXT:
        return None
    try:
        found = schema_of(batch.value)
    except SchemaUnreadable:
        return None
    return found if found is not None and found.fields else None


def _later_of_same_ids(lines: Lines, rows: set[int]) -> set[int]:
    """Updates that were done, of documents whose earlier update comes again: in their order, they come again too."""
    ids: list[Any] = [] if lines.ids is None else lines.ids.to_pylist()
    waiting: set[str] = set()
    again: set[int] = set()
    for row, own in zip(lines.rows.tolist(), ids, strict=False):
        if row in rows:
            waiting.add(own)
        elif own in waiting:
            again.add(row)
    return again
