"""Says everything that does not fit together in a config of ``HttpSource``."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from yarl import URL

from fetchers.http.config import HttpSourceConfig
from fetchers.http.settings import SLIPPING, STATUS, STATUS_VERDICTS, initial, template
from fetchers.sdk import Finding, Severity
from fetchers.toolkit.access import odd_value

COUNTED = frozenset({"page_number", "offset"})
"""Ways by places that are surely counted: there records always move where one leaves its place."""


def findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """Everything that is wrong with values that are each right by themselves."""
    yield from config.access_findings()
    yield from _missing(config)
    yield from _pages_findings(config)
    yield from _initial_findings(config)
    yield from _template_findings(config)
    yield from _parent_findings(config)
    yield from _unreadable(config)


def _missing(config: HttpSourceConfig) -> Iterator[Finding]:
    has_cursor = config.http_pagination_cursor_path or config.http_pagination_cursor_field
    if config.http_pagination_type == "cursor" and not has_cursor:
        yield Finding("http.pagination.cursor.path", None, "Missing: http.pagination.type=cursor needs it.")
    if not config.http_offset_field:
        for key in ("http.offset.key", "http.offset.initial"):
            value = getattr(config, key.replace(".", "_"))
            if value is not None:
                yield odd_value(key, value, "There is no http.offset.field that it belongs to.")


def _pages_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """Only a JSON answer can name its next page in its body; every other would end with its first one."""
    way, form = config.http_pagination_type, config.http_format
    if way in SLIPPING:
        yield from _move_findings(config)
    if form != "json" and (way == "next_url" or (way == "cursor" and config.http_pagination_cursor_field is None)):
        expected = f"Expected none, page_number, offset, link or mark with http.format={form}"
        yield odd_value("http.pagination.type", way, f"{expected}: the next page is looked up in JSON answers only.")
    for key in ("http.pagination.more.path", "http.pagination.end.path"):
        value = getattr(config, key.replace(".", "_"))
        if value is not None and form != "json":
            yield odd_value(key, value, f"It is looked up in JSON answers only, not with http.format={form}.")
    if config.http_pagination_more_path is not None and config.http_pagination_end_path is not None:
        yield odd_value(
            "http.pagination.end.path", config.http_pagination_end_path, "http.pagination.more.path says it."
        )
    if config.http_pagination_cursor_path is not None and config.http_pagination_cursor_field is not None:
        value = config.http_pagination_cursor_field
        yield odd_value(
            "http.pagination.cursor.field", value, "http.pagination.cursor.path is the cursor. Give one of them."
        )
    if way == "mark":
        yield from _mark_findings(config)
    if config.http_pagination_in == "body":
        yield from _body_findings(config)


def _mark_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """What pages that begin at the mark cannot do without."""
    if not config.http_offset_field:
        yield Finding("http.offset.field", None, "Missing: http.pagination.type=mark needs it.")
    elif not template(config).fields():
        message = "Invalid value mark for configuration http.pagination.type: No part of the request holds {offset}."
        yield Finding("http.pagination.type", "mark", message)
    for key in ("http.pagination.continues", "http.pagination.stops.at.known"):
        if getattr(config, key.replace(".", "_")):
            yield odd_value(key, "true", "http.pagination.type=mark always goes on at what was read last.")


def _body_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    way = config.http_pagination_type
    if way not in {"page_number", "offset", "cursor", "mark"}:
        yield odd_value("http.pagination.in", "body", f"http.pagination.type={way} adds nothing to a request.")
    if config.http_method != "POST":
        yield odd_value("http.pagination.in", "body", "Expected http.method=POST with it.")
    try:
        msgspec.json.decode(config.http_body or "{}", type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        message = "Invalid value for configuration http.body: Expected a JSON object with http.pagination.in=body."
        yield Finding("http.body", None, message)


def _parent_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """A list for each parent needs to name it."""
    has_parent = template(config).has_parent
    if config.http_parent_url is None:
        if has_parent:
            yield Finding("http.parent.url", None, "Missing: {parent} is used in the request.")
        elif config.http_parent_changed_field is not None:
            value = config.http_parent_changed_field
            yield odd_value("http.parent.changed.field", value, "There is no http.parent.url that it belongs to.")
        return
    if not has_parent:
        yield Finding(
            "http.parent.url", config.http_parent_url, "No part of the request holds {parent}, by which lists differ."
        )


def _move_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """Where records that move from page to page would be lost, and nobody would hear of it."""
    loss = "a record that leaves its place while the list is paged hides another one, which is never read"
    if config.http_pagination_continues and not config.http_offset_field:
        message = f"Nothing may ever leave its place in this list: {loss}. With http.offset.field that is noticed."
        yield Finding("http.pagination.continues", "true", message, Severity.WARNING)
    elif (
        config.http_offset_field and not config.http_pagination_checks_moves and config.http_pagination_type in COUNTED
    ):
        message = f"Nothing may ever leave its place in this list: {loss}."
        yield Finding("http.pagination.checks.moves", "false", message, Severity.WARNING)


def _initial_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    names, text = config.http_offset_field, config.http_offset_initial
    found = initial(config)
    if len(names) > 1 and isinstance(found, tuple) and len(found) != len(names):
        expected = f"Expected {len(names)} values separated by commas, one for each of http.offset.field."
        yield odd_value("http.offset.initial", text or "", expected)


def _unreadable(config: HttpSourceConfig) -> Iterator[Finding]:
    try:
        url = URL(config.http_url)
        if not url.host or "{" in url.host:
            yield Finding("http.url", None, "Invalid value for configuration http.url: Expected a host.")
        if url.user is not None or url.password is not None:
            message = "Invalid value for configuration http.url: Credentials go into http.auth, where they are hidden."
            yield Finding("http.url", None, message)
    except ValueError:
        yield Finding("http.url", None, "Invalid value for configuration http.url: It cannot be read as a URL.")
    for key in STATUS_VERDICTS:
        for text in getattr(config, key.replace(".", "_")):
            if not STATUS.match(text):
                expected = (
                    "Expected a status such as 404 or 5xx, or 403 header.<name>=<text> or 200 body.<path>=<text>."
                )
                yield odd_value(key, text, expected)
    yield from config.pace_findings()


def _template_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    fields = template(config).fields()
    if not fields:
        return
    names = config.http_offset_field
    if not names:
        yield Finding("http.offset.field", None, "Missing: {offset} is used in the request.")
        return
    if config.http_offset_initial is None:
        yield Finding("http.offset.initial", None, "Missing: the first request has no other value for {offset}.")
    if len(names) > 1 and None in fields:
        message = "The request asks for {offset}: expected {offset.<field>}, which tells the one of several fields."
        yield Finding("http.offset.field", ",".join(names), message)
    for name in sorted(map(str, fields - {None, *names})):
        yield Finding("http.offset.field", ",".join(names), f"The request asks for {{offset.{name}}}.")
