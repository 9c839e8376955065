"""The schema registry's part in a connector's plan: contracts kept there, ids of what is written."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from fetchers.sdk.reach import AllowedAddresses
from service.config.definition import ConnectorDefinition
from service.registry.client import RegistryClient
from service.registry.errors import IncompatibleSchema, RegistryFatal
from service.registry.settings import RegistrySettings
from spark_batch.plan import ConversionPlan
from spark_batch.plan_transforms import key_schema, value_schema


class RegistrySchemas:
    """One client for each registry that connectors name; use as an async context manager."""

    def __init__(
        self, *, contract_registry: RegistrySettings | None = None, addresses: AllowedAddresses | None = None
    ) -> None:
        """``contract_registry``: the worker's, for contracts of connectors whose converters use none.

        ``addresses``: where registries may be that connectors' configs name.
        """
        self._addresses = addresses
        self._contract_registry = contract_registry
        self._stack = AsyncExitStack()
        self._clients: dict[RegistrySettings, RegistryClient] = {}

    async def __aenter__(self) -> Self:
        """Nothing is asked yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the clients of all registries that were asked."""
        await self._stack.aclose()

    async def contract_of(self, definition: ConnectorDefinition) -> str | None:
        """Text of the contract's schema; raises ``RegistryRetriable``, ``RegistryFatal``."""
        source = definition.contract_source
        if source is None or source.subject is None:
            return source.text if source else None
        settings = definition.value_converter.registry or self._contract_registry
        if settings is None:
            message = "contract.schema names a registry subject, and no schema.registry.url is configured"
            raise RegistryFatal(message)
        client = await self.registry(settings)
        version = None if source.version == "latest" else int(source.version)
        return (await client.latest(source.subject, version=version)).schema

    async def with_ids(self, definition: ConnectorDefinition, plan: ConversionPlan) -> ConversionPlan:
        """Check compatibility, then register; nothing has been produced yet. What rows are is not known before them."""
        if plan.is_of_rows:
            return plan
        key_id = await self._id(
            definition.key_converter.registry, definition.record_topic, key_schema(plan), is_key=True
        )
        value_id = await self._id(
            definition.value_converter.registry, definition.record_topic, value_schema(plan), is_key=False
        )
        ready = plan.with_schema_ids(key=key_id, value=value_id)
        for topic in definition.record_topics:
            if topic != definition.record_topic:
                await self.admit(definition, ready, topic, has_values=False)
        return ready

    async def with_ids_of_rows(
        self, definition: ConnectorDefinition, plan: ConversionPlan, topic: str, tombstones: str | None
    ) -> ConversionPlan:
        """The same for the plan of rows that end in ``topic``, and of tombstones that end in another.

        A schema that the subject has already, as after a restart in the middle of a change, is not compared with later
        ones. Raises ``RegistryFatal``, with the difference in words, and ``RegistryRetriable``.
        """
        key = await self._id(definition.key_converter.registry, topic, key_schema(plan), is_key=True, is_row=True)
        schema = value_schema(plan)
        value = await self._id(definition.value_converter.registry, topic, schema, is_key=False, is_row=True)
        ready = plan.with_schema_ids(key=key, value=value)
        if tombstones not in {None, topic}:
            await self.admit(definition, ready, str(tombstones), has_values=False)
        return ready

    async def admit(
        self, definition: ConnectorDefinition, plan: ConversionPlan, topic: str, *, has_values: bool
    ) -> None:
        """The same for a further topic, under its own subjects; ``has_values``: whether it gets more than tombstones.

        Raises ``RegistryFatal`` where the ids that records carry are not those of its subjects.
        """
        key = await self._id(definition.key_converter.registry, topic, key_schema(plan), is_key=True)
        schema = value_schema(plan) if has_values else None
        value = await self._id(definition.value_converter.registry, topic, schema, is_key=False)
        for own, written in ((key, plan.key_converter.schema_id), (value, plan.value_converter.schema_id)):
            if own not in (None, written):
                message = f"the schema has the id {own} for topic '{topic}', and {written} for '{definition.topic}'"
                raise RegistryFatal(message)

    async def refusals(
        self, definition: ConnectorDefinition, plan: ConversionPlan
    ) -> dict[tuple[str, bool], str | None]:
        """Why subjects would not take the plan's schemas, None where they would; nothing is registered.

        By subject, and whether it is that of keys. Raises ``RegistryRetriable``, ``RegistryFatal``.
        """
        found: dict[tuple[str, bool], str | None] = {}
        for topic in definition.record_topics:
            for converter, schema, is_key in (
                (definition.key_converter, key_schema(plan), True),
                (definition.value_converter, value_schema(plan), False),
            ):
                # The other topics are those of tombstones, which have no values.
                has_schema = is_key or topic == definition.record_topic
                if converter.registry is None or schema is None or not has_schema:
                    continue
                subject = _subject(converter.registry, topic, schema, is_key=is_key)
                try:
                    await (await self.registry(converter.registry)).check_compatible(subject, schema)
                    found[subject, is_key] = None
                except IncompatibleSchema as refusal:
                    found[subject, is_key] = str(refusal)
        return found

    async def _id(
        self,
        settings: RegistrySettings | None,
        topic: str,
        schema: str | None,
        *,
        is_key: bool,
        is_row: bool = False,
    ) -> int | None:
        if settings is None or schema is None:
            return None
        subject = _subject(settings, topic, schema, is_key=is_key)
        client = await self.registry(settings)
        if not (is_row and await client.has(subject, schema)):
            await client.check_compatible(subject, schema)
        return await client.register(subject, schema)

    async def registry(self, settings: RegistrySettings) -> RegistryClient:
        """The one client of a registry."""
        if settings not in self._clients:
            self._clients[settings] = await self._stack.enter_async_context(RegistryClient(settings, self._addresses))
        return self._clients[settings]


def _subject(settings: RegistrySettings, topic: str, schema: str, *, is_key: bool) -> str:
    strategy = settings.key_strategy if is_key else settings.value_strategy
    return strategy.subject(topic, schema, is_key=is_key)
