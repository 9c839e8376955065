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
    """`urls` carry no credentials; `user` and `password` are sent to each of them."""

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    is_auto_registered: bool = True
    is_latest_used: bool = False
    key_strategy: SubjectStrategy = SubjectStrategy.TOPIC
    value_strategy: SubjectStrategy = SubjectStrategy.TOPIC
    request_seconds_max: float = REQUEST_SECONDS_MAX

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> tuple[RegistrySettings, tuple[RegistryFinding, ...]]:
        """Read converter properties (without `value.converter.`); defaults stand in where there is a finding."""
        findings: list[RegistryFinding] = []
        urls, user, password = _urls(properties, findings)
        if properties.get("basic.auth.credentials.source", "URL").upper() == "USER_INFO":
            user, separator, password = properties.get("basic.auth.user.info", "").partition(":")
            if not separator:
                findings.append(RegistryFinding("basic.auth.user.info", "[hidden]", "user:password"))
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
            urls=urls,
            user=user or None,
            password=password,
            is_auto_registered=_boolean(properties, "auto.register.schemas", default=True, findings=findings),
            is_latest_used=_boolean(properties, "use.latest.version", default=False, findings=findings),
            key_strategy=strategies["key"],
            value_strategy=strategies["value"],
        )
        return settings, tuple(findings)


def _urls(
    properties: Mapping[str, str], findings: list[RegistryFinding]
) -> tuple[tuple[str, ...], str | None, str | None]:
    urls: list[str] = []
    user: str | None = None
    password: str | None = None
    for text in properties.get("schema.registry.url", "").split(","):
        if not text.strip():
            continue
        parts = urlsplit(text.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            findings.append(RegistryFinding("schema.registry.url", parts.hostname or "[hidden]", "http(s)://host:port"))
            continue
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
        place = parts.netloc.rpartition("@")[2]
        urls.append(urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")))
    if not urls and not findings:
        findings.append(RegistryFinding("schema.registry.url", "", "the registry's URL, or several with commas"))
    return tuple(urls), user, password


def _boolean(properties: Mapping[str, str], key: str, *, default: bool, findings: list[RegistryFinding]) -> bool:
    text = properties.get(key, str(default)).strip().lower()
    if text not in ("true", "false"):
        findings.append(RegistryFinding(key, properties[key], "true or false"))
        return default
    return text == "true"
