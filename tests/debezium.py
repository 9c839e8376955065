"""The real Debezium on a real Kafka Connect, and change events of it and of ours in one form that can be compared.

A pytest plugin: ``debezium`` is one worker for the whole run. Debezium's jars are a plugin of their own, so that their
libraries are not those of the worker.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fetchers.sdk import Page
from service.embedded.jars import parts
from service.embedded.running import Running, running
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import read_topic
from spark_batch.avro_schema import parse_schema
from spark_batch.connect_documents import connect_schema
from tests.java_connect import JavaConnect, opened_connect
from tests.stack import KafkaStack

SECONDS_MAX = 240.0
LOOK_SECONDS = 0.1
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_EXACT = Context(prec=200)
_GUIDES = Path(__file__).parents[1] / "docs" / "guides"


@dataclass(frozen=True)
class Change:
    """One record of a topic of changes; values as Python has them, by their schemas: decimals exact, bytes as bytes."""

    key: Any
    value: Any
    key_schema: Any
    value_schema: Any
    headers: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Debezium:
    """The worker, with what its connectors are asked and what they write."""

    bootstrap: str
    connect: Running[JavaConnect]

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The body of an answer that is no error."""
        status, answer = await asyncio.to_thread(self.connect.server.ask, method, path, body)
        assert status < 400, answer
        return answer

    async def start(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, with schemas in its JSON."""
        await self.ask("PUT", f"/connectors/{name}/config", {**config, **self.converters})

    @property
    def converters(self) -> dict[str, str]:
        """JSON with schemas, whatever the worker has."""
        converters = {f"{kind}.converter.schemas.enable": "true" for kind in ("key", "value")}
        names = {f"{kind}.converter": "org.apache.kafka.connect.json.JsonConverter" for kind in ("key", "value")}
        return converters | names

    async def stop(self, name: str) -> None:
        """All that it has read is in Kafka, and so is its offset."""
        await self.ask("PUT", f"/connectors/{name}/stop")
        async with asyncio.timeout(SECONDS_MAX):
            while (found := await self.ask("GET", f"/connectors/{name}/status"))["tasks"]:
                assert found["connector"]["state"] != "FAILED", found
                await asyncio.sleep(LOOK_SECONDS)

    async def offset(self, name: str) -> dict[str, Any]:
        """As ``GET /connectors/{name}/offsets`` tells it, of the only source partition."""
        ((found),) = (await self.ask("GET", f"/connectors/{name}/offsets"))["offsets"]
        offset: dict[str, Any] = found["offset"]
        return offset

    async def delete(self, name: str) -> None:
        """Forget it."""
        await self.ask("DELETE", f"/connectors/{name}")

    async def wait_for(self, name: str, topic: str, count: int = 1) -> None:
        """Return when the topic has so many records; fails with the task's trace where it has ended."""
        async with asyncio.timeout(SECONDS_MAX):
            while len(await self.changes(topic)) < count:
                await self.demand_running(name)
                await asyncio.sleep(LOOK_SECONDS)

    async def demand_running(self, name: str) -> None:
        """Fail with the task's trace where it has ended."""
        status, found = await asyncio.to_thread(self.connect.server.ask, "GET", f"/connectors/{name}/status")
        states = [task["state"] for task in found["tasks"]] if status == 200 else []
        assert "FAILED" not in states, found["tasks"][0].get("trace")

    async def changes(self, topic: str) -> list[Change]:
        """All that is committed in a topic; none where there is no such topic."""
        found: list[Change] = []
        try:
            async for records in read_topic(KafkaSettings(bootstrap=self.bootstrap), topic):
                for record in records:
                    key_schema, key = _told(record.key)
                    value_schema, value = _told(record.value)
                    headers = [(name, (text or b"").decode()) for name, text in record.headers]
                    found.append(Change(key, value, key_schema, value_schema, headers))
        except DeliveryFatal:
            return []
        return found


def _told(text: bytes | None) -> tuple[Any, Any]:
    """Schema and value of JSON with both."""
    if text is None:
        return None, None
    document = json.loads(text)
    if document is None or document["schema"] is None:
        return None, None
    return document["schema"], _value(document["schema"], document["payload"])


def _value(schema: Mapping[str, Any], payload: Any) -> Any:
    """A payload of JSON by its schema."""
    if payload is None:
        return None
    kind, name = schema["type"], schema.get("name")
    if kind == "struct":
        return _decided(name, {item["field"]: _value(item, payload[item["field"]]) for item in schema["fields"]})
    if kind == "array":
        return [_value(schema["items"], item) for item in payload]
    if kind == "bytes":
        octets = base64.b64decode(payload)
        return _decimal(octets, int(schema["parameters"]["scale"])) if name == _DECIMAL else octets
    return _number(kind, payload) if kind in {"float", "double"} else payload


def _decimal(octets: bytes, scale: int) -> str:
    return f"{Decimal(int.from_bytes(octets, 'big', signed=True)).scaleb(-scale, _EXACT):f}"


def _decided(name: str | None, fields: dict[str, Any]) -> Any:
    """A struct; that of a decimal with a scale of its own is the decimal."""
    return _decimal(fields["value"], fields["scale"]) if name == _VARIABLE else fields


def _number(kind: str, value: Any) -> str:
    """NaN is itself, and a float of 32 bits is no double."""
    return repr(np.float32(value) if kind == "float" else np.float64(value))


def ours(page: Page) -> list[Change]:
    """The records of a page of ours, with the schemas that Connect's JSON would have; rejected ones are left out."""
    wrong = {rejection.index for rejection in page.rejections}
    schemas = [None if found is None else _schema_of(found.avro) for found in (page.key_schema, page.schema)]
    keys: Any = page.keys if page.keys is not None else [None] * len(page)
    values: Any = page.payload_column
    found = []
    for at in range(len(page)):
        if at in wrong:
            continue
        sides = []
        for schema, column in zip(schemas, (keys, values), strict=True):
            item = column[at] if schema is not None else None
            told = item.as_py() if item is not None and item.is_valid else None
            sides.append((schema if told is not None else None, _plain(schema, told)))
        headers = [(name, (text or b"").decode()) for name, text in (page.headers[at] if page.headers else ())]
        found.append(Change(sides[0][1], sides[1][1], sides[0][0], sides[1][0], headers))
    return found


def _schema_of(avro: str) -> Any:
    parsed = parse_schema(avro, decimal_digits_max=76)
    assert parsed.record is not None, parsed.findings
    return connect_schema(parsed.record)


def _plain(schema: Any, value: Any) -> Any:
    """A value of Arrow's as ``_value`` has it."""
    if value is None:
        return None
    kind = schema["type"]
    if kind == "struct":
        pairs = zip(schema["fields"], value.values(), strict=True)  # a column's own name may be none of Avro's
        return _decided(schema.get("name"), {item["field"]: _plain(item, one) for item, one in pairs})
    if kind == "array":
        return [_plain(schema["items"], item) for item in value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    return _number(kind, value) if kind in {"float", "double"} else value


@asynccontextmanager
async def _opened(folder: Path, *, bootstrap: str) -> AsyncIterator[JavaConnect]:
    plugin = folder / "plugins" / "debezium"
    plugin.mkdir(parents=True)
    for jar in parts("debezium"):
        (plugin / jar.name).symlink_to(jar)
    overrides = {"plugin.path": str(plugin.parent), "plugin.discovery": "service_load"}
    async with opened_connect(folder, bootstrap=bootstrap, group="debezium", overrides=overrides) as worker:
        yield worker


@pytest.fixture(scope="session")
def debezium(kafka: KafkaStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debezium]:
    """One Kafka Connect with Debezium for the whole run; tests keep apart by connector names and topic prefixes."""
    folder = tmp_path_factory.mktemp("debezium")
    with running(_opened(folder, bootstrap=kafka.bootstrap), name="debezium") as worker:
        yield Debezium(kafka.bootstrap, worker)


ABSENT = "(absent)"


def _differences(theirs: Any, own: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Innermost: path, Debezium's, ours."""
    if isinstance(theirs, dict) and isinstance(own, dict):
        common = [name for name in theirs if name in own]
        if common != [name for name in own if name in theirs]:
            yield f"{path}#order", list(theirs), list(own)
        for name in [*theirs, *(name for name in own if name not in theirs)]:
            yield from _differences(theirs.get(name, ABSENT), own.get(name, ABSENT), f"{path}.{name}")
    elif isinstance(theirs, list) and isinstance(own, list) and len(theirs) == len(own):
        for at, (one, other) in enumerate(zip(theirs, own, strict=True)):
            yield from _differences(one, other, f"{path}[{at}]")
    elif theirs != own or type(theirs) is not type(own):
        yield path, theirs, own


def _by_name(schema: Any) -> Any:
    """A schema with its fields by their names."""
    if not isinstance(schema, dict) or "fields" not in schema:
        return schema
    fields = {field["field"]: _by_name(field) for field in schema["fields"]}
    return {**schema, "fields": fields}


def differences(theirs: Change, own: Change) -> Iterator[tuple[str, Any, Any]]:
    """Where two records differ: ``value.after.n``, ``schema.fields.before.fields.n.optional``, ``headers``."""
    yield from _differences(theirs.key, own.key, "key")
    yield from _differences(theirs.value, own.value, "value")
    yield from _differences(_by_name(theirs.key_schema), _by_name(own.key_schema), "key-schema")
    yield from _differences(_by_name(theirs.value_schema), _by_name(own.value_schema), "schema")
    yield from _differences(list(theirs.headers), list(own.headers), "headers")


@dataclass(frozen=True)
class Declared:
    """A difference that the guide's table has under this name."""

    name: str
    paths: str
    """A regular expression for the whole path."""
    holds: Callable[[Any, Any], bool] = lambda _theirs, _own: True
    """Whether it is this one, by Debezium's value and ours."""
    operations: str = "rcudt"
    """Of events in which it may be."""


def declared_in_guide(page: str) -> set[str]:
    """Names in the first column of the table of a page of the guides."""
    section = (_GUIDES / page).read_text(encoding="utf-8").split("\n## Beside Debezium\n", 1)[1].split("\n#", 1)[0]
    return set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE))


def undeclared(
    theirs: Sequence[Change], own: Sequence[Change], declared: Sequence[Declared], seen: set[str]
) -> list[tuple[Any, ...]]:
    """What differs between two topics and is not declared; ``seen`` takes the names of what is."""
    kept = [change for change in theirs if change.key is not None or change.value is not None]
    if len(kept) < len(theirs):
        seen.add("no-empty-tombstones")
    if [_outline(change) for change in kept] != [_outline(change) for change in own]:
        return [("records", *map(_outline, kept)), ("ours", *map(_outline, own))]
    found = []
    for one, other in zip(kept, own, strict=True):
        plain = [header for header in one.headers if not header[0].startswith("__debezium.context.")]
        if len(plain) < len(one.headers):
            seen.add("no-context-headers")
        for path, left, right in differences(replace(one, headers=plain), other):
            operation = one.value["op"] if one.value else "d"
            names = (
                it.name
                for it in declared
                if operation in it.operations and re.fullmatch(it.paths, path) and it.holds(left, right)
            )
            name = next(names, None)
            if name is None:
                found.append((path, left, right, _outline(one)))
            else:
                seen.add(name)
    return found


def _outline(change: Change) -> tuple[str | None, str]:
    return None if change.value is None else change.value["op"], str(change.key)
