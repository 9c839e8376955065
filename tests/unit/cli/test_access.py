"""Where ``topic read`` and ``redrive`` go, and as whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli.access import read_access
from service.config.definition import read_definition
from service.job import ConfigRefusedError
from service.redrive.task import feed_of
from service.worker.lending import ClientSettings

SECURITY = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": 'ScramLoginModule required username="alice" password="s3cr3t";',
}
CAROL = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="carol" password="c";'
ENVIRONMENT = {"HEADRACE_BOOTSTRAP": "elsewhere:1", "HEADRACE_REGISTRY": "http://elsewhere:2"}


def written(folder: Path, properties: dict[str, str]) -> Path:
    """A file of properties."""
    path = folder / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    return path


def test_a_file_says_where_and_as_whom(tmp_path: Path) -> None:
    """A worker's file or a client's: brokers, login, registry and its login, before the environment."""
    registry = {
        "schema.registry.url": "http://registry:8081",
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": "bob:b",
    }
    config = written(tmp_path, {"bootstrap.servers": "kafka:9093", **SECURITY, **registry})
    access = read_access(config, bootstrap=None, registry_url=None, environ=ENVIRONMENT)
    security = access.kafka.security
    assert access.kafka.bootstrap == "kafka:9093"
    assert (security.protocol, security.mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-256")
    assert (security.username, security.password) == ("alice", "s3cr3t")
    assert access.registry is not None
    assert access.registry.urls == ("http://registry:8081",)
    assert [login and login[0] for login in access.registry.logins] == ["bob"]


def test_options_win_over_the_file(tmp_path: Path) -> None:
    """They say where, and the login stays the file's; an embedded address is then of no matter."""
    config = written(tmp_path, {"bootstrap.servers": "embedded", "schema.registry.url": "embedded", **SECURITY})
    access = read_access(config, bootstrap="there:1", registry_url="http://there:2", environ=ENVIRONMENT)
    assert (access.kafka.bootstrap, access.kafka.security.username) == ("there:1", "alice")
    assert access.registry is not None
    assert access.registry.urls == ("http://there:2",)


def test_what_consumers_are_told_wins_over_what_all_are_told(tmp_path: Path) -> None:
    """``consumer.…`` of a worker's file; variables are resolved by the providers that it names."""
    providers = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "consumer.sasl.jaas.config": 'M required username="reader" password="${env:READER}";',
    }
    config = written(tmp_path, {**SECURITY, **providers})
    access = read_access(config, bootstrap=None, registry_url=None, environ={"READER": "r-pass"})
    assert access.kafka.bootstrap == "127.0.0.1:9092"
    assert (access.kafka.security.username, access.kafka.security.password) == ("reader", "r-pass")


def test_without_a_file_the_environment_says_where() -> None:
    """As it always did."""
    access = read_access(None, bootstrap=None, registry_url=None, environ=ENVIRONMENT)
    assert (access.kafka.bootstrap, access.kafka.security.protocol) == ("elsewhere:1", "PLAINTEXT")
    assert access.registry is not None
    assert access.registry.urls == ("http://elsewhere:2",)
    assert read_access(None, bootstrap=None, registry_url=None, environ={}).registry is None


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"bootstrap.servers": "embedded"}, "bootstrap.servers"),
        ({"schema.registry.url": "embedded"}, "schema.registry.url"),
        ({**SECURITY, "sasl.jaas.config": "s3cr3t"}, "sasl.jaas.config"),
        ({"ssl.truststore.location": "/nowhere.jks"}, "ssl.truststore.type"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, properties: dict[str, str], key: str) -> None:
    """With the file, the key and what was expected, before anything is asked; never as nobody instead."""
    config = written(tmp_path, properties)
    with pytest.raises(ConfigRefusedError) as caught:
        read_access(config, bootstrap=None, registry_url=None, environ={})
    (source,) = caught.value.sources
    assert source.source == str(config)
    assert [finding.key for finding in source.findings if finding.is_error] == [key]
    assert "s3cr3t" not in str(source)


@pytest.mark.parametrize(
    ("override", "user"),
    [({}, "alice"), ({"consumer.override.sasl.jaas.config": CAROL}, "carol")],
)
def test_a_redrive_reads_letters_as_the_worker_s_consumers_do(override: dict[str, str], user: str) -> None:
    """At the real address of the broker; the connector may say who it is."""
    connector = {"name": "n", "connector.class": "FileStreamSource", "topic": "t", "file": "/tmp/x", **override}
    definition = read_definition(connector, worker={"key.converter": "string", "value.converter": "json"}).definition
    assert definition is not None
    feed = feed_of(definition, ClientSettings({"bootstrap.servers": "embedded", **SECURITY}, "real:1"))
    assert feed.settings.bootstrap == "real:1"
    assert (feed.settings.security.protocol, feed.settings.security.username) == ("SASL_PLAINTEXT", user)
    assert feed.connector == "n"
