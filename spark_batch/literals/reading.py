"""Strict JSON (RFC 8259): one value, UTF-8, no key twice, numbers kept as they are written.

What the standard leaves open is decided here: a byte order mark is refused, so are lone surrogates (no UTF-8 text can
hold them) and nesting beyond `DEPTH_MAX`; numbers of any size are JSON (their range is a matter of the contract).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NoReturn

from spark_batch.outcome import Reason, Rejection

if TYPE_CHECKING:
    from spark_batch.avro_types import JsonValue

DEPTH_MAX = 500
"""Levels of arrays and objects a payload may have (Python's and Spark's parsers both reach further)."""
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class Number(str):
    """A number as it is written in the payload."""

    __slots__ = ()


class RejectedPayload(Exception):
    """The payload is refused; carries why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.rejection = Rejection(reason, message)


def parse(payload: bytes) -> JsonValue:
    """The payload as Python values, numbers as `Number`; raises RejectedPayload."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RejectedPayload(Reason.INVALID_UTF8, f"not UTF-8 at byte {error.start}") from None
    _refuse_depth(text)
    if _SURROGATE_ESCAPE.search(text):
        _refuse_lone_surrogates(text)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise RejectedPayload(Reason.MALFORMED_JSON, f"not JSON at character {error.pos}") from None


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise RejectedPayload(Reason.DUPLICATE_KEY, f"key {name[:100]!r} stands twice in one object")
            seen.add(name)
    return values


def _refuse_constant(_: str) -> NoReturn:
    raise RejectedPayload(Reason.MALFORMED_JSON, "NaN and the infinities are not JSON")


def _refuse_depth(text: str) -> None:
    if text.count("{") + text.count("[") <= DEPTH_MAX:
        return
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        part = match.group()
        if part in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise RejectedPayload(Reason.TOO_DEEP, f"more than {DEPTH_MAX} levels of nesting")
        elif part in "]}":
            depth -= 1


def _refuse_lone_surrogates(text: str) -> None:
    for match in _STRING.finditer(text):
        if not _SURROGATE_ESCAPE.search(match.group()):
            continue
        try:
            json.loads(match.group(), strict=False).encode()
        except json.JSONDecodeError:
            continue
        except UnicodeEncodeError:
            message = f"a lone surrogate in the text at character {match.start()}"
            raise RejectedPayload(Reason.LONE_SURROGATE, message) from None


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=Number,
    parse_float=Number,
    parse_constant=_refuse_constant,
)
