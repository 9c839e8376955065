"""The payload as one variant: its proof of being JSON, and look-ups by path.

The payload is parsed inside `[`payload`,{"<mark>":true}]`. The mark cannot be guessed, so it stands in second place
only when exactly one JSON value stands before it: whatever is before, after or between values is caught by one parse,
and so is a key that stands twice in one object.
"""

from __future__ import annotations

import secrets

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary name

PAYLOAD = "__headrace_payload"
VARIANT = "__headrace_variant"
_BARE_NUMBER = r"\A-?[0-9][0-9.eE+\-]*\z"
_MINUS, _ZERO, _NINE, _BRACKET, _BRACE = (ord(letter) for letter in "-09[{")
_MARK = f"m{secrets.token_hex(8)}"


def parsed_payload() -> Column:
    """The marked variant of the payload, null where it is no JSON."""
    return F.try_parse_json(F.concat(F.lit("["), F.col(PAYLOAD), F.lit(f',{{"{_MARK}":true}}]')))


def is_one_value() -> Column:
    """True where the payload is exactly one JSON value without a key that stands twice."""
    mark = F.variant_get(F.col(VARIANT), f"$[1].{_MARK}", "boolean")
    return F.coalesce(mark, F.lit(False))  # noqa: FBT003 - a literal


def variant_at(names: tuple[str, ...]) -> Column | None:
    """The value at that path of object keys (SQL null: missing); None for names no path can express."""
    path = _path(names)
    return None if path is None else F.variant_get(F.col(VARIANT), path, "variant")


def text_at(names: tuple[str, ...]) -> Column | None:
    """The same value as text, without quotes."""
    path = _path(names)
    return None if path is None else F.try_variant_get(F.col(VARIANT), path, "string")


def is_bare(text: Column) -> Column:
    """Where a text read from the payload may have stood there without quotes: number, boolean, object, array."""
    first = F.ascii(text)
    is_like_number = ((first == _MINUS) | first.between(_ZERO, _NINE)) & text.rlike(_BARE_NUMBER)
    return is_like_number | first.isin(_BRACKET, _BRACE) | text.isin("true", "false")


def keys_at(names: tuple[str, ...]) -> Column | None:
    """The keys of the object at that path, as an array (null where there is no object)."""
    path = _path(names)
    if path is None:
        return None
    return F.map_keys(F.try_variant_get(F.col(VARIANT), path, "map<string,variant>"))


def _path(names: tuple[str, ...]) -> str | None:
    steps = [_step(name) for name in names]
    return None if None in steps else "$[0]" + "".join(step for step in steps if step)


def _step(name: str) -> str | None:
    if not name or "?" in name:
        return None
    if '"' not in name:
        return f'["{name}"]'
    return None if "'" in name else f"['{name}']"
