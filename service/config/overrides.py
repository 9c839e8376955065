"""What connectors may change of their Kafka clients: ``connector.client.config.override.policy`` (KIP-458).

``All``, ``None``, ``Principal`` and ``Allowlist`` as in Connect, by word or class name. Some keys no policy allows,
because they would run foreign code in the worker or break what it promises (``client_keys.REFUSED``). The default is
``Allowlist`` without a list: what is known to be harmless, and what nothing reads anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from fetchers.sdk import Finding
from fetchers.sdk.config import HIDDEN
from fetchers.sdk.reach import AllowedPaths
from service.config.borrowed_keys import ASKED_FOR, FIXED_VALUES, PRINCIPAL_KEYS, REFUSED
from service.config.reach import reach_of
from service.config.secret_names import names_a_secret
from service.kafka.properties import read_settings

ROLES = ("producer", "consumer", "admin")
POLICY_KEY = "connector.client.config.override.policy"
ALLOWLIST_KEY = "connector.client.config.override.allowlist"
JAAS_KEY = "sasl.jaas.config"
LOGIN_MODULES = frozenset(
    {
        "org.apache.kafka.common.security.plain.PlainLoginModule",
        "org.apache.kafka.common.security.scram.ScramLoginModule",
    }
)
_CLASS_END = "ConnectorClientConfigOverridePolicy"
_QUOTED = re.compile(r""""(?:[^"\\]|\\.?)*+(?:"|\Z)|'(?:[^'\\]|\\.?)*+(?:'|\Z)""", re.DOTALL)
"""Text in quotes, up to the end where they do not end: looking for the end from each of them takes the square."""
_MODULE = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)


class PolicyName(StrEnum):
    """Connect's policies for overrides of Kafka clients, by the word that names each (KIP-458)."""

    ALL = "All"
    NONE = "None"
    PRINCIPAL = "Principal"
    ALLOWLIST = "Allowlist"


@dataclass(frozen=True, slots=True)
class OverridePolicy:
    """Says which overrides are allowed."""

    name: PolicyName = PolicyName.ALLOWLIST
    allowed: frozenset[str] | None = None
    """Of ``Allowlist``: what the worker's config lists; None where it lists nothing."""

    @classmethod
    def of(cls, worker: Mapping[str, str]) -> OverridePolicy:
        """The worker's policy; an unknown one is refused with the worker's config (``policy_named``)."""
        name = policy_named(worker.get(POLICY_KEY, "")) or PolicyName.ALLOWLIST
        listed = worker.get(ALLOWLIST_KEY)
        if name is not PolicyName.ALLOWLIST or listed is None:
            return cls(name)
        return cls(name, frozenset(key.strip() for key in listed.split(",") if key.strip()))

    def doubt(self, key: str, value: str) -> str | None:
        """Why a client's key (without its prefix) may not have this value; None where it may."""
        reason = _refusal(key, value)
        if reason is not None:
            return f"'{key}' may not be overridden in the connector configuration: {reason}."
        if self._allows(key):
            return None
        why = f" ({ASKED_FOR[key]})" if key in ASKED_FOR else ""
        return f"The '{self.name}' policy does not allow '{key}' to be overridden in the connector configuration.{why}"

    def _allows(self, key: str) -> bool:
        if self.name is PolicyName.PRINCIPAL:
            return key in PRINCIPAL_KEYS
        if self.name is PolicyName.ALLOWLIST:
            return key not in ASKED_FOR if self.allowed is None else key in self.allowed
        return self.name is PolicyName.ALL


def policy_named(text: str) -> PolicyName | None:
    """The policy of that name, or of Connect's class of that name; the default where there is no name."""
    word = text.strip().rpartition(".")[2].removesuffix(_CLASS_END)
    return PolicyName.ALLOWLIST if not word else next((name for name in PolicyName if name == word), None)


def overrides_of(properties: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Each override of a connector's config: its whole key, the client's key, the value."""
    for role in ROLES:
        prefix = f"{role}.override."
        for key, value in properties.items():
            if key.startswith(prefix):
                yield key, key.removeprefix(prefix), value


def override_findings(properties: Mapping[str, str], *, worker: Mapping[str, str]) -> tuple[Finding, ...]:
    """What is wrong with a connector's overrides: what the policy refuses, then wrong values of what it allows."""
    policy, paths = OverridePolicy.of(worker), reach_of(worker).paths
    refused = [
        Finding(key, _shown(key, value), doubt)
        for key, name, value in overrides_of(properties)
        if (doubt := policy.doubt(name, value) or _path_doubt(name, value, paths)) is not None
    ]
    strangers = {finding.key for finding in refused} | {
        key for key, name, _ in overrides_of(properties) if name in FIXED_VALUES
    }
    return (*refused, *(found for found in _doubts(properties, worker) if found.key not in strangers))


def _path_doubt(key: str, value: str, paths: AllowedPaths) -> str | None:
    """A policy may allow keys that name files; which files may be named is said elsewhere."""
    return paths.refusal(value.strip()) if key.endswith(".location") and value.strip() else None


def _doubts(properties: Mapping[str, str], worker: Mapping[str, str]) -> Iterator[Finding]:
    """What the clients' own reader says about the overrides."""
    given = {key.partition(".")[0] for key, _, _ in overrides_of(properties)}
    for role in (role for role in ROLES if role in given):
        _, doubts = read_settings(worker, connector=properties, role=role)
        yield from (doubt for doubt in doubts if doubt.key.startswith(f"{role}.override."))


def _refusal(key: str, value: str) -> str | None:
    """Why no policy allows it."""
    if value.strip().lower() in FIXED_VALUES.get(key, ()):
        return None
    if key == JAAS_KEY:
        return _jaas_refusal(value)
    return REFUSED.get(key)


def _jaas_refusal(value: str) -> str | None:
    """Login modules are classes too, and some of them ask whatever address they are given (CVE-2023-25194)."""
    entries = [entry for entry in _QUOTED.sub('""', value).split(";") if entry.strip()]
    modules = [match[1] if (match := _MODULE.match(entry)) else None for entry in entries]
    if modules and LOGIN_MODULES.issuperset(modules):
        return None
    known = ", ".join(sorted(name.rpartition(".")[2] for name in LOGIN_MODULES))
    return f"its login module must be one of {known}, others could make the worker ask any address"


def _shown(key: str, value: str) -> str:
    return HIDDEN if names_a_secret(key) else value
