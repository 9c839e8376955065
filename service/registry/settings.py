"""Where the registry is and how schemas are put there: the converter's keys of connect-avro-converter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from service.registry.subjects import SubjectStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUEST_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class RegistryFinding:
    """One doubt about one key: the value seen (masked where secret) and what was expected."""

    key: str
    value: str
    expected: str


@dataclass(frozen=True, kw_only=True)
class RegistrySettings:
    """`urls` carry no credentials."""

    urls: tuple[str, ...]
    logins: tuple[tuple[str, str] | None, ...] = field(default=(), repr=False)
    """User and password for each of the URLs: those that stood in it, or those that were given for all of them."""
    is_foreign: bool = False
    """Whether a connector's config names the registry and the worker's does not: its address is bounded then."""
    is_auto_registered: bool = True
    is_latest_used: bool = False
    key_strategy: SubjectStrategy = SubjectStrategy.TOPIC
    value_strategy: SubjectStrategy = SubjectStrategy.TOPIC
    request_seconds_max: float = REQUEST_SECONDS_MAX

    @classmethod
    def parse(
        cls, properties: Mapping[str, str], *, is_foreign: bool = False
    ) -> tuple[RegistrySettings, tuple[RegistryFinding, ...]]:
        """Read converter properties (without `value.converter.`); defaults stand in where there is a finding."""
        findings: list[RegistryFinding] = []
        places = _places(properties, findings)
        if properties.get("basic.auth.credentials.source", "URL").upper() == "USER_INFO":
            user, separator, password = properties.get("basic.auth.user.info", "").partition(":")
            if not separator:
                findings.append(RegistryFinding("basic.auth.user.info", "[hidden]", "user:password"))
            places = [(url, (user, password) if user else None) for url, _ in places]
        strategies = {}
        for side in ("key", "value"):
            key = f"{side}.subject.name.strategy"
            try:
                strategies[side] = SubjectStrategy.parse(properties.get(key, SubjectStrategy.TOPIC))
            except ValueError:
                expected = "one of " + ", ".join(SubjectStrategy)
                findings.append(RegistryFinding(key, properties[key], expected))
                strategies[side] = SubjectStrategy.TOPIC
        settings = cls(
            urls=tuple(url for url, _ in places),
            logins=tuple(login for _, login in places),
            is_foreign=is_foreign,
            is_auto_registered=_boolean(properties, "auto.register.schemas", default=True, findings=findings),
            is_latest_used=_boolean(properties, "use.latest.version", default=False, findings=findings),
            key_strategy=strategies["key"],
            value_strategy=strategies["value"],
        )
        return settings, tuple(findings)


def _places(properties: Mapping[str, str], findings: list[RegistryFinding]) -> list[tuple[str, tuple[str, str] | None]]:
    """Each URL, without the login that stands in it, and that login."""
    found: list[tuple[str, tuple[str, str] | None]] = []
    for text in properties.get("schema.registry.url", "").split(","):
        if not text.strip():
            continue
        parts = urlsplit(text.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            findings.append(RegistryFinding("schema.registry.url", parts.hostname or "[hidden]", "http(s)://host:port"))
            continue
        login = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        place = parts.netloc.rpartition("@")[2]
        found.append((urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")), login))
    if not found and not findings:
        findings.append(RegistryFinding("schema.registry.url", "", "the registry's URL, or several with commas"))
    return found


def _boolean(properties: Mapping[str, str], key: str, *, default: bool, findings: list[RegistryFinding]) -> bool:
    text = properties.get(key, str(default)).strip().lower()
    if text not in ("true", "false"):
        findings.append(RegistryFinding(key, properties[key], "true or false"))
        return default
    return text == "true"
