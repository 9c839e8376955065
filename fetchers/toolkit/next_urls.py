"""Ways through pages by URLs that the source names: in a ``Link`` field or in the answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from yarl import URL

from fetchers.sdk.errors import Fatal
from fetchers.toolkit.http import redirects
from fetchers.toolkit.pagination import PageAnswer, PageRequest, Place, in_body

_LINK = re.compile(r"""<([^>]*)>((?:\s*;\s*[^\s=;,]+\s*(?:=\s*(?:"[^"]*"|[^\s;,"]*))?)*)""")
_REL = re.compile(r""";\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]*))""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _NextUrls:
    """What the two ways by URL have in common: the host must stay, and secrets are not stored."""

    hosts: Collection[str] = ()
    """Further hosts (``host`` or ``host:port``) that may be followed to; credentials are sent there."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Query fields with these texts are left out of the place; they are asked with again from the config."""

    is_page_growing: ClassVar[bool] = False
    """Taken for a URL that leaves nothing out; whoever cannot be sure looks back at the page before."""
    is_counted: ClassVar[bool] = False

    def first(self) -> Place:
        """None: the first page is at the configured URL."""
        return None

    def request(self, place: Place, base: PageRequest) -> PageRequest:
        """The URL that the source gave, with what it lacks of the configured query."""
        if place is None:
            return base
        url = URL(str(place))
        self._check(URL(base.url), url)
        return PageRequest(str(url), {name: text for name, text in base.query.items() if name not in url.query})

    def _place(self, answer: PageAnswer, target: str | None) -> Place:
        if not target:
            return None
        here = URL(answer.url)
        try:
            url = here.join(URL(target))
        except ValueError as error:
            message = "the source names a next page that is no URL"
            raise Fatal(message) from error
        self._check(here, url)
        shown = [item for item in url.query.items() if not any(text and text in item[1] for text in self.secrets)]
        return str(url if len(shown) == len(url.query) else url.with_query(shown))

    def _check(self, here: URL, url: URL) -> None:
        is_allowed = url.host in self.hosts or f"{url.host}:{url.port}" in self.hosts
        is_downgrade = (here.scheme, url.scheme) == ("https", "http")  # credentials would go there unencrypted
        if (
            url.scheme not in {"http", "https"}
            or is_downgrade
            or not (redirects.is_same_place(here, url) or is_allowed)
        ):
            message = f"the source names a next page on another host ({url.host}); allow it if that is right"
            raise Fatal(message)


@dataclass(frozen=True, slots=True)
class LinkHeader(_NextUrls):
    """``Link: <…>; rel="next"`` (RFC 8288)."""

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """The first target that is ``next``."""
        del place
        return self._place(answer, next_link(answer.links))


@dataclass(frozen=True, slots=True)
class NextUrl(_NextUrls):
    """The answer holds the URL of the next page at ``path``."""

    path: str = "next"

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """The URL of the answer."""
        del place
        target = in_body(answer.body, self.path)
        return self._place(answer, None if target is None else str(target))


def next_link(links: Sequence[str]) -> str | None:
    """The target of ``rel=next`` in the values of ``Link`` fields."""
    for value in links:
        for target, parameters in _LINK.findall(value):
            relations = next((quoted or bare for quoted, bare in _REL.findall(parameters)), "")
            if "next" in relations.lower().split():
                return str(target)
    return None
