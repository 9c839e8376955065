"""Where the registry is and how schemas are put there: the converter's keys of connect-avro-converter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from fetchers.sdk import Finding
from service.registry.subjects import SubjectStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUEST_SECONDS_MAX = 10.0


_Doubt = tuple[str, str, str]
"""A key, the value seen (masked where secret) and what was expected."""


@dataclass(frozen=True, kw_only=True)
class RegistrySettings:
    """How a schema registry is reached and what may be written there; credentials are never part of `urls`."""

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
        cls, properties: Mapping[str, str], *, prefix: str = "", is_foreign: bool = False
    ) -> tuple[RegistrySettings, tuple[Finding, ...]]:
        """Read converter properties, without the `prefix` that findings name; defaults stand in where there is one."""
        doubts: list[_Doubt] = []
        places = _places(properties, doubts)
        if properties.get("basic.auth.credentials.source", "URL").upper() == "USER_INFO":
            user, separator, password = properties.get("basic.auth.user.info", "").partition(":")
            if not separator:
                doubts.append(("basic.auth.user.info", "[hidden]", "user:password"))
            places = [(url, (user, password) if user else None) for url, _ in places]
        strategies = {}
        for side in ("key", "value"):
            key = f"{side}.subject.name.strategy"
            try:
                strategies[side] = SubjectStrategy.parse(properties.get(key, SubjectStrategy.TOPIC))
            except ValueError:
                expected = "one of " + ", ".join(SubjectStrategy)
                doubts.append((key, properties[key], expected))
                strategies[side] = SubjectStrategy.TOPIC
        settings = cls(
            urls=tuple(url for url, _ in places),
            logins=tuple(login for _, login in places),
            is_foreign=is_foreign,
            is_auto_registered=_boolean(properties, "auto.register.schemas", default=True, doubts=doubts),
            is_latest_used=_boolean(properties, "use.latest.version", default=False, doubts=doubts),
            key_strategy=strategies["key"],
            value_strategy=strategies["value"],
        )
        return settings, tuple(_finding(prefix + key, value, expected) for key, value, expected in doubts)


def _finding(key: str, value: str, expected: str) -> Finding:
    return Finding(key, value, f"Invalid value {value} for configuration {key}: Expected {expected}")


def _places(properties: Mapping[str, str], doubts: list[_Doubt]) -> list[tuple[str, tuple[str, str] | None]]:
    """Each URL, without the login that stands in it, and that login."""
    found: list[tuple[str, tuple[str, str] | None]] = []
    for text in properties.get("schema.registry.url", "").split(","):
        if not text.strip():
            continue
        parts = urlsplit(text.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            doubts.append(("schema.registry.url", parts.hostname or "[hidden]", "http(s)://host:port"))
            continue
        login = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        place = parts.netloc.rpartition("@")[2]
        found.append((urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")), login))
    if not found and not doubts:
        doubts.append(("schema.registry.url", "", "the registry's URL, or several with commas"))
    return found


def _boolean(properties: Mapping[str, str], key: str, *, default: bool, doubts: list[_Doubt]) -> bool:
    text = properties.get(key, str(default)).strip().lower()
    if text not in ("true", "false"):
        doubts.append((key, properties[key], "true or false"))
        return default
    return text == "true"
