"""Stored offsets inside requests: ``{offset}`` is the value read last, ``{offset.<field>}`` the same by name.

Where several fields make the offset, each has its own value, and only the names tell which is meant. ``{offset:s}`` and
``{offset:ms}`` are instants in seconds and milliseconds since 1970, rounded down: asking from a little earlier brings
nothing that is not known. ``{parent}`` is the id of the record whose list is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast
from urllib.parse import quote

from fetchers.sdk.errors import Fatal
from fetchers.toolkit.watermark import Reached, order_of

_PLACEHOLDER = re.compile(r"\{(?:offset(?:\.([^{}:]+))?(?::(s|ms))?|(parent))\}")


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """URL, query and body of a request, with ``{offset}`` where the value that was read last belongs."""

    url: str
    query: Mapping[str, str]
    body: str | None
    first_query: Mapping[str, str] = field(default_factory=dict)
    """Query fields of the first page only."""
    parent: str | None = None
    """What stands for ``{parent}``; None leaves it as it is."""

    def fields(self) -> set[str | None]:
        """Names of offset fields asked for; None for the bare ``{offset}``."""
        return {match.group(1) for match in self._placeholders() if not match.group(3)}

    @property
    def has_parent(self) -> bool:
        """Whether ``{parent}`` is asked for."""
        return any(match.group(3) for match in self._placeholders())

    def _placeholders(self) -> Sequence[re.Match[str]]:
        texts = (self.url, *self.query.values(), *self.first_query.values(), self.body or "")
        return [match for text in texts for match in _PLACEHOLDER.finditer(text)]

    def filled(self, names: Sequence[str], reached: Reached, *, is_first: bool = True) -> FilledRequest:
        """The request for everything from what was ``reached`` on; encoded as each place needs it.

        ``is_first``: for the first page. Raises Fatal where an instant is asked for and none was reached.
        """
        values = _values(names, reached)
        is_json = self.body is not None and self.body.lstrip()[:1] in {"{", "["}

        def fill(template: str, encode: Callable[[str], str]) -> str:
            return _PLACEHOLDER.sub(lambda match: encode(self._text(match, values)), template)

        body = None if self.body is None else fill(self.body, _in_json if is_json else str).encode()
        query = {**self.query, **(self.first_query if is_first else {})}
        return FilledRequest(fill(self.url, _in_url), {name: fill(part, str) for name, part in query.items()}, body)

    def _text(self, match: re.Match[str], values: Mapping[str | None, str | float | None]) -> str:
        if match.group(3):
            return match.group() if self.parent is None else self.parent
        value = values[match.group(1)]
        if match.group(2) and value is not None:
            return _epoch(value, match.group(2))
        return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class FilledRequest:
    """A request without placeholders; the query is not yet encoded."""

    url: str
    query: Mapping[str, str]
    body: bytes | None


def _values(names: Sequence[str], reached: Reached) -> Mapping[str | None, str | float | None]:
    """What stands for each placeholder; None is the bare one."""
    if isinstance(reached, tuple):
        return dict(zip(names, reached, strict=True))
    return {None: reached, **dict.fromkeys(names, reached)}


def _epoch(value: str | float, unit: str) -> str:
    """An instant as whole seconds or milliseconds since 1970; a number is one already."""
    kind, order = order_of(value)
    if kind == "number":
        return str(value)
    if kind != "time":
        message = "the request asks for the offset as an instant, and the offset field holds none (ISO 8601)"
        raise Fatal(message)
    instant, fraction = cast("tuple[datetime, str]", order)
    seconds = int(instant.timestamp())
    return str(seconds if unit == "s" else seconds * 1000 + int(f"{fraction}000"[:3]))


def _in_url(text: str) -> str:
    return quote(text, safe="")


def _in_json(text: str) -> str:
    """As it stands between quotation marks; numbers may stand without them."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
