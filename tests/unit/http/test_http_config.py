"""The config of ``HttpSource``: all findings at once, and nothing secret shown."""

from __future__ import annotations

import pytest

from fetchers.http.config import HttpSourceConfig
from fetchers.http.fetcher import HttpSource
from fetchers.http.settings import secrets, statuses
from fetchers.sdk import Severity, StatusVerdict
from fetchers.sdk.config import unknown_keys
from fetchers.sdk.testing import FakeClock
from fetchers.toolkit.auth import BasicAuth
from fetchers.toolkit.rate_limits import RateWindow

KEYS = HttpSourceConfig.config_keys()
GOOD = {"topic": "t", "http.url": "https://host/x"}


def errors(**changes: str) -> dict[str, str]:
    """Findings by key for these further keys (``_`` for ``.``)."""
    texts = {**GOOD, **{name.replace("_", "."): text for name, text in changes.items()}}
    parsed = HttpSourceConfig.parse(texts)
    found = parsed.findings if parsed.config is None else HttpSource(parsed.config).findings()
    return {finding.key: finding.message for finding in found}


def test_the_smallest_config() -> None:
    """A topic and a URL are enough."""
    assert errors() == {}


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"http_auth_type": "basic"}, {"http.auth.user", "http.auth.password"}),
        ({"http_auth_type": "basic", "http_auth_user": "", "http_auth_password": ""}, {"http.auth.user"}),
        ({"http_auth_type": "bearer", "http_auth_token": ""}, {"http.auth.token"}),
        (
            {"http_auth_type": "oauth2", "http_auth_client_id": "me"},
            {"http.auth.token.url", "http.auth.client.secret"},
        ),
        ({"http_auth_type": "magic", "http_format": "xml"}, {"http.auth.type", "http.format"}),
        ({"http_pagination_type": "cursor"}, {"http.pagination.cursor.path"}),
        ({"http_query_a": "{offset}"}, {"http.offset.field"}),
        ({"http_query_a": "{offset}", "http_offset_field": "t"}, {"http.offset.initial"}),
        ({"http_offset_key": "id", "http_offset_initial": "1"}, {"http.offset.key", "http.offset.initial"}),
        (
            {"http_query_a": "{offset}", "http_offset_field": "t,id", "http_offset_initial": "0"},
            {"http.offset.field", "http.offset.initial"},
        ),
        (
            {"http_query_a": "{offset.t}{offset.no}", "http_offset_field": "t,id", "http_offset_initial": "0,1,2"},
            {"http.offset.field", "http.offset.initial"},
        ),
        ({"http_query_a": "{offset.t}{offset.id}", "http_offset_field": "t,id", "http_offset_initial": "0,1"}, set()),
        ({"http_offset_field": "t", "http_offset_initial": "2024-01-01T00:00:00,5"}, set()),
        ({"http_pagination_type": "mark"}, {"http.offset.field"}),
        ({"http_pagination_type": "mark", "http_offset_field": "t"}, {"http.pagination.type"}),
        (
            {
                "http_pagination_type": "mark",
                "http_offset_field": "t",
                "http_offset_initial": "0",
                "http_query_since": "{offset:ms}",
                "http_pagination_continues": "true",
            },
            {"http.pagination.continues"},
        ),
        (
            {"http_pagination_type": "cursor", "http_pagination_cursor_field": "id", "http_format": "ndjson"},
            set(),
        ),
        (
            {
                "http_pagination_type": "cursor",
                "http_pagination_cursor_field": "id",
                "http_pagination_cursor_path": "next",
                "http_pagination_more_path": "more",
                "http_pagination_end_path": "end",
            },
            {"http.pagination.cursor.field", "http.pagination.end.path"},
        ),
        ({"http_format": "csv", "http_pagination_end_path": "end"}, {"http.pagination.end.path"}),
        ({"http_pagination_in": "body"}, {"http.pagination.in"}),
        (
            {
                "http_pagination_in": "body",
                "http_pagination_type": "page_number",
                "http_method": "POST",
                "http_body": "[]",
            },
            {"http.body"},
        ),
        ({"http_query_a": "{parent}"}, {"http.parent.url"}),
        ({"http_parent_url": "https://host/p"}, {"http.parent.url"}),
        ({"http_parent_changed_field": "t"}, {"http.parent.changed.field"}),
        ({"http_parent_url": "https://host/p", "http_query_a": "{parent}"}, set()),
        ({"http_status_retry": "404,4x4,99"}, {"http.status.retry"}),
        ({"http_status_limited": "403 header.a=0, 403 Retry-After, 200 body.ok=false"}, {"http.status.limited"}),
        ({"http_rate_limits": "3/s,0/h"}, {"http.rate.limits"}),
        ({"http_url": "https://u:p@host/"}, {"http.url"}),
        ({"http_url": "https://{offset}/"}, {"http.url", "http.offset.field"}),
        ({"http_tls_key_file": "k.pem"}, {"http.tls.key.file"}),
        (
            {"http_response_bytes_max": "0", "http_timeout_read_ms": "x"},
            {"http.response.bytes.max", "http.timeout.read.ms"},
        ),
    ],
)
def test_findings(changes: dict[str, str], keys: set[str]) -> None:
    """What does not fit together is found before anything is asked of the source."""
    assert set(errors(**changes)) == keys


@pytest.mark.parametrize("way", ["cursor", "next_url"])
@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_lines_have_no_place_for_a_cursor(way: str, form: str) -> None:
    """A body of lines is no single JSON value: the next page that it should name could never be found in it."""
    found = errors(http_format=form, http_pagination_type=way, http_pagination_cursor_path="next")
    assert found == {
        "http.pagination.type": f"Invalid value {way} for configuration http.pagination.type: Expected none, "
        f"page_number, offset, link or mark with http.format={form}: the next page is looked up in JSON answers only."
    }
    assert errors(http_format=form, http_pagination_type="link") == {}


def test_a_key_may_be_the_user() -> None:
    """Where an API takes its key for the user, it is given as the key that it is, and hidden like one."""
    sent = BasicAuth("k3y-4711", "")
    config = HttpSourceConfig.parse({**GOOD, "http.auth.type": "basic", "http.auth.key": "k3y-4711"}).config
    assert config is not None
    assert not HttpSource(config).findings()
    assert (secrets(config), config.auth(clock=FakeClock())) == (("k3y-4711",), sent)
    assert "k3y-4711" not in str(config.texts())
    both = errors(http_auth_type="basic", http_auth_key="k", http_auth_user="u", http_auth_password="p")
    assert set(both) == {"http.auth.user", "http.auth.password"}


def test_a_key_that_is_given_as_the_user_is_warned_of() -> None:
    """Messages of the source hide it like a password, but nobody else knows that it is one."""
    texts = {**GOOD, "http.auth.type": "basic", "http.auth.user": "k3y-4711", "http.auth.password": ""}
    config = HttpSourceConfig.parse(texts).config
    assert config is not None
    (warning,) = HttpSource(config).findings()
    assert (warning.key, warning.value, warning.severity) == ("http.auth.user", None, Severity.WARNING)
    assert secrets(config) == ("k3y-4711",)


def test_values_of_the_toolkit() -> None:
    """Statuses and rates are read as they are written."""
    config = HttpSourceConfig.parse(
        {**GOOD, "http.status.skip": "404", "http.status.fatal": "5xx", "http.rate.limits": "3/s, 60/h"}
    ).config
    assert config is not None
    table = statuses(config)
    assert [table.verdict(status) for status in (404, 503, 429)] == [
        StatusVerdict.SKIP,
        StatusVerdict.FATAL,
        StatusVerdict.RATE_LIMITED,
    ]
    assert config.rate_windows() == (RateWindow(3, 1.0), RateWindow(60, 3600.0))


def test_secrets_are_masked() -> None:
    """Headers, passwords, tokens and keys are hidden wherever the config is shown."""
    texts = {**GOOD, "http.header.X-Token": "s3cr3t", "http.auth.type": "bearer", "http.auth.token": "t0k3n"}
    config = HttpSourceConfig.parse(texts).config
    assert config is not None
    shown = f"{config!r} {config} {config.texts()}"
    assert "s3cr3t" not in shown
    assert "t0k3n" not in shown
    assert config.texts()["http.url"] == "https://host/x"


def test_a_misspelt_key_is_warned_of() -> None:
    """Keys under a prefix are known, a misspelt one gets the nearest name."""
    known = [key.name for key in KEYS]
    prefixes = HttpSourceConfig.free_prefixes
    found = unknown_keys(["http.header.X", "http.query.y", "http.record.path"], known, free_prefixes=prefixes)
    assert [(finding.key, finding.message) for finding in found] == [
        ("http.record.path", "Unknown key; did you mean 'http.records.path'?")
    ]


def test_every_key_is_documented() -> None:
    """The reference page is made of the docstrings, so each key has one."""
    assert [key.name for key in KEYS if not key.documentation] == []
