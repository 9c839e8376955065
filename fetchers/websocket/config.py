"""What can be configured of ``WebSocketSource``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from fetchers.sdk import Importance, Key, NameList
from fetchers.toolkit.listener import Cursor, ListenerConfig

_CURSOR = Key(group="Offset")
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
    websocket_subscribe: Annotated[str, Key(group="Request")] = ""
    """What is sent once the connection stands, each line as one message; may hold {offset}."""
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
        return [line.strip() for line in self.websocket_subscribe.splitlines() if line.strip()]
