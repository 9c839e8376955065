"""Against a broker that wants to know who one is: the right user passes, the others hear why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from service.cli.access import AccessOptions
from service.cli.topics import Wanted, run_read_topic
from service.embedded import broker as embedded
from service.embedded.broker import BrokerJvm, embedded_kafka
from service.embedded.broker_settings import broker_properties
from service.embedded.ports import LOOPBACK, free_ports
from service.embedded.running import running
from service.kafka.access import AccessQuestions, Operation, TopicAccess
from service.kafka.admin import KafkaAdmin, MissingTopic
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, DeliveryRetriable
from service.kafka.producer import TransactionalWriter
from service.kafka.properties import read_settings
from service.kafka.reader import read_topic
from service.kafka.records import TopicRecords

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a listener with logins: alice may do everything, bob nothing."""
    (port,) = free_ports(1)

    def with_logins(**options: object) -> dict[str, str]:
        properties = broker_properties(**options)  # type: ignore[arg-type]
        return properties | {
            "listeners": f"{properties['listeners']},LOGIN://{LOOPBACK}:{port}",
            "advertised.listeners": f"{properties['advertised.listeners']},LOGIN://{LOOPBACK}:{port}",
            "listener.security.protocol.map": f"{properties['listener.security.protocol.map']},LOGIN:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": f'{LOGIN} user_alice="a\'1" user_bob="b";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
        }

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(embedded, "broker_properties", with_logins)
        with running(
            embedded_kafka(data_dir=tmp_path_factory.mktemp("guarded"), jvm=BrokerJvm(heap_mib=256)), name="guarded"
        ):
            yield f"{LOOPBACK}:{port}"


def settings_of(bootstrap: str, user: str, password: str) -> KafkaSettings:
    """Settings from Java's properties."""
    settings, findings = read_settings(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{LOGIN} username="{user}" password="{password}";',
        }
    )
    assert findings == ()
    return settings


def record(topic: str) -> TopicRecords:
    """One record."""
    return TopicRecords(topic, pa.array([b"x"], pa.binary()))


async def test_the_right_user_may_write_and_read(guarded: str, topic_name: str) -> None:
    """A login from a JAAS line serves writers and readers."""
    settings = settings_of(guarded, "alice", "a'1")
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    await writer.commit([record(topic_name)])
    await writer.stop()
    assert [found.value async for batch in read_topic(settings, topic_name) for found in batch] == [b"x"]


async def test_a_user_without_permission_is_told_so(guarded: str, topic_name: str) -> None:
    """Missing permission is fatal: no waiting makes it pass."""
    writer = TransactionalWriter(settings_of(guarded, "bob", "b"), transactional_id=topic_name)
    with pytest.raises(DeliveryFatal, match="Authorization"):
        await writer.start()
    await writer.stop()


async def test_brokers_tell_users_what_they_may_do(guarded: str, topic_name: str) -> None:
    """Of topics that exist and that would be made, of transactional ids and of groups; nothing is made by that."""
    alice, bob = settings_of(guarded, "alice", "a'1"), settings_of(guarded, "bob", "b")
    async with KafkaAdmin.opened(alice) as admin:
        await admin.ensure_topic(topic_name, partitions=1)
    missing = f"{topic_name}-missing"
    async with AccessQuestions.opened(alice) as questions:
        told = await questions.topics([topic_name, missing])
        assert told[topic_name] == TopicAccess(is_there=True, operations=frozenset(Operation))
        assert not told[missing].is_there
        assert await questions.refused_creations([MissingTopic(missing), MissingTopic(topic_name)]) == {}
        assert "replication" in (await questions.refused_creations([MissingTopic(missing, 1, 9)]))[missing].lower()
        assert (await questions.may_transact("t"), await questions.may_join("g")) == (True, True)
        assert not (await questions.topics([missing]))[missing].is_there
    async with AccessQuestions.opened(bob) as questions:
        for access in (await questions.topics([topic_name, missing])).values():
            assert access == TopicAccess(is_there=True, operations=frozenset()), "he may not know whether it is"
        assert "Authorization" in (await questions.refused_creations([MissingTopic(missing, 1, 1)]))[missing]
        assert (await questions.may_transact("t"), await questions.may_join("g")) == (False, False)


async def test_a_wrong_password_is_hinted_at_and_not_shown(guarded: str, topic_name: str) -> None:
    """The library reports a refused login like a broker that is away; the message says that it may be one."""
    writer = TransactionalWriter(settings_of(guarded, "alice", "hunter2"), transactional_id=topic_name)
    with pytest.raises(DeliveryRetriable, match="wrong user, password or certificate") as caught:
        await writer.start()
    assert "hunter2" not in str(caught.value)
    await writer.stop()


async def test_topic_read_logs_in_with_a_file(
    guarded: str, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Kafka's own tools do with ``--command-config``; without it there is no answer."""
    writer = TransactionalWriter(settings_of(guarded, "alice", "a'1"), transactional_id=topic_name)
    await writer.start()
    await writer.commit([record(topic_name)])
    await writer.stop()
    config = tmp_path / "client.properties"
    config.write_text(
        f"bootstrap.servers={guarded}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="alice" password="a\'1";\n'
    )
    assert await run_read_topic(topic_name, AccessOptions(config=config), Wanted(is_json=True)) == 0
    assert [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()] == ["x"]
