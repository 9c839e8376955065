"""The registry client against a real registry."""

from __future__ import annotations

import pytest

from service.registry import (
    IncompatibleSchema,
    RegistryClient,
    RegistryFatal,
    RegistryRetriable,
    RegistrySettings,
    SchemaNotFound,
)
from tests.stack import RegistryStack

pytestmark = pytest.mark.integration

FIRST = '{"type":"record","name":"A","fields":[{"name":"x","type":"long"}]}'
COMPATIBLE = FIRST.replace("]}", ',{"name":"y","type":["null","string"],"default":null}]}')
INCOMPATIBLE = FIRST.replace("long", "string")


async def test_a_schema_lives_under_its_number(registry: RegistryStack, topic_name: str) -> None:
    """Registering is repeatable, the number leads back to the schema, the subject to its newest version."""
    subject = f"{topic_name}/ü-value"
    async with RegistryClient(RegistrySettings(urls=(registry.url,))) as client:
        await client.check_compatible(subject, FIRST)
        first = await client.register(subject, FIRST)
        await client.check_compatible(subject, COMPATIBLE)
        second = await client.register(subject, COMPATIBLE)
        assert first != second
    async with RegistryClient(RegistrySettings(urls=(registry.url,))) as client:
        assert await client.register(subject, FIRST) == first
        assert await client.by_id(second) == COMPATIBLE
        latest = await client.latest(subject)
        assert (latest.id, latest.schema, latest.version) == (second, COMPATIBLE, 2)
        assert (await client.latest(subject, version=1)).id == first


async def test_an_incompatible_schema_is_refused_before_it_is_registered(
    registry: RegistryStack, topic_name: str
) -> None:
    """Both the check and registering say no with reasons, and the subject stays as it was."""
    async with RegistryClient(RegistrySettings(urls=(registry.url,))) as client:
        await client.register(topic_name, FIRST)
        with pytest.raises(IncompatibleSchema, match="STRING not compatible with writer type: LONG at /fields/0/type"):
            await client.check_compatible(topic_name, INCOMPATIBLE)
        with pytest.raises(IncompatibleSchema, match="LONG"):
            await client.register(topic_name, INCOMPATIBLE)
        assert (await client.latest(topic_name)).version == 1


async def test_what_is_not_there_is_said(registry: RegistryStack, topic_name: str) -> None:
    """Unknown numbers, subjects and versions, and schemas that are none, are told apart from a dead registry."""
    async with RegistryClient(RegistrySettings(urls=(registry.url,), is_auto_registered=False)) as client:
        ids = (client.by_id(number) for number in (0, 999_999, 2**31 - 1))
        for call in (*ids, client.latest(topic_name), client.register(topic_name, FIRST)):
            with pytest.raises(SchemaNotFound):
                await call
    async with RegistryClient(RegistrySettings(urls=(registry.url,))) as client:
        with pytest.raises(RegistryFatal):
            await client.register(topic_name, '{"type":"nonsense"}')


@pytest.mark.faults
async def test_a_killed_registry_is_retriable_and_comes_back(registry: RegistryStack, topic_name: str) -> None:
    """While the registry is dead calls may be retried; once it is back they succeed, with the same numbers."""
    async with RegistryClient(RegistrySettings(urls=(registry.url,))) as client:
        number = await client.register(topic_name, FIRST)
        registry.kill()
        try:
            with pytest.raises(RegistryRetriable):
                await client.check_compatible(topic_name, FIRST)
            assert await client.register(topic_name, FIRST) == number
        finally:
            registry.restart()
        await client.check_compatible(topic_name, FIRST)
