"""A config that is held against others: what each of them says, and that none holds up the rest."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fetchers.sdk import FetchContext, FetcherConfig, Finding, Page, Retriable, Severity, SourceConnector
from service.config.definition import ConnectorDefinition
from service.config.kinds import Definition
from service.config.worker import WorkerConfig
from service.kafka.access import AccessQuestions, Operation, TopicAccess
from service.kafka.admin import MissingTopic
from service.kafka.errors import DeliveryRetriable
from service.registry.errors import RegistryRetriable
from service.validation.deep import ASKED_SECONDS_MAX, Answer, DeepChecks
from service.validation.outside import Outside
from service.validation.plugins import ConnectorPlugins, SlowValidationError
from service.validation.validator import Validated, Validation
from service.worker.foreign_calls import ForeignCalls
from service.worker.lending import ClientSettings
from spark_batch.plan import ConversionPlan
from tests.unit.worker.test_rules import Inline

SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
WORKER = {"key.converter": "string", "value.converter": "json"}
SOURCE = {"name": "c", "connector.class": "asked_plugin:Asked", "topic": "t"}
SINK = {"name": "s", "connector.class": "FileStreamSink", "topics": "t,u", "file": "f"}
ALL = TopicAccess(is_there=True, operations=frozenset(Operation))
NONE = TopicAccess(is_there=True, operations=frozenset())
MISSING = TopicAccess(is_there=False, operations=None)


class AskedConfig(FetcherConfig):
    """Nothing of its own."""


class Unasked(SourceConnector[AskedConfig]):
    """Has no check."""

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Never called."""
        del context
        return
        yield


class Asked(Unasked):
    """Answers as the test says."""

    says: Callable[[], Sequence[Finding]]
    is_let_go: asyncio.Event

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Hang, raise or answer."""
        del context
        if type(self).says is hang:
            await asyncio.Event().wait()
        if type(self).says is swallow:
            while not self.is_let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await self.is_let_go.wait()
        return type(self).says()


def hang() -> Sequence[Finding]:
    """No answer."""
    return ()


def swallow() -> Sequence[Finding]:
    """No answer either, and no end when it is cancelled."""
    return ()


@pytest.fixture(autouse=True)
def plugin() -> Iterator[None]:
    """The classes can be named by configs."""
    module: Any = ModuleType("asked_plugin")
    module.Asked, module.Unasked = Asked, Unasked
    Asked.says = staticmethod(tuple)
    sys.modules["asked_plugin"] = module
    yield
    del sys.modules["asked_plugin"]


class Registries(Inline):
    """A registry that refuses what the test says."""

    def __init__(self, refusals: Mapping[tuple[str, bool], str | None] | RegistryRetriable | None = None) -> None:
        """Takes everything."""
        self._refusals = refusals or {}

    async def refusals(
        self, definition: ConnectorDefinition, plan: ConversionPlan
    ) -> Mapping[tuple[str, bool], str | None]:
        """As RegistrySchemas'."""
        del definition, plan
        if isinstance(self._refusals, RegistryRetriable):
            raise self._refusals
        return self._refusals


class Http:
    """A door that nobody goes through."""

    def for_task(self, asker: object) -> Any:
        """As HttpDoor's."""
        del asker


class Questions:
    """A cluster with these topics, which makes no others."""

    def __init__(self, topics: Mapping[str, TopicAccess], *, is_allowed: bool = True) -> None:
        """`is_allowed`: transactional ids and groups."""
        self._topics = topics
        self._is_allowed = is_allowed

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicAccess]:
        """As AccessQuestions'."""
        return {name: self._topics.get(name, MISSING) for name in names}

    async def refused_creations(self, topics: Sequence[MissingTopic]) -> Mapping[str, str]:
        """As AccessQuestions'."""
        return {topic.name: "there are not so many brokers" for topic in topics}

    async def may_transact(self, transactional_id: str) -> bool:
        """As AccessQuestions'."""
        assert transactional_id == "headrace-c-0"
        return self._is_allowed

    async def may_join(self, group: str) -> bool:
        """As AccessQuestions'."""
        assert group == "connect-s"
        return self._is_allowed


def checks(
    worker: Mapping[str, str] | None = None, *, registries: Registries | None = None, has_kafka: bool = False
) -> DeepChecks:
    """Of a worker."""
    config = WorkerConfig.parse(worker or {}).config
    assert config is not None
    registries = registries or Registries()

    async def no_rules(plan: ConversionPlan) -> Sequence[Any]:
        raise AssertionError(plan)

    clients = ClientSettings({}, "nowhere:1") if has_kafka else None
    http: Any = Http()
    return DeepChecks(Outside(registries, no_rules, lambda: True), registries, http, config, clients, ForeignCalls())


def defined(config: Mapping[str, str]) -> Definition:
    """Of a config that is right by itself."""
    validated = Validation(WORKER).validate(config)
    assert validated.definition is not None, validated.infos.errors
    return validated.definition


async def told(config: Mapping[str, str], asking: DeepChecks) -> dict[str, Answer]:
    """Everybody's answer."""
    return {answer.asked: answer for answer in await asking.answers(defined(config))}


async def test_who_has_nothing_to_say_says_why() -> None:
    """Without rules, registry, check of its own or a Kafka that runs there is nothing to ask."""
    answers = await told({**SOURCE, "connector.class": "asked_plugin:Unasked"}, checks())
    assert {asked: answer.told.partition(":")[0] for asked, answer in answers.items()} == {
        "Spark": "not asked",
        "registry": "not asked",
        "source": "not asked",
        "Kafka": "is embedded in the worker",
    }
    assert not any(answer.findings for answer in answers.values())


def fail(error: BaseException) -> Callable[[], Sequence[Finding]]:
    """A check that raises this."""

    def raising() -> Sequence[Finding]:
        raise error

    return raising


@pytest.mark.parametrize(
    ("says", "key", "text"),
    [
        (lambda: (Finding("url", "x", "401"),), "url", "401"),
        (fail(Retriable("nobody is there")), "connector.class", "nobody is there; Expected a source that can be read"),
        (fail(ValueError("a bug")), "connector.class", "source: ValueError: a bug"),
        (fail(SystemExit("bye")), "connector.class", "bye"),
    ],
)
async def test_a_source_that_cannot_be_read_is_a_finding(
    says: Callable[[], Sequence[Finding]], key: str, text: str
) -> None:
    """Whatever its check does; the others answer all the same."""
    Asked.says = staticmethod(says)
    answers = await told(SOURCE, checks())
    [finding] = answers["source"].findings
    assert (finding.key, finding.is_error, text in finding.message) == (key, True, True)
    assert answers["source"].told == "1 error"
    assert len(answers) == 4


class AtOnce:
    """Calls that need no thread: virtual time would not wait for one."""

    async def run(self, call: Callable[[], Any], *, subject: object) -> Any:
        """As ForeignCalls'."""
        del subject
        return call()


@pytest.mark.looptime
async def test_a_check_that_swallows_its_cancellation_is_left_behind() -> None:
    """The others' answers are told all the same, and the next config can be asked about."""
    Asked.says, Asked.is_let_go = swallow, asyncio.Event()
    at_once: Any = AtOnce()
    async with asyncio.timeout(2 * ASKED_SECONDS_MAX):
        answers = await told(SOURCE, replace(checks(), calls=at_once))
    assert "no answer within 30 s" in answers["source"].findings[0].message
    Asked.is_let_go.set()
    await asyncio.sleep(1)


@pytest.mark.looptime
async def test_who_waits_for_others_waits_so_long_only() -> None:
    """One deep validation at a time; a client is told that it cannot be now, and the one under way goes on."""
    is_asked = asyncio.Event()

    class Silent:
        async def answers(self, definition: Definition) -> Sequence[Answer]:
            del definition
            is_asked.set()
            await asyncio.Event().wait()
            return ()

    deep: Any = Silent()
    plugins = ConnectorPlugins(Validation(WORKER), AtOnce(), deep=deep)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(plugins.validate("asked_plugin:Asked", SOURCE, is_deep=True))
        await is_asked.wait()
        with pytest.raises(SlowValidationError, match="have not come back"):
            await plugins.validate("asked_plugin:Asked", SOURCE, is_deep=True)
        assert not first.done()
        first.cancel()


@pytest.mark.looptime
async def test_a_source_that_does_not_answer_is_waited_for_so_long_only() -> None:
    """It would hold up the others' answers too."""
    Asked.says = hang
    at_once: Any = AtOnce()
    asking, definition = replace(checks(), calls=at_once), defined(SOURCE)
    began = asyncio.get_running_loop().time()
    [finding] = [each for answer in await asking.answers(definition) for each in answer.findings]
    assert "no answer within 30 s" in finding.message
    assert asyncio.get_running_loop().time() - began == pytest.approx(ASKED_SECONDS_MAX)


AVRO = {**SOURCE, "contract.schema": SCHEMA, "value.converter": "avro"}
REGISTRY = {"value.converter.schema.registry.url": "http://127.0.0.1:8081"}


@pytest.mark.parametrize(
    ("refusals", "key", "text"),
    [
        ({("t-value", False): "b is new"}, "contract.schema", "b is new; Expected a schema that is compatible"),
        ({("t-key", True): "b is new", ("t-value", False): None}, "key.converter", "b is new"),
        (RegistryRetriable("no schema registry answers"), "value.converter.schema.registry.url", "no schema registry"),
    ],
)
async def test_what_the_registry_would_refuse_is_a_finding(refusals: Any, key: str, text: str) -> None:
    """By the key that it is about."""
    answers = await told({**AVRO, **REGISTRY}, checks(registries=Registries(refusals)))
    [finding] = answers["registry"].findings
    assert (finding.key, text in finding.message) == (key, True)


async def test_a_registry_that_takes_the_schemas_is_named_with_its_subjects() -> None:
    """So that one sees what was asked."""
    answers = await told({**AVRO, **REGISTRY}, checks(registries=Registries({("t-value", False): None})))
    assert answers["registry"] == Answer("registry", "takes the schemas of t-value")


def cluster(monkeypatch: pytest.MonkeyPatch, questions: Questions | Exception) -> None:
    """What is asked of Kafka is asked of this."""

    @asynccontextmanager
    async def opened(_: object) -> AsyncIterator[Questions]:
        if isinstance(questions, Exception):
            raise questions
        yield questions

    monkeypatch.setattr(AccessQuestions, "opened", opened)


LETTERS = {"errors.tolerance": "all"}


@pytest.mark.parametrize(
    ("questions", "worker", "found"),
    [
        (Questions({"t": ALL, "c-dead-letters": ALL}), {}, []),
        (Questions({"t": NONE, "c-dead-letters": ALL}), {}, [("topic", "t", "may not WRITE")]),
        (
            Questions({"t": ALL}),
            {},
            [("errors.deadletterqueue.topic.name", "c-dead-letters", "there are not so many brokers")],
        ),
        (
            Questions({"c-dead-letters": ALL}),
            {"topic.creation.enable": "false"},
            [("topic", "t", "Kafka itself must create it")],
        ),
        (
            Questions({"t": ALL, "c-dead-letters": ALL}, is_allowed=False),
            {},
            [("delivery.guarantee", "exactly_once", "may not use transactional id 'headrace-c-0'")],
        ),
        (DeliveryRetriable("nobody is there"), {}, [("bootstrap.servers", None, "nobody is there")]),
    ],
)
async def test_what_kafka_would_not_let_a_source_do(
    monkeypatch: pytest.MonkeyPatch, questions: Questions, worker: dict[str, str], found: list[tuple[str, str, str]]
) -> None:
    """Each by its key; what the worker may not make is odd, the rest is wrong."""
    cluster(monkeypatch, questions)
    answers = await told({**SOURCE, **LETTERS}, checks(worker, has_kafka=True))
    seen = answers["Kafka"].findings
    assert [(finding.key, finding.value) for finding in seen] == [(key, value) for key, value, _ in found]
    for finding, (_, _, text) in zip(seen, found, strict=True):
        assert text in finding.message
        assert finding.is_error is not bool(worker)


async def test_what_kafka_would_not_let_a_sink_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there yet is waited for."""
    cluster(monkeypatch, Questions({"t": NONE}, is_allowed=False))
    answers = await told(SINK, checks(has_kafka=True))
    assert [(finding.key, finding.value, finding.severity) for finding in answers["Kafka"].findings] == [
        ("topics", "t", Severity.ERROR),
        ("consumer.override.group.id", "connect-s", Severity.ERROR),
        ("topics", "u", Severity.WARNING),
    ]
    assert answers["Kafka"].told == "2 errors, 1 warning"


async def test_a_source_recommends_values_while_its_config_is_still_made(tmp_path: Path) -> None:
    """Tables as soon as there is a URL, and columns of the tables that are chosen; others have no such key."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as shop:
        shop.execute("create table orders (id integer primary key, at timestamp not null, note text)")
        shop.execute("create table customers (id integer primary key, name text)")
    config = {"connector.class": "JdbcSource", "connection.url": f"jdbc:sqlite:{path}"}
    plugins = ConnectorPlugins(Validation(WORKER), ForeignCalls(), deep=checks())
    begun = _recommended(await plugins.validate("JdbcSource", config))
    assert begun["table.whitelist"] == begun["table.blacklist"] == ("customers", "orders")
    assert begun["incrementing.column.name"] == ()
    chosen = _recommended(await plugins.validate("JdbcSource", {**config, "table.whitelist": "orders"}))
    assert chosen["incrementing.column.name"] == ("id",)
    assert chosen["timestamp.column.name"] == ("at",)
    assert chosen["key.columns"] == ("id", "at", "note")


@pytest.mark.parametrize("url", ["jdbc:sqlite:/no/such/file.db", "jdbc:postgresql://127.0.0.1:1/x", "jdbc:nothing"])
async def test_a_database_that_does_not_answer_has_nothing_to_recommend(url: str) -> None:
    """The answer is the one that it would be without."""
    plugins = ConnectorPlugins(Validation(WORKER), ForeignCalls(), deep=checks())
    config = {"connector.class": "JdbcSource", "connection.url": url}
    found = _recommended(await plugins.validate("JdbcSource", config))
    assert found["table.whitelist"] == ()


async def test_a_worker_that_closes_its_network_lets_no_one_look_for_tables_in_it(tmp_path: Path) -> None:
    """What may not be read by a connector may not be asked for a form."""
    path = tmp_path / "shop.db"
    sqlite3.connect(path).close()
    closed = {**WORKER, "connector.allowed.paths": "/nowhere"}
    plugins = ConnectorPlugins(Validation(closed), ForeignCalls(), deep=checks())
    config = {"connector.class": "JdbcSource", "connection.url": f"jdbc:sqlite:{path}"}
    assert _recommended(await plugins.validate("JdbcSource", config))["table.whitelist"] == ()


def _recommended(validated: Validated) -> dict[str, Sequence[str]]:
    return {config.value.name: config.value.recommended_values for config in validated.infos.configs}
