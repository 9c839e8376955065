"""Which keys name a secret although no config class declares them: those of clients and converters below a prefix."""

from __future__ import annotations

from metrics.redaction import SENSITIVE_NAME

_CREDENTIAL_KEYS = ("basic.auth.user.info", "sasl.jaas.config")


def names_a_secret(key: str) -> bool:
    """Whether a key's name says that its value must be shown nowhere."""
    return SENSITIVE_NAME.search(key) is not None or key.endswith(_CREDENTIAL_KEYS)
