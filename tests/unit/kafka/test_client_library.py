"""What is reached for inside the client library is there; a new version of it must be looked at first."""

from __future__ import annotations

import asyncio
import inspect
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import Fetcher, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import Assignment, SubscriptionState, TopicPartitionState
from aiokafka.errors import GroupLoadInProgressError, NodeNotReadyError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.structs import TopicPartition

from service.kafka import library
from service.kafka.batches import EncodedBatch
from service.kafka.fetching import KeptRecords
from service.kafka.library import VERSION, forbid_creation, mend_bootstrap, mend_sequence_numbers
from service.kafka.newer_requests import OffsetFetchRequest


async def test_the_pinned_version_has_what_is_used() -> None:
    """Every private name used by the closing, the writers and the readers exists in this version."""
    assert aiokafka.__version__ == VERSION
    producer, consumer = AIOKafkaProducer(transactional_id="x"), AIOKafkaConsumer()
    try:
        for name in ("_sender", "_message_accumulator", "_txn_manager", "_closed"):
            assert hasattr(producer, name)
        assert hasattr(producer._sender, "sender_task")
        assert producer._message_accumulator._batches == {}
        assert producer.client._conns == {}
        for name in ("is_in_transaction", "wait_for_transaction_end", "_sequence_numbers", "increment_sequence_number"):
            assert hasattr(producer._txn_manager, name)
        assert hasattr(consumer, "_client")
    finally:
        await producer.stop()
        # Never started, it has nothing to stop, and its own way of stopping does not expect that.
        consumer._closed = True


def test_an_encoded_batch_stands_in_for_the_librarys_builder() -> None:
    """All that the accumulator and the sender call on a builder is there."""
    used = ("_set_producer_state", "_build", "close", "closed", "size", "record_count")
    for name in used:
        assert callable(getattr(BatchBuilder, name))
        assert callable(getattr(EncodedBatch, name))


async def test_sequence_numbers_wrap_to_zero() -> None:
    """After 2³¹−1 comes 0, as brokers demand, and not a negative number."""
    producer = AIOKafkaProducer(enable_idempotence=True)
    try:
        mend_sequence_numbers(producer)
        manager, partition = producer._txn_manager, TopicPartition("t", 0)
        manager.increment_sequence_number(partition, 2**31 - 1)
        assert manager.sequence_number(partition) == 2**31 - 1
        manager.increment_sequence_number(partition, 5)
        assert manager.sequence_number(partition) == 4
    finally:
        await producer.stop()


def test_the_group_protocols_requests_are_there() -> None:
    """The client and the requests that a worker's place in its group is made of take what they are given."""
    for name in ("bootstrap", "coordinator_lookup", "send", "close"):
        assert inspect.iscoroutinefunction(getattr(AIOKafkaClient, name))
    assert {"DEFAULT", "COORDINATION"} <= set(ConnectionGroup.__members__)
    JoinGroupRequest("group", 10_000, 60_000, "", None, "connect", [("protocol", b"claim")])
    SyncGroupRequest("group", 1, "member", None, [("member", b"part")])
    HeartbeatRequest("group", 1, "member")
    LeaveGroupRequest("group", "member")


async def test_what_closing_a_consumer_reaches_for_is_there() -> None:
    """The parts and the connections: without them a close beside a broker that is silent would leave them behind."""
    consumer = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1")
    assert consumer._fetcher is None
    assert consumer._coordinator is None
    assert consumer._client._conns == {}
    assert "await x" in inspect.getsource(Fetcher.close), "the library is mended: its cancellation is the caller's"
    await consumer.stop()


async def test_what_a_poll_of_tables_reaches_for_is_there() -> None:
    """The fetch of a consumer, the results that it leaves behind, and what a result holds."""
    names = {"_tp", "_records", "_aborted_transactions", "_aborted_producers", "_check_crcs", "_isolation_level"}
    records = PartitionRecords(
        TopicPartition("t", 0), KeptRecords(b"x"), None, 7, None, None, check_crcs=True, isolation_level=1
    )
    assert names <= set(vars(records))
    assert records.next_fetch_offset == 7
    assert records._records.data == b"x"
    assert fetcher.MemoryRecords is KeptRecords, "its reader of a fetch is the one that keeps the bytes"
    assert list(inspect.signature(Fetcher._proc_fetch_request).parameters) == [
        "self",
        "assignment",
        "node_id",
        "request",
    ]
    source = inspect.getsource(Fetcher._proc_fetch_request)
    assert source.count("await ") == 2, "nothing is awaited behind the answer, but after an error"
    assert "self._records[tp] = FetchResult(" in source


class StartingBroker:
    """A client whose broker is admitted to its cluster a little later than it answers."""

    def __init__(self, *, answers_without_brokers: int) -> None:
        """Not connected yet."""
        self.left = answers_without_brokers
        self.cluster = self

    def brokers(self) -> set[int]:
        """As ClusterMetadata's."""
        return set() if self.left else {1}

    async def bootstrap(self) -> None:
        """As AIOKafkaClient's, which is content with any answer."""

    async def force_metadata_update(self) -> None:
        """As AIOKafkaClient's."""
        self.left -= 1


@pytest.mark.looptime
async def test_connecting_lasts_until_the_cluster_names_a_broker() -> None:
    """Else the next request goes to node None; what is ready at once is not asked again."""
    for answers_without_brokers in (3, 0):
        client: Any = StartingBroker(answers_without_brokers=answers_without_brokers)
        mend_bootstrap(client)
        await client.bootstrap()
        assert client.left == 0


async def test_connecting_that_is_cut_short_leaves_no_connection() -> None:
    """The broker says what it can do, and then nothing: who gives up waiting closes the connection too."""
    is_asked, is_closed = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        _, _, correlation = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
        told = struct.pack(">ihi", correlation, 0, 1) + struct.pack(">hhh", 3, 0, 5)
        writer.write(struct.pack(">i", len(told)) + told)
        await reader.readexactly(4)
        is_asked.set()
        while await reader.read(1024):
            pass
        is_closed.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, asyncio.timeout(60):
        client = AIOKafkaClient(bootstrap_servers=f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        mend_bootstrap(client)
        async with asyncio.TaskGroup() as group:
            connecting = group.create_task(client.bootstrap())
            await is_asked.wait()
            connecting.cancel()
        await is_closed.wait()
        await client.close()


def test_a_starting_brokers_answer_leaves_the_library_without_brokers() -> None:
    """As long as that is so, connecting is mended; and the connection it came over is kept for the next question."""
    cluster = ClusterMetadata(metadata_max_age_ms=1000)
    cluster.update_metadata(SimpleNamespace(brokers=[]))
    assert not cluster.brokers()
    source = inspect.getsource(AIOKafkaClient.bootstrap)
    assert "if not len(self.cluster.brokers()):" in source
    assert callable(AIOKafkaClient.force_metadata_update)


def test_nothing_else_reaches_inside_the_library() -> None:
    """What a new version may break stands in two files; ruff lets nobody do it unnoticed."""
    package = Path(library.__file__).parent
    reaching = {path.name for path in package.glob("*.py") if "SLF001" in path.read_text(encoding="utf-8")}
    assert reaching == {"library.py", "fetching.py"}


async def test_the_private_names_of_consumers_are_there() -> None:
    """Those of groups: the coordinator's question, the subscription and its positions."""
    assert callable(SubscriptionState.subscribe_pattern)
    assert callable(Assignment.state_value)
    assert {"has_valid_position", "position"} <= set(dir(TopicPartitionState))
    assert callable(AIOKafkaClient.set_topics)
    assert callable(AIOKafkaClient.fetch_all_metadata)
    assert callable(AIOKafkaClient.add_topic)


LOADING, LOADED = (
    SimpleNamespace(topics=[], error_code=GroupLoadInProgressError.errno),
    SimpleNamespace(topics=[("t", [(0, 7, "", 0), (1, -1, "", 0)])], error_code=0),
)


async def test_the_library_takes_a_loading_coordinator_for_one_without_offsets() -> None:
    """As long as that is so, ``GroupConsumer`` tells it where a group stands."""

    async def answer(_request: object) -> SimpleNamespace:
        return LOADING

    asking = SimpleNamespace(group_id="g", _send_req=answer)
    assert await GroupCoordinator._do_fetch_commit_offsets(asking, [TopicPartition("t", 0)]) == {}


async def test_older_brokers_are_asked_again_while_they_load() -> None:
    """They do not know the request that waits for transactions."""
    answers = [LOADING, LOADED]

    async def node_of(_kind: int, _name: str) -> int:
        return 0

    async def send(_node: int, request: object, **_group: object) -> SimpleNamespace:
        if isinstance(request, OffsetFetchRequest):
            raise NotImplementedError  # what the client library says of a broker without this request
        return answers.pop(0)

    client = SimpleNamespace(coordinator_lookup=node_of, send=send)
    consumer: Any = SimpleNamespace(_client=client, _coordinator=SimpleNamespace(group_id="g"))
    asked = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert await library.committed_offsets(consumer, asked) == {TopicPartition("t", 0): 7}


class AskedBroker:
    """Connections of a client that knows one broker, which answers `answer`, or does not answer at all."""

    def __init__(self, answer: object | None) -> None:
        """Not asked yet."""
        self.cluster = self
        self._answer = answer
        self.questions: list[Any] = []
        self.updates: list[object] = []

    def brokers(self) -> list[Any]:
        """As ClusterMetadata's."""
        return [SimpleNamespace(nodeId=1)]

    def update_metadata(self, answer: object) -> None:
        """As ClusterMetadata's."""
        self.updates.append(answer)

    async def send(self, _: int, request: Any) -> object:
        """As AIOKafkaClient's."""
        self.questions.append(request)
        if self._answer is None:
            raise NodeNotReadyError
        return self._answer

    async def _metadata_update(self, _: object, topics: object) -> bool:
        self.questions.append(topics)
        return True


@pytest.mark.parametrize("answer", [None, SimpleNamespace(brokers=[]), SimpleNamespace(brokers=[1])])
async def test_no_question_of_a_reader_creates_a_topic(answer: Any) -> None:
    """Asked by name it says so; where nobody answers that, the whole cluster is asked for, which names no topic."""
    client: Any = AskedBroker(answer)
    forbid_creation(client)
    assert await client._metadata_update(client.cluster, {"t"})
    struct = client.questions[0].build(MetadataRequest_v5)
    assert (struct.topics, struct.allow_auto_topic_creation) == (["t"], False)
    is_answered = answer is not None and bool(answer.brokers)
    assert client.updates == ([answer] if is_answered else [])
    assert client.questions[1:] == ([] if is_answered else [None])


def test_the_library_asks_for_topics_by_one_way() -> None:
    """The one that `forbid_creation` replaces; bootstrapping names no topic."""
    source = inspect.getsource(aiokafka.client)
    assert source.count("MetadataRequest(") == 2
    assert "MetadataRequest([])" in source
    assert "MetadataRequest(" in inspect.getsource(AIOKafkaClient._metadata_update)
