"""Makes values of the toolkit of a config."""

from __future__ import annotations

import re

from fetchers.http.config import HttpSourceConfig, PaginationType
from fetchers.http.templates import RequestTemplate
from fetchers.sdk import (
    AnswerRule,
    StatusTable,
    StatusVerdict,
)
from fetchers.toolkit.limit_headers import LimitHeaders
from fetchers.toolkit.next_urls import LinkHeader, NextUrl
from fetchers.toolkit.pagination import (
    CursorInBody,
    CursorOfRecord,
    EndSign,
    FromMark,
    OffsetLimit,
    PageNumber,
    Pagination,
    SinglePage,
)
from fetchers.toolkit.watermark import Reached

STATUS = re.compile(
    r"([1-5])(\d\d|xx)(?:\s+(?:header\.(?P<header>[^\s=]+)|body\.(?P<path>[^\s=]+))(?:\s*=\s*(?P<text>.+))?)?\Z",
    re.ASCII,
)
STATUS_VERDICTS = {
    "http.status.limited": StatusVerdict.RATE_LIMITED,
    "http.status.retry": StatusVerdict.RETRY,
    "http.status.skip": StatusVerdict.SKIP,
    "http.status.fatal": StatusVerdict.FATAL,
}
SLIPPING = frozenset({"page_number", "offset", "link", "next_url"})
"""Ways by places that are counted, or may be: a URL that the source gives can hold a page number."""
_SECRET_NAME = re.compile(r"key|token|secret|passw|sig|auth|session", re.IGNORECASE)


def initial(config: HttpSourceConfig) -> Reached:
    """What to begin with: one text, or one for each offset field."""
    text = config.http_offset_initial
    if text is None or len(config.http_offset_field) <= 1:
        return text
    return tuple(part.strip() for part in text.split(","))


def template(config: HttpSourceConfig) -> RequestTemplate:
    """The request with its placeholders, as the config gives it."""
    return RequestTemplate(
        config.http_url, config.http_query, config.http_body, first_query=config.http_pagination_first_query
    )


def statuses(config: HttpSourceConfig) -> StatusTable:
    """What is done about each answer: the defaults, overridden by ``http.status.*``."""
    table, rules = StatusTable(), []
    for key, verdict in STATUS_VERDICTS.items():
        for match in filter(None, map(STATUS.match, getattr(config, key.replace(".", "_")))):
            first = int(match[1]) * 100
            found = range(first, first + 100) if match[2] == "xx" else (first + int(match[2]),)
            if match["header"] or match["path"]:
                rules.append(AnswerRule(verdict, frozenset(found), match["header"], match["path"], match["text"]))
            else:
                table = table.with_verdict(verdict, found)
    return StatusTable(table.special, rules)


def limit_headers(config: HttpSourceConfig) -> LimitHeaders:
    """The header fields in which the source tells how much of its limit is left."""
    return LimitHeaders(
        remaining=config.http_rate_remaining_header,
        reset=config.http_rate_reset_header,
        quota=config.http_rate_quota_header,
        bucket=config.http_rate_bucket_header,
        leak_per_second=config.http_rate_bucket_leak,
        spare=config.http_rate_spare,
    )


def can_slip(config: HttpSourceConfig) -> bool:
    """Whether records can cross the border of two pages, and can be known again there."""
    kind = config.http_pagination_type
    is_slipping = kind in SLIPPING or (kind == "cursor" and config.http_pagination_cursor_field is not None)
    return bool(config.http_offset_field) and is_slipping


def is_checked(config: HttpSourceConfig) -> bool:
    """Whether it is proven that none has."""
    return can_slip(config) and config.http_pagination_checks_moves


def end_sign(config: HttpSourceConfig) -> EndSign | None:
    """The field that says whether an answer is the last, if there is one."""
    if config.http_pagination_more_path is not None:
        return EndSign(config.http_pagination_more_path, is_last_if="false")
    if config.http_pagination_end_path is not None:
        return EndSign(config.http_pagination_end_path, is_last_if="true")
    return None


def parent_pagination(config: HttpSourceConfig) -> PaginationType:
    """How the list of parents is paged."""
    if config.http_parent_pagination_type is not None:
        return config.http_parent_pagination_type
    return "none" if config.http_pagination_type == "mark" else config.http_pagination_type


def pagination(config: HttpSourceConfig, kind: PaginationType) -> Pagination:
    """The way of this ``kind`` through the pages."""
    parameters = (config.http_pagination_limit_parameter, config.http_pagination_cursor_parameter)
    limit, hosts, hidden = config.http_pagination_limit, config.http_pagination_hosts, secrets(config)
    field, path = config.http_pagination_cursor_field, config.http_pagination_cursor_path or ""
    ways: dict[PaginationType, Pagination] = {
        "none": SinglePage(),
        "page_number": PageNumber(config.http_pagination_page_parameter, config.http_pagination_page_first),
        "offset": OffsetLimit(limit, config.http_pagination_offset_parameter, parameters[0]),
        "cursor": CursorOfRecord(field, parameters[1]) if field is not None else CursorInBody(path, parameters[1]),
        "link": LinkHeader(hosts, hidden),
        "next_url": NextUrl(hosts, hidden, path=config.http_pagination_next_path),
        "mark": FromMark(limit, parameters[0]),
    }
    return ways[kind]


def secrets(config: HttpSourceConfig) -> tuple[str, ...]:
    """Texts of the config that must show up in no message and no offset."""
    maps = (config.http_query, config.http_pagination_first_query, config.http_parent_query)
    queries = [value for one in maps for name, value in one.items() if _SECRET_NAME.search(name)]
    return (*config.access_secrets(), *filter(None, queries))
