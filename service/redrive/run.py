"""One redrive: a task that reads the dead letters and writes as the connector does, until all are read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from metrics.events import DeadLettersWritten, Event, RecordsDelivered
from service.app import RunningWorker, open_worker
from service.config.definition import ConnectorDefinition
from service.domain.ids import TaskId
from service.job import Job
from service.redrive.source import DeadLetterFeed, DeadLetterSource, RedriveConfig
from service.worker.connectors import supervise
from service.worker.lending import ClientSettings
from service.worker.supervising import TaskSupervisor
from service.worker.worker import Worker
from spark_batch.plan import ConversionPlan

IDLE_SECONDS = 0.5
_FREE_LISTENER = {"listeners": "http://127.0.0.1:0", "rest_host_name": None, "rest_port": None}


class UnknownDeadLetterTopicError(Exception):
    """No connector of the job has this dead-letter topic."""


@dataclass(slots=True)
class RedriveReport:
    """What became of the letters; an observer of events."""

    passed: int = 0
    failed_again: int = 0
    is_failed: bool = False
    """Whether the redrive itself failed; the log says why."""

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, RecordsDelivered):
            self.passed += event.records
        elif isinstance(event, DeadLettersWritten):
            self.failed_again += event.count


async def redrive(topic: str, job: Job) -> RedriveReport:
    """Put the letters of ``topic`` through their connector's conversion; raises ``UnknownDeadLetterTopicError``."""
    report = RedriveReport()
    # The connector's own worker may run meanwhile and hold the listener's port.
    beside = replace(job, worker=job.worker.model_copy(update=_FREE_LISTENER))
    async with open_worker(beside, observers=(report,)) as running:
        definition = definition_of(topic, running.definitions)
        worker = Worker(
            [task_of(topic, definition, running)],
            running.parts.flow.clock,
            running.parts.flow.emit,
            stop_seconds_max=8.0,
        )
        await worker.run(idle_seconds=IDLE_SECONDS)
        report.is_failed = worker.has_failed
    return report


def definition_of(topic: str, definitions: tuple[ConnectorDefinition, ...]) -> ConnectorDefinition:
    """The connector whose dead letters they are."""
    for definition in definitions:
        if definition.common.dead_letter_topic == topic:
            return definition
    known = ", ".join(definition.common.dead_letter_topic for definition in definitions)
    message = f"no connector of this job writes dead letters to '{topic}' (known: {known})"
    raise UnknownDeadLetterTopicError(message)


def task_of(topic: str, definition: ConnectorDefinition, running: RunningWorker) -> TaskSupervisor:
    """A task of its own name, so that its offsets and its transactional id are its own."""
    feed = feed_of(definition, running.parts.writers.clients)
    tolerant = replace(definition, common=definition.common.model_copy(update={"errors_tolerance": "all"}))
    return supervise(
        TaskId(f"redrive-{topic}", 0),
        tolerant,
        running.parts,
        make_connector=lambda: DeadLetterSource(RedriveConfig.model_validate({"topic": topic}), feed),
        adapt_plan=_without_dedupe,
    )


def feed_of(definition: ConnectorDefinition, clients: ClientSettings) -> DeadLetterFeed:
    """Read as whom the worker's consumers log in, or the connector's where it says so."""
    return DeadLetterFeed(clients.of("consumer", definition.properties), definition.topic)


def _without_dedupe(plan: ConversionPlan) -> ConversionPlan:
    """A rejected record is remembered as seen; here it must not be dropped for it."""
    return replace(plan, dedupe_fields=())
