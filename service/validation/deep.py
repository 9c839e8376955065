"""``validate --deep``: a config held against Spark, the schema registry, its source and Kafka, all at the same time.

Nothing is written, registered, created or fetched to be kept. Each of them answers within a time limit; one that does
not is itself a finding, for the connector would not get further either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fetchers.sdk import FetchError, Finding, HttpDoor, Severity, SourceConnector
from fetchers.sdk.clock import SystemClock
from metrics.events import discard
from service.config.definition import ConnectorDefinition
from service.config.kinds import Definition
from service.config.worker import PLACEHOLDER_REGISTRY, WorkerConfig
from service.domain.errors import ConnectorExitError
from service.domain.ids import TaskId
from service.kafka.access import AccessQuestions, Operation, TopicAccess
from service.kafka.admin import MissingTopic
from service.kafka.client import KafkaSettings
from service.kafka.errors import KafkaFailure
from service.pipeline.activity import Activity
from service.pipeline.context import TaskContext
from service.registry.errors import RegistryFailure
from service.registry.settings import RegistrySettings
from service.sinks.definition import SinkDefinition
from service.validation.outside import Outside
from service.worker.foreign_calls import ForeignCalls
from service.worker.lending import ClientSettings
from service.worker.topics import topics_of
from spark_batch.plan import ConversionPlan
from spark_batch.transforms.selection import NotAnalysed

ASKED_SECONDS_MAX = 30.0
"""For the registry, the source and Kafka, each."""
RECOMMENDED_SECONDS_MAX = 5.0
"""For a source to say what may be chosen from: a form waits for it."""
RECOMMENDED_VALUES_MAX = 1000
"""Of one key."""
CLOSE_SECONDS_MAX = 2.0
"""For a check to end once it is cancelled; one that does not is left behind."""
_EMBEDDED = "is embedded in the worker: not asked"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one of them says of a config."""

    asked: str
    """Spark, registry, source or Kafka."""
    told: str
    """In a few words, whether anything is wrong or not; why it was not asked where it was not."""
    findings: tuple[Finding, ...] = ()


class Registries(Protocol):
    """The schema registries that connectors name (``service.worker.schemas.RegistrySchemas``)."""

    async def contract_of(self, definition: ConnectorDefinition) -> str | None:
        """Text of the contract's schema, from wherever it is."""

    async def refusals(
        self, definition: ConnectorDefinition, plan: ConversionPlan
    ) -> Mapping[tuple[str, bool], str | None]:
        """By subject (True: of keys) why it would not take its schema; None where it would. Nothing is registered."""


@dataclass(frozen=True, slots=True)
class DeepChecks:
    """Whom a worker, or a command in its place, can ask."""

    spark: Outside
    registries: Registries
    http: HttpDoor
    worker: WorkerConfig
    clients: ClientSettings | None
    """None where Kafka is embedded in a worker that does not run."""
    calls: ForeignCalls
    """Where the connector's own code runs that may block."""

    async def answers(self, definition: Definition) -> Sequence[Answer]:
        """One of each, in a steady order."""
        questions: list[tuple[str, Callable[[], Awaitable[Answer]]]] = []
        if isinstance(definition, ConnectorDefinition):
            source = definition
            questions += [
                ("Spark", lambda: self._spark(source)),
                ("registry", lambda: self._registry(source)),
                ("source", lambda: self._source(source)),
                ("Kafka", lambda: self._kafka_of_source(source)),
            ]
        elif isinstance(definition, SinkDefinition):
            sink = definition
            questions += [("Spark", lambda: self._spark(sink)), ("Kafka", lambda: self._kafka_of_sink(sink))]
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(_answered(asked, ask), name=f"ask {asked}") for asked, ask in questions]
        return [task.result() for task in asking]

    async def recommended(self, connector: SourceConnector[Any]) -> Mapping[str, Sequence[str]]:
        """Values that a source knows for keys of its config, within bounds; none where it does not answer."""
        context = self._context(TaskId("recommended values", 0), connector)
        try:
            async with asyncio.timeout(RECOMMENDED_SECONDS_MAX):
                found = await connector.recommended(context)
        except (FetchError, TimeoutError):
            return {}
        return {key: tuple(values)[:RECOMMENDED_VALUES_MAX] for key, values in found.items()}

    def _context(self, task: TaskId, connector: SourceConnector[Any]) -> TaskContext:
        clock = SystemClock()
        return TaskContext(
            task,
            partition=connector.partition(),
            offsets={},
            http=self.http,
            clock=clock,
            emit=discard,
            activity=Activity(clock),
            blocking=self.calls,
        )

    async def _spark(self, definition: ConnectorDefinition | SinkDefinition) -> Answer:
        if not definition.asks_spark:
            is_sink = isinstance(definition, SinkDefinition)
            return Answer("Spark", f"not asked: {'there is no Sql' if is_sink else 'the contract has no rules'}")
        return _summed_up("Spark", "takes all rules and SQL", await self.spark.findings(definition))

    async def _registry(self, definition: ConnectorDefinition) -> Answer:
        settings = [each.registry for each in (definition.key_converter, definition.value_converter) if each.registry]
        if not settings and (definition.contract_source is None or definition.contract_source.subject is None):
            return Answer("registry", "not asked: nothing names one")
        if any(_is_placeholder(each) for each in settings):
            return Answer("registry", _EMBEDDED)
        try:
            async with asyncio.timeout(ASKED_SECONDS_MAX):
                plan = definition.plan(await self.registries.contract_of(definition))
                refusals = await self.registries.refusals(definition, plan)
        except NotAnalysed:
            return Answer("registry", "not asked: only Spark knows the schema of what Sql makes")
        except RegistryFailure as error:
            key = "value.converter.schema.registry.url"
            shown = settings[-1].urls[0] if settings else None
            return _summed_up("registry", "", (Finding(key, shown, f"{error}; Expected a registry that answers"),))
        found = [
            Finding(
                "key.converter" if is_key else "contract.schema",
                subject,
                f"{reason}; Expected a schema that is compatible with the subject's latest",
            )
            for (subject, is_key), reason in refusals.items()
            if reason is not None
        ]
        subjects = ", ".join(subject for subject, _ in refusals)
        return _summed_up("registry", f"takes the schemas of {subjects}" if subjects else "answers", found)

    async def _source(self, definition: ConnectorDefinition) -> Answer:
        connector = await self.calls.run(lambda: _first_task(definition), subject=f"{definition.name}: deep validation")
        if type(connector).check is SourceConnector.check:
            return Answer("source", "not asked: the connector has no check; './headrace preview' fetches from it")
        context = self._context(TaskId(definition.name, 0), connector)
        try:
            return _summed_up("source", "answers", await _checked(connector, context))
        except FetchError as error:
            text = f"{error}; Expected a source that can be read with this config"
            return _summed_up("source", "", (Finding("connector.class", definition.plugin.name, text),))

    async def _kafka_of_source(self, definition: ConnectorDefinition) -> Answer:
        if self.clients is None:
            return Answer("Kafka", _EMBEDDED)
        needed = {topic.name: topic for topic in topics_of(definition)}
        letters = definition.common.dead_letter_topic
        found: list[Finding] = []
        producer = self.clients.of("producer", definition.properties)
        async with AccessQuestions.opened(producer) as questions:
            seen = await questions.topics(list(needed))
            found += _not_allowed(seen, Operation.WRITE, key_of=lambda name: _topic_key(name, letters))
            if definition.common.delivery_guarantee == "exactly_once":
                transactional_id = TaskId(definition.name, 0).transactional_id(self.worker.group_id)
                found += await _transaction_findings(questions, transactional_id)
        missing = [needed[name] for name, access in seen.items() if not access.is_there]
        found += await self._creation_findings(definition, missing, letters)
        return _summed_up("Kafka", _topics_told(seen), found)

    async def _creation_findings(
        self, definition: ConnectorDefinition, missing: Sequence[MissingTopic], letters: str
    ) -> list[Finding]:
        if not missing or self.clients is None:
            return []
        if not self.worker.topic_creation_enable:
            text = "topic '{}' does not exist, and topic.creation.enable=false: Kafka itself must create it"
            return [
                Finding(_topic_key(topic.name, letters), topic.name, text.format(topic.name), Severity.WARNING)
                for topic in missing
            ]
        async with AccessQuestions.opened(self.clients.of("admin", definition.properties)) as questions:
            refused = await questions.refused_creations(missing)
        text = "topic '{}' does not exist and could not be created: {}; Expected a topic that is there, or may be made"
        return [Finding(_topic_key(name, letters), name, text.format(name, why)) for name, why in refused.items()]

    async def _kafka_of_sink(self, definition: SinkDefinition) -> Answer:
        if self.clients is None:
            return Answer("Kafka", _EMBEDDED)
        settings: KafkaSettings = self.clients.of("consumer", definition.properties)
        async with AccessQuestions.opened(settings) as questions:
            seen = await questions.topics(definition.subscription.topics)
            found = _not_allowed(seen, Operation.READ, key_of=lambda _: "topics")
            if not await questions.may_join(definition.group_id):
                expected = "Expected a user with the operation READ on it"
                text = f"the consumer's user may not be in group '{definition.group_id}'; {expected}"
                found.append(Finding("consumer.override.group.id", definition.group_id, text))
        if definition.writes_letters_in_transactions:
            async with AccessQuestions.opened(self.clients.of("producer", definition.properties)) as questions:
                found += await _transaction_findings(questions, definition.transactional_id(0))
        for name, access in seen.items():
            if not access.is_there:
                text = f"topic '{name}' does not exist; nothing is read until it does"
                found.append(Finding("topics", name, text, Severity.WARNING))
        return _summed_up("Kafka", _topics_told(seen), found)


async def _transaction_findings(questions: AccessQuestions, transactional_id: str) -> list[Finding]:
    if await questions.may_transact(transactional_id):
        return []
    expected = "Expected a user with the operations DESCRIBE and WRITE on it"
    text = f"the producer's user may not use transactional id '{transactional_id}'; {expected}"
    return [Finding("delivery.guarantee", "exactly_once", text)]


async def _checked(connector: SourceConnector[Any], context: TaskContext) -> Sequence[Finding]:
    """What a connector's own check says; raises TimeoutError, also where it swallows its cancellation."""

    async def check() -> Sequence[Finding]:
        try:
            return await connector.check(context)
        except SystemExit as error:
            # Here, not where the task is awaited: an event loop ends with the first task that ends with it.
            raise ConnectorExitError.of(error) from error

    # In no TaskGroup, which would wait for it for ever.
    checking = asyncio.get_running_loop().create_task(check(), name="check of a source")
    try:
        done, _ = await asyncio.wait((checking,), timeout=ASKED_SECONDS_MAX)
        if not done:
            raise TimeoutError
        return checking.result()
    finally:
        checking.cancel()
        await asyncio.wait((checking,), timeout=CLOSE_SECONDS_MAX)


async def _answered(asked: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    try:
        return await ask()
    except KafkaFailure as error:
        text = f"{error}; Expected brokers that answer this user"
        return _summed_up(asked, "", (Finding("bootstrap.servers", None, text),))
    except TimeoutError:
        text = f"{asked}: no answer within {ASKED_SECONDS_MAX:g} s"
        return _summed_up(asked, "", (Finding("connector.class", None, text),))
    except SystemExit as error:
        text = str(ConnectorExitError.of(error))
        return _summed_up(asked, "", (Finding("connector.class", None, text),))
    except Exception as error:  # noqa: BLE001 - a connector's own check may raise anything; it is told, not hidden
        text = f"{asked}: {type(error).__name__}: {error}"
        return _summed_up(asked, "", (Finding("connector.class", None, text),))


def _summed_up(asked: str, told: str, found: Sequence[Finding]) -> Answer:
    errors = sum(finding.is_error for finding in found)
    counted = ((errors, "error"), (len(found) - errors, "warning"))
    summary = ", ".join(f"{number} {word}{'s' * (number > 1)}" for number, word in counted if number)
    return Answer(asked, summary or told, tuple(found))


def _first_task(definition: ConnectorDefinition) -> SourceConnector[Any]:
    """Runs the connector's own code, which may block."""
    tasks = definition.for_task({}).task_configs(1)
    return definition.for_task(next(iter(tasks), {}))


def _is_placeholder(settings: RegistrySettings) -> bool:
    return any(url.startswith(PLACEHOLDER_REGISTRY) for url in settings.urls)


def _topic_key(name: str, letters: str) -> str:
    return "errors.deadletterqueue.topic.name" if name == letters else "topic"


def _not_allowed(seen: Mapping[str, TopicAccess], needed: Operation, *, key_of: Callable[[str], str]) -> list[Finding]:
    return [
        Finding(key_of(name), name, f"this user may not {needed.name} topic '{name}'; Expected an ACL that allows it")
        for name, access in seen.items()
        if access.is_there and access.operations is not None and needed not in access.operations
    ]


def _topics_told(seen: Mapping[str, TopicAccess]) -> str:
    there = [name for name, access in seen.items() if access.is_there]
    missing = [name for name, access in seen.items() if not access.is_there]
    told = [f"has {', '.join(there)}" if there else "", f"would make {', '.join(missing)}" if missing else ""]
    return "; ".join(filter(None, told)) or "answers"
