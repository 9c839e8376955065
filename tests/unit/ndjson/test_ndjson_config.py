"""What is wrong with configs of ``NdjsonStreamSource``, and how its cursor is sent."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fetchers.ndjson.config import NdjsonStreamConfig
from fetchers.ndjson.fetcher import NdjsonStreamSource
from fetchers.toolkit.listener import Cursor, in_json, in_url

GOOD = {"topic": "t", "stream.url": "https://api.example.com/stream"}


def findings(**changes: str) -> dict[str, str]:
    """Messages by key; keys have ``_`` for their dots."""
    properties = GOOD | {key.replace("_", "."): text for key, text in changes.items()}
    parsed = NdjsonStreamConfig.parse(properties)
    assert parsed.config is not None, parsed.findings
    return {finding.key: finding.message for finding in NdjsonStreamSource(parsed.config).findings()}


def test_a_plain_stream_needs_its_url_alone() -> None:
    """Everything else has a default."""
    assert findings() == {}


def test_an_offset_needs_its_field_and_its_first_value() -> None:
    """Both are missed at once."""
    found = findings(stream_url="https://x/?since={offset}")
    assert set(found) == {"stream.cursor.field", "stream.cursor.initial"}
    assert "There is no {offset} in stream.url" in findings(stream_cursor_field="seq")["stream.cursor.field"]


def test_credentials_do_not_stand_in_the_url() -> None:
    """They would be shown in every answer and log."""
    found = findings(stream_url="https://user:odd-password@x/")
    assert "odd-password" not in found["stream.url"]


@pytest.mark.parametrize(("kind", "missing"), [("bearer", "http.auth.token"), ("api_key", "http.auth.key")])
def test_an_authentication_needs_its_parts(kind: str, missing: str) -> None:
    """Named one by one."""
    assert set(findings(http_auth_type=kind)) == {missing}


def test_the_cursor_is_that_of_the_last_message_that_has_one() -> None:
    """Of a column or a list, whatever is no JSON; without a field there is none."""
    cursor = Cursor("a.seq", "0")
    messages = [b'{"a":{"seq":7}}', b'{"a":{"seq":"8"}}', b'{"a":{}}', b"{", b"7"]
    assert cursor.after(messages, {}) == {"cursor": "8"}
    assert cursor.after(pa.array(messages, pa.binary()), {}) == {"cursor": "8"}
    assert cursor.after(messages[2:], {"cursor": 3}) == {"cursor": 3}
    assert Cursor(None, None).after(messages, {}) is None


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (b'{"seq":1700000000.123456789}', "1700000000.123456789"),
        (b'{"seq":18446744073709551617}', "18446744073709551617"),
        (b'{"seq":-0.0}', "-0.0"),
        (b'{"seq":"a\\u00e9"}', "a\u00e9"),
        *((b'{"seq":%b}' % value, "7") for value in (b'""', b"null", b"true", b'{"a":1}', b"[1]", b"NaN")),
    ],
)
def test_the_cursor_is_what_the_source_has_written(last: bytes, expected: str) -> None:
    """A number that is rounded would skip messages, or ask for them again; nothing is not sent as a place."""
    assert Cursor("seq", "0").after([b'{"seq":7}', last], {}) == {"cursor": expected}


def test_the_cursor_is_sent_as_its_place_needs_it() -> None:
    """The first value, and then what was read."""
    cursor = Cursor("seq", "a b")
    assert cursor.filled("/?since={offset}", {}, encode=in_url) == "/?since=a%20b"
    assert cursor.filled('{"since":"{offset}"}', {"cursor": 'x"y'}, encode=in_json) == '{"since":"x\\"y"}'
    assert cursor.filled('{"since":{offset}}', {"cursor": 0}, encode=in_json) == '{"since":0}'
