"""Stored offsets inside requests: ``{offset}`` is the value read last, ``{offset.<field>}`` the same by name.

Where several fields make the offset, each has its own value, and only the names tell which is meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fetchers.toolkit.watermark import Reached

_PLACEHOLDER = re.compile(r"\{offset(?:\.([^{}]+))?\}")


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """URL, query and body of a request, with ``{offset}`` where the value that was read last belongs."""

    url: str
    query: Mapping[str, str]
    body: str | None

    def fields(self) -> set[str | None]:
        """Names asked for; None for the bare ``{offset}``."""
        texts = (self.url, *self.query.values(), self.body or "")
        return {match.group(1) for text in texts for match in _PLACEHOLDER.finditer(text)}

    def filled(self, names: Sequence[str], reached: Reached) -> FilledRequest:
        """The request for everything from what was ``reached`` on; encoded as each place needs it."""
        texts = _texts(names, reached)
        is_json = self.body is not None and self.body.lstrip()[:1] in {"{", "["}
        body = None if self.body is None else _fill(self.body, texts, _in_json if is_json else str)
        query = {name: _fill(part, texts, str) for name, part in self.query.items()}
        return FilledRequest(_fill(self.url, texts, _in_url), query, None if body is None else body.encode())


@dataclass(frozen=True, slots=True)
class FilledRequest:
    """A request without placeholders; the query is not yet encoded."""

    url: str
    query: Mapping[str, str]
    body: bytes | None


def _texts(names: Sequence[str], reached: Reached) -> Mapping[str | None, str]:
    """What stands for each placeholder; None is the bare one."""
    if isinstance(reached, tuple):
        return dict(zip(names, map(str, reached), strict=True))
    text = "" if reached is None else str(reached)
    return {None: text, **dict.fromkeys(names, text)}


def _fill(template: str, texts: Mapping[str | None, str], encode: Callable[[str], str]) -> str:
    return _PLACEHOLDER.sub(lambda match: encode(texts[match.group(1)]), template)


def _in_url(text: str) -> str:
    return quote(text, safe="")


def _in_json(text: str) -> str:
    """As it stands between quotation marks; numbers may stand without them."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
