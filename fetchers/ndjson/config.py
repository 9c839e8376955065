"""What can be configured of ``NdjsonStreamSource``."""

from __future__ import annotations

from typing import Annotated, Literal

from fetchers.sdk import HttpUrl, Importance, Key
from fetchers.toolkit.listener import Cursor, ListenerConfig

_CURSOR = Key(group="Offset")


class NdjsonStreamConfig(ListenerConfig):
    """Messages of an endless HTTP body, one JSON text each."""

    stream_url: Annotated[
        HttpUrl, Key(importance=Importance.HIGH, group="Request", example="https://api.example.com/stream")
    ]
    """URL to listen to. May hold {offset}: the value of stream.cursor.field in the last message."""
    stream_framing: Annotated[Literal["lines", "length"], Key(group="Records")] = "lines"
    """How messages are told apart: lines end with LF or CRLF, and blank ones are keep-alives; length is a line with
    the number of bytes before each message."""
    stream_cursor_field: Annotated[str | None, _CURSOR] = None
    """Field of the messages by which the source can go on, such as seq. Without it the time in which nobody listened is
    told as a gap."""
    stream_cursor_initial: Annotated[str | None, _CURSOR] = None
    """What is sent for {offset} the first time."""

    @property
    def cursor(self) -> Cursor:
        """How to go on."""
        return Cursor(self.stream_cursor_field, self.stream_cursor_initial)
