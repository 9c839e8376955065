"""Keys of another product's connector that nothing here reads: which may be left out, and which ask for something else.

A config that runs with that product may hide columns, filter rows, or encrypt its connection by a key that is not known
here. Leaving it out without a word would show what was to be hidden, or drop what somebody relies on. So such a key is
refused where its value asks for something else than what is done here, else told in a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from fetchers.sdk import Finding, Severity, TopicsConfig
from fetchers.sdk.config import ParsedConfig

ANY: Final = None
"""Whatever it says, nothing is lost by leaving it out."""
NONE: Final = ("",)
"""Any value asks for something that is not done here."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A key, or all that begin so where it ends with a dot or has a table's name behind it."""

    key: str
    same: tuple[str, ...] | None
    """Values, in lower case, under which the other connector does what is done here; None: all."""
    told: str
    """What is done here, and what to do where that is not enough."""
    of: tuple[str, ...] = ()
    """Of several connectors that share a table those that have the key; none named: all."""

    def takes(self, value: str) -> bool:
        """Whether a config with this value is right without it."""
        return self.same is None or value.strip().lower() in self.same


class UnreadKeysConfig(TopicsConfig):
    """Base of config classes that take another product's configs."""

    unread_keys: ClassVar[tuple[Unread, ...]] = ()
    """In the order in which they are looked through: what is more exact comes first."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Make the keys known: what is to be said of them ``parse`` says."""
        super().__pydantic_init_subclass__(**kwargs)
        cls.free_prefixes = tuple(dict.fromkeys((*cls.free_prefixes, *(one.key for one in cls.unread_keys))))

    @classmethod
    def unread(cls, key: str) -> Unread | None:
        """The entry of a key that no field reads; None: it is not one of the other product's."""
        return next((one for one in cls.unread_keys if key.startswith(one.key)), None)

    @classmethod
    def parse(cls, properties: Mapping[str, str | None]) -> ParsedConfig[Self]:
        """As every config, and what is to be said of the keys that nothing reads."""
        parsed = super().parse(properties)
        told = tuple(cls._unread(properties))
        config = None if any(finding.is_error for finding in told) else parsed.config
        return ParsedConfig(config, (*parsed.findings, *told))

    @classmethod
    def _unread(cls, properties: Mapping[str, str | None]) -> Iterator[Finding]:
        known = {key.name for key in cls.config_keys()}
        prefixes = cls._map_prefixes()
        for key, value in properties.items():
            is_read = key in known or key.startswith(prefixes)
            entry = None if is_read else cls.unread(key)
            if entry is not None and value is not None:
                is_right = entry.takes(value)
                message = entry.told if not is_right else f"Nothing reads it. {entry.told}"
                yield Finding(key, None, message, Severity.WARNING if is_right else Severity.ERROR)
