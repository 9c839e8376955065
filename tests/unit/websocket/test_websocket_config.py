"""What is wrong with configs of ``WebSocketSource``."""

from __future__ import annotations

import pytest

from fetchers.websocket.config import WebSocketConfig
from fetchers.websocket.fetcher import WebSocketSource

GOOD = {"topic": "t", "websocket.url": "wss://feed.example.com"}


def config_of(**changes: str) -> WebSocketConfig:
    """A config; keys have ``_`` for their dots."""
    properties = GOOD | {key.replace("_", "."): text for key, text in changes.items()}
    parsed = WebSocketConfig.parse(properties)
    assert parsed.config is not None, parsed.findings
    return parsed.config


def findings(**changes: str) -> set[str]:
    """Keys with something wrong."""
    return {finding.key for finding in WebSocketSource(config_of(**changes)).findings()}


@pytest.mark.parametrize("url", ["ws://x", "wss://x", "http://x", "https://x"])
def test_every_scheme_of_a_websocket_is_taken(url: str) -> None:
    """``http`` is how some services name it."""
    assert findings(websocket_url=url) == set()


@pytest.mark.parametrize("url", ["tcp://x", "x", "ftp://x"])
def test_others_are_refused(url: str) -> None:
    """With what was expected."""
    (finding,) = WebSocketConfig.parse({**GOOD, "websocket.url": url}).findings
    assert "Expected a URL that starts with ws:// or wss://" in finding.message


def test_each_line_is_a_subscription() -> None:
    """Blank ones are none."""
    assert config_of(websocket_subscribe='{"a":1}\n\n {"b":2} \n').subscriptions == ['{"a":1}', '{"b":2}']


def test_a_subscription_is_shown_nowhere() -> None:
    """Feeds of exchanges log in by it."""
    config = config_of(websocket_subscribe='{"key":"AK12345"}')
    assert "AK12345" not in f"{config!r} {config}"
    kinds = {key.name: key.kind for key in WebSocketConfig.config_keys()}
    assert kinds["websocket.subscribe"] == "PASSWORD"


def test_what_is_secret_of_a_subscription_are_its_lines_and_texts() -> None:
    """But for what names the kind of the message, which every reader of an error wants to see."""
    text = '{"op":"auth","args":[{"apiKey":"k3y1","n":1,"more":{"sign":"s1gn"}}],"channels":["trades"],"at":"{offset}"}'
    assert set(config_of(websocket_subscribe=f"{text}\n[1\n").access_secrets()) == {text, "k3y1", "s1gn", "[1"}


def test_what_does_not_fit_together_is_found_at_once() -> None:
    """Close codes, matches, and a cursor that nothing sends."""
    found = findings(websocket_close_fatal="4401,never", listener_fatal="error", websocket_cursor_field="seq")
    assert found == {"websocket.close.fatal", "listener.fatal", "websocket.cursor.field"}
