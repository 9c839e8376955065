"""Each key of ``ElasticsearchSink`` does what it says: seen in what is asked of the server, and in what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pytest

from fetchers.sdk import Fatal, HttpLimits, SystemClock, TlsSettings
from fetchers.toolkit.http.answer import HttpAnswer
from metrics.events import discard
from service.sinks.contract import Form, PutLimits, SinkBatch, SinkContext, ValueType
from service.sinks.elasticsearch.config import ElasticsearchSinkConfig
from service.sinks.elasticsearch.sink import ElasticsearchSink

URL = {"connection.url": "http://localhost:9200"}
MAP = {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}
SCHEMA = json.dumps({"type": "struct", "fields": [{"field": "m", "optional": True, **MAP}]})
DAY_MS = 86_400_000


@dataclass
class Door:
    """Keeps what is asked; the server has every index, no mapping, and takes each document or none."""

    status: int = 201
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def for_task(self, _asker: Any) -> Self:
        """Itself, for every task."""
        return self

    async def request(self, method: str, url: str, **options: Any) -> HttpAnswer:
        """One request."""
        self.asked.append((method, url.removeprefix(URL["connection.url"]), options))
        body: Any = {}
        if url.endswith("/_bulk"):
            failed = {"type": "mapper_parsing_exception", "reason": "no number"} if self.status != 201 else None
            item = {"status": self.status, "error": failed}
            actions = [item] * sum(line.startswith(ACTIONS) for line in self.lines_of(options))
            body = {"errors": failed is not None, "items": [{"index": each} for each in actions]}
        return HttpAnswer(200, {}, json.dumps(body).encode(), url)

    @staticmethod
    def lines_of(options: Mapping[str, Any]) -> list[str]:
        """The lines of a bulk."""
        body = options["body"]
        return (gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode().splitlines()

    @property
    def bulks(self) -> list[list[Any]]:
        """Actions and documents of each bulk."""
        bulks = [options for _, path, options in self.asked if path == "/_bulk"]
        return [[json.loads(line) for line in self.lines_of(options)] for options in bulks]

    @property
    def paths(self) -> list[tuple[str, str]]:
        """Of every request."""
        return [(method, path) for method, path, _ in self.asked]


ACTIONS = ('{"index"', '{"create"', '{"update"', '{"delete"')


def config_of(**keys: str) -> ElasticsearchSinkConfig:
    """Keys with ``__`` for dots."""
    parsed = ElasticsearchSinkConfig.parse(URL | {key.replace("__", "."): text for key, text in keys.items()})
    assert parsed.config is not None, parsed.findings
    return parsed.config


async def put(
    door: Door, *, key: str | None = "k", value: str | None = '{"m":{"a":1}}', count: int = 1, **keys: str
) -> dict[int, str]:
    """Put records of topic ``Orders`` that are all alike; gives why rows were refused."""
    columns: dict[str, Any] = {
        "topic": pa.array(["Orders"] * count),
        "original_topic": pa.array(["Orders"] * count),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(7, 7 + count), pa.int64()),
        "timestamp": pa.array([1000] * count, pa.int64()),
        "key": pa.array([key] * count, pa.string()),
        "value": pa.array([value] * count, pa.string()),
    }
    refused: dict[int, str] = {}

    def refuse(row: int, _reason: str, message: str) -> None:
        refused[row] = message

    batch = SinkBatch(pa.table(columns), ValueType(Form.TEXT), ValueType(Form.JSON, SCHEMA), refuse)
    sink = ElasticsearchSink(config_of(**keys))
    await sink.start(SinkContext("search", 0, SystemClock(), discard, door))  # type: ignore[arg-type]
    await sink.put(batch)
    return refused


@pytest.fixture
def door() -> Door:
    """Asked nothing yet."""
    return Door()


@pytest.mark.parametrize(
    ("keys", "name", "value"),
    [
        ({}, "records_max", 2000),
        ({"batch__size": "17"}, "records_max", 17),
        ({}, "bytes_max", 5_242_880),
        ({"bulk__size__bytes": "1000"}, "bytes_max", 1000),
        ({"bulk__size__bytes": "-1"}, "bytes_max", PutLimits().bytes_max),
        ({}, "seconds_max", 180),
        ({"flush__timeout__ms": "1500"}, "seconds_max", 1.5),
        ({}, "puts_max", 5),
        ({"max__in__flight__requests": "7"}, "puts_max", 7),
        ({"max__in__flight__requests": "1000"}, "puts_max", 12),
        ({"max__in__flight__requests": "7", "write__method": "UPSERT"}, "puts_max", 1),
        ({}, "retries_max", 5),
        ({"max__retries": "0"}, "retries_max", 0),
    ],
)
def test_the_bounds_of_puts(keys: dict[str, Any], name: str, value: float) -> None:
    """What the worker is told by them."""
    sink = ElasticsearchSink(config_of(**keys))
    assert getattr(sink.put_limits, name) == value


@pytest.mark.parametrize(("text", "longest_seconds"), [(None, 0.1 * 2**9), ("0", 0), ("2000", 2 * 2**9)])
def test_the_waits_between_puts(text: str | None, longest_seconds: float) -> None:
    """A random share of ``retry.backoff.ms``, doubled with each try; of a day at the most."""
    waits = config_of(**({} if text is None else {"retry__backoff__ms": text})).limits.waits
    assert waits is not None
    drawn = [waits.wait_seconds(10) for _ in range(200)]
    assert max(drawn) <= longest_seconds
    assert max(drawn) >= longest_seconds / 2  # that 200 draws are all below has a chance of 2**-200
    assert waits.wait_seconds(10_000) <= DAY_MS / 1000


@pytest.mark.parametrize(
    ("keys", "limits"),
    [
        ({}, (1, 3)),
        ({"connection__timeout__ms": "2500"}, (2.5, 3)),
        ({"read__timeout__ms": "12000"}, (1, 12)),
    ],
)
async def test_the_time_of_a_request(door: Door, keys: dict[str, Any], limits: tuple[float, float]) -> None:
    """Every request has it."""
    await put(door, **keys)
    given = [options["limits"] for _, _, options in door.asked]
    assert given == [HttpLimits(connect_seconds=limits[0], read_seconds=limits[1])] * len(door.asked)


@pytest.mark.parametrize("text", ["false", "true"])
async def test_bodies_are_compressed_where_that_is_wanted(door: Door, text: str) -> None:
    """And said to be."""
    await put(door, connection__compression=text)
    _, _, options = door.asked[-1]
    assert options["headers"].get("Content-Encoding") == ("gzip" if text == "true" else None)
    assert options["body"].startswith(b"\x1f\x8b" if text == "true" else b'{"index"')


async def test_the_login(door: Door) -> None:
    """It goes with every request, as HTTP Basic."""
    await put(door, connection__username="me", connection__password="word")
    for _, _, options in door.asked:
        credentials = await options["auth"].credentials(door)
        assert credentials.headers == {"Authorization": "Basic bWU6d29yZA=="}
    plain = Door()
    await put(plain)
    assert {options["auth"] for _, _, options in plain.asked} == {None}


@pytest.mark.parametrize(
    ("protocol", "tls"),
    [("PLAINTEXT", TlsSettings()), ("SSL", TlsSettings(ca_file="ca", certificate_file="own", key_file="own"))],
)
async def test_the_files_of_tls(door: Door, protocol: str, tls: TlsSettings) -> None:
    """With ``elastic.security.protocol=SSL``."""
    files: dict[str, Any] = {
        "elastic__https__ssl__truststore__location": "ca",
        "elastic__https__ssl__keystore__location": "own",
    }
    await put(door, elastic__security__protocol=protocol, **files)
    assert {options["tls"] for _, _, options in door.asked} == {tls}


@pytest.mark.parametrize(("text", "sizes"), [("-1", [8]), ("110", [2, 2, 2, 2]), ("1", [1] * 8)])
async def test_the_bytes_of_a_bulk(door: Door, text: str, sizes: list[int]) -> None:
    """A document that is longer goes alone."""
    await put(door, key=None, value="{}", count=8, key__ignore="true", bulk__size__bytes=text)
    assert [len(bulk) // 2 for bulk in door.bulks] == sizes


@pytest.mark.parametrize(
    ("keys", "action"),
    [
        ({}, {"_id": "k", "version": 7, "version_type": "external"}),
        ({"key__ignore": "true"}, {"_id": "Orders+3+7"}),
        ({"topic__key__ignore": "others,Orders"}, {"_id": "Orders+3+7"}),
        ({"topic__key__ignore": "others"}, {"_id": "k", "version": 7, "version_type": "external"}),
        ({"use__autogenerated__ids": "true"}, {}),
        ({"external__version": "timestamp"}, {"_id": "k", "version": 1000 << 21 | 7, "version_type": "external"}),
    ],
)
async def test_ids_and_versions(door: Door, keys: dict[str, Any], action: dict[str, Any]) -> None:
    """By the key, by the place in Kafka, or by the server."""
    assert await put(door, **keys) == {}
    assert door.bulks == [[{"index": {"_index": "orders", **action}}, {"m": {"a": 1}}]]


@pytest.mark.parametrize(
    ("keys", "is_mapped"),
    [
        ({}, True),
        ({"schema__ignore": "true"}, False),
        ({"topic__schema__ignore": "Orders"}, False),
        ({"topic__schema__ignore": "orders"}, True),
    ],
)
async def test_whether_a_mapping_is_made(door: Door, keys: dict[str, Any], *, is_mapped: bool) -> None:
    """Topics are named as they are in Kafka."""
    await put(door, **keys)
    assert (("PUT", "/orders/_mapping") in door.paths) is is_mapped


@pytest.mark.parametrize(("text", "value"), [("true", {"a": 1}), ("false", [{"key": "a", "value": 1}])])
async def test_the_form_of_maps(door: Door, text: str, value: Any) -> None:
    """``compact.map.entries``."""
    await put(door, compact__map__entries=text)
    assert door.bulks[0][1] == {"m": value}


@pytest.mark.parametrize("text", ["false", "true"])
async def test_records_that_make_no_document(door: Door, text: str) -> None:
    """They are refused, or passed over with ``drop.invalid.message``."""
    refused = await put(door, key=None, drop__invalid__message=text)
    assert refused == ({} if text == "true" else {0: "Key is used as document id and can not be null."})
    assert door.bulks == []


@pytest.mark.parametrize(
    ("text", "refused", "bulks"),
    [
        ("FAIL", {0: "the value is null, and behavior.on.null.values=FAIL"}, []),
        ("ignore", {}, []),
        (
            "Delete",
            {},
            [[{"delete": {"_index": "orders", "_id": "k", "version": 7, "version_type": "external"}}]],
        ),
    ],
)
async def test_null_values(door: Door, text: str, refused: dict[int, str], bulks: list[Any]) -> None:
    """In upper or lower case."""
    assert await put(door, value=None, behavior__on__null__values=text) == refused
    assert door.bulks == bulks
    assert await put(door, value=None, key=None, behavior__on__null__values="DELETE") == {}
    assert door.bulks == bulks


@pytest.mark.parametrize("text", ["FAIL", "WARN", "IGNORE"])
async def test_documents_that_the_server_refuses(door: Door, text: str) -> None:
    """``errors.tolerance`` decides of the record; ``FAIL`` fails the task behind it."""
    door.status = 400
    if text == "FAIL":
        with pytest.raises(Fatal, match="Please check DLQ topic for errors"):
            await put(door)
    else:
        refused = await put(door, behavior__on__malformed__documents=text)
        assert refused == {0: "Indexing failed: mapper_parsing_exception: no number"}


@pytest.mark.parametrize(("requests", "retries"), [("1", 1), ("5", 5), ("20", 5)])
async def test_partial_updates(door: Door, requests: str, retries: int) -> None:
    """``write.method=UPSERT``: without a version, and tried again by the server where somebody else writes."""
    await put(door, write__method="upsert", max__in__flight__requests=requests)
    document = {"m": {"a": 1}}
    action = {"_index": "orders", "_id": "k", "retry_on_conflict": retries}
    assert door.bulks == [[{"update": action}, {"doc": document, "upsert": document}]]


@pytest.mark.parametrize("usage", ["INDEX", "ALIAS_INDEX", "DATASTREAM", "ALIAS_DATASTREAM"])
async def test_resources_of_their_own(door: Door, usage: str) -> None:
    """They are looked for, never made or mapped; in a data stream documents are only created, by their place."""
    names: dict[str, Any] = {
        "external__resource__usage": usage,
        "topic__to__external__resource__mapping": "Orders:sales",
    }
    assert await put(door, **names) == {}
    assert door.paths == [("HEAD", "/sales"), ("POST", "/_bulk")]
    [[action, document]] = door.bulks
    if usage.endswith("DATASTREAM"):
        assert action == {"create": {"_index": "sales", "_id": "Orders+3+7"}}
        assert document == {"m": {"a": 1}, "@timestamp": 1000}
    else:
        assert action == {"index": {"_index": "sales", "_id": "k", "version": 7, "version_type": "external"}}


@pytest.mark.parametrize(
    ("fields", "time"), [("", 1000), ("at", {"a": 1}), ("none,m", {"a": 1}), ("none", 1000)], ids=str
)
async def test_the_time_of_a_data_streams_document(door: Door, fields: str, time: Any) -> None:
    """Of the first field that is there, else the record's."""
    stream: dict[str, Any] = {
        "data__stream__type": "metrics",
        "data__stream__dataset": "shop",
        "data__stream__namespace": "of_${topic}",
    }
    named = fields.replace("at", "m")
    assert await put(door, data__stream__timestamp__field=named, **stream) == {}
    [[action, document]] = door.bulks
    assert action == {"create": {"_index": "metrics-shop-of_orders", "_id": "Orders+3+7"}}
    assert document["@timestamp"] == time


@pytest.mark.parametrize("key", ["proxy.host", "kerberos.user.principal", "kerberos.keytab.path"])
def test_what_is_not_supported_is_refused(key: str) -> None:
    """A task that went another way than the config says would be worse."""
    findings = list(config_of(**{key.replace(".", "__"): "x"}).own_findings())
    assert [(finding.key, finding.is_error) for finding in findings] == [(key, True)]


@pytest.mark.parametrize("key", ["connection.username", "connection.password"])
def test_half_a_login_is_refused(key: str) -> None:
    """The other half is named."""
    findings = list(config_of(**{key.replace(".", "__"): "x"}).own_findings())
    other = {"connection.username", "connection.password"} - {key}
    assert {finding.key for finding in findings} == other


ACCEPTED = {
    "linger.ms": ("100", "-1"),
    "max.buffered.records": ("50000", "0"),
    "max.connection.idle.time.ms": ("-1", "-2"),
    "flush.synchronously": ("true", "perhaps"),
    "type.name": ("_doc", None),
}
"""Keys that change nothing here: a value of Confluent's, and one that its connector refuses."""


@pytest.mark.parametrize("key", ACCEPTED)
def test_what_changes_nothing_is_known(key: str) -> None:
    """A config of Confluent's connector runs as it is; what that one refuses is refused."""
    good, bad = ACCEPTED[key]
    parsed = ElasticsearchSinkConfig.parse({**URL, key: good})
    assert parsed.config is not None
    assert [*parsed.findings, *parsed.config.own_findings()] == []
    if bad is not None:
        assert [finding.key for finding in ElasticsearchSinkConfig.parse({**URL, key: bad}).findings] == [key]
