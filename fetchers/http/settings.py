"""Makes values of the toolkit of a config, and says everything that does not fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from yarl import URL

from fetchers.http.config import HttpSourceConfig
from fetchers.http.templates import RequestTemplate
from fetchers.sdk import (
    AnswerRule,
    Authorizer,
    Clock,
    Finding,
    HttpLimits,
    Secret,
    Severity,
    StatusTable,
    StatusVerdict,
    TlsSettings,
)
from fetchers.toolkit.auth import ApiKeyAuth, BasicAuth, BearerAuth, ClientCredentials, OAuth2Auth
from fetchers.toolkit.limit_headers import LimitHeaders
from fetchers.toolkit.pagination import (
    CursorInBody,
    LinkHeader,
    NextUrl,
    OffsetLimit,
    PageNumber,
    Pagination,
    SinglePage,
)
from fetchers.toolkit.rate_limits import RateWindow
from fetchers.toolkit.watermark import Reached

_STATUS = re.compile(
    r"([1-5])(\d\d|xx)(?:\s+(?:header\.(?P<header>[^\s=]+)|body\.(?P<path>[^\s=]+))(?:\s*=\s*(?P<text>.+))?)?\Z",
    re.ASCII,
)
_STATUS_VERDICTS = {
    "http.status.limited": StatusVerdict.RATE_LIMITED,
    "http.status.retry": StatusVerdict.RETRY,
    "http.status.skip": StatusVerdict.SKIP,
    "http.status.fatal": StatusVerdict.FATAL,
}
_RATE = re.compile(r"([1-9]\d{0,8})/([smhd])\Z", re.ASCII)
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NEEDS = {
    "none": (),
    "basic": ("http.auth.user", "http.auth.password"),
    "bearer": ("http.auth.token",),
    "api_key": ("http.auth.key",),
    "oauth2": ("http.auth.token.url", "http.auth.client.id", "http.auth.client.secret"),
}
SLIPPING = frozenset({"page_number", "offset", "link", "next_url"})
"""Ways by places that are counted, or may be: a URL that the source gives can hold a page number."""
_SECRET_NAME = re.compile(r"key|token|secret|passw|sig|auth|session", re.IGNORECASE)
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})


def findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """Everything that is wrong with values that are each right by themselves."""
    yield from _missing(config)
    yield from _user_findings(config)
    yield from _pages_findings(config)
    yield from _initial_findings(config)
    yield from _template_findings(config)
    yield from _unreadable(config)
    if config.http_tls_key_file is not None and config.http_tls_certificate_file is None:
        yield _odd(
            "http.tls.key.file", config.http_tls_key_file, "There is no http.tls.certificate.file to go with it."
        )


def _missing(config: HttpSourceConfig) -> Iterator[Finding]:
    for key in () if _is_key_the_user(config) else _NEEDS[config.http_auth_type]:
        if _is_missing(getattr(config, key.replace(".", "_")), may_be_empty=key == "http.auth.password"):
            yield Finding(key, None, f"Missing: http.auth.type={config.http_auth_type} needs it.")
    if config.http_pagination_type == "cursor" and not config.http_pagination_cursor_path:
        yield Finding("http.pagination.cursor.path", None, "Missing: http.pagination.type=cursor needs it.")
    if not config.http_offset_field:
        for key in ("http.offset.key", "http.offset.initial"):
            value = getattr(config, key.replace(".", "_"))
            if value is not None:
                yield _odd(key, value, "There is no http.offset.field that it belongs to.")


def _is_key_the_user(config: HttpSourceConfig) -> bool:
    """Whether Basic carries a key in place of a user, and no password."""
    return config.http_auth_type == "basic" and bool(_plain(config.http_auth_key))


def _user_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """A user is shown like any other text; only a key that is given as one is hidden in every log and answer."""
    if config.http_auth_type != "basic":
        return
    user, password = config.http_auth_user, config.http_auth_password
    if _is_key_the_user(config):
        for key, value in (("http.auth.user", user), ("http.auth.password", _plain(password))):
            if value:
                yield Finding(
                    key, None, "Not sent: http.auth.key is, as a user without password. Give one or the other."
                )
    elif user and password is not None and not _plain(password):
        message = (
            "Better as http.auth.key: a key that is given for the user is shown in answers and logs of the worker."
        )
        yield Finding("http.auth.user", None, message, Severity.WARNING)


def _is_missing(value: object, *, may_be_empty: bool) -> bool:
    """Whether nothing was given. Where an API takes its key for the user, the password is there and empty."""
    return value is None if may_be_empty else not value


def _pages_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """Only a JSON answer can name its next page in its body; every other would end with its first one."""
    way, form = config.http_pagination_type, config.http_format
    if way in SLIPPING:
        yield from _move_findings(config)
    if way in {"cursor", "next_url"} and form != "json":
        expected = f"Expected none, page_number, offset or link with http.format={form}"
        yield _odd("http.pagination.type", way, f"{expected}: the next page is looked up in JSON answers only.")


def _move_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    """Where records that move from page to page would be lost, and nobody would hear of it."""
    loss = "a record that leaves its place while the list is paged hides another one, which is never read"
    if config.http_pagination_continues and not config.http_offset_field:
        message = f"Nothing may ever leave its place in this list: {loss}. With http.offset.field that is noticed."
        yield Finding("http.pagination.continues", "true", message, Severity.WARNING)
    elif config.http_offset_field and not config.http_pagination_checks_moves:
        message = f"Nothing may ever leave its place in this list: {loss}."
        yield Finding("http.pagination.checks.moves", "false", message, Severity.WARNING)


def _initial_findings(config: HttpSourceConfig) -> Iterator[Finding]:
    names, text = config.http_offset_field, config.http_offset_initial
    found = initial(config)
    if len(names) > 1 and isinstance(found, tuple) and len(found) != len(names):
        expected = f"Expected {len(names)} values separated by commas, one for each of http.offset.field."
        yield _odd("http.offset.initial", text or "", expected)


def initial(config: HttpSourceConfig) -> Reached:
    """What to begin with: one text, or one for each offset field."""
    text = config.http_offset_initial
    if text is None or len(config.http_offset_field) <= 1:
        return text
    return tuple(part.strip() for part in text.split(","))


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
    for key in _STATUS_VERDICTS:
        for text in getattr(config, key.replace(".", "_")):
            if not _STATUS.match(text):
                expected = (
                    "Expected a status such as 404 or 5xx, or 403 header.<name>=<text> or 200 body.<path>=<text>."
                )
                yield _odd(key, text, expected)
    for text in config.http_rate_limits:
        if not _RATE.match(text):
            yield _odd("http.rate.limits", text, "Expected a count per unit, such as 3/s or 60/h.")


def template(config: HttpSourceConfig) -> RequestTemplate:
    """The request with its placeholders, as the config gives it."""
    return RequestTemplate(config.http_url, config.http_query, config.http_body)


def limits(config: HttpSourceConfig) -> HttpLimits:
    """What a request may cost."""
    return HttpLimits(
        connect_seconds=config.http_timeout_connect_ms / 1000,
        read_seconds=config.http_timeout_read_ms / 1000,
        total_seconds=config.http_timeout_total_ms / 1000,
        response_bytes_max=config.http_response_bytes_max,
    )


def tls(config: HttpSourceConfig) -> TlsSettings:
    """The authorities and certificates with which https is spoken."""
    return TlsSettings(
        ca_file=config.http_tls_ca_file,
        certificate_file=config.http_tls_certificate_file,
        key_file=config.http_tls_key_file,
        is_verified=config.http_tls_verify,
    )


def statuses(config: HttpSourceConfig) -> StatusTable:
    """What is done about each answer: the defaults, overridden by ``http.status.*``."""
    table, rules = StatusTable(), []
    for key, verdict in _STATUS_VERDICTS.items():
        for match in filter(None, map(_STATUS.match, getattr(config, key.replace(".", "_")))):
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


def rate_windows(config: HttpSourceConfig) -> tuple[RateWindow, ...]:
    """The limits of ``http.rate.limits``: requests allowed in so many seconds."""
    found = (_RATE.match(text) for text in config.http_rate_limits)
    return tuple(RateWindow(int(match[1]), _UNIT_SECONDS[match[2]]) for match in found if match)


def auth(config: HttpSourceConfig, *, clock: Clock) -> Authorizer | None:
    """Who asks. The config has no findings, so what the type needs is there."""
    match config.http_auth_type:
        case "basic":
            if _is_key_the_user(config):
                return BasicAuth(_plain(config.http_auth_key), "")
            return BasicAuth(config.http_auth_user or "", _plain(config.http_auth_password))
        case "bearer":
            return BearerAuth(_plain(config.http_auth_token))
        case "api_key":
            query = config.http_auth_key_query
            header = None if query else config.http_auth_key_header
            return ApiKeyAuth(_plain(config.http_auth_key), header=header, query=query)
        case "oauth2":
            client = ClientCredentials(
                token_url=config.http_auth_token_url or "",
                client_id=config.http_auth_client_id or "",
                client_secret=_plain(config.http_auth_client_secret),
                scope=config.http_auth_scope,
                audience=config.http_auth_audience,
                is_secret_in_body=config.http_auth_secret_in_body,
            )
            return OAuth2Auth(client, clock=clock, tls=tls(config))
        case "none":
            return None


def can_slip(config: HttpSourceConfig) -> bool:
    """Whether records can cross the border of two pages, and can be known again there."""
    return bool(config.http_offset_field) and config.http_pagination_type in SLIPPING


def is_checked(config: HttpSourceConfig) -> bool:
    """Whether it is proven that none has."""
    return can_slip(config) and config.http_pagination_checks_moves


def pagination(config: HttpSourceConfig, *, secret_texts: tuple[str, ...]) -> Pagination:
    """The way through the pages."""
    match config.http_pagination_type:
        case "page_number":
            return PageNumber(config.http_pagination_page_parameter, config.http_pagination_page_first)
        case "offset":
            return OffsetLimit(
                config.http_pagination_limit,
                config.http_pagination_offset_parameter,
                config.http_pagination_limit_parameter,
            )
        case "cursor":
            return CursorInBody(config.http_pagination_cursor_path or "", config.http_pagination_cursor_parameter)
        case "link":
            return LinkHeader(config.http_pagination_hosts, secret_texts)
        case "next_url":
            return NextUrl(config.http_pagination_hosts, secret_texts, path=config.http_pagination_next_path)
        case "none":
            return SinglePage()


def secrets(config: HttpSourceConfig) -> tuple[str, ...]:
    """Texts of the config that must show up in no message and no offset."""
    headers = [
        value.get_secret_value() for name, value in config.http_header.items() if name.lower() not in _HARMLESS_HEADERS
    ]
    queries = [value for name, value in config.http_query.items() if _SECRET_NAME.search(name)]
    single = (config.http_auth_password, config.http_auth_token, config.http_auth_key, config.http_auth_client_secret)
    own = [value.get_secret_value() for value in single if value is not None]
    if config.http_auth_type == "basic" and not _plain(config.http_auth_password):
        own.append(config.http_auth_user or "")  # without a password the user is the key
    return tuple(text for text in (*headers, *queries, *own) if text)


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


def _odd(key: str, value: str, message: str) -> Finding:
    return Finding(key, value, f"Invalid value {value} for configuration {key}: {message}")


def _plain(secret: Secret | None) -> str:
    return "" if secret is None else secret.get_secret_value()
