"""Stored offsets inside requests: ``{offset}`` is the value read last, ``{offset.<field>}`` the same by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from fetchers.toolkit.watermark import Watermark

_PLACEHOLDER = re.compile(r"\{offset(?:\.([^{}]+))?\}")


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """A request with placeholders."""

    url: str
    query: Mapping[str, str]
    body: str | None

    def fields(self) -> set[str | None]:
        """Names asked for; None for the bare ``{offset}``."""
        texts = (self.url, *self.query.values(), self.body or "")
        return {match.group(1) for text in texts for match in _PLACEHOLDER.finditer(text)}

    def filled(self, value: Watermark) -> FilledRequest:
        """The request for everything from ``value`` on; encoded as each place needs it."""
        text = "" if value is None else str(value)
        is_json = self.body is not None and self.body.lstrip()[:1] in {"{", "["}
        body = None if self.body is None else _fill(self.body, text, _in_json if is_json else str)
        query = {name: _fill(part, text, str) for name, part in self.query.items()}
        return FilledRequest(_fill(self.url, text, _in_url), query, None if body is None else body.encode())


@dataclass(frozen=True, slots=True)
class FilledRequest:
    """A request without placeholders; the query is not yet encoded."""

    url: str
    query: Mapping[str, str]
    body: bytes | None


def _fill(template: str, text: str, encode: Callable[[str], str]) -> str:
    return _PLACEHOLDER.sub(lambda _match: encode(text), template)


def _in_url(text: str) -> str:
    return quote(text, safe="")


def _in_json(text: str) -> str:
    """As it stands between quotation marks; numbers may stand without them."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
