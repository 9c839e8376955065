"""What a worker lends to its tasks from Kafka: client settings, writers, de-duplication states."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.domain.ids import TaskId
from service.kafka.client import KafkaSettings
from service.kafka.producer import IdempotentWriter, TransactionalWriter, Writer
from service.kafka.properties import read_settings
from service.stores.dedupe import DedupeLimits
from service.stores.dedupe_store import DedupeState, DedupeStore, NoDedupe, StoredDedupe


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of Kafka clients by role: the worker's, over them a connector's overrides (as in Connect)."""

    worker_properties: Mapping[str, str]
    bootstrap: str
    """The real address, where the properties may say ``embedded``."""

    def of(self, role: str, connector: Mapping[str, str] | None = None) -> KafkaSettings:
        """``role``: producer, consumer or admin. Doubts were told when the config was read."""
        worker = {**self.worker_properties, "bootstrap.servers": self.bootstrap}
        settings, _ = read_settings(worker, connector=connector, role=role)
        return settings


@dataclass(frozen=True, slots=True)
class Writers:
    """Opens the writers of tasks: transactional ones for exactly-once delivery, else idempotent ones."""

    clients: ClientSettings
    group_id: str
    offset_topic: str

    def open(
        self,
        task_id: TaskId,
        *,
        connector: Mapping[str, str],
        is_exactly_once: bool,
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> Writer:
        """Not started yet; a restart of the task opens another. `confirm`: as of `TransactionalWriter`."""
        settings = self.clients.of("producer", connector)
        if is_exactly_once:
            return TransactionalWriter(
                settings, transactional_id=task_id.transactional_id(self.group_id), confirm=confirm
            )
        return IdempotentWriter(settings, last_topic=self.offset_topic)


@dataclass(frozen=True, slots=True)
class DedupeStates:
    """Opens a task's de-duplication state."""

    store: DedupeStore
    folder: Path
    """Where indexes over their memory limit spill to; what lies there may be deleted."""

    def open(self, task_id: TaskId, *, records_max: int, is_used: bool) -> DedupeState:
        """The state of a task, not loaded yet; one that remembers nothing where ``is_used`` is false."""
        if not is_used:
            return NoDedupe()
        return self.open_stored(task_id, records_max=records_max)

    def open_stored(self, task_id: TaskId, *, records_max: int) -> StoredDedupe:
        """That of a task that de-duplicates, not loaded yet."""
        # A connector may be named `../..`, so its name is none for a folder.
        folder = self.folder / hashlib.sha256(str(task_id).encode(errors="surrogatepass")).hexdigest()[:32]
        limits = DedupeLimits(records_max=records_max, spill_directory=folder)
        return self.store.open(task_id.connector, task_id.task, limits=limits)
