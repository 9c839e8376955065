"""What can be configured of ``SseSource``."""

from __future__ import annotations

from typing import Annotated

from fetchers.sdk import HttpUrl, Importance, Key, NameList
from fetchers.toolkit.listener import ListenerConfig

_RECORDS = Key(group="Records")


class SseConfig(ListenerConfig):
    """Server-sent events: the data of each is one record."""

    sse_url: Annotated[
        HttpUrl, Key(importance=Importance.HIGH, group="Request", example="https://api.example.com/events")
    ]
    """URL of the event stream. Where its events have ids, the last one is sent as Last-Event-ID when connecting again;
    where they have none, the time in which nobody listened is told as a gap."""
    sse_events: Annotated[NameList, _RECORDS] = ()
    """Types of events that are records, such as update; an event without a type is a message. All when not given."""
    sse_event_header: Annotated[str | None, _RECORDS] = None
    """Name of a record header that tells the type of the event; none when not given."""
