"""What ``ElasticsearchSink`` must do with a server, the real one or the stand-in alike."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pyarrow as pa
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, SystemClock
from metrics.events import discard
from service.sinks.contract import SinkBatch, SinkContext
from service.sinks.converters import ColumnReader, EnvelopeReader, JsonReader, TextReader
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.elasticsearch.config import ElasticsearchSinkConfig
from service.sinks.elasticsearch.sink import ElasticsearchSink
from tests.unit.sinks.fake_library import polled


@dataclass
class Search:
    """A server as a test asks it, with a topic of the test's own."""

    url: str
    topic: str = field(default_factory=lambda: f"orders-{uuid.uuid4().hex[:8]}")

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request; its decoded answer."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.url}{path}", json=body) as answer,
        ):
            return await answer.json(content_type=None) if method != "HEAD" else answer.status

    async def documents(self, index: str | None = None) -> dict[str, Any]:
        """By id."""
        name = index or self.topic
        await self.ask("POST", f"/{name}/_refresh")
        found = await self.ask("GET", f"/{name}/_search?size=1000&version=true")
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}

    async def mapping(self) -> dict[str, Any]:
        """Of the topic's index, by field."""
        found = await self.ask("GET", f"/{self.topic}/_mapping")
        properties: dict[str, Any] = found[self.topic]["mappings"].get("properties", {})
        return properties


@dataclass
class Sink:
    """A started sink, and what it has refused."""

    sink: ElasticsearchSink
    topic: str
    ends: dict[tuple[str, int], int]
    """Where Kafka says that partitions end."""
    refused: dict[int, str] = field(default_factory=dict)
    """Messages by offset."""

    async def batch(
        self,
        records: Sequence[tuple[str | None, Any]],
        *,
        begin: int = 0,
        values: ColumnReader | None = None,
        headers: Sequence[Mapping[str, bytes]] = (),
        partition: int = 0,
        times: Sequence[int] = (),
    ) -> SinkBatch:
        """Keys and values from an offset on; values are given as JSON."""
        table = polled([None if value is None else json.dumps(value).encode() for _, value in records], begin=begin)
        table = table.set_column(0, "topic", pa.array([self.topic] * len(records)))
        table = table.set_column(
            5, "key", pa.array([None if key is None else key.encode() for key, _ in records], pa.binary())
        )
        if headers:
            given = [[{"name": name, "value": value} for name, value in each.items()] for each in headers]
            table = table.set_column(7, "headers", pa.array(given, table.schema.field("headers").type))
        table = table.set_column(1, "partition", pa.array([partition] * len(records), pa.int32()))
        if times:
            table = table.set_column(3, "timestamp", pa.array(times, pa.int64()))
        decoding = Decoding(
            SideReader(TextReader(), "K", KEY_STAGE), SideReader(values or JsonReader(), "V", VALUE_STAGE), "Sink"
        )

        def refuse(refusal: Any) -> None:
            self.refused[begin + refusal.row] = refusal.message

        [batch] = (await decoding.decode(table, refuse=refuse)).batches
        return batch

    async def put(self, records: Sequence[tuple[str | None, Any]], **options: Any) -> None:
        """Put them as one batch."""
        await self.sink.put(await self.batch(records, **options))


@asynccontextmanager
async def started(search: Search, **keys: str) -> AsyncIterator[Sink]:
    """A sink of this server; keys with ``__`` for dots. Schemas are ignored unless said otherwise."""
    texts = {"connection.url": search.url, "schema.ignore": "true", "retry.backoff.ms": "0"}
    # The key's default of one second is less than a busy machine may keep this process, and the server in it, waiting.
    texts |= {"connection.timeout.ms": "30000", "read.timeout.ms": "30000"}
    parsed = ElasticsearchSinkConfig.parse(texts | {key.replace("__", "."): text for key, text in keys.items()})
    assert parsed.config is not None, parsed.findings
    sink = ElasticsearchSink(parsed.config)
    assert not [finding for finding in sink.findings() if finding.is_error]
    known: dict[tuple[str, int], int] = {}

    async def ends(partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {partition: known[partition] for partition in partitions if partition in known}

    async with shared_http() as http:
        await sink.start(SinkContext("sink", 0, SystemClock(), discard, http, ends=ends))
        yield Sink(sink, search.topic, known)
        await sink.stop()


LOGIN = {
    "type": "struct",
    "optional": False,
    "name": "login",
    "fields": [
        {"type": "string", "optional": True, "field": "username"},
        {
            "type": "int64",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Timestamp",
            "version": 1,
            "field": "login_time",
        },
        {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
            "field": "price",
        },
        {"type": "int32", "optional": True, "field": "tries", "default": 7},
    ],
}


def enveloped(payload: Any) -> dict[str, Any]:
    """As JsonConverter writes it with a schema."""
    return {"schema": LOGIN, "payload": payload}


class SearchSuite:
    """Tests of the sink; a subclass gives the fixture ``search``."""

    async def test_a_document_for_each_record(self, search: Search) -> None:
        """Under topic, partition and offset where keys are ignored; digits, quotes and letters stay as they were."""
        async with started(search, key__ignore="true") as sink:
            await sink.put([(None, {"user": 'gwen"\\shap ä🙂', "n": 12345678901234567}), (None, {"user": "b\nc"})])
        assert await search.documents() == {
            f"{search.topic}+0+0": {"user": 'gwen"\\shap ä🙂', "n": 12345678901234567},
            f"{search.topic}+0+1": {"user": "b\nc"},
        }

    async def test_replays_and_overtaking_change_nothing(self, search: Search) -> None:
        """The greatest offset of a key wins, in whatever order bulks arrive."""
        async with started(search, behavior__on__null__values="DELETE") as sink:
            await sink.put([("a", {"n": 3}), ("b", None)], begin=3)
            await sink.put([("a", {"n": 0}), ("b", {"n": 1}), ("c", {"n": 2})])
            await sink.put([("a", {"n": 3}), ("b", None)], begin=3)
            assert not sink.refused
        assert await search.documents() == {"a": {"n": 3}, "c": {"n": 2}}

    async def test_a_topic_that_was_made_anew_loses_no_record(self, search: Search) -> None:
        """Its offsets begin at 0 again: a version behind the end of the topic fails the task, a replay never does."""
        async with started(search) as sink:
            await sink.put([("a", {"n": 7}), ("b", {"n": 8})], begin=7)
            sink.ends[search.topic, 0] = 9
            await sink.put([("a", {"n": 6}), ("a", {"n": 7})], begin=6)
            sink.ends[search.topic, 0] = 3
            with pytest.raises(Fatal, match=r"ends at offset 3, .* offset 8 .* the topic was made anew"):
                await sink.put([("b", {"n": 0}), ("c", {"n": 1})])
            assert not sink.refused
        assert await search.documents() == {"a": {"n": 7}, "b": {"n": 8}, "c": {"n": 1}}

    async def test_the_version_may_come_from_a_header(self, search: Search) -> None:
        """A lower number loses, though its offset is greater; without a number the record is refused."""
        async with started(search, external__version__header="v") as sink:
            await sink.put([("a", {"n": 1})], headers=[{"v": b"009"}])
            await sink.put(
                [("a", {"n": 2}), ("b", {"n": 3}), ("c", {"n": 4})],
                begin=1,
                headers=[{"v": b"8"}, {"v": b"x"}, {"v": b"9" * 5000}],
            )
            assert list(sink.refused) == [2, 3]
        assert await search.documents() == {"a": {"n": 1}}

    async def test_one_key_in_two_partitions(self, search: Search) -> None:
        """By offsets the newer record may lose; by its time it wins, whatever order and offset it has."""
        older = {"times": [1_000], "begin": 500}
        newer = {"times": [2_000], "begin": 3, "partition": 1}
        async with started(search) as sink:
            sink.ends |= {(search.topic, 0): 501, (search.topic, 1): 600}
            await sink.put([("lost", {"n": "older"})], **older)
            await sink.put([("lost", {"n": "newer"})], **newer)
        async with started(search, external__version="timestamp", behavior__on__null__values="DELETE") as sink:
            for key, puts in {"kept": (older, newer), "overtaken": (newer, older)}.items():
                for put in puts:
                    await sink.put([(key, {"n": "newer" if put is newer else "older"})], **put)
            await sink.put([("gone", {"n": "older"})], **older)
            await sink.put([("gone", None)], **newer)
            await sink.put([("gone", {"n": "older"})], **older)
        found = {name: source["n"] for name, source in (await search.documents()).items()}
        assert found == {"lost": "older", "kept": "newer", "overtaken": "newer"}

    async def test_records_of_one_millisecond_keep_their_order(self, search: Search) -> None:
        """With times as versions: also when they come again; a record without a time is refused."""
        async with started(search, external__version="timestamp") as sink:
            for _ in range(2):
                await sink.put([("a", {"n": n}) for n in range(5)], begin=(1 << 21) - 7, times=[1_700_000_000_000] * 5)
            await sink.put([("b", {"n": 5}), ("b", {"n": 6})], begin=(1 << 21), times=[-1, 1 << 42])
            assert list(sink.refused) == [1 << 21, (1 << 21) + 1]
            assert "the record has no time" in sink.refused[1 << 21]
        assert await search.documents() == {"a": {"n": 4}}

    async def test_upsert_changes_the_given_fields(self, search: Search) -> None:
        """The others stay; a document that is not there is made."""
        async with started(search, write__method="UPSERT") as sink:
            assert sink.sink.put_limits.puts_max == 1
            await sink.put([("a", {"n": 1, "m": 1}), ("a", {"n": 2}), ("b", {"n": 3})])
        assert await search.documents() == {"a": {"n": 2, "m": 1}, "b": {"n": 3}}

    async def test_upsert_takes_objects_only(self, search: Search) -> None:
        """Another value is refused before the server refuses the whole bulk for it."""
        async with started(search, write__method="UPSERT") as sink:
            await sink.put([("a", {"n": 1}), ("b", 5), ("c", [{"n": 2}]), ("d", "x"), ("e", {"n": 3})])
            assert list(sink.refused) == [1, 2, 3]
            assert sink.refused[1] == "a partial update must be an object"
        assert await search.documents() == {"a": {"n": 1}, "e": {"n": 3}}

    async def test_with_upsert_a_zombie_sets_fields_back(self, search: Search) -> None:
        """As the guide says of it: a partial update has no version. The key's next record mends it."""
        async with started(search, write__method="UPSERT") as zombie, started(search, write__method="UPSERT") as sink:
            await zombie.put([("a", {"n": 1, "m": 1})])
            await sink.put([("a", {"n": 2}), ("a", {"n": 3, "k": 3})], begin=1)
            await zombie.put([("a", {"n": 2})], begin=1)
            assert await search.documents() == {"a": {"n": 2, "m": 1, "k": 3}}
            await sink.put([("a", {"n": 4})], begin=3)
            assert not zombie.refused
            assert not sink.refused
        assert await search.documents() == {"a": {"n": 4, "m": 1, "k": 3}}

    async def test_bad_documents_are_refused_alone(self, search: Search) -> None:
        """With the server's reason; the others of the bulk are there."""
        await search.ask(
            "PUT", f"/{search.topic}", {"mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}}}}
        )
        async with started(search, behavior__on__malformed__documents="IGNORE") as sink:
            await sink.put([("a", {"n": 1}), ("b", {"n": "x"}), ("c", {"z": 1}), ("d", 5), ("e", {"n": 2})])
            assert list(sink.refused) == [1, 2, 3]
            assert sink.refused[1].startswith("Indexing failed: mapper_parsing_exception")
            assert sink.refused[2].startswith("Indexing failed: strict_dynamic_mapping_exception")
        assert await search.documents() == {"a": {"n": 1}, "e": {"n": 2}}

    async def test_a_bad_document_fails_the_task_where_it_is_to(self, search: Search) -> None:
        """After the others of its bulk were written, and it was refused."""
        await search.ask("PUT", f"/{search.topic}", {"mappings": {"properties": {"n": {"type": "long"}}}})
        async with started(search) as sink:
            with pytest.raises(Fatal, match=r"Indexing record failed\. Please check DLQ topic for errors\."):
                await sink.put([("a", {"n": "x"}), ("b", {"n": 2})])
            assert list(sink.refused) == [0]
        assert await search.documents() == {"b": {"n": 2}}

    async def test_keys_that_are_no_ids_are_refused(self, search: Search) -> None:
        """In Confluent's words, and before the server would refuse the whole bulk."""
        async with started(search) as sink:
            await sink.put(
                [(None, {"n": 1}), ("", {"n": 2}), ("x" * 513, {"n": 3}), ("x" * 512, {"n": 4}), ('q"\\', {})]
            )
            assert list(sink.refused) == [0, 1, 2]
            assert sink.refused[0] == "Key is used as document id and can not be null."
        assert (await search.documents()).keys() == {"x" * 512, 'q"\\'}

    async def test_the_mapping_is_made_from_the_schema(self, search: Search) -> None:
        """Instants are dates and stay numbers, decimals are doubles; the document has the schema's default."""
        async with started(search, schema__ignore="false", key__ignore="true") as sink:
            payload = {"username": "gwenshap", "login_time": 1476423962000, "price": "BOI="}
            await sink.put([(None, enveloped(payload))], values=EnvelopeReader())
            assert not sink.refused
        mapping = await search.mapping()
        assert mapping["username"] == {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
        assert mapping["login_time"] == {"type": "date"}
        assert mapping["price"] == {"type": "double"}
        assert mapping["tries"] == {"type": "integer", "null_value": 7}
        assert await search.documents() == {
            f"{search.topic}+0+0": {"username": "gwenshap", "login_time": 1476423962000, "price": 12.5, "tries": 7}
        }

    async def test_without_a_schema_no_mapping_is_guessed(self, search: Search) -> None:
        """Unless the index has one."""
        async with started(search, schema__ignore="false") as sink:
            await sink.put([("a", {"n": 1})])
            assert sink.refused == {0: "Cannot infer mapping without schema."}
        await search.ask("PUT", f"/{search.topic}/_mapping", {"properties": {"n": {"type": "long"}}})
        async with started(search, schema__ignore="false") as sink:
            await sink.put([("a", {"n": 1})])
            assert not sink.refused
        assert await search.documents() == {"a": {"n": 1}}

    async def test_an_index_that_was_removed_is_made_anew(self, search: Search) -> None:
        """Whatever the sink knew of it."""
        async with started(search) as sink:
            await sink.put([("a", {"n": 1})])
            await search.ask("DELETE", f"/{search.topic}")
            await sink.put([("b", {"n": 2})], begin=1)
        assert await search.documents() == {"b": {"n": 2}}

    async def test_a_data_stream(self, search: Search) -> None:
        """Made with a template; each document has its time, and what is sent again is there once."""
        keys = {
            "data__stream__type": "LOGS",
            "data__stream__dataset": "app",
            "data__stream__timestamp__field": "at",
            "key__ignore": "true",
        }
        async with started(search, **keys) as sink:
            for _ in range(2):
                await sink.put([(None, {"m": "x", "at": 1700000000000}), (None, {"m": "y"})])
            assert not sink.refused
        found = await search.documents(f"logs-app-{search.topic}")
        stamps = sorted(document["@timestamp"] for document in found.values())
        assert stamps == [1001, 1700000000000]

    async def test_a_data_stream_keeps_every_record_of_a_key(self, search: Search) -> None:
        """A key is no id there: of two records of one, the second would be refused as if it were the first again."""
        keys = {"data__stream__type": "METRICS", "data__stream__dataset": "host"}
        async with started(search, **keys) as sink:
            for _ in range(2):
                await sink.put([("host1", {"m": 1}), ("host1", {"m": 2}), (None, {"m": 3})])
            assert not sink.refused
        found = await search.documents(f"metrics-host-{search.topic}")
        assert sorted(document["m"] for document in found.values()) == [1, 2, 3]

    @pytest.mark.parametrize(
        "topic",
        ["a b", "a*", "a?b", "a,b", "<a>", "a/b", "a\\b", 'a"b', "a|b", "a#b", "a:b", "+a", "__all", "__a", "--a", "_"],
    )
    async def test_a_topic_that_names_no_index_is_told(self, search: Search, topic: str) -> None:
        """No record is at fault, though the server says of some such names that they are there (a pattern, ``_all``).

        Each document would then be answered with a refusal of its own, and become a dead letter.
        """
        search.topic = topic
        async with started(search) as sink:
            with pytest.raises(Fatal, match=r"topic '.*' has no index: .*RegexRouter"):
                await sink.put([("a", {"n": 1})])
            assert not sink.refused

    @pytest.mark.parametrize(
        ("topic", "index"), [("-Orders-{}", "orders-{}"), ("_orders-{}", "orders-{}"), (".{}", ".{}"), ("..", "dotdot")]
    )
    async def test_a_topic_whose_name_is_changed_to_that_of_an_index(
        self, search: Search, topic: str, index: str
    ) -> None:
        """As Confluent's connector changes it."""
        unique = search.topic
        search.topic = topic.format(unique)
        async with started(search) as sink:
            await sink.put([("a", {"n": 1})])
            assert not sink.refused
        assert await search.documents(index.format(unique)) == {"a": {"n": 1}}

    async def test_bulks_in_gzip_and_of_few_bytes(self, search: Search) -> None:
        """The body is cut by ``bulk.size.bytes``; a longer document goes alone."""
        async with started(search, connection__compression="true", bulk__size__bytes="200") as sink:
            await sink.put([(str(number), {"n": number, "x": "x" * 300 * (number == 3)}) for number in range(9)])
        assert len(await search.documents()) == 9
