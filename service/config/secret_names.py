"""Which keys name a secret although no config class declares them: those of clients and converters below a prefix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from metrics.redaction import SENSITIVE_NAME
from service.kafka.security import parse_jaas

_CREDENTIAL_KEYS = ("basic.auth.user.info", "sasl.jaas.config")


def names_a_secret(key: str) -> bool:
    """Whether a key's name says that its value must be shown nowhere."""
    return SENSITIVE_NAME.search(key) is not None or key.endswith(_CREDENTIAL_KEYS)


def secrets_in(properties: Mapping[str, str]) -> Iterator[str]:
    """Values of keys that are named like secrets, and the password within a longer value."""
    for key, value in properties.items():
        if not names_a_secret(key):
            continue
        yield value
        if key.endswith("user.info"):
            yield from value.split(":")[1:]
        if key.endswith("sasl.jaas.config"):
            yield from (text for name, text in parse_jaas(value).items() if SENSITIVE_NAME.search(name))
