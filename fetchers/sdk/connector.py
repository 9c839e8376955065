"""The one class a fetcher's author writes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin

from fetchers.sdk.config import FetcherConfig, Finding
from fetchers.sdk.context import FetchContext, WorkContext
from fetchers.sdk.page import Offset, Page, Partition, PayloadKind
from fetchers.sdk.reach import AllowedAddresses, AllowedPaths

C = TypeVar("C", bound=FetcherConfig)


class ConnectorSettingsError(TypeError):
    """A connector class that is put together wrongly: a mistake of its author, found at import."""


class SourceConnector(ABC, Generic[C]):
    """Reads one system. One instance serves one task; ``self.config`` is its validated config.

    Who calls what: the worker validates (``findings``), asks for the tasks (``task_configs``), makes an instance for
    each task, and iterates ``fetch`` until it ends or the task is stopped by cancellation. ``on_committed`` follows
    each Kafka commit, page by page. Nothing else is needed: retry, back-pressure, conversion and offsets are the
    worker's.
    """

    config_class: ClassVar[type[FetcherConfig]]
    payload_kind: ClassVar[PayloadKind] = PayloadKind.JSON
    """What the payloads are before a contract is applied."""
    default_dedupe_fields: ClassVar[tuple[str, ...]] = ()
    """Fields by which equal records are dropped, unless ``dedupe.fields`` says otherwise."""
    version: ClassVar[str] = "0.1.0"
    allowed_paths: AllowedPaths = AllowedPaths()
    """Files that configs may name, set by the worker on each instance. Keys with ``Key(is_path=True)`` were checked;
    whoever opens a file checks it once more (``AllowedPaths.check_open``), since links may have changed."""
    allowed_addresses: AllowedAddresses = AllowedAddresses()
    """Addresses that connections may be made to, set by the worker on each instance. ``FetchContext.http`` obeys them
    by itself; whoever connects by a driver judges the address, and connects to the one that was judged."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find the config class in ``SourceConnector[Config]``."""
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            arguments = get_args(base) if get_origin(base) is not None else ()
            if arguments and isinstance(arguments[0], type) and issubclass(arguments[0], FetcherConfig):
                cls.config_class = arguments[0]
        if not hasattr(cls, "config_class"):
            message = f"{cls.__name__} must be declared as SourceConnector[ItsConfig]"
            raise ConnectorSettingsError(message)

    def __init__(self, config: C) -> None:
        """``config``: validated; the instance may keep state of its own besides."""
        self.config = config

    @abstractmethod
    def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Yield pages for ever, or until the source has no more; resume from ``context.offset``.

        Never block the event loop. Raise ``Retriable`` or ``Fatal``; the generator is then made anew from the
        offset of the last page it yielded.
        """

    def partition(self) -> Partition:
        """The source partition of a connector that has only one."""
        return {}

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Split the work: for each task the keys that it has besides (or instead of) the connector's own.

        Runs in a thread, so that it may ask the source by blocking calls; half a minute at most.
        """
        del tasks_max
        return ({},)

    async def work_changed(self, context: WorkContext) -> None:
        """Watch the source; return once ``task_configs`` would split the work otherwise, as when a table appeared.

        Called on the instance whose ``task_configs`` has split the work, beside the tasks; cancelled when the
        connector stops or pauses. After it has returned a new instance splits the work: where its tasks differ, those
        of this connector are stopped, deliver what they hold, and go on from their offsets as the new tasks; those of
        other connectors do not notice. This is Connect's ``requestTaskReconfiguration``. What it raises ends the
        connector's instance: after ``Retriable`` the work is split and watched again, ``Fatal`` makes the connector
        FAILED, and in both cases its tasks go on. By default the work never changes.
        """
        del context
        await asyncio.Event().wait()

    def takes_over(self, keys: Collection[str]) -> bool:
        """Whether a fetch that runs can go on under a config that differs in these keys, and in nothing else.

        ``keys`` are names as in the connector's file; at least one. Asked of the instance that fetches, when the config
        of its connector has been changed; no I/O here. By default the answer is no: the task stops, delivers what it
        holds, and another instance goes on from the committed offset. Say yes only to keys of ``config_class`` of your
        own, and only where ``apply_config`` does all that their change means: what the worker reads (``topic``,
        ``contract.*`` and so on) is made anew with the task only.
        """
        del keys
        return False

    async def apply_config(self, config: C) -> None:
        """Take over a config after ``takes_over`` has said yes to it; valid, and with secrets filled in.

        Called beside ``fetch``, by the same event loop, for one change after the other. ``fetch`` may be called again
        later, and then goes by this config too. ``Retriable`` has it called again after a wait; anything else ends the
        task as if ``fetch`` had raised it, once what was fetched is delivered.
        """
        self.config = config

    def findings(self) -> Sequence[Finding]:
        """What is wrong with values that are each right by themselves; no I/O here."""
        return ()

    @property
    def is_typeless(self) -> bool:
        """Whether every field of the payloads is text because their format has no types, as CSV has none.

        ``contract.coerce`` then has another default: numbers, booleans, instants and empty texts are taken for values.
        """
        return False

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """Look at offsets that a person wants to set (None: to forget); ValueError refuses them, with a text for it.

        Called in a thread, on an instance that fetches nothing, while the connector is stopped (KIP-875). After 60 s
        the request is refused, and the thread is left to end by itself; so it is with ``forgotten_with``.
        """
        del offsets

    def forgotten_with(self, partition: Partition, stored: Sequence[Partition]) -> Sequence[Partition]:
        """Which of the stored partitions ``fetch`` would go on from in place of one that a person forgets.

        They are forgotten with it, unless the same request sets them.
        """
        del partition, stored
        return ()

    def taken_by_reading(self) -> str | None:
        """What a mere read takes away for good, in words, such as ``lines of standard input``.

        None where what was read can be read again until ``on_committed``. A preview by REST, which reads beside a
        connector that may be running, refuses any other source.
        """
        return None

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Ask the source once, and as cheaply as it can be asked, whether it can be read with this config.

        For ``validate --deep``, on an instance of its own, without stored offsets. Return what is wrong by key (the
        values masked), or raise as ``fetch`` does; whoever asks waits for half a minute at most. Nothing may be
        changed or acknowledged by it.
        """
        del context
        return ()

    @classmethod
    def asked_for_values(cls, properties: Mapping[str, str]) -> Self | None:
        """An instance that can be asked for ``recommended`` values, though the config need not be whole yet.

        None, which is the default, where the source has none to recommend, or too little is known to ask it.
        """
        del properties
        return None

    async def recommended(self, context: FetchContext) -> Mapping[str, Sequence[str]]:
        """Values that a person may choose from, by key, as Connect's forms show them; the source is asked for them.

        For each ``PUT /connector-plugins/{plugin}/config/validate``, on an instance of its own; whoever asks waits for
        a few seconds at most, takes so many values, and goes without any where this raises ``FetchError``.
        """
        del context
        return {}

    async def on_deleted(self, context: FetchContext, others: Sequence[Mapping[str, str]]) -> bool:
        """Take away what the source keeps for this connector for good, such as a replication slot; it is deleted.

        Called by the worker that leads, on an instance of its own with the stored offsets in ``context``, whatever
        state the connector was in; a minute at most. Its tasks have been told to end seconds ago: raise ``Retriable``
        where one still reads. Never called where a connector stops, pauses or moves, nor where one of the same name was
        created before. ``others``: configs of the connectors that are left: what they use too must stay. Those of the
        same class have values for variables of providers, and no passwords; a variable (``${…}``) that has none is as
        it is written, and so are all in configs of other classes.

        True: the stored offsets mean nothing any more, and are forgotten, so that a connector of the same name begins
        from nothing. What is gone already counts: a worker that dies in between is followed by another that calls this
        again. After ``Retriable`` it is called again a few times. ``Fatal``, or the last of these, is told in the log:
        its message must say what a person can do. Nothing waits for it: the connector itself is gone at once.
        """
        del context, others
        return False

    async def on_committed(self, partition: Partition, offset: Offset) -> None:
        """Hear that the page with this offset is in Kafka, for sources that release their log or want a receipt.

        Called for each page, in the order of the pages, after the commit that carries it and never before: for pages
        without records too, and again for none. ``partition`` and ``offset`` are the page's own. When it raises, the
        task ends with that error, and starts anew from what is committed if that is retriable. Of a worker that dies
        between commit and receipt the source never hears: it gives these records again, and the fetcher passes over
        what ``context.offset`` says is delivered.
        """
