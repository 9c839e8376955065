"""Connectors' own code is asked about offsets, and waited for no longer than a minute."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fetchers.sdk import FetchContext, FetcherConfig, Offset, Page, Partition, SourceConnector
from service.config.providers import ConfigProviders
from service.control import OffsetChecks
from service.herder.errors import BadRequestError
from service.herder.offsets import CHECK_SECONDS_MAX, CheckOffsets, SinkOffsetAccess, SourceOffsetAccess
from service.kafka.client import KafkaSettings
from service.sinks.contract import SinkBatch, SinkConfig, SinkConnector
from service.worker.foreign_calls import ForeignCalls

WORKER = {"key.converter": "string", "value.converter": "json"}
HERE, THERE = {"file": "here"}, {"file": "there"}
SILENT = "has not said within 60 s whether these offsets may be set, and nothing was changed"
REST_SECONDS = 90
"""How long a request may take, by default (``rest.request.timeout.ms``)."""
TEXT = "the file is shorter"


ASKED: dict[str, Callable[[object], object]] = {}
"""What connectors do when they are asked, by the key of their configs: of each test its own, since a thread that was
left behind by one may come to it while the next one runs."""


class SourceConfig(FetcherConfig):
    """Of a source."""

    asked: str
    """The key of what it does."""


class Source(SourceConnector[SourceConfig]):
    """Has an opinion of its offsets."""

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """As the test says."""
        ASKED[self.config.asked](offsets)

    def forgotten_with(self, partition: Partition, stored: Sequence[Partition]) -> Sequence[Partition]:
        """All others; the first of them may be waited for as well."""
        ASKED[self.config.asked](stored)
        return [other for other in stored if other != partition]

    async def fetch(self, context: FetchContext) -> AsyncGenerator[Page, None]:
        """Nothing."""
        del context
        if False:
            yield


class EmptyConfig(SinkConfig):
    """Of a sink."""

    asked: str
    """The key of what it does."""


class Sink(SinkConnector[EmptyConfig]):
    """Has an opinion of its offsets."""

    async def put(self, batch: SinkBatch) -> None:
        """Nothing is put here."""

    def check_offsets(self, offsets: Mapping[tuple[str, int], int | None]) -> None:
        """As the test says."""
        ASKED[self.config.asked](offsets)


@dataclass(frozen=True)
class Connectors:
    """One of each kind, and who asks them as the control plane does."""

    checks: OffsetChecks
    asked: str
    release: Event

    @property
    def source(self) -> dict[str, str]:
        """Its config."""
        return {"name": "c", "connector.class": f"{__name__}:Source", "topic": "t", "asked": self.asked}

    @property
    def sink(self) -> dict[str, str]:
        """Its config."""
        return {"name": "s", "connector.class": f"{__name__}:Sink", "topics": "t", "asked": self.asked}

    def do(self, does: Callable[[object], object]) -> None:
        """What they do from now on."""
        ASKED[self.asked] = does

    def hang(self) -> None:
        """As a client does that waits for a server which never answers."""
        self.do(lambda _asked: self.release.wait())


@pytest.fixture
def made() -> Iterator[Connectors]:
    """Their threads end with the test."""
    providers, findings = ConfigProviders.parse({}, environ={})
    assert not findings
    calls, release = ForeignCalls(), Event()
    try:
        yield Connectors(OffsetChecks(WORKER, providers.resolve, calls), uuid.uuid4().hex, release)
    finally:
        release.set()
        calls.close()


def refuse(_asked: object) -> None:
    """With a text for a person."""
    raise ValueError(TEXT)


async def test_a_connector_says_what_it_thinks(made: Connectors) -> None:
    """Of what is asked, and its refusal is handed on."""
    seen: list[object] = []
    made.do(seen.append)
    forgotten_with = await made.checks.of_source(made.source, [(HERE, None)])
    assert await forgotten_with(HERE, [HERE, THERE]) == [THERE]
    await made.checks.of_sink(made.sink, {("t", 0): 3})
    assert seen == [[(HERE, None)], [HERE, THERE], {("t", 0): 3}]
    made.do(refuse)
    for asked in (made.checks.of_source(made.source, [(HERE, None)]), made.checks.of_sink(made.sink, {("t", 0): 3})):
        with pytest.raises(ValueError, match=TEXT):
            await asked


async def test_a_config_that_cannot_be_read_any_more(made: Connectors) -> None:
    """Such as one whose class has gone since it was written."""
    nowhere = {"connector.class": "nowhere:None"}
    with pytest.raises(ValueError, match="Failed to modify offsets for source connector c"):
        await made.checks.of_source({**made.source, **nowhere}, [(HERE, None)])
    with pytest.raises(ValueError, match="Failed to modify offsets for sink connector s"):
        await made.checks.of_sink({**made.sink, **nowhere}, {("t", 0): 3})


@pytest.mark.looptime
async def test_a_connector_that_hangs_is_not_asked_twice(made: Connectors) -> None:
    """Its thread hangs on, and another request is told so at once."""
    made.hang()
    asks: list[Callable[[], Any]] = [
        lambda: made.checks.of_source(made.source, [(HERE, None)]),
        lambda: made.checks.of_sink(made.sink, {("t", 0): 3}),
    ]
    for ask in asks:
        with pytest.raises(TimeoutError, match="did not return within 60 s"):
            await ask()
        with pytest.raises(TimeoutError, match="an earlier call of the connector's own code still hangs"):
            await ask()


@pytest.mark.looptime
async def test_a_request_about_a_source_that_hangs_is_refused(made: Connectors) -> None:
    """Within a minute, and before anything is fenced or written."""
    made.hang()
    touched: list[object] = []

    async def touch(*asked: object) -> Any:
        touched.append(asked)

    sources = SourceOffsetAccess("g", touch, touch, _no_clients, made.checks.of_source, task_count=lambda _name: 9)
    with pytest.raises(BadRequestError, match=SILENT):
        await sources.alter("c", made.source, [(HERE, None)])
    assert asyncio.get_running_loop().time() < REST_SECONDS
    assert touched == []


@pytest.mark.looptime
async def test_a_source_that_hangs_when_it_is_asked_what_else_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is refused as well."""

    async def agree(_config: object, _entries: object) -> Any:
        return lambda _partition, _stored: asyncio.Event().wait()

    with pytest.raises(BadRequestError, match=SILENT):
        await _sources(monkeypatch, agree).alter("c", {}, [(HERE, None)])


@pytest.mark.looptime
async def test_a_source_that_is_slow_at_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them together are waited for no longer than one, so that whoever asked is told before REST gives up."""
    asked: list[object] = []

    async def slow(*question: object) -> Any:
        asked.append(question)
        await asyncio.sleep(CHECK_SECONDS_MAX * 0.4)
        return []

    async def agree(*question: object) -> Any:
        await slow(*question)
        return slow

    with pytest.raises(BadRequestError, match=SILENT):
        await _sources(monkeypatch, agree).alter("c", {}, [(HERE, None)])
    assert (len(asked), asyncio.get_running_loop().time()) == (3, CHECK_SECONDS_MAX)


def _sources(monkeypatch: pytest.MonkeyPatch, agree: CheckOffsets) -> SourceOffsetAccess:
    class Changes:
        """Asks as the real one does, when it knows what is stored."""

        def __init__(self, *_parts: object) -> None:
            """Nothing is stored."""

        async def alter(self, _name: str, _entries: object, *, writing: object, forgotten_with: Any) -> None:
            """Ask."""
            del writing
            for partition in (HERE, THERE):
                await forgotten_with(partition, [HERE, THERE])

    async def none(*_asked: object) -> Any:
        return None

    monkeypatch.setattr("service.herder.offsets.OffsetChanges", Changes)
    monkeypatch.setattr("service.herder.offsets._clients", none)
    return SourceOffsetAccess("g", none, none, _no_clients, agree, task_count=lambda _name: 0)


@pytest.mark.looptime
async def test_a_request_about_a_sink_that_hangs_is_refused(made: Connectors) -> None:
    """The same for a sink, whose target may be away."""
    made.hang()
    sinks = SinkOffsetAccess(_no_clients, lambda name, _config: f"connect-{name}", made.checks.of_sink)
    with pytest.raises(BadRequestError, match="could not be asked within 60 s how far it is"):
        await sinks._check(made.sink, {("t", 0): 3})


def _no_clients(_role: str, _config: object) -> KafkaSettings:
    return cast("KafkaSettings", SimpleNamespace())
