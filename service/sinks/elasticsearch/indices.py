"""Where documents go: names of indices and data streams, made where they are missing, with mappings from schemas."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from fetchers.sdk import AnswerRule, Fatal, HttpResponse, Retriable, StatusTable, StatusVerdict
from service.domain.errors import TargetFull
from service.sinks.batch import Form
from service.sinks.elasticsearch.bulk import BLOCKED_TYPES, DISK_FULL, FULL_WAIT_SECONDS, item_of
from service.sinks.elasticsearch.config import NAME_BYTES_MAX, PART_CHARACTERS_MAX, ElasticsearchSinkConfig, fault_of
from service.sinks.elasticsearch.mapping import properties_of
from service.sinks.schemas import Schema

INDICES_MAX = 10_000
"""Indices of which is known that they are there; the one that was written to longest ago is asked for anew. More than a
task writes by turns: of those each would be dropped before its turn, and asked for, twice, with each put."""
SCHEMAS_MAX = 16
"""Of one index; those of records that take turns."""
_NOT_FOUND, _BAD = 404, 400
BLOCKED_STATUSES = frozenset({403, 429})
INDEX_STATUSES = StatusTable(
    rules=[AnswerRule(StatusVerdict.ACCEPT, BLOCKED_STATUSES, path="error.type", text=kind) for kind in BLOCKED_TYPES]
).with_verdict(StatusVerdict.ACCEPT, (_BAD, _NOT_FOUND))
"""What comes as an answer to a question about an index."""
MEND_ACCESS = (
    "open the index, lift its block, or give the user of connection.username the right to write; then restart the task"
)
_EXISTS = ("resource_already_exists_exception", "already exists")


def target_of(topic: str, config: ElasticsearchSinkConfig) -> str:
    """The index, data stream or alias of a topic. Raises Fatal for a topic that has none."""
    if config.has_resources:
        resource = config.resources().get(topic)
        if resource is None:
            message = f"topic.to.external.resource.mapping names no resource for topic '{topic}'"
            raise Fatal(message)
        return resource
    name = _stream_name(topic, config) if config.is_data_stream else _index_name(topic)
    fault = fault_of(name)
    if fault is not None:
        kind = "data stream" if config.is_data_stream else "index"
        message = (
            f"topic '{topic}' has no {kind}: the name '{name}' {fault}. Give the topic another name on its way, as by "
            "RegexRouter, or name an existing resource: topic.to.external.resource.mapping"
        )
        raise Fatal(message)
    return name


def _index_name(topic: str) -> str:
    """As Confluent's connector changes the name of a topic."""
    name = topic.lower()[:NAME_BYTES_MAX]
    if name[:1] in {"-", "_"}:
        name = name[1:]
    return name.replace(".", "dot") if name in {".", ".."} else name


def _stream_name(topic: str, config: ElasticsearchSinkConfig) -> str:
    namespace = config.data_stream_namespace.replace("${topic}", topic).lower()[:PART_CHARACTERS_MAX]
    return f"{config.data_stream_type}-{config.data_stream_dataset}-{namespace}".lower()


class _Mappings(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class _Mapped(msgspec.Struct):
    mappings: _Mappings


_MAPPINGS = msgspec.json.Decoder(dict[str, _Mapped])


class Ask(Protocol):
    """One request to the server; see ``INDEX_STATUSES`` for what is an answer."""

    async def __call__(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpResponse:
        """Raises Retriable, Fatal."""


@dataclass(slots=True)
class _Known:
    """What the server has said of an index that is there."""

    fields: set[str] | None = None
    """That its mapping has, at its top; None: not asked yet."""
    schemas: deque[Schema] = field(default_factory=lambda: deque(maxlen=SCHEMAS_MAX))
    """Whose fields it all has; the same object comes again with each batch of the same schema."""


@dataclass(slots=True)
class Indices:
    """What is known to be there, so that it is asked for once; of the indices that were written to last."""

    config: ElasticsearchSinkConfig
    ask: Ask
    _known: OrderedDict[str, _Known] = field(default_factory=OrderedDict)

    def forget(self, name: str) -> None:
        """The server says that it is gone."""
        self._known.pop(name, None)

    async def ensure(self, name: str) -> None:
        """Make it where it is missing. Raises Fatal where that is forbidden, or not ours to do; Retriable."""
        if name in self._known:
            self._known.move_to_end(name)
            return
        path = f"/{quote(name, safe='')}"
        status = (await self.ask("HEAD", path)).status
        if status == _BAD:
            message = f"'{name}' is no name of an index, the server says (status {status})"
            raise Fatal(message)
        if status == _NOT_FOUND:
            if self.config.has_resources:
                message = f"'{name}' does not exist, and external.resource.usage says that it does: make it first"
                raise Fatal(message)
            if self.config.is_data_stream:
                await self._make_stream(name)
            else:
                self._demand(await self.ask("PUT", path, {}), f"index '{name}' cannot be made")
        self._known[name] = _Known()
        if len(self._known) > INDICES_MAX:
            self._known.popitem(last=False)

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
        """Another task may have been first. Raises TargetFull, and Fatal with the server's reason."""
        if answer.status in BLOCKED_STATUSES:
            item = item_of(answer)
            if item.is_disk_full:
                message = f"{doing}: {DISK_FULL.format(reason=item.reason, seconds=FULL_WAIT_SECONDS)}"
                raise TargetFull(message, wait_seconds=FULL_WAIT_SECONDS)
            message = f"{doing}: {item.reason}: {MEND_ACCESS}"
            raise Fatal(message)
        text = answer.body.decode(errors="replace")
        if answer.status in {_BAD, _NOT_FOUND} and not any(each in text for each in _EXISTS):
            message = f"{doing}: {text[:300]}"
            raise Fatal(message)

    async def map(self, name: str, schema: Schema | None, form: Form) -> bool:
        """Add the fields of a schema that an index has no mapping of; what is mapped stays as it is. After ``ensure``.

        False where there is no schema and the index has no mapping at all. Raises Fatal where the server refuses it;
        Retriable.
        """
        known = self._known[name]
        if any(each is schema for each in known.schemas):
            return True
        if known.fields is None:
            known.fields = await self._fields(name)
        if schema is None:
            return bool(known.fields)
        wanted = properties_of(schema, form, is_map_object=self.config.compact_map_entries)
        missing = {field: mapping for field, mapping in wanted.items() if field not in known.fields}
        if missing:
            answer = await self.ask("PUT", f"/{quote(name, safe='')}/_mapping", {"properties": missing})
            self._demand(answer, f"the mapping of '{name}' cannot be made from the records' schema")
            known.fields |= missing.keys()
        known.schemas.append(schema)
        return True

    async def _fields(self, name: str) -> set[str]:
        answer = await self.ask("GET", f"/{quote(name, safe='')}/_mapping")
        if answer.status in {_BAD, _NOT_FOUND}:
            return set()
        self._demand(answer, f"the mapping of '{name}' cannot be read")
        try:
            # An alias or a stream answers with the indices behind it.
            found = _MAPPINGS.decode(answer.body).values()
        except msgspec.DecodeError as error:
            message = f"the question for the mapping of '{name}' was not answered with a mapping"
            raise Retriable(message) from error
        # Indices of many customers have the same fields, and each name but once.
        return {sys.intern(field) for each in found for field in each.mappings.properties}
