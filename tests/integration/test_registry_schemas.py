"""The subjects of every topic that a connector writes to, on a real registry."""

from __future__ import annotations

import pytest

from service.config.definition import ConnectorDefinition, read_definition
from service.registry import IncompatibleSchema, RegistryClient, RegistrySettings, SchemaNotFound
from service.worker.schemas import RegistrySchemas
from tests.stack import RegistryStack

pytestmark = pytest.mark.integration

SCHEMA = '{"type":"record","name":"A","fields":[{"name":"x","type":"long"}]}'
OTHER_KEY = '{"type":"record","name":"AKey","fields":[{"name":"x","type":"string"}]}'


def routed(registry: RegistryStack, topic: str) -> ConnectorDefinition:
    """Its tombstones go to a topic of their own."""
    properties = {
        "name": "c",
        "connector.class": "FileStreamSource",
        "topic": topic,
        "contract.schema": SCHEMA,
        "key.fields": "x",
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": ".*",
        "transforms.route.replacement": f"{topic}-gone",
        "transforms.route.predicate": "gone",
        "predicates": "gone",
        "predicates.gone.type": "RecordIsTombstone",
    }
    worker = {"key.converter": "avro", "value.converter": "avro", "schema.registry.url": registry.url}
    definition = read_definition(properties, worker=worker).definition
    assert definition is not None
    return definition


async def test_keys_of_tombstones_are_registered_where_these_go(registry: RegistryStack, topic_name: str) -> None:
    """Under the id that they carry; values only where there are any."""
    definition = routed(registry, topic_name)
    async with RegistrySchemas() as schemas, RegistryClient(RegistrySettings(urls=(registry.url,))) as client:
        plan = await schemas.with_ids(definition, definition.plan(SCHEMA))
        assert (await client.latest(f"{topic_name}-gone-key")).id == plan.key_converter.schema_id
        await client.register(f"{topic_name}-gone-value", OTHER_KEY)
        await schemas.admit(definition, plan, f"{topic_name}-gone", has_values=False)
        with pytest.raises(IncompatibleSchema):
            await schemas.admit(definition, plan, f"{topic_name}-gone", has_values=True)
        await schemas.admit(definition, plan, f"{topic_name}-page", has_values=True)
        assert (await client.latest(f"{topic_name}-page-value")).id == plan.value_converter.schema_id


async def test_a_topic_of_tombstones_that_refuses_the_keys_is_found_before_anything_is_produced(
    registry: RegistryStack, topic_name: str
) -> None:
    """As the topic of the records is."""
    definition = routed(registry, topic_name)
    async with RegistrySchemas() as schemas, RegistryClient(RegistrySettings(urls=(registry.url,))) as client:
        await client.register(f"{topic_name}-gone-key", OTHER_KEY)
        with pytest.raises(IncompatibleSchema, match=f"{topic_name}-gone-key"):
            await schemas.with_ids(definition, definition.plan(SCHEMA))


async def test_what_a_registry_would_refuse_is_told_without_registering(
    registry: RegistryStack, topic_name: str
) -> None:
    """Of every subject that would get a schema; those that take theirs, and are new, stay as they are."""
    definition = routed(registry, topic_name)
    async with RegistrySchemas() as schemas, RegistryClient(RegistrySettings(urls=(registry.url,))) as client:
        await client.register(f"{topic_name}-gone-key", OTHER_KEY)
        found = await schemas.refusals(definition, definition.plan(SCHEMA))
        refused = found.pop((f"{topic_name}-gone-key", True))
        assert refused is not None
        assert f"{topic_name}-gone-key" in refused
        assert found == {(f"{topic_name}-key", True): None, (f"{topic_name}-value", False): None}
        with pytest.raises(SchemaNotFound):
            await client.latest(f"{topic_name}-key")
