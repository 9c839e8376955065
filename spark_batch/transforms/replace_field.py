"""`ReplaceField`: leaves fields out, and gives others another name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spark_batch.avro_types import Record
from spark_batch.transforms.change import Taken
from spark_batch.transforms.fields import NULL_KEY, OfFields, Opened
from spark_batch.transforms.form import FormKey, KeyKind, KeysRefused, KeyValues, Side


@dataclass(frozen=True)
class ReplaceField(OfFields):
    """Leaves fields out, and gives others another name.

    Where a field takes the name of one that was left out, it is its own value that stands under the name (Connect's
    class would put that of the field left out there).
    """

    exclude: frozenset[str] = frozenset()
    include: frozenset[str] = frozenset()
    renames: tuple[tuple[str, str], ...] = ()
    """Names before and after."""

    NAME: ClassVar[str] = "ReplaceField"
    ABOUT: ClassVar[str] = "Leaves fields out, and gives others another name."
    PURPOSE: ClassVar[str] = "field replacement"
    NAMING_KEY: ClassVar[str] = "renames"
    REMOVED_KEYS: ClassVar[Mapping[str, str]] = {"blacklist": "exclude", "whitelist": "include"}
    """Kafka has them no longer since 4.0 (KIP-629, https://kafka.apache.org/40/documentation.html#upgrade_400_notable):
    unread, they would let fields through."""
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("exclude", "Fields to leave out, also where they are in ``include``.", KeyKind.NAMES, default=()),
        FormKey("include", "Fields to keep; all when not given.", KeyKind.NAMES, default=()),
        FormKey("renames", "Other names for fields: ``before:after``, with commas between.", KeyKind.NAMES, default=()),
        NULL_KEY,
    )

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> ReplaceField:
        """Refuses renames that are no pairs."""
        del is_sink
        # As Java splits a text: what is empty at its end is no part.
        pairs = [pair.rstrip(":").split(":") for pair in values["renames"]]
        if any(len(pair) != 2 for pair in pairs):  # noqa: PLR2004 - before and after
            raise KeysRefused(("renames", "pairs of names, such as foo:bar,abc:xyz"))
        return cls(
            side,
            values["replace.null.with.default"],
            frozenset(values["exclude"]),
            frozenset(values["include"]),
            tuple(dict(pairs).items()),
        )

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """Those that are kept, in their order."""
        del name
        renames = dict(self.renames)
        return tuple(
            Taken(renames.get(field.name, field.name), (field.name,))
            for field in record.fields
            if self._is_kept(field.name)
        )

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """Those that are kept, unread."""
        del value_of
        renames = dict(self.renames)
        return {renames.get(name, name): value for name, value in fields.items() if self._is_kept(name)}

    def _is_kept(self, name: str) -> bool:
        return name not in self.exclude and (not self.include or name in self.include)
