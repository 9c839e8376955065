"""What ``ElasticsearchSink`` keeps in mind of indices: enough not to ask twice, and bounded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fetchers.sdk import Fatal, HttpResponse
from fetchers.toolkit.http.answer import HttpAnswer
from service.domain.errors import TargetFull
from service.sinks.batch import Form
from service.sinks.elasticsearch.config import ElasticsearchSinkConfig
from service.sinks.elasticsearch.indices import INDICES_MAX, SCHEMAS_MAX, Indices
from service.sinks.schemas import Kind, Schema


@dataclass
class Server:
    """Has every index, with the fields that it was given."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: int = 200
    told: Any = None
    """Its answer, where that is another."""

    async def __call__(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpResponse:
        """One request about an index."""
        self.asked.append((method, path))
        name = path.split("/")[1]
        if method == "PUT" and body is not None:
            self.fields.setdefault(name, {}).update(body["properties"])
        told = self.told or {name: {"mappings": {"properties": self.fields.get(name, {})}}}
        return cast("HttpResponse", HttpAnswer(self.status, {}, json.dumps(told).encode(), path))


@pytest.fixture
def server() -> Server:
    """Asked nothing yet."""
    return Server()


@pytest.fixture
def indices(server: Server) -> Indices:
    """Knows nothing yet."""
    config = ElasticsearchSinkConfig.parse({"connection.url": "http://localhost:9200"}).config
    assert config is not None
    return Indices(config, server)


def struct(name: str) -> Schema:
    """Of one field."""
    return Schema(Kind.STRUCT, fields={name: Schema(Kind.INT64)})


async def test_an_index_is_asked_for_once_while_it_is_among_the_last(indices: Indices, server: Server) -> None:
    """One that is written to again and again is never asked for anew, however many others come."""
    schema = struct("n")
    for number in range(INDICES_MAX + 100):
        for name in (f"day-{number}", "always"):
            await indices.ensure(name)
            assert await indices.map(name, schema, Form.JSON)
    assert len(indices._known) == INDICES_MAX
    assert [path for _, path in server.asked].count("/always") == 1
    assert len(server.asked) == 3 * (INDICES_MAX + 101)
    for name, again in (("day-0", 2), (f"day-{INDICES_MAX + 99}", 0)):
        server.asked.clear()
        await indices.ensure(name)
        await indices.map(name, schema, Form.JSON)
        assert len(server.asked) == again  # whether it is there, and its mapping, which has the field


async def test_thousands_of_indices_by_turns_are_asked_for_once(indices: Indices, server: Server) -> None:
    """As a task has them that writes one index for each customer: what is dropped before its turn helps nobody."""
    schema = struct("n")
    for _ in range(3):
        for number in range(5000):
            await indices.ensure(f"customer-{number}")
            assert await indices.map(f"customer-{number}", schema, Form.JSON)
    assert len(server.asked) == 3 * 5000


@pytest.mark.parametrize("number", [9, 12])
async def test_a_mapping_that_may_not_be_read_is_told(indices: Indices, server: Server, number: int) -> None:
    """With the server's reason: the same question again would not be answered otherwise."""
    await indices.ensure("orders")
    server.status = 403
    server.told = {
        "error": {
            "type": "cluster_block_exception",
            "reason": f"index [orders] blocked by: [FORBIDDEN/{number}/index metadata (api)];",
        }
    }
    told = r"mapping of 'orders' cannot be read: .*index metadata \(api\)"
    with pytest.raises(TargetFull if number == 12 else Fatal, match=told):
        await indices.map("orders", struct("n"), Form.JSON)


async def test_an_index_has_the_fields_of_each_schema(indices: Indices, server: Server) -> None:
    """Schemas come and go, and another one may lie where one has lain in memory."""
    await indices.ensure("orders")
    for number in range(10 * SCHEMAS_MAX):
        assert await indices.map("orders", struct(f"f{number}"), Form.JSON)
    assert len(server.fields["orders"]) == 10 * SCHEMAS_MAX
    assert len(indices._known["orders"].schemas) == SCHEMAS_MAX


async def test_what_was_removed_is_asked_for_anew(indices: Indices, server: Server) -> None:
    """The index, and its mapping."""
    schema = struct("n")
    for _ in range(2):
        await indices.ensure("orders")
        await indices.map("orders", schema, Form.JSON)
        server.fields.clear()
        indices.forget("orders")
    assert [method for method, _ in server.asked] == ["HEAD", "GET", "PUT"] * 2


async def test_an_index_that_cannot_be_asked_for_is_not_taken_for_one(indices: Indices, server: Server) -> None:
    """A server that calls the question bad would refuse each document by itself."""
    server.status = 400
    for _ in range(2):
        with pytest.raises(Fatal, match=r"'orders' is no name of an index, the server says"):
            await indices.ensure("orders")
