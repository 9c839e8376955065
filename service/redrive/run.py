"""One redrive: a task for each connector whose letters are in the topic, until all letters are read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from fetchers.sdk import Clock, PayloadKind
from metrics.events import (
    ComponentStateChanged,
    DeadLettersWritten,
    Event,
    RecordsDeduplicated,
    RecordsDelivered,
    RecordsFiltered,
    TaskFailed,
)
from service.app import open_worker
from service.config.definition import ConnectorDefinition
from service.job import Job
from service.kafka.sharing import StandbyAdmin
from service.redrive.source import Nameless
from service.redrive.task import Redrive
from service.worker.connectors import ConnectorParts
from service.worker.life import InstanceLife
from spark_batch.session_keeper import CANNOT_START

logger = logging.getLogger("headrace.redrive")

IDLE_SECONDS = 0.5
LOOK_SECONDS = 0.1
_FREE_LISTENER = {"listeners": "http://127.0.0.1:0", "rest_host_name": None, "rest_port": None}


class UnknownDeadLetterTopicError(Exception):
    """No connector of the job has this dead-letter topic."""


class TypedRowsError(Exception):
    """All letters of the topic are of typed rows, which cannot be put in again from what they hold."""


@dataclass(slots=True)
class RedriveReport:
    """What became of the letters; an observer of events."""

    passed: int = 0
    passed_before: int = 0
    """Delivered meanwhile by the connector itself, or by an earlier redrive."""
    failed_again: int = 0
    nameless: int = 0
    """Passed over: they do not say whose they are, and all connectors of the job write headers that say it."""
    failure: str = ""
    """Why the redrive itself failed, in one line; empty where it did not."""
    is_without_spark: bool = False
    """Whether Spark cannot be started: a redrive does not wait for better times, as a worker does."""

    @property
    def is_failed(self) -> bool:
        """Whether the redrive itself failed."""
        return bool(self.failure)

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, RecordsDelivered):
            self.passed += event.records
        elif isinstance(event, RecordsDeduplicated):
            self.passed_before += event.count
        elif isinstance(event, RecordsFiltered):
            # Such a record needs no other redrive: the config does not want it.
            self.passed += event.count
        elif isinstance(event, DeadLettersWritten):
            self.failed_again += event.count
        elif isinstance(event, TaskFailed):
            self.failure = _one_line(event.message) or event.error_class
        elif isinstance(event, ComponentStateChanged) and event.component == "spark":
            self.is_without_spark = not event.is_ready and event.detail.startswith(CANNOT_START)
            if self.is_without_spark:
                self.failure = _one_line(event.detail)


async def redrive(topic: str, job: Job) -> RedriveReport:
    """Put the letters of ``topic`` through their connector's conversion.

    Raises ``UnknownDeadLetterTopicError``, ``TypedRowsError``.
    """
    report = RedriveReport()
    # The connector's own worker may run meanwhile and hold the listener's port.
    beside = replace(job, worker=job.worker.model_copy(update=_FREE_LISTENER))
    async with open_worker(beside, observers=(report,)) as running, AsyncExitStack() as stack:
        definitions = definitions_of(topic, running.definitions)
        without_rows = redrivable(definitions)
        parts = running.parts
        redrives = [
            Redrive(topic, each, parts, _admin_for(each, parts, stack), nameless_of(each, definitions))
            for each in without_rows
        ]
        await run_until_idle(
            [each.life() for each in redrives],
            parts.flow.clock,
            seconds=IDLE_SECONDS,
            is_hopeless=lambda: report.is_without_spark,
        )
        if not any(map(_is_nameless, definitions)):
            report.nameless = max(each.passed_over.count for each in redrives)
    return report


def _admin_for(definition: ConnectorDefinition, parts: ConnectorParts, stack: AsyncExitStack) -> StandbyAdmin:
    """One connection for all transactions of a redrive, ended with the stack."""
    admin = StandbyAdmin(parts.writers.clients.of("admin", definition.properties))
    stack.push_async_callback(admin.stop)
    return admin


def _one_line(text: str) -> str:
    """What comes after the first line of an error is for whoever reads traces."""
    return text.strip().partition("\n")[0]


async def run_until_idle(
    lives: Sequence[InstanceLife], clock: Clock, *, seconds: float, is_hopeless: Callable[[], bool] = lambda: False
) -> None:
    """Run all of them until each has been idle for so many seconds, or is FAILED; then stop them step by step.

    ``is_hopeless``: whether to stop them already, for nothing more can come of it.
    """
    async with asyncio.TaskGroup() as group:
        for life in lives:
            group.create_task(life.run(), name=str(life.instance))
        while not is_hopeless() and not all(
            life.idle_seconds is not None and life.idle_seconds >= seconds for life in lives
        ):
            await clock.sleep(LOOK_SECONDS)
        for life in lives:
            life.want(None)


def nameless_of(definition: ConnectorDefinition, definitions: Sequence[ConnectorDefinition]) -> Nameless:
    """Whose a letter is for this connector that does not say it."""
    if not _is_nameless(definition):
        return Nameless.OTHERS
    return Nameless.OWN if sum(map(_is_nameless, definitions)) == 1 else Nameless.UNKNOWN


def _is_nameless(definition: ConnectorDefinition) -> bool:
    return not definition.common.errors_deadletterqueue_context_headers_enable


def redrivable(definitions: Sequence[ConnectorDefinition]) -> list[ConnectorDefinition]:
    """Those whose letters can be put in again; those of typed rows are told in the log, and their letters stay.

    Raises ``TypedRowsError`` where no other is there. JSON does not say of which type a column was, and the topic's
    schema needs it.
    """
    found = [each for each in definitions if each.connector_class.payload_kind is not PayloadKind.ROWS]
    for definition in definitions:
        if definition not in found:
            message = (
                f"the letters of {definition.name} hold rows as JSON, without the column types of which the topic's "
                "schema is made: they cannot be put in again. Mend the row at its source, or the rule that rejects it, "
                "and have the row read anew: change it there, where changes are read, or set its table's offset back "
                f"(PATCH /connectors/{definition.name}/offsets)"
            )
            if not found:
                raise TypedRowsError(message)
            logger.warning("%s", message)
    return found


def definitions_of(topic: str, definitions: tuple[ConnectorDefinition, ...]) -> list[ConnectorDefinition]:
    """The connectors whose dead letters they are."""
    found = [definition for definition in definitions if definition.common.dead_letter_topic == topic]
    if found:
        return found
    known = ", ".join(definition.common.dead_letter_topic for definition in definitions)
    message = f"no connector of this job writes dead letters to '{topic}' (known: {known})"
    raise UnknownDeadLetterTopicError(message)
