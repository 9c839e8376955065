"""Secrets of connectors are told to whoever hides them, however the connector came to the worker."""

from __future__ import annotations

from service.job import make_job
from service.validation.secrets import secret_keys, secrets_of_connector

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="anne" password="s3cret-5";'
CONNECTOR = {
    "name": "h",
    "connector.class": "HttpSource",
    "topic": "t",
    "http.url": "http://h/",
    "http.header.x-key": "s3cret-1",
    "http.auth.password": "s3cret-2",
    "value.converter": "avro",
    "value.converter.schema.registry.url": "http://r:1",
    "value.converter.basic.auth.credentials.source": "USER_INFO",
    "value.converter.basic.auth.user.info": "bert:s3cret-3",
    "producer.override.sasl.jaas.config": JAAS,
}


def test_declared_secrets_and_those_named_so_are_found() -> None:
    """Also a password within a longer value; nothing else."""
    found = set(secrets_of_connector(CONNECTOR, {}))
    assert {"s3cret-1", "s3cret-2", "s3cret-3", "s3cret-5"} <= found
    assert not {"h", "t", "http://h/", "anne", "bert", "avro"} & found


def test_a_class_that_is_not_there_hides_no_less() -> None:
    """What is named like a secret is one."""
    assert list(secrets_of_connector({"connector.class": "no.such:Class", "my.password": "s3cret"}, {})) == ["s3cret"]


def test_a_connector_that_comes_later_is_hidden_too() -> None:
    """When its config is resolved for the first time."""
    job = make_job({"sasl.jaas.config": JAAS}, [])
    redactor = job.providers.redactor
    for secret in job.secrets():
        redactor.learn(secret)
    job.resolved(CONNECTOR, registry_url=None)
    told = redactor.redact(" ".join(f"s3cret-{number}" for number in (1, 2, 3, 5)))
    assert "s3cret" not in told


def test_keys_that_a_class_declares_as_secrets_are_known() -> None:
    """And those that are named like one; a class that is not imported yet declares nothing, so all its keys count."""
    assert secret_keys({**CONNECTOR, "file": "f"}) >= {
        key for key, value in CONNECTOR.items() if value.startswith("s3cret")
    }
    assert secret_keys({"connector.class": "FileStreamSource", "file": "f", "db.password": "x", "tasks.max": "1"}) == {
        "db.password"
    }
    stranger = {"connector.class": "no.such.module:Class", "name": "c", "tasks.max": "1", "pin": "1234"}
    assert secret_keys(stranger) == {"pin"}
