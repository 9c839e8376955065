"""Where documents go: names of indices and data streams, made where they are missing, with mappings from schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from fetchers.sdk import Fatal, HttpResponse, Retriable
from service.sinks.elasticsearch.config import NAMESPACE_CHARACTERS_MAX, ElasticsearchSinkConfig
from service.sinks.schemas import DATE, DECIMAL, TIME, TIMESTAMP, Kind, Schema

NAME_CHARACTERS_MAX = 255
_TYPES = {
    Kind.INT8: "byte",
    Kind.INT16: "short",
    Kind.INT32: "integer",
    Kind.INT64: "long",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.BOOLEAN: "boolean",
    Kind.BYTES: "binary",
}
_NOT_FOUND, _BAD = 404, 400
_NO_NAME = re.compile(r"[*?,<>]")
"""Signs that no name has (https://www.elastic.co/guide/en/elasticsearch/reference/8.19/indices-create-index.html) and
that make of it a pattern, a list or a date: asked for it, the server says that it is there."""
_EXISTS = ("resource_already_exists_exception", "already exists")


def index_name(topic: str) -> str:
    """A topic's index: what servers forbid in names is changed as Confluent's connector does."""
    name = topic.lower()[:NAME_CHARACTERS_MAX]
    if name[:1] in {"-", "_"}:
        name = name[1:]
    return {".": "dot", "..": "dotdot"}.get(name, name)


def target_of(topic: str, config: ElasticsearchSinkConfig) -> str:
    """The index, data stream or alias of a topic. Raises Fatal for a topic that has no resource."""
    if config.has_resources:
        resource = config.resources().get(topic)
        if resource is None:
            message = f"topic.to.external.resource.mapping names no resource for topic '{topic}'"
            raise Fatal(message)
        return resource
    if config.data_stream_type != "NONE":
        namespace = config.data_stream_namespace.replace("${topic}", topic).lower()[:NAMESPACE_CHARACTERS_MAX]
        return f"{config.data_stream_type}-{config.data_stream_dataset}-{namespace}".lower()
    return index_name(topic)


def properties_of(schema: Schema) -> dict[str, Any]:
    """The mapping of a struct's fields."""
    return {name: _mapping(child) for name, child in schema.fields.items()}


def _mapping(schema: Schema) -> dict[str, Any]:
    if schema.name in {DATE, TIME, TIMESTAMP}:
        return {"type": "date"}
    if schema.name == DECIMAL:
        return _with_default({"type": "double"}, schema)
    if schema.kind is Kind.ARRAY and schema.values is not None:
        return _mapping(schema.values)
    if schema.kind in {Kind.STRUCT, Kind.MAP}:
        return {"properties": properties_of(schema)} if schema.fields else {"type": "object"}
    if schema.kind is Kind.STRING:
        # Text has no null_value, so its keyword has none either: a default is written into the document.
        return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
    return _with_default({"type": _TYPES[schema.kind]}, schema)


def _with_default(mapping: dict[str, Any], schema: Schema) -> dict[str, Any]:
    if schema.default is None or schema.kind is Kind.BYTES:
        return mapping
    return {**mapping, "null_value": schema.default}


class _Mappings(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class _Mapped(msgspec.Struct):
    mappings: _Mappings


_MAPPINGS = msgspec.json.Decoder(dict[str, _Mapped])


class Ask(Protocol):
    """One request to the server; 400 and 404 are answers."""

    async def __call__(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpResponse:
        """Raises Retriable, Fatal."""


@dataclass(slots=True)
class Indices:
    """What is known to be there, so that it is asked for once."""

    config: ElasticsearchSinkConfig
    ask: Ask
    _present: set[str] = field(default_factory=set)
    _mapped: dict[str, set[str]] = field(default_factory=dict)
    """Fields that the mapping of an index has, at its top."""
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def forget(self, name: str) -> None:
        """The server says that it is gone."""
        self._present.discard(name)
        self._mapped.pop(name, None)
        self._seen = {each for each in self._seen if each[0] != name}

    async def ensure(self, name: str) -> None:
        """Make it where it is missing. Raises Fatal where that is forbidden, or not ours to do; Retriable."""
        if name in self._present:
            return
        if _NO_NAME.search(name):
            message = f"index '{name}' cannot be made: a name has none of * ? , < >"
            raise Fatal(message)
        path = f"/{quote(name, safe='')}"
        if (await self.ask("HEAD", path)).status == _NOT_FOUND:
            if self.config.has_resources:
                message = f"'{name}' does not exist, and external.resource.usage says that it does: make it first"
                raise Fatal(message)
            if self.config.is_data_stream:
                await self._make_stream(name)
            else:
                self._demand(await self.ask("PUT", path, {}), f"index '{name}' cannot be made")
        self._present.add(name)

    async def _make_stream(self, name: str) -> None:
        """A stream needs a template; where the server has none for such a name we bring one for this stream alone."""
        path = f"/_data_stream/{quote(name, safe='')}"
        answer = await self.ask("PUT", path)
        if answer.status == _BAD and b"no matching index template" in answer.body:
            template = {"index_patterns": [name], "data_stream": {}, "priority": 200}
            made = await self.ask("PUT", f"/_index_template/headrace-{quote(name, safe='')}", template)
            self._demand(made, f"the template of data stream '{name}' cannot be made")
            answer = await self.ask("PUT", path)
        self._demand(answer, f"data stream '{name}' cannot be made")

    def _demand(self, answer: HttpResponse, doing: str) -> None:
        """Another task may have been first. Raises Fatal with the server's reason."""
        text = answer.body.decode(errors="replace")
        if answer.status in {_BAD, _NOT_FOUND} and not any(each in text for each in _EXISTS):
            message = f"{doing}: {text[:300]}"
            raise Fatal(message)

    async def map(self, name: str, schema: Schema | None) -> bool:
        """Add the fields of a schema that the index has no mapping of; what is mapped stays as it is.

        False where there is no schema and the index has no mapping at all. Raises Fatal where the server refuses it.
        """
        if schema is not None and (name, hash_of(schema)) in self._seen:
            return True
        if name not in self._mapped:
            self._mapped[name] = await self._fields(name)
        if schema is None:
            return bool(self._mapped[name])
        wanted = properties_of(schema)
        missing = {field: mapping for field, mapping in wanted.items() if field not in self._mapped[name]}
        if missing:
            answer = await self.ask("PUT", f"/{quote(name, safe='')}/_mapping", {"properties": missing})
            self._demand(answer, f"the mapping of '{name}' cannot be made from the records' schema")
            self._mapped[name] |= missing.keys()
        self._seen.add((name, hash_of(schema)))
        return True

    async def _fields(self, name: str) -> set[str]:
        answer = await self.ask("GET", f"/{quote(name, safe='')}/_mapping")
        if answer.status in {_BAD, _NOT_FOUND}:
            return set()
        try:
            # An alias or a stream answers with the indices behind it.
            found = _MAPPINGS.decode(answer.body).values()
        except msgspec.DecodeError as error:
            message = f"the question for the mapping of '{name}' was not answered with a mapping"
            raise Retriable(message) from error
        return {field for each in found for field in each.mappings.properties}


def hash_of(schema: Schema) -> int:
    """Which schema it is: they are made once for each text, and kept."""
    return id(schema)
