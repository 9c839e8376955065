"""``HttpSink`` against a server of the test's own that says what it is told to say."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, RateLimited, Retriable, Severity, SystemClock
from metrics.events import discard
from service.sinks.contract import Form, SinkBatch, SinkContext, ValueType
from service.sinks.http.config import HttpSinkConfig
from service.sinks.http.sink import HttpSink

LOST = -1
"""In place of a status: the server has done what it was asked, and the connection breaks."""


@dataclass
class Server:
    """Answers by a function of the body; keeps what was asked."""

    url: str = ""
    answer: Any = field(default=lambda _body: 200)
    asked: list[tuple[str, str, str, dict[str, str]]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        """One request."""
        body = await request.text()
        self.asked.append((request.method, request.rel_url.raw_path, body, dict(request.headers)))
        told = self.answer(body)
        if told is LOST and request.transport is not None:
            request.transport.abort()
            told = 200
        return told if isinstance(told, web.Response) else web.Response(status=told)

    @property
    def bodies(self) -> list[str]:
        """Of all requests."""
        return [body for _, _, body, _ in self.asked]


@asynccontextmanager
async def running(**config: str) -> AsyncIterator[tuple[Server, HttpSink]]:
    """A sink that is started, and its server."""
    server, app = Server(), web.Application()
    app.router.add_route("*", "/{tail:.*}", server.take)
    async with TestServer(app) as running_server, shared_http() as http:
        server.url = str(running_server.make_url("/"))
        keys = {"http.api.url": server.url + config.pop("path", "")} | {
            name.replace("_", "."): value for name, value in config.items()
        }
        parsed = HttpSinkConfig.parse(keys)
        assert parsed.config is not None, parsed.findings
        sink = HttpSink(parsed.config)
        await sink.start(SinkContext("hook", 0, SystemClock(), discard, http))
        yield server, sink


def batch_of(
    values: list[Any], *, keys: list[str | None] | None = None, partitions: list[int] | None = None, refused: Any = None
) -> SinkBatch:
    """JSON documents with texts as keys."""
    count = len(values)
    topics = pa.array(["orders/x"] * count)
    columns = {
        "topic": topics,
        "original_topic": topics,
        "partition": pa.array(partitions or [0] * count, pa.int32()),
        "offset": pa.array(range(10, 10 + count), pa.int64()),
        "key": pa.array(keys or [None] * count, pa.string()),
        "value": pa.array([None if each is None else json.dumps(each) for each in values], pa.string()),
    }
    heard = [] if refused is None else refused
    return SinkBatch(pa.table(columns), ValueType(Form.TEXT), ValueType(Form.JSON), lambda *told: heard.append(told))


async def test_batches_as_json_arrays_in_order() -> None:
    """As many records as are asked for, of one partition each."""
    async with running(batch_max_size="2", batch_json_as_array="true", headers="X-A:1|X-B:2") as (server, sink):
        await sink.put(batch_of([1, 2, 3, 4, 5], partitions=[0, 1, 0, 0, 1]))
        assert sorted(server.bodies) == ["[1,3]", "[2,5]", "[4]"]
        assert server.bodies.index("[1,3]") < server.bodies.index("[4]")
        headers = server.asked[0][3]
        assert (headers["X-A"], headers["X-B"], headers["Content-Type"]) == ("1", "2", "application/json")


async def test_urls_by_topic_and_key() -> None:
    """Each record to a URL of its own, keys encoded; null values delete, and what is gone already is done."""
    config = {"path": "${topic}/${key}", "request_method": "PUT", "behavior_on_null_values": "delete"}
    refused: list[Any] = []
    async with running(**config) as (server, sink):
        server.answer = lambda body: 200 if body else 404
        await sink.put(batch_of([{"n": 1}, None, 3], keys=["a b/../c", "d", None], refused=refused))
        assert [(method, path) for method, path, _, _ in server.asked] == [
            ("PUT", "/orders%2Fx/a%20b%2F..%2Fc"),
            ("DELETE", "/orders%2Fx/d"),
        ]
        assert [row for row, _, _ in refused] == [2]


@pytest.mark.parametrize("key", [".", ".."])
async def test_a_key_that_would_lead_to_another_place_is_refused(key: str) -> None:
    """A URL whose last part is two dots is that of the part before: a delete would be of all."""
    config = {"path": "orders/${key}", "request_method": "PUT", "behavior_on_null_values": "delete"}
    refused: list[Any] = []
    async with running(**config) as (server, sink):
        await sink.put(batch_of([{"n": 1}, None, {"n": 2}, None], keys=["a", key, key, f"{key}a"], refused=refused))
        asked = [(method, path) for method, path, _, _ in server.asked]
        assert asked == [("PUT", "/orders/a"), ("DELETE", f"/orders/{key}a")]
    assert [(row, reason) for row, reason, _ in refused] == [(1, "unusable_id"), (2, "unusable_id")]
    async with running(**config | {"path": "orders/x${key}?of=${key}"}) as (server, sink):
        await sink.put(batch_of([{"n": 1}], keys=[key]))
        assert [path for _, path, _, _ in server.asked] == [f"/orders/x{key}"]


async def test_the_bad_record_of_a_batch_is_found_by_halves() -> None:
    """It alone is refused; the others are sent in order."""
    refused: list[Any] = []
    async with running(batch_max_size="8", batch_separator="\\n") as (server, sink):
        server.answer = lambda body: 422 if "bad" in body else 200
        await sink.put(batch_of([0, 1, 2, "bad", 4, 5, 6], refused=refused))
        taken = [line for body in server.bodies if "bad" not in body for line in body.split("\n")]
        assert taken == ["0", "1", "2", "4", "5", "6"]
        assert [(row, reason) for row, reason, _ in refused] == [(3, "refused_by_target")]


async def test_a_batch_that_may_not_be_sent_in_part_is_refused_whole() -> None:
    """For servers that may have taken some of it."""
    refused: list[Any] = []
    async with running(batch_max_size="8", batch_refused="refuse") as (server, sink):
        server.answer = lambda _body: 400
        await sink.put(batch_of([0, 1, 2], refused=refused))
        assert len(server.asked) == 1
        assert [row for row, _, _ in refused] == [0, 1, 2]


async def test_what_comes_again_is_what_was_not_taken() -> None:
    """A partition stops at its first trouble, behind which nothing may overtake it; the others are done."""
    refused: list[Any] = []
    async with running() as (server, sink):
        server.answer = lambda body: {"2": 503, "0": 422}.get(body, 200)
        with pytest.raises(Retriable) as told:
            await sink.put(batch_of([0, 1, 2, 3, 4], partitions=[0, 0, 0, 0, 1], refused=refused))
        assert told.value.rows == [2, 3]
        assert "3" not in server.bodies
        assert [row for row, _, _ in refused] == [0]


async def test_the_server_says_how_long_to_wait() -> None:
    """By ``Retry-After``; nothing is refused for it."""
    async with running() as (server, sink):
        server.answer = lambda _body: web.Response(status=429, headers={"Retry-After": "7"})
        with pytest.raises(RateLimited) as told:
            await sink.put(batch_of([1]))
        assert told.value.wait_seconds == 7
        assert told.value.rows == [0]


async def test_an_answer_that_is_lost_after_the_work_was_done() -> None:
    """What was sent behind it waits; the request comes again under the same name, and nothing else does."""
    refused: list[Any] = []
    async with running(idempotency_header="Idempotency-Key") as (server, sink):
        lost = iter([True])
        server.answer = lambda body: LOST if body == "2" and next(lost, False) else 200
        batch = batch_of([1, 2, 3], refused=refused)
        with pytest.raises(Retriable) as told:
            await sink.put(batch)
        assert told.value.rows == [1, 2]
        await sink.put(batch.slice(1, 2))
        assert server.bodies == ["1", "2", "2", "3"]
        names = [headers["Idempotency-Key"] for *_, headers in server.asked]
        assert names == ["orders/x-0-10", "orders/x-0-11", "orders/x-0-11", "orders/x-0-12"]
        assert refused == []


@pytest.mark.parametrize(
    ("codes", "status", "is_retried"),
    [("409", 409, True), ("400-", 422, True), ("400-", 401, True), ("409,420-450", 450, True), ("409", 422, False)],
)
async def test_statuses_that_are_tried_again(codes: str, status: int, *, is_retried: bool) -> None:
    """Single ones, ranges, and ranges without an end, as Confluent's connector has them."""
    refused: list[Any] = []
    async with running(retry_on_status_codes=codes) as (server, sink):
        server.answer = lambda _body: status
        if is_retried:
            with pytest.raises(Retriable):
                await sink.put(batch_of([1], refused=refused))
            assert refused == []
        else:
            await sink.put(batch_of([1], refused=refused))
            assert [row for row, _, _ in refused] == [0]


async def test_what_stands_around_the_records_of_a_batch() -> None:
    """Prefix, separator and suffix, with line ends; a batch of one record has them too."""
    around = {"batch_prefix": "<", "batch_separator": "|\\n", "batch_suffix": ">\\t"}
    async with running(batch_max_size="2", **around) as (server, sink):
        await sink.put(batch_of([1, 2, 3]))
        assert server.bodies == ["<1|\n2>\t", "<3>\t"]


@pytest.mark.parametrize(("behaviour", "is_refused"), [("ignore", False), ("log", False), ("fail", True)])
async def test_null_values(behaviour: str, *, is_refused: bool) -> None:
    """Passed over, or refused one by one; the others are sent."""
    refused: list[Any] = []
    async with running(behavior_on_null_values=behaviour) as (server, sink):
        await sink.put(batch_of([1, None, 3], refused=refused))
        assert server.bodies == ["1", "3"]
        assert [(row, reason) for row, reason, _ in refused] == ([(1, "null_value")] if is_refused else [])


async def test_a_body_that_is_a_text_names_the_field_that_is_not_of_its_schema() -> None:
    """As the file sink does; the others are sent."""
    refused: list[Any] = []
    schema = json.dumps({"type": "struct", "fields": [{"field": "n", "type": "int32"}]})
    async with running(request_body_format="string") as (server, sink):
        batch = batch_of([{"n": 1}, {"n": "x"}], refused=refused)
        await sink.put(replace(batch, value=ValueType(Form.JSON, schema)))
        assert server.bodies == ["Struct{n=1}"]
        assert refused == [(1, "wrong_type", "field 'n' is not of its schema, INT32")]


async def test_a_record_that_is_too_large_is_refused_alone() -> None:
    """Found by halves, and told with the server's status."""
    refused: list[Any] = []
    async with running(batch_max_size="4") as (server, sink):
        server.answer = lambda body: 413 if len(body) > 50 else 200
        await sink.put(batch_of([1, "x" * 60, 3], refused=refused))
        assert [body for body in server.bodies if len(body) <= 50] == ["1", "3"]
        assert refused == [(1, "too_large", "the server has refused it with status 413")]


async def test_more_than_the_rate_limit_waits_and_loses_nothing() -> None:
    """The records of a put are sent at the pace that is allowed."""
    async with running(http_rate_limits="2/s", path="paced") as (server, sink):
        await sink.put(batch_of([1, 2, 3]))
        assert server.bodies == ["1", "2", "3"]


@pytest.mark.parametrize("key", ["behavior.on.error", "reporter.error.topic.name", "reporter.result.topic.name"])
def test_keys_of_confluents_that_dead_letters_stand_for(key: str) -> None:
    """Taken, with what to set in their place."""
    given = {"http.api.url": "http://localhost/", key: "ignore"}
    parsed = HttpSinkConfig.parse(given)
    assert parsed.config is not None, parsed.findings
    (finding,) = parsed.config.own_findings()
    assert (finding.key, finding.severity) == (key, Severity.WARNING)
    assert "errors.deadletterqueue.topic.name" in finding.message


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_what_a_person_must_mend_fails_the_task(status: int) -> None:
    """No record is refused for a wrong password or address."""
    refused: list[Any] = []
    async with running() as (server, sink):
        server.answer = lambda _body: status
        with pytest.raises(Fatal, match=str(status)):
            await sink.put(batch_of([1, 2], refused=refused))
        assert refused == []


async def test_names_of_requests_are_places_in_kafka() -> None:
    """So a server may take what comes twice once."""
    async with running(idempotency_header="Idempotency-Key", batch_max_size="2") as (server, sink):
        await sink.put(batch_of([1, 2, 3], partitions=[4, 4, 4]))
        assert [headers["Idempotency-Key"] for *_, headers in server.asked] == ["orders/x-4-10-11", "orders/x-4-12"]


async def test_logs_in_by_confluents_keys() -> None:
    """And a login that fails shows no password."""
    config = {"auth_type": "BASIC", "connection_user": "me", "connection_password": "hunter2"}
    async with running(**config) as (server, sink):
        await sink.put(batch_of([1]))
        assert base64.b64decode(server.asked[0][3]["Authorization"].removeprefix("Basic ")) == b"me:hunter2"
        server.answer = lambda _body: web.Response(status=401, text="me:hunter2")
        with pytest.raises(Fatal) as told:
            await sink.put(batch_of([1]))
        assert "hunter2" not in str(told.value)
