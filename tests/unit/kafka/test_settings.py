"""Java's client properties are understood, and what is not is said."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import cast

import pytest

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.compression import Compression
from service.kafka.errors import DeliveryRetriable
from service.kafka.group_consumer import GroupConsumer, GroupListener, Subscription
from service.kafka.producer import TransactionalWriter
from service.kafka.properties import read_settings
from service.kafka.reader import TopicFeed
from service.kafka.security import KafkaSecurity, parse_jaas
from service.kafka.sharing import StandbyAdmin

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al=ice" password="p\\"w;d";'


def test_the_most_special_source_wins() -> None:
    """A connector's override beats the worker's role setting, which beats the worker's own."""
    worker = {
        "bootstrap.servers": "a:1,b:2",
        "request.timeout.ms": "1000",
        "producer.request.timeout.ms": "2000",
        "producer.compression.type": "LZ4",
        "consumer.request.timeout.ms": "9000",
    }
    settings, findings = read_settings(worker, connector={"producer.override.compression.type": "zstd"})
    assert findings == ()
    assert settings.producer.compression == Compression("zstd", 3)
    assert settings.request_seconds_max == 2.0
    assert settings.connection_arguments()["bootstrap_servers"] == ["a:1", "b:2"]


def test_each_compression_has_its_level() -> None:
    """Of the one that is used; without one, none is."""
    levels = {"producer.compression.gzip.level": "2", "producer.compression.zstd.level": "-7"}
    assert read_settings(levels)[0].producer.compression is None
    for codec, level in (("gzip", 2), ("zstd", -7), ("lz4", 9), ("snappy", None)):
        settings, findings = read_settings({**levels, "producer.compression.type": codec})
        assert (settings.producer.compression, findings) == (Compression(codec, level), ())


def test_unknown_keys_name_a_neighbour() -> None:
    """A misspelt client key is a warning with the nearest known key, and never stops anything."""
    _, findings = read_settings({"producer.compresion.type": "lz4"})
    assert [(finding.key, finding.is_error) for finding in findings] == [("producer.compresion.type", False)]
    assert "compression.type" in findings[0].message


def test_fixed_keys_are_said_to_be_fixed() -> None:
    """Settings that would break exactly-once are reported and not obeyed."""
    _, findings = read_settings({"producer.acks": "1", "producer.linger.ms": "5"})
    assert [finding.key for finding in findings] == ["producer.acks"]
    assert "exactly-once" in findings[0].message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer.compression.type", "brotli"),
        ("producer.compression.gzip.level", "0"),
        ("producer.compression.lz4.level", "18"),
        ("producer.compression.zstd.level", "high"),
        ("producer.batch.size", "many"),
        ("producer.transaction.timeout.ms", "0"),
        ("security.protocol", "TLS"),
        ("bootstrap.servers", ","),
        ("bootstrap.servers", "127.0.0.1:abc"),
        ("bootstrap.servers", "good:9092,bad:99999"),
        ("bootstrap.servers", "bad:0"),
        ("bootstrap.servers", "PLAINTEXT://bad:9092"),
        ("ssl.truststore.location", "/nowhere/ca.pem"),
        ("ssl.keystore.location", "/nowhere/keystore.jks"),
    ],
)
def test_wrong_values_are_findings(key: str, value: str) -> None:
    """A value that cannot be used is an error with its key, and a default stands in."""
    settings, findings = read_settings({key: value})
    assert any(finding.is_error and finding.key.startswith(key.rsplit(".", 1)[0]) for finding in findings)
    assert settings.security.protocol == "PLAINTEXT"
    assert settings.bootstrap == "localhost:9092"


def test_servers_are_names_and_addresses_with_or_without_a_port() -> None:
    """As this client takes them."""
    text = "kafka, broker_1.example:9092,10.0.0.1:1,[::1]:65535"
    settings, findings = read_settings({"bootstrap.servers": text})
    assert findings == ()
    assert settings.bootstrap == text


def test_kafkas_ways_to_say_never_and_at_once_are_taken() -> None:
    """Zero waits, and -1 for a connection that is never closed."""
    texts = {
        "consumer.fetch.min.bytes": "0",
        "consumer.fetch.max.wait.ms": "0",
        "retry.backoff.ms": "0",
        "connections.max.idle.ms": "-1",
    }
    settings, findings = read_settings(texts, role="consumer")
    assert findings == ()
    assert (settings.consumer.fetch_bytes_min, settings.consumer.fetch_wait_seconds_max) == (0, 0)
    assert 0 < settings.retry_seconds < 0.01
    assert settings.idle_seconds_max > 86_400


def test_jaas_options_are_unquoted() -> None:
    """User and password come out of a JAAS entry with quotes, escapes and separators inside."""
    assert parse_jaas(JAAS) == {"username": "al=ice", "password": 'p"w;d'}


def test_sasl_without_user_is_a_finding_without_the_secret() -> None:
    """An unusable login is reported with the value hidden; a usable one appears nowhere in clear."""
    worker = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": 'Plain required password="hunter2";'}
    _, findings = read_settings(worker)
    assert [finding.key for finding in findings] == ["sasl.jaas.config"]
    assert "hunter2" not in repr(findings)
    settings, findings = read_settings({**worker, "sasl.mechanism": "scram-sha-512", "sasl.jaas.config": JAAS})
    assert findings == ()
    assert settings.security.arguments()["sasl_plain_password"] == 'p"w;d'
    assert settings.security.arguments()["sasl_mechanism"] == "SCRAM-SHA-512"
    assert 'p"w;d' not in repr(settings)


SSL = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}


@pytest.mark.parametrize("key", ["ssl.truststore.location", "ssl.keystore.location"])
def test_a_file_that_is_no_pem_is_a_finding(key: str, tmp_path: Path) -> None:
    """Before anything is connected; the key is that which names the file, with the prefix of its role."""
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("x")
    for prefix in ("", "admin."):
        _, findings = read_settings({**SSL, f"{prefix}{key}": str(garbage)}, role="admin")
        assert [(finding.key, finding.value) for finding in findings] == [(f"{prefix}{key}", str(garbage))]
        assert findings[0].is_error


def test_pem_text_that_is_none_is_a_finding_without_it() -> None:
    """A private key may be in it."""
    _, findings = read_settings({**SSL, "ssl.truststore.certificates": "hunter2"})
    assert [(finding.key, finding.value) for finding in findings] == [("ssl.truststore.certificates", "[hidden]")]
    _, findings = read_settings({**SSL, "ssl.keystore.certificate.chain": "hunter2", "ssl.keystore.key": "hunter2"})
    assert [finding.key for finding in findings] == ["ssl.keystore.certificate.chain"]
    assert "hunter2" not in repr(findings)


async def test_certificates_that_are_away_for_a_moment_are_waited_for(tmp_path: Path) -> None:
    """As when they are renewed: whatever connects then tries again, and does not fail for good."""
    settings = KafkaSettings(
        bootstrap="127.0.0.1:9", security=KafkaSecurity(protocol="SSL", truststore=tmp_path / "ca.pem")
    )
    member = GroupConsumer(settings, Subscription(("t",)), group_id="g", listener=cast("GroupListener", None))
    writer = TransactionalWriter(settings, transactional_id="a")
    for connecting in (
        TopicFeed.open(settings, "t"),
        writer.start(),
        StandbyAdmin(settings).use(_nothing),
        member.start(),
    ):
        with pytest.raises(DeliveryRetriable, match="certificates"):
            await connecting


async def _nothing(_: KafkaAdmin) -> None:
    return


def test_pem_files_make_an_ssl_context(tmp_path: Path) -> None:
    """A PEM truststore and keystore become a context; hostname checking follows the Java key."""
    key, certificate, both = tmp_path / "k.pem", tmp_path / "c.pem", tmp_path / "both.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=t",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    both.write_text(key.read_text() + certificate.read_text())
    worker = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(certificate),
        "ssl.keystore.location": str(both),
        "ssl.endpoint.identification.algorithm": "",
    }
    settings, findings = read_settings(worker)
    assert findings == ()
    context = settings.connection_arguments()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert not context.check_hostname
    assert [entry["subject"] for entry in context.get_ca_certs()] == [((("commonName", "t"),),)]
