"""What a message of the stream is, whatever comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.x.messages import Kind, Message, read, time_ms


def said(value: Any) -> Message:
    """The message of a JSON value."""
    return read(json.dumps(value).encode())


def test_a_post_of_v2_has_its_id_time_and_rules() -> None:
    """Its bytes stay as they came; an id of 19 digits is no float."""
    raw = (
        b'{"matching_rules":[{"id":"7","tag":"cats"},{"id":"8"}],"new":{"field":1},\r'
        b'"data":{"text":"\xe2\x80\xa8","created_at":"2024-01-15T10:35:00.000Z","id":"1746841234567890123"}}'
    )
    message = read(raw)
    assert message == Message(raw, Kind.POST, "1746841234567890123", 1_705_314_900_000, met=(("7", "cats"), ("8", "")))


def test_a_post_with_partial_errors_is_a_post() -> None:
    """An expansion has failed, and the post is there."""
    message = said({"data": {"id": "5", "text": "a"}, "errors": [{"title": "Not Found Error"}]})
    assert (message.kind, message.id) == (Kind.POST, "5")


def test_a_post_with_odd_fields_beside_its_id_is_a_post() -> None:
    """A server may write what it likes there."""
    for odd in ({"created_at": 7}, {"created_at": "yesterday"}):
        message = said({"data": {"id": "5", **odd}})
        assert (message.kind, message.id, message.at_ms) == (Kind.POST, "5", None)
    assert said({"data": {"id": "5"}, "matching_rules": 7}).kind is Kind.POST


def test_the_vocabulary_of_v1() -> None:
    """A post, a deletion, notices, limits, warnings, and a disconnection with its code."""
    post = said({"created_at": "Mon Sep 24 03:35:21 +0000 2012", "id": 250075927172759552, "text": "x", "user": {}})
    assert (post.kind, post.id, post.at_ms) == (Kind.POST, "250075927172759552", 1_348_457_721_000)
    status = {"id": 1234, "id_str": "1234", "user_id": 3, "user_id_str": "3"}
    deletion = said({"delete": {"status": status}})
    assert (deletion.kind, deletion.id, deletion.user_id) == (Kind.DELETE, "1234", "3")
    for notice in ("scrub_geo", "status_withheld", "user_withheld"):
        assert said({notice: {"user_id": 1}}).kind is Kind.NOTICE
    assert said({"limit": {"track": 12}}).number == 12
    warning = said({"warning": {"code": "FALLING_BEHIND", "message": "Your connection is falling behind."}})
    assert (warning.kind, warning.words) == (Kind.WARNING, "FALLING_BEHIND: Your connection is falling behind.")
    ending = said({"disconnect": {"code": 4, "stream_name": "s", "reason": "stall"}})
    assert (ending.kind, ending.number, ending.words) == (Kind.ENDING, 4, "stall: 4")


def test_errors_without_a_post_are_an_end() -> None:
    """Also where the socket stays open."""
    error = {"title": "operational-disconnect", "disconnect_type": "UpstreamOperationalDisconnect", "detail": "Gone."}
    message = said({"errors": [error]})
    assert (message.kind, message.words) == (Kind.ENDING, "operational-disconnect: Gone.")
    assert said({"title": "ConnectionException", "detail": "Too many."}).kind is Kind.ENDING
    assert said({"errors": []}).kind is Kind.ENDING


@pytest.mark.parametrize("raw", [b"7", b"null", b"[]", b"{}", b'{"data":{}}', b'{"data":{"id":"x"}}', b'{"new":1}'])
def test_what_nobody_knows_is_unknown(raw: bytes) -> None:
    """And no reason to end anything."""
    assert read(raw).kind is Kind.UNKNOWN


@pytest.mark.parametrize("raw", [b"{", b"\xff", b"<html>", b'{"data":{"id":"5"}', b"[" * 100_000])
def test_what_is_no_json_is_unreadable(raw: bytes) -> None:
    """The conversion makes a dead letter of it."""
    assert read(raw).kind is Kind.UNREADABLE


def test_an_id_tells_the_time_where_nothing_else_does() -> None:
    """In its upper bits; ids of before 2010 do not."""
    assert time_ms(None, "1746841234567890123") == (1746841234567890123 >> 22) + 1_288_834_974_657
    assert time_ms(None, "20") is None


_names = st.sampled_from(
    ["data", "id", "id_str", "text", "errors", "delete", "status", "limit", "track", "disconnect", "code", "warning",
     "created_at", "matching_rules", "tag", "title", "detail"]
)  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)


@given(_json)
def test_no_message_raises(value: Any) -> None:
    """Whatever a server makes of these names; a post and a deletion have an id of digits."""
    message = said(value)
    assert message.kind is not Kind.UNREADABLE
    if message.kind in {Kind.POST, Kind.DELETE}:
        assert message.id is not None
        assert message.id.isdigit()


@given(st.binary(max_size=60))
def test_no_bytes_raise(raw: bytes) -> None:
    """Broken UTF-8 and broken JSON among them."""
    assert read(raw).raw == raw
