"""All that reaches inside the client library, which has no public way for it: aiokafka `VERSION`, pinned.

`tests/unit/kafka/test_client_library.py` fails with any other version, and says what has to be looked at then.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiokafka.client
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError, NodeNotReadyError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.admin import CreateTopicsRequest_v0
from aiokafka.protocol.commit import OffsetFetchRequest as OlderOffsetFetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.transaction import AddOffsetsToTxnRequest
from aiokafka.structs import TopicPartition

from service.kafka.newer_requests import InitProducerIdRequest, OffsetFetchRequest, TxnOffsetCommitRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
    from aiokafka.admin import NewTopic
    from aiokafka.client import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.conn import AIOKafkaConnection

VERSION = "0.14.0"

PASSING_CODES = frozenset({14, 15, 16, 51, 88})
"""A coordinator moves, loads, is still ending an older transaction, or waits for one that commits offsets."""
ASK_AGAIN_SECONDS = 0.05
_UNKNOWN_TOPIC = 3
_FORCED_SECONDS_MAX = 2.0
_CANCELLATIONS_MAX = 5
_BROKERS_LOOK_SECONDS = 0.1
_bootstrapped: ContextVar[list[AIOKafkaConnection] | None] = ContextVar("bootstrapped", default=None)
"""Where the connections are noted that a client makes while it looks for its cluster."""


async def ask(client: AIOKafkaAdminClient, request: Any, node: int | None = None) -> Any:
    """The answer of one broker, or of any; raises the client's errors."""
    return await client._send_request(request, node)  # noqa: SLF001


def client_of(part: AIOKafkaAdminClient | AIOKafkaConsumer) -> AIOKafkaClient:
    """The connections of an administrator or a consumer."""
    return part._client  # noqa: SLF001


def forbid_creation(client: AIOKafkaClient) -> None:
    """Let no question of a client create the topic that it names.

    Brokers create what is asked for where `auto.create.topics.enable` is true, its default, and the question allows it;
    the library always does. A reader asks again and again, also after an error because its topic was deleted: it would
    make it anew, with the broker's own settings.
    """
    ask_anybody = client._metadata_update  # noqa: SLF001

    async def update_metadata(cluster: ClusterMetadata, topics: set[str] | None) -> bool:
        brokers = [broker.nodeId for broker in client.cluster.brokers()] if topics else []
        for node in random.sample(brokers, len(brokers)):
            try:
                answer = await client.send(node, MetadataRequest(list(topics or ()), allow_auto_topic_creation=False))
            except KafkaError:
                continue
            if answer.brokers:
                cluster.update_metadata(answer)
                return True
        # Of the whole cluster: nothing is named by that. It also knows the way by the address to bootstrap from.
        return bool(await ask_anybody(cluster, None))

    client._metadata_update = update_metadata  # noqa: SLF001


async def partitions_now(consumer: AIOKafkaConsumer, topic: str) -> set[int]:
    """Numbers of the partitions of a topic as a broker knows them at this moment; empty where it is missing.

    Raises KafkaError when no broker answers, TopicAuthorizationFailedError.
    """
    client = client_of(consumer)
    client._topics.add(topic)  # noqa: SLF001
    # Not `force_metadata_update`: that gives the answer to a question that may have been asked before.
    if not await client._metadata_update(client.cluster, client._topics):  # noqa: SLF001
        raise NodeNotReadyError(f"no broker answers what partitions topic '{topic}' has")
    if topic in client.cluster.unauthorized_topics:
        raise TopicAuthorizationFailedError(topic)
    return set(client.cluster.partitions_for_topic(topic) or ())


async def _connected_and_noted(*arguments: Any, **more: Any) -> AIOKafkaConnection:
    connection = await create_conn(*arguments, **more)
    noted = _bootstrapped.get()
    if noted is not None:
        noted.append(connection)
    return connection


aiokafka.client.create_conn = _connected_and_noted


def mend_bootstrap(client: AIOKafkaClient) -> None:
    """Let connecting last until the cluster has named a broker: call it under a time limit, before the client starts.

    A broker that has just started answers before its controller has admitted it, and then names none, not even itself.
    The library goes on with that, and fails with the next request, which is "to node None".

    Cancelled, or out of time, while it waits for the first answer, the library forgets the connection that it asked
    over, which then stays open until it is collected as garbage: it is closed here.
    """
    connect = client.bootstrap

    async def connect_and_close() -> None:
        made: list[AIOKafkaConnection] = []
        token = _bootstrapped.set(made)
        try:
            await connect()
        except BaseException:
            # A cancellation above all: the library forgets what it had opened until then.
            for connection in made:
                connection.close()
            raise
        finally:
            _bootstrapped.reset(token)

    async def connect_to_brokers() -> None:
        await connect_and_close()
        while not client.cluster.brokers():
            await asyncio.sleep(_BROKERS_LOOK_SECONDS)
            await client.force_metadata_update()

    client.bootstrap = connect_to_brokers


def demand_encodable(topic: NewTopic) -> None:
    """Raise ValueError for a topic that no request can name, number or configure so."""
    CreateTopicsRequest_v0([AIOKafkaAdminClient._convert_new_topic_request(topic)], 0).encode()  # noqa: SLF001


def subscribe_by(consumer: AIOKafkaConsumer, pattern: Any, listener: ConsumerRebalanceListener) -> None:
    """Subscribe a started consumer to every topic that ``pattern.match`` takes; its own way takes Python's alone."""
    consumer._subscription.subscribe_pattern(pattern=pattern, listener=listener)  # noqa: SLF001
    client_of(consumer).set_topics([])


async def committed_offsets(consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """What a consumer's group has committed; partitions without an offset are left out.

    As long as a transaction is open that commits offsets of the group, there is no answer: what it leaves behind is
    the answer (KIP-447). Brokers before 2.5 cannot wait, and are asked with the library's request; not by the library,
    for which a coordinator that still loads has no offsets. Call it under a time limit. Raises the client's errors.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    client, group_id = client_of(consumer), consumer._coordinator.group_id  # noqa: SLF001

    async def answer_to(request: Any, *, error_at: int) -> Any:
        """``error_at``: where the error stands in what is told of a partition."""

        def codes(answer: Any) -> list[int]:
            """A topic that is not there (3) has no offsets. Brokers before 0.11 tell no error of the whole."""
            told = [told[error_at] for _, partitions, *_ in answer.topics for told in partitions]
            return [getattr(answer, "error_code", 0), *(code for code in told if code != _UNKNOWN_TOPIC)]

        return await _ask_coordinator(client, CoordinationType.GROUP, group_id, request, errors_of=codes)

    try:
        answer = await answer_to(OffsetFetchRequest(group_id, by_topic), error_at=4)
    except NotImplementedError:
        answer = await answer_to(OlderOffsetFetchRequest(group_id, list(by_topic.items())), error_at=3)
    return {
        TopicPartition(topic, partition): offset
        for topic, told, *_ in answer.topics
        for partition, offset, *_ in told
        if offset >= 0
    }


@dataclass(frozen=True, slots=True)
class GroupMember:
    """As whom offsets of a group are committed: the group refuses those of a member that it has given up."""

    group_id: str
    generation: int
    """−1 outside of the group."""
    member_id: str


def member_of(consumer: AIOKafkaConsumer) -> GroupMember:
    """Who the consumer is in its group now."""
    coordinator = consumer._coordinator  # noqa: SLF001
    return GroupMember(coordinator.group_id, coordinator.generation, coordinator.member_id)


def generation_of(consumer: AIOKafkaConsumer) -> int:
    """Number of the consumer's last assignment; -1 outside of its group, also while it still connects."""
    coordinator = consumer._coordinator  # noqa: SLF001
    return -1 if coordinator is None else int(coordinator.generation)


async def commit_within(
    producer: AIOKafkaProducer, member: GroupMember, offsets: Mapping[tuple[str, int], int]
) -> None:
    """Make offsets of a consumer group part of the producer's open transaction, which has records already (KIP-447).

    Call it under a time limit. Raises the client's errors, `IllegalGenerationError` and its like for a member that the
    group has given up; NotImplementedError for brokers before 2.5.
    """
    manager, client = producer._txn_manager, producer.client  # noqa: SLF001
    own = (manager.transactional_id, manager.producer_id, manager.producer_epoch)
    await _ask_coordinator(
        client,
        CoordinationType.TRANSACTION,
        manager.transactional_id,
        AddOffsetsToTxnRequest(*own, member.group_id),
        errors_of=lambda answer: [answer.error_code],
    )
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append((partition, offset, -1, "", {}))
    call = TxnOffsetCommitRequest(
        manager.transactional_id,
        member.group_id,
        *own[1:],
        member.generation,
        member.member_id,
        None,
        [(topic, told, {}) for topic, told in topics.items()],
    )
    await _ask_coordinator(
        client,
        CoordinationType.GROUP,
        member.group_id,
        call,
        errors_of=lambda answer: [code for _, told, _ in answer.topics for _, code, _ in told],
    )


async def _ask_coordinator(
    client: AIOKafkaClient, kind: int, name: str, request: Any, *, errors_of: Callable[[Any], Iterable[int]]
) -> Any:
    """The coordinator's answer, once it has no error that passes by itself; the client's class for another."""
    while True:
        try:
            node = await client.coordinator_lookup(kind, name)
            answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
        except KafkaError as error:
            if not error.retriable:
                raise
        else:
            codes = sorted({code for code in errors_of(answer) if code})
            lasting = [code for code in codes if code not in PASSING_CODES]
            if lasting:
                raise for_code(lasting[0])(name)
            if not codes:
                return answer
        await asyncio.sleep(ASK_AGAIN_SECONDS)


def position_now(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int | None:
    """Offset that comes next in an assigned partition; None where the consumer has to ask for it first."""
    state = consumer._subscription.subscription.assignment.state_value(partition)  # noqa: SLF001
    return int(state.position) if state.has_valid_position else None


def sender_error(producer: AIOKafkaProducer) -> BaseException | None:
    """What ended the sending of a producer, if anything did. What its calls raise are copies without their causes."""
    sender = producer._sender.sender_task  # noqa: SLF001
    return sender.exception() if sender is not None and sender.done() and not sender.cancelled() else None


def has_sender_ended(producer: AIOKafkaProducer) -> bool:
    """Whether a started producer will never send again."""
    return bool(producer._sender.sender_task.done())  # noqa: SLF001


def is_in_transaction(producer: AIOKafkaProducer) -> bool:
    """Whether a producer has begun a transaction that it may still abort."""
    return bool(producer._txn_manager.is_in_transaction())  # noqa: SLF001


def mend_sequence_numbers(producer: AIOKafkaProducer) -> None:
    """Let sequence numbers wrap to zero after 2³¹−1, as the protocol demands; the library wraps to −2³¹.

    The broker refuses negative ones, so a task would stop after two billion records in one partition.
    """
    manager = producer._txn_manager  # noqa: SLF001

    def increment(partition: object, count: int) -> None:
        numbers = manager._sequence_numbers  # noqa: SLF001
        numbers[partition] = (numbers[partition] + count) & 0x7FFFFFFF

    manager.increment_sequence_number = increment


async def try_to_continue(producer: AIOKafkaProducer) -> int:
    """Ask the coordinator to let a transactional producer go on by its own id and epoch; gives the error code.

    0: it may, so nobody has initialised another producer with its transactional id. PRODUCER_FENCED (90): somebody
    has. CONCURRENT_TRANSACTIONS (51) and the coordinator's own codes (14 to 16): ask again. By KIP-360 and KIP-588 the
    coordinator tells the two apart even after it has ended the transaction and raised the epoch itself. Nobody is
    fenced by the question.
    Raises the client's errors; NotImplementedError for brokers before 2.7, which do not know version 4 of the request.
    """
    manager, client = producer._txn_manager, producer.client  # noqa: SLF001
    request = InitProducerIdRequest(
        manager.transactional_id, manager.transaction_timeout_ms, manager.producer_id, manager.producer_epoch
    )
    node = await client.coordinator_lookup(CoordinationType.TRANSACTION, manager.transactional_id)
    answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
    return int(answer.error_code)


async def end_producer(producer: AIOKafkaProducer) -> None:
    """Disconnect a producer by force; nothing further is sent."""
    # Marks the producer closed for its destructor too, which otherwise warns.
    producer._closed = True  # noqa: SLF001
    await _end_by_force(producer.client, (producer._sender, producer._message_accumulator))  # noqa: SLF001


async def end_consumer(consumer: AIOKafkaConsumer) -> None:
    """Disconnect a consumer by force."""
    await _end_by_force(client_of(consumer), (consumer._coordinator, consumer._fetcher))  # noqa: SLF001


async def end_admin(client: AIOKafkaAdminClient) -> None:
    """Disconnect an administrator by force."""
    await _end_by_force(client_of(client), ())


def look_at_outcomes(producer: AIOKafkaProducer) -> None:
    """Take note of what became of a closed producer: asyncio reports outcomes that nobody has looked at."""
    _look_at(producer._txn_manager.wait_for_transaction_end())  # noqa: SLF001
    for batches in producer._message_accumulator._batches.values():  # noqa: SLF001
        for batch in batches:
            _look_at(batch._drain_waiter)  # noqa: SLF001


async def _end_by_force(client: AIOKafkaClient, parts: tuple[object, ...]) -> None:
    """Cancel what runs for the client and these parts of its user, and close its connections."""
    # A consumer that was never connected lacks parts, as tasks of plain functions lack an owner.
    owned = tuple(owner for owner in (client, *parts) if owner is not None)
    for _ in range(_CANCELLATIONS_MAX):
        tasks = {task for task in asyncio.all_tasks() if _runs_for(task, owned)}
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_FORCED_SECONDS_MAX / _CANCELLATIONS_MAX)
        for task in tasks:
            _look_at(task)
    for connection in list(client._conns.values()):  # noqa: SLF001
        connection.close()


def _look_at(future: asyncio.Future[object] | None) -> None:
    if future is not None and future.done() and not future.cancelled():
        future.exception()


def _runs_for(task: asyncio.Task[object], owners: tuple[object, ...]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and any(frame.f_locals.get("self") is owner for owner in owners)
