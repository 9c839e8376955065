"""What can be configured of ``WebSocketSource``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from pydantic import BeforeValidator

from fetchers.sdk import Importance, Key, NameList, Secret
from fetchers.toolkit.access import plain
from fetchers.toolkit.listener import Cursor, ListenerConfig

_CURSOR = Key(group="Offset")
_HARMLESS_NAMES = frozenset({"action", "channel", "channels", "event", "jsonrpc", "method", "op", "type"})
"""Fields that name the kind of a message; the text in any other may be a key."""
_SCHEMES = ("ws://", "wss://", "http://", "https://")


def _socket_url(value: object) -> object:
    if isinstance(value, str) and not value.startswith(_SCHEMES):
        message = "Expected a URL that starts with ws:// or wss://"
        raise ValueError(message)
    return value


class WebSocketConfig(ListenerConfig):
    """Messages of a WebSocket, one record each."""

    websocket_url: Annotated[
        str,
        BeforeValidator(_socket_url),
        Key(importance=Importance.HIGH, group="Request", example="wss://feed.example.com"),
    ]
    """Address to connect to. May hold {offset}: the value of websocket.cursor.field in the last message."""
    websocket_subscribe: Annotated[Secret | None, Key(group="Request")] = None
    """What is sent once the connection stands, each line as one message; may hold {offset}. Feeds that log in by a
    message have their keys here, so it is treated as a secret."""
    websocket_binary: Annotated[Literal["reject", "accept"], Key(group="Records")] = "reject"
    """Whether a binary message is a record like any other, or a dead letter with its bytes."""
    websocket_cursor_field: Annotated[str | None, _CURSOR] = None
    """Field of the messages by which the source can go on, such as sequence. Without it the time in which nobody
    listened is told as a gap."""
    websocket_cursor_initial: Annotated[str | None, _CURSOR] = None
    """What is sent for {offset} the first time."""
    websocket_close_fatal: Annotated[NameList, Key(group="Listener", importance=Importance.LOW)] = ("4401", "4403")
    """Close codes that fail the task, such as those by which a service refuses credentials; after all others the
    connection is made anew."""

    @property
    def cursor(self) -> Cursor:
        """How to go on."""
        return Cursor(self.websocket_cursor_field, self.websocket_cursor_initial)

    @property
    def subscriptions(self) -> list[str]:
        """The messages of ``websocket.subscribe``."""
        return [line.strip() for line in plain(self.websocket_subscribe).splitlines() if line.strip()]

    def access_secrets(self) -> tuple[str, ...]:
        """Also the subscriptions, and the texts in them that do not merely name the kind of the message."""
        lines = self.subscriptions
        return (*super().access_secrets(), *lines, *(text for line in lines for text in _texts_of(line)))


def _texts_of(line: str) -> Iterator[str]:
    """The texts in a JSON message, at any depth; those that hold {offset} are none that anybody keeps secret."""
    try:
        left = [msgspec.json.decode(line)]
    except (msgspec.MsgspecError, RecursionError):
        return
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += (value for name, value in item.items() if name not in _HARMLESS_NAMES)
        elif isinstance(item, list):
            left += item
        elif isinstance(item, str) and "{offset}" not in item:
            yield item
