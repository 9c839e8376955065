"""``S3Sink`` on a real server process: names of objects, what dies in between, and a storage that answers badly."""

from __future__ import annotations

import gzip
import http.client
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, SystemClock
from fetchers.sdk.reach import AllowedAddresses
from metrics.events import discard
from service.sinks.batch import Form
from service.sinks.contract import SinkContext, StartAnew
from service.sinks.filesystem.config import FileSystemSinkConfig
from service.sinks.filesystem.object_store import ObjectStore
from service.sinks.filesystem.sink import FilesSink, FileSystemSink
from service.sinks.s3.sink import S3Sink, S3SinkConfig
from tests.object_storage import Bucket
from tests.unit.sinks.filesystem.files_runs import (
    BY_CLOCK,
    BY_CLOCK_IDS,
    CLOCK_SET,
    HERE,
    SET_CLOCK,
    DiedError,
    FixedClock,
    batch_of,
    clock_is_set,
)

T = TypeVar("T")
ROWS = [{"n": number, "kind": "ab"[number % 2]} for number in range(4)]
FIRST = "orders/partition=0/orders+0+0000000000"
AVRO = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "text", "type": "string"}]})
MOMENTS_MAX = 200


def config_of(bucket: Bucket, **changes: str) -> S3SinkConfig:
    """JSON lines, three records an object; dots of keys as double underscores."""
    own = {key.replace("__", "."): value for key, value in changes.items()}
    parsed = S3SinkConfig.parse({**bucket.properties, "flush.size": "3", "format.class": "JsonFormat", **own})
    assert parsed.config is not None, parsed.findings
    assert not list(parsed.config.own_findings())
    return parsed.config


@asynccontextmanager
async def running(sink: FilesSink, *, clock: SystemClock | None = None) -> AsyncIterator[FilesSink]:
    """Started, and stopped at the end."""
    async with shared_http() as client:
        try:
            await sink.start(SinkContext("s3", 0, clock or SystemClock(), discard, client))
            yield sink
        finally:
            await sink.stop()


async def feed(sink: FilesSink, rows: Sequence[Mapping[str, Any]] = ROWS) -> None:
    """Open the partition and put all rows from where the sink wants to begin."""
    begin = (await sink.open({HERE: None})).get(HERE, 0)
    if rows[begin:]:
        await sink.put(batch_of(rows[begin:], begin=begin))


async def fed(config: S3SinkConfig, rows: Sequence[Mapping[str, Any]] = ROWS) -> None:
    """A run in which nothing dies."""
    async with running(S3Sink(config)) as sink:
        await feed(sink, rows)


async def test_names_and_what_stands_in_the_objects(bucket: Bucket) -> None:
    """As Confluent's sink to S3 names them: the first offset alone; no other object is below ``topics``."""
    await fed(config_of(bucket))
    assert {name: [json.loads(line) for line in text.split(b"\n")[:-1]] for name, text in bucket.objects().items()} == {
        f"{FIRST}.json": ROWS[:3]
    }


@pytest.mark.parametrize("by", CLOCK_SET)
@pytest.mark.parametrize("changes", BY_CLOCK, ids=BY_CLOCK_IDS)
async def test_a_clock_that_is_set_holds_no_object_open(changes: dict[str, str], by: timedelta, bucket: Bucket) -> None:
    """Where the clock ends objects, they end within two intervals of it, also when it was set; each record once.

    Requests are signed by the machine's own clock, which nobody has set here.
    """
    clock = FixedClock(SET_CLOCK.at)
    async with running(S3Sink(config_of(bucket, **{**changes, "flush__size": "100"})), clock=clock) as sink:
        count = await clock_is_set(sink, clock, by)
    committed = [json.loads(line)["n"] for text in bucket.objects().values() for line in text.splitlines()]
    assert committed == list(range(len(committed)))
    assert len(committed) >= count - 2


async def test_compressed_lines(bucket: Bucket) -> None:
    """Read back by gzip, and named so."""
    await fed(config_of(bucket, s3__compression__type="gzip"))
    found = bucket.objects()
    assert list(found) == [f"{FIRST}.json.gz"]
    assert [json.loads(line) for line in gzip.decompress(found[f"{FIRST}.json.gz"]).splitlines()] == ROWS[:3]


async def test_the_file_system_sink_takes_a_bucket(bucket: Bucket) -> None:
    """``s3a://bucket/folder``, with names of its own."""
    keys = {**bucket.properties, "hdfs.url": f"s3a://{bucket.name}/lake", "s3.endpoint": bucket.url, "flush.size": "3"}
    del keys["s3.bucket.name"], keys["store.url"]
    config = FileSystemSinkConfig.parse({**keys, "format.class": "JsonFormat"}).config
    assert config is not None
    assert not list(config.own_findings())
    for _ in range(2):
        async with running(FileSystemSink(config)) as sink:
            await feed(sink)
    assert list(bucket.objects("lake/topics/")) == [f"{FIRST}+0000000002.json"]


async def test_a_large_object_goes_by_parts(bucket: Bucket) -> None:
    """Each of its part's size; what is given up leaves neither object nor upload."""
    texts = [f"{number:x}".rjust(12_000, "x") for number in range(1_000)]
    column = pa.array([{"text": text} for text in texts], pa.struct([pa.field("text", pa.string(), nullable=False)]))
    changes = {"format__class": "ParquetFormat", "parquet__codec": "none", "s3__part__size": "5242880"}
    config = config_of(bucket, **changes, flush__size="1000", buffer__bytes="1048576")
    half, rest = column.slice(0, 900), column.slice(900)
    async with running(S3Sink(config)) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(half, schema=AVRO, form=Form.RECORD))
        assert len(bucket.uploads()) == 1
        await sink.close([HERE])
        assert bucket.uploads() == []
        await sink.open({HERE: None})
        await sink.put(batch_of(half, schema=AVRO, form=Form.RECORD))
        await sink.put(batch_of(rest, begin=900, schema=AVRO, form=Form.RECORD))
    assert [pq.read_table(io.BytesIO(each)).column("text").to_pylist() for each in bucket.objects().values()] == [texts]


class DyingObjects(ObjectStore):
    """Does so many requests, then none any more."""

    moments = 1 << 30

    def ask(self, path: str, work: Callable[[], T]) -> T:
        """As a storage that is asked by a process that may be killed between any two requests."""
        if self.moments <= 0:
            raise DiedError
        self.moments -= 1
        return super().ask(path, work)


class QuickSink(S3Sink):
    """Has its storage from the test, so that the client is made once."""

    def __init__(self, config: S3SinkConfig, store: ObjectStore) -> None:
        super().__init__(config)
        self.store = store

    def _opened(self) -> ObjectStore:
        return self.store


async def test_killed_at_every_moment(bucket: Bucket) -> None:
    """Between data and commit, between commit and names: the next one makes the same objects, and no others."""
    store = DyingObjects(config_of(bucket), AllowedAddresses())
    expected: dict[str, bytes] = {}
    by_kind = {"partitioner__class": "FieldPartitioner", "partition__field__name": "kind"}
    for moments in (1 << 30, *range(1, MOMENTS_MAX)):
        folder = f"topics-{moments}"
        config = config_of(bucket, topics__dir=folder, logs__dir=f"logs-{moments}", **by_kind)
        store.moments = moments
        with suppress(DiedError):
            async with running(QuickSink(config, store)) as sink:
                await feed(sink)
        is_dead, store.moments = store.moments <= 0, 1 << 30
        seen = bucket.objects(f"{folder}/orders/")
        if not expected:
            expected = seen
            assert list(seen) == ["kind=a/orders+0+0000000000.json", "kind=b/orders+0+0000000001.json"]
            continue
        assert seen.items() <= expected.items()
        async with running(QuickSink(config, store)) as sink:
            await feed(sink)
        assert bucket.objects(f"{folder}/") == {f"orders/{name}": text for name, text in expected.items()}
        if not is_dead:
            return
    pytest.fail("there is no end")


async def test_two_that_own_a_partition(bucket: Bucket) -> None:
    """The older one commits nothing more, whatever it holds, and says so."""
    config = config_of(bucket)
    async with running(S3Sink(config)) as old, running(S3Sink(config)) as new:
        await old.open({HERE: None})
        await old.put(batch_of(ROWS[:2]))
        await new.open({HERE: None})
        with pytest.raises(StartAnew, match="another task has taken the partition over"):
            await old.put(batch_of(ROWS[2:], begin=2))
        await new.put(batch_of(ROWS))
    assert len(bucket.objects("topics/orders/")) == 1


@dataclass
class Between:
    """A server between sink and storage, which answers badly when `spoil` says so."""

    url: str
    spoil: Callable[[str, str, Mapping[str, str]], tuple[bool, int, str] | None] = lambda *_request: None
    """Of method, path and headers: whether the storage does it, status and code of the answer; None: as it is.

    The status 0 is a connection that is cut.
    """
    spoiled: list[str] = field(default_factory=list)


@contextmanager
def between(bucket: Bucket) -> Iterator[Between]:
    """It stands there until the block ends."""
    target = urlsplit(bucket.url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            bad = door.spoil(self.command, self.path, dict(self.headers))
            content, status, headers = b"", 0, []
            if bad is None or bad[0]:
                storage = http.client.HTTPConnection(str(target.hostname), target.port or 80)
                storage.request(self.command, self.path, body, dict(self.headers))
                answer = storage.getresponse()
                content, status, headers = answer.read(), answer.status, answer.getheaders()
                storage.close()
            if bad is not None:
                door.spoiled.append(f"{self.command} {self.path}")
                status, headers = bad[1], []
                error = f"<Error><Code>{bad[2]}</Code><Message>so it is</Message></Error>"
                content = error.encode() if bad[2] else b""
            if status == 0:
                self.close_connection = True
                return
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = serve  # noqa: N815 - names of the standard library

        def log_message(self, *_parts: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    door = Between(f"http://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield door
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [0, 500, 503], ids=["cut", "error", "busy"])
async def test_answers_that_are_lost_after_the_work_was_done(status: int, bucket: Bucket) -> None:
    """Each entry of the log is put, and its answer lost: put again it is refused, and known as one's own."""
    with between(bucket) as door:
        heard: set[str] = set()

        def spoil(method: str, path: str, _headers: Mapping[str, str]) -> tuple[bool, int, str] | None:
            if method != "PUT" or path in heard:
                return None
            heard.add(path)
            return True, status, "InternalError" if status == 500 else "SlowDown"

        door.spoil = spoil
        await fed(config_of(bucket, store__url=door.url))
        assert len([path for path in door.spoiled if ".commit" in path]) == 2
    assert list(bucket.objects()) == [f"{FIRST}.json"]


async def test_a_storage_that_stays_busy_begins_the_task_anew(bucket: Bucket) -> None:
    """Nothing is refused and nothing fails for good; when it answers again, each record is there once."""
    config = config_of(bucket)
    with between(bucket) as door:
        async with running(S3Sink(config_of(bucket, store__url=door.url, s3__part__retries="0"))) as sink:
            await sink.open({HERE: None})
            door.spoil = lambda *_request: (False, 503, "SlowDown")
            with pytest.raises(StartAnew, match="SlowDown"):
                await sink.put(batch_of(ROWS))
            door.spoil = lambda *_request: None
    await fed(config)
    assert list(bucket.objects()) == [f"{FIRST}.json"]


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (403, "AccessDenied", "permission is denied: allow to get, put, delete and list objects"),
        (403, "InvalidAccessKeyId", "correct aws.access.key.id"),
        (403, "SignatureDoesNotMatch", "correct aws.secret.access.key"),
        (403, "RequestTimeTooSkewed", "clock and the storage's are too far apart: set the clock"),
        (501, "NotImplemented", "does not know conditional puts"),
    ],
)
async def test_what_a_person_must_mend(status: int, code: str, told: str, bucket: Bucket) -> None:
    """The task fails and says so; the secret is not in it."""
    with between(bucket) as door:
        door.spoil = lambda *_request: (False, status, code)
        with pytest.raises(Fatal, match=told) as caught:
            await fed(config_of(bucket, store__url=door.url))
    assert "word" not in str(caught.value)


async def test_a_bucket_that_is_missing(bucket: Bucket) -> None:
    """It is not made: somebody has to choose its region and its rights."""
    with pytest.raises(Fatal, match="there is no such bucket: make it, or correct its name, then restart the task"):
        await fed(config_of(bucket, s3__bucket__name="nowhere"))


async def test_a_storage_that_ignores_conditions_is_refused(bucket: Bucket) -> None:
    """Two tasks could commit the same records there."""
    with between(bucket) as door:
        door.spoil = lambda _method, _path, headers: (False, 200, "") if "If-None-Match" in headers else None
        with pytest.raises(Fatal, match="does not know conditional puts"):
            await fed(config_of(bucket, store__url=door.url))


async def test_internal_addresses_and_the_workers_identity_are_bounded_by_the_worker(bucket: Bucket) -> None:
    """Looked at with each connection; without keys of its own a connector has no identity there."""
    sink = S3Sink(config_of(bucket))
    sink.allowed_addresses = AllowedAddresses(is_internal_free=False)
    with pytest.raises(Fatal, match=r"127.0.0.1 is an internal address"):
        async with running(sink):
            pass
    keys = {"s3.bucket.name": "b", "flush.size": "3"}
    config = S3SinkConfig.parse(keys).config
    assert config is not None
    anonymous = S3Sink(config)
    anonymous.allowed_addresses = AllowedAddresses(is_internal_free=False)
    with pytest.raises(Fatal, match=r"may not use the worker's own identity: give aws.access.key.id"):
        async with running(anonymous):
            pass
