"""``HttpSink``: records as requests to an address, at least once.

Partitions are brought side by side; the records of one in order, each request after the answer to the one before. With
``idempotency.header`` and single records a server that knows such names takes each record once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from yarl import URL

from fetchers.sdk import HttpResponse, RateLimited, RequestOptions, StatusTable, StatusVerdict
from fetchers.toolkit.rate_limits import shared_budget
from service.sinks.batch import RefusalReason, Selection
from service.sinks.contract import Fatal, Finding, Form, Retriable, SinkBatch, SinkConnector, SinkContext
from service.sinks.converters import in_thread
from service.sinks.file.text_form import texts_of
from service.sinks.http.config import HttpSinkConfig
from service.sinks.json_columns import json_texts, key_texts
from service.sinks.shapes import mask_of

PUT_SECONDS = 90.0
"""After so long a put ends by itself, less than ``PutLimits.seconds_max``: it knows what of it was taken."""
PARTITIONS_MAX = 8
"""Brought side by side."""
_REFUSED = frozenset({400, 413, 414, 415, 422})
_GONE = frozenset({404, 410})
_TAKEN = range(200, 300)
_TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class _Letter:
    """One record as it is sent."""

    row: int
    url: str
    body: str | None
    """None: the record is deleted."""
    place: tuple[str, int, int]
    """Topic, partition and offset."""


@dataclass(slots=True)
class _Left:
    """What of one put is to come again, and why."""

    rows: list[int] = field(default_factory=list)
    errors: list[Retriable] = field(default_factory=list)


class HttpSink(SinkConnector[HttpSinkConfig]):
    """Brings records to an address on HTTP."""

    accepts = frozenset({Form.TEXT, Form.JSON, Form.RECORD})

    def __init__(self, config: HttpSinkConfig) -> None:
        """Nothing is sent before the first put."""
        super().__init__(config)
        self.put_limits = config.put_bounds
        self._context: SinkContext | None = None
        self._options: RequestOptions = {}

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the keys taken together."""
        return tuple(self.config.own_findings())

    async def start(self, context: SinkContext) -> None:
        """Keep the http client; a server that is away fails no start."""
        config, secrets = self.config, self.config.secrets()
        self._context = context
        # The same credential as a source's: what both may ask is one budget.
        user = config.connection_user or config.http_auth_user or ""
        credential = "\n".join((str(URL(config.http_api_url).origin()), user, *secrets))
        answered = _REFUSED | ({*_GONE, 409} if config.has_key else {409})
        statuses = StatusTable().with_verdict(StatusVerdict.ACCEPT, answered)
        self._options = {
            "auth": config.login(clock=context.clock),
            "limits": config.limits(),
            "statuses": statuses.with_verdict(StatusVerdict.RETRY, config.retried_statuses),
            "tls": config.tls(),
            "secrets": secrets,
            "budget": shared_budget(credential, config.rate_windows(), clock=context.clock),
        }

    async def put(self, batch: SinkBatch) -> None:
        """Send the batch; returns when each record was taken or refused."""
        letters = await in_thread(lambda: list(self._letters(batch)), records=len(batch))
        partitions: dict[tuple[str, int], list[_Letter]] = {}
        for letter in letters:
            partitions.setdefault(letter.place[:2], []).append(letter)
        left, room = _Left(), asyncio.Semaphore(PARTITIONS_MAX)
        try:
            async with asyncio.TaskGroup() as group:
                for own in partitions.values():
                    group.create_task(self._bring(own, batch, left, room))
        except* Fatal as failures:
            raise failures.exceptions[0] from None
        if left.rows:
            first = left.errors[0]
            waits = [error.wait_seconds for error in left.errors if error.wait_seconds is not None]
            kind = RateLimited if isinstance(first, RateLimited) else Retriable
            raise kind(str(first), wait_seconds=max(waits, default=None), rows=sorted(left.rows))

    def _letters(self, batch: SinkBatch) -> Iterator[_Letter]:
        config, found = self.config, Selection(batch)
        values: Any = batch.records.column("value").combine_chunks()
        is_null = np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        if config.behavior_on_null_values == "fail":
            message = "the value is null, and behavior.on.null.values=fail"
            found.refuse(is_null, RefusalReason.NULL_VALUE, message)
        elif config.behavior_on_null_values != "delete":
            found.is_sent &= ~is_null
        keys: list[Any] = [None] * len(batch)
        if config.has_key:
            texts, _ = key_texts(batch.records.column("key").combine_chunks(), batch.key)
            unfit = pc.equal(pc.fill_null(pc.binary_length(texts), 0), pa.scalar(0, pa.int32()))
            message = "the key is no text or number, and stands for ${key} of http.api.url"
            found.refuse(unfit.to_numpy(zero_copy_only=False), RefusalReason.UNUSABLE_ID, message)
            keys = texts.to_pylist()
        if config.request_body_format == "string":
            made, misfits = texts_of(batch)
            found.refuse(mask_of(misfits, len(batch)), RefusalReason.WRONG_TYPE, misfits.__getitem__)
            bodies = made.to_pylist()
        else:
            bodies = (json_texts(values) if batch.value.form is Form.RECORD else values).to_pylist()
        names = ("topic", "original_topic", "partition", "offset")
        columns: list[list[Any]] = [batch.records.column(name).to_pylist() for name in names]
        topics, originals, partitions, offsets = columns
        unfit = np.fromiter(map(self._is_moved, topics, keys), bool, len(batch))
        message = "a part of the URL's path would be one or two dots, which lead to another place"
        found.refuse(unfit, RefusalReason.UNUSABLE_ID, message)
        for row in np.flatnonzero(found.is_sent).tolist():
            url = self._url(topics[row], keys[row])
            yield _Letter(
                row, url, None if is_null[row] else bodies[row], (originals[row], partitions[row], offsets[row])
            )

    def _url(self, topic: str, key: str | None) -> str:
        url = self.config.http_api_url.replace("${topic}", quote(topic, safe=""))
        return url if key is None else url.replace("${key}", quote(key, safe=""))

    def _is_moved(self, topic: str, key: str | None) -> bool:
        """Whether the URL with these is another one than it says: clients leave dots out (RFC 3986, 5.2.4)."""
        if topic.strip(".") and (key is None or key.strip(".")):
            return False
        parts = urlsplit(self.config.http_api_url).path.split("/")
        made = (part.replace("${topic}", topic).replace("${key}", key or "") for part in parts if "${" in part)
        return not {".", ".."}.isdisjoint(made)

    async def _bring(self, letters: list[_Letter], batch: SinkBatch, left: _Left, room: asyncio.Semaphore) -> None:
        """The records of one partition, in order; behind one that is to come again, all others do."""
        until = asyncio.get_running_loop().time() + PUT_SECONDS
        async with room:
            begin = 0
            while begin < len(letters):
                end = self._end(letters, begin)
                done: set[int] = set()
                try:
                    async with asyncio.timeout_at(until):
                        await self._send(letters[begin:end], batch, done)
                except (Retriable, TimeoutError) as failure:
                    late = "the address, or its rate limit, takes longer than a put may"
                    error = failure if isinstance(failure, Retriable) else Retriable(late)
                    left.rows += [letter.row for letter in letters[begin:] if letter.row not in done]
                    left.errors.append(error)
                    return
                begin = end

    def _end(self, letters: list[_Letter], begin: int) -> int:
        """Where the request that begins here ends."""
        first = letters[begin]
        end = begin + 1
        if first.body is None:
            return end
        last = min(len(letters), begin + self.config.batch_max_size)
        while end < last and letters[end].body is not None and letters[end].url == first.url:
            end += 1
        return end

    async def _send(self, letters: list[_Letter], batch: SinkBatch, done: set[int]) -> None:
        """One request, or its halves; ``done`` gets the rows that were taken or refused."""
        answer = await self._request(letters)
        is_deleted = letters[0].body is None or self.config.request_method == "DELETE"
        if answer.status in _TAKEN or (is_deleted and answer.status in _GONE):
            done |= {letter.row for letter in letters}
            return
        if len(letters) > 1 and self.config.batch_refused == "halve":
            middle = len(letters) // 2
            await self._send(letters[:middle], batch, done)
            await self._send(letters[middle:], batch, done)
            return
        for letter in letters:
            message = f"the server has refused it with status {answer.status}"
            is_large = answer.status == _TOO_LARGE
            batch.refuse(letter.row, RefusalReason.TOO_LARGE if is_large else RefusalReason.REFUSED_BY_TARGET, message)
            done.add(letter.row)

    async def _request(self, letters: list[_Letter]) -> HttpResponse:
        if self._context is None:
            raise Fatal("the sink is not started")
        config, first, last = self.config, letters[0], letters[-1]
        headers = config.sent_headers()
        if config.idempotency_header:
            ending = "" if first is last else f"-{last.place[2]}"
            headers[config.idempotency_header] = "{}-{}-{}{}".format(*first.place, ending)
        method = "DELETE" if first.body is None else config.request_method
        body = None if method == "DELETE" else self._body(letters)
        options = self._options.copy()
        options["headers"], options["body"] = headers, body
        return await self._context.http.request(method, first.url, **options)

    def _body(self, letters: list[_Letter]) -> bytes:
        config, bodies = self.config, [letter.body or "" for letter in letters]
        if config.batch_max_size == 1:
            return bodies[0].encode()
        if config.batch_json_as_array:
            return f"[{','.join(bodies)}]".encode()
        texts = (config.batch_prefix, config.batch_separator, config.batch_suffix)
        prefix, separator, suffix = (each.replace("\\n", "\n").replace("\\t", "\t") for each in texts)
        return f"{prefix}{separator.join(bodies)}{suffix}".encode()
