"""One list of the source: how its pages are asked for, and what their answers are cut into."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from yarl import URL

from fetchers.http import settings
from fetchers.http.answers import CutAnswer, RecordLayout, cut
from fetchers.http.config import HttpSourceConfig
from fetchers.http.templates import RequestTemplate
from fetchers.http.walk import Way
from fetchers.sdk import Clock, FetchContext, HttpResponse, RequestOptions, Retriable
from fetchers.toolkit.pagination import EndSign, PageAnswer, PageRequest, Pagination, Place
from fetchers.toolkit.rate_limits import shared_budget
from fetchers.toolkit.watermark import Reached

BODY_BYTES_ON_LOOP_MAX = 64 * 1024
"""A larger answer is cut in a thread, so that nobody else on the event loop waits for it; some 6 µs a record."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer, cut, and where the source says to go on."""

    place: Place
    answer: CutAnswer
    following: Place
    is_growing: bool = False
    """Whether there may be more at ``place`` by the time of a restart: it begins there again, then."""
    is_end: bool = False
    """Whether the answer itself says that it is the last, even if it names a place to go on with another time."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Everything about a list that stays the same while a task runs."""

    method: str
    template: RequestTemplate
    pagination: Pagination
    is_in_body: bool
    """Whether what tells the page stands in the body."""
    end: EndSign | None
    way: Way
    layout: RecordLayout
    options: RequestOptions

    def under(self, parent: str) -> Endpoint:
        """The list of this parent."""
        return replace(self, template=replace(self.template, parent=parent))

    async def ask(self, context: FetchContext, place: Place, reached: Reached) -> Answered:
        """Fetch and cut the page at ``place``; ``reached`` is what stands for ``{offset}``.

        Raises what the http client raises, and Fatal or Retriable where the answer is not what was configured.
        """
        is_first = place is None or place == self.pagination.first()
        filled = self.template.filled(self.layout.fields, reached, is_first=is_first)
        options = self.options.copy()
        if self.is_in_body:
            asked = self.pagination.request(place, PageRequest(filled.url, {}))
            options["query"], options["body"] = filled.query, self._body(filled.body, asked, place)
        else:
            asked = self.pagination.request(place, PageRequest(filled.url, filled.query))
            options["query"], options["body"] = asked.query, filled.body
        response = await context.http.request(self.method, asked.url, **options)
        if len(response.body) > BODY_BYTES_ON_LOOP_MAX:
            return await asyncio.to_thread(self._answered, place, response)
        return self._answered(place, response)

    def _body(self, body: bytes | None, asked: PageRequest, place: Place) -> bytes:
        """The body with what tells the page as members: counts as numbers, a cursor as the source gave it."""
        members: dict[str, Any] = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
        counts = {name: int(text) for name, text in asked.query.items() if text.isdecimal()}
        told = asked.query if isinstance(place, str) else counts
        return msgspec.json.encode(members | dict(told))

    def _answered(self, place: Place, response: HttpResponse) -> Answered:
        answer = cut(response, self.layout)
        if response.is_skipped:
            return Answered(place, answer, None)
        count = len(answer.records)
        told = PageAnswer(response.url, response.body, response.links, count, answer.records[-1] if count else None)
        following = self.pagination.following(place, told)
        is_end = self.end is not None and self.end.says_last(response.body)
        if self.end is not None and not is_end and following is None:
            message = f"the answer says at {self.end.path!r} that another page follows, and does not tell which"
            raise Retriable(message)
        is_growing = self.way.is_checked or self.pagination.is_page_growing
        return Answered(place, answer, following, is_growing, is_end)


def endpoint(config: HttpSourceConfig, *, clock: Clock) -> Endpoint:
    """The list whose records are delivered."""
    layout = RecordLayout(
        format=config.http_format,
        path=config.http_records_path,
        is_path_optional=config.http_records_missing == "empty",
        fields=config.http_offset_field,
        key=config.http_offset_key,
        has_identities=settings.can_slip(config),
    )
    return Endpoint(
        config.http_method,
        settings.template(config),
        settings.pagination(config, config.http_pagination_type),
        config.http_pagination_in == "body",
        settings.end_sign(config),
        Way(settings.can_slip(config), settings.is_checked(config)),
        layout,
        _options(config, clock),
    )


def parents_endpoint(config: HttpSourceConfig, *, clock: Clock) -> Endpoint | None:
    """The list whose records each have a list of their own; None where there is only one list."""
    if config.http_parent_url is None:
        return None
    kind = settings.parent_pagination(config)
    return Endpoint(
        "GET",
        RequestTemplate(config.http_parent_url, config.http_parent_query, None),
        settings.pagination(config, kind),
        is_in_body=False,
        end=settings.end_sign(config) if kind != "none" else None,
        way=Way(can_slip=False, is_checked=False),
        layout=RecordLayout("json", config.http_parent_records_path, is_path_optional=False, fields=(), key=None),
        options=_options(config, clock),
    )


def _options(config: HttpSourceConfig, clock: Clock) -> RequestOptions:
    secrets = settings.secrets(config)
    credential = "\n".join((str(URL(config.http_url).origin()), config.http_auth_user or "", *secrets))
    windows, headers = config.rate_windows(), settings.limit_headers(config)
    return {
        "headers": {name: value.get_secret_value() for name, value in config.http_header.items()},
        "auth": config.auth(clock=clock),
        "limits": config.limits(),
        "statuses": settings.statuses(config),
        "tls": config.tls(),
        "secrets": secrets,
        "is_page_refused": config.http_format != "json",  # JSON proves by itself that it is no page
        "budget": shared_budget(credential, windows, clock=clock, headers=headers),
    }
