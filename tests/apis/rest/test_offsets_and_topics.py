"""Offsets read, changed and reset; topics in use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.herder.errors import BadRequestError, ForbiddenError
from tests.apis.rest.fake_herder import Kept
from tests.apis.rest.serving import Served, served

PARTITION, OFFSET = {"filename": "/data/in.txt"}, {"position": 42}


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Served]:
    """A worker with one connector that has an offset and a topic."""
    async with served() as serving:
        kept = Kept({"connector.class": "x"}, offsets=[(PARTITION, OFFSET)], topics=["t1", "t2"])
        serving.herder.connectors["c"] = kept
        yield serving


async def test_offsets_are_read(worker: Served) -> None:
    """In the one shape that sources and sinks have; 404 where there is no connector."""
    answer = await worker.ask("GET", "/connectors/c/offsets")

    assert (answer.status, answer.body) == (200, {"offsets": [{"partition": PARTITION, "offset": OFFSET}]})
    assert (await worker.ask("GET", "/connectors/x/offsets")).error == (404, "Connector x not found")


@pytest.mark.parametrize(
    ("entry", "understood"),
    [
        ({"partition": PARTITION, "offset": OFFSET}, (PARTITION, OFFSET)),
        ({"partition": PARTITION, "offset": None}, (PARTITION, None)),
        ({"partition": PARTITION}, (PARTITION, None)),
        ({"partition": None, "offset": OFFSET}, (None, OFFSET)),
        ({}, (None, None)),
        (
            {"partition": {"a": "10", "b": [1]}, "offset": {"c": 12345678901234567890123}},
            ({"a": "10", "b": [1]}, {"c": 12345678901234567890123}),
        ),
    ],
)
async def test_offsets_are_changed(worker: Served, entry: object, understood: object) -> None:
    """What may be missing or null is for the connector's kind to say."""
    answer = await worker.ask("PATCH", "/connectors/c/offsets", {"offsets": [entry]})

    text = "The offsets for this connector have been altered successfully"
    assert (answer.status, answer.body) == (200, {"message": text})
    assert worker.herder.asked == [("alter offsets", "c", [understood])]


NEEDED = "Partitions / offsets need to be provided for an alter offsets request"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{}", NEEDED),
        (b'{"offsets":[]}', NEEDED),
        (b'{"offsets":null}', NEEDED),
        (b"[]", "Cannot deserialize value of the request: Expected `object`, got `array`"),
        (b'{"offsets":{}}', "Cannot deserialize value of offsets: Expected `array`, got `object`"),
        (b'{"offsets":[', "Cannot deserialize value of the request: Input data was truncated"),
        (b'{"key":[]}', 'Unrecognized field "key", not one of: offsets'),
        (b'{"offsets":[{"key":"v"}]}', 'Unrecognized field "key", not one of: partition, offset'),
        (b'{"offsets":[123]}', "Cannot deserialize value of an entry of offsets: Expected `object`, got `int`"),
        (b'{"offsets":[{"partition":7}]}', "Cannot deserialize value of partition: Expected `object`, got `int`"),
        (b'{"offsets":[{"offset":"x"}]}', "Cannot deserialize value of offset: Expected `object`, got `str`"),
    ],
)
async def test_offsets_of_a_wrong_shape_are_refused(worker: Served, body: bytes, text: str) -> None:
    """400, also where Java answers 500."""
    assert (await worker.ask("PATCH", "/connectors/c/offsets", body)).error == (400, text)


async def test_the_connectors_own_refusals_are_told(worker: Served) -> None:
    """Their status and text as they are."""
    worker.herder.failure = BadRequestError("Connectors must be in the STOPPED state")

    answer = await worker.ask("PATCH", "/connectors/c/offsets", {"offsets": [{}]})
    assert answer.error == (400, "Connectors must be in the STOPPED state")


async def test_offsets_are_reset(worker: Served) -> None:
    """200 and a sentence."""
    answer = await worker.ask("DELETE", "/connectors/c/offsets")

    text = "The offsets for this connector have been reset successfully"
    assert (answer.status, answer.body) == (200, {"message": text})


async def test_topics_are_read_and_reset(worker: Served) -> None:
    """Also of a connector that is not there."""
    known = await worker.ask("GET", "/connectors/c/topics")
    unknown = await worker.ask("GET", "/connectors/x/topics")
    reset = await worker.ask("PUT", "/connectors/c/topics/reset")

    assert (known.status, known.body) == (200, {"c": {"topics": ["t1", "t2"]}})
    assert (unknown.status, unknown.body) == (200, {"x": {"topics": []}})
    assert (reset.status, reset.text) == (202, "")
    assert worker.herder.asked == [("reset topics", "c")]


@pytest.mark.parametrize(("method", "path"), [("GET", "topics"), ("PUT", "topics/reset")])
async def test_topics_may_be_disabled(worker: Served, method: str, path: str) -> None:
    """403 with Connect's text."""
    worker.herder.failure = ForbiddenError("Topic tracking is disabled.")

    assert (await worker.ask(method, f"/connectors/c/{path}")).error == (403, "Topic tracking is disabled.")
