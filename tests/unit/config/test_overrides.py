"""What connectors may change of their Kafka clients, under each policy."""

from __future__ import annotations

import pytest

from service.config.borrowed_keys import ASKED_FOR, FIXED_VALUES, REFUSED, SAFE_KEYS
from service.config.definition import read_definition
from service.config.overrides import JAAS_KEY, OverridePolicy, PolicyName, override_findings, policy_named
from service.config.worker import WorkerConfig

PACKAGE = "org.apache.kafka.connect.connector.policy"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = 'required username="u" password="p";'


def doubts(properties: dict[str, str], **worker: str) -> dict[str, str]:
    """Text of each error by key; worker keys as ``policy=…``, ``allowlist=…``."""
    prefix = "connector.client.config.override"
    keys = {f"{prefix}.{name}": value for name, value in worker.items()}
    return {found.key: found.message for found in override_findings(properties, worker=keys) if found.is_error}


@pytest.mark.parametrize("key", sorted(REFUSED))
@pytest.mark.parametrize("policy", PolicyName)
def test_what_is_dangerous_no_policy_allows(key: str, policy: PolicyName) -> None:
    """The text says why; naming it in the allow-list does not help."""
    (text,) = doubts({f"producer.override.{key}": "0"}, policy=policy, allowlist=key).values()
    assert text.endswith(f"{REFUSED[key]}.")


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in FIXED_VALUES.items() for value in values])
def test_what_is_so_anyway_may_be_written(key: str, value: str) -> None:
    """Configs that Connect runs often say it."""
    assert doubts({f"producer.override.{key}": value}) == {}


@pytest.mark.parametrize("key", sorted(SAFE_KEYS - {JAAS_KEY}))
def test_what_is_safe_the_default_allows(key: str) -> None:
    """No policy speaks against it; whether the value is right is another question."""
    assert OverridePolicy().doubt(key, "1") is None


@pytest.mark.parametrize("key", sorted(ASKED_FOR))
def test_what_touches_the_worker_must_be_asked_for(key: str) -> None:
    """By the policy All, or by name in the allow-list."""
    asked = {f"consumer.override.{key}": "x"}
    (text,) = doubts(asked).values()
    assert text.startswith(f"The 'Allowlist' policy does not allow '{key}' to be overridden")
    assert OverridePolicy.of({"connector.client.config.override.policy": "All"}).doubt(key, "x") is None
    listed = OverridePolicy(PolicyName.ALLOWLIST, frozenset({key}))
    assert listed.doubt(key, "x") is None


def test_the_policies_are_those_of_connect() -> None:
    """Each with what it allows."""
    tuned = {"producer.override.batch.size": "5000", "producer.override.sasl.mechanism": "PLAIN"}
    assert doubts(tuned, policy="All") == {}
    assert set(doubts(tuned, policy="None")) == set(tuned)
    assert set(doubts(tuned, policy="Principal")) == {"producer.override.batch.size"}
    assert set(doubts(tuned, allowlist="batch.size, linger.ms")) == {"producer.override.sasl.mechanism"}
    text = doubts(tuned, policy="None")["producer.override.batch.size"]
    assert text == "The 'None' policy does not allow 'batch.size' to be overridden in the connector configuration."


@pytest.mark.parametrize("policy", PolicyName)
def test_a_policy_may_be_named_by_its_class(policy: PolicyName) -> None:
    """As in Connect."""
    assert policy_named(f"{PACKAGE}.{policy}ConnectorClientConfigOverridePolicy") is policy
    assert policy_named(policy) is policy


def test_an_unknown_policy_refuses_the_worker() -> None:
    """Nobody would know what it allows."""
    (finding,) = WorkerConfig.parse({"connector.client.config.override.policy": "Some"}).findings
    assert "String must be one of: All, None, Principal, Allowlist" in finding.message


@pytest.mark.parametrize("module", [PLAIN, SCRAM])
def test_a_connector_may_have_a_login_of_its_own(module: str) -> None:
    """By the two modules that only name a user."""
    assert doubts({f"producer.override.{JAAS_KEY}": f"{module} {LOGIN}"}) == {}


@pytest.mark.parametrize(
    "value",
    [
        f"com.sun.security.auth.module.JndiLoginModule {LOGIN}",
        f"com.sun.security.auth.module.Krb5LoginModule {LOGIN}",
        f"{PLAIN} {LOGIN} com.sun.security.auth.module.JndiLoginModule required;",
        f'{PLAIN} required password="a;b" ; evil.Module required;',
        f"my.PlainLoginModule {LOGIN}",
        LOGIN,
        "",
        ";",
    ],
)
def test_other_login_modules_no_policy_allows(value: str) -> None:
    """Nor one that is hidden behind a good one."""
    (text,) = doubts({f"admin.override.{JAAS_KEY}": value}, policy="All").values()
    assert "login module" in text
    assert "password" not in text


def test_wrong_values_of_what_is_allowed_are_errors() -> None:
    """As the clients read them; a key that nothing reads is a warning."""
    properties = {"producer.override.compression.type": "zip", "consumer.override.zzz": "1"}
    found = override_findings(properties, worker={})
    assert {finding.key: finding.is_error for finding in found} == {
        "producer.override.compression.type": True,
        "consumer.override.zzz": False,
    }


def test_a_connector_with_a_refused_override_has_no_definition() -> None:
    """However its config came to the worker."""
    properties = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "producer.override.acks": "0"}
    reading = read_definition(properties, worker={"key.converter": "string", "value.converter": "json"})
    assert reading.definition is None
