"""What the stream says, message by message: posts, deletions, notices, and what is about the connection.

Beside the messages of API v2 those of API v1.1 are understood, which gateways and recordings still speak:
https://docs.x.com/x-api/posts/filtered-stream/integrate/consume-streaming-data and
https://developer.twitter.com/en/docs/twitter-api/v1/tweets/filter-realtime/guides/streaming-message-types.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from fetchers.toolkit.fields import UNDECODABLE

SNOWFLAKE_EPOCH_MS = 1_288_834_974_657
"""Where the time in the upper bits of an id begins (https://docs.x.com/x-api/fundamentals/x-ids)."""
_SNOWFLAKE_SHIFT = 22
_SNOWFLAKE_MIN = 1 << 40
"""Smaller ids are older than this way of making them, and tell no time."""
_ID_DIGITS_MAX = 19
_OLD_TIME = "%a %b %d %H:%M:%S %z %Y"


class Kind(StrEnum):
    """What a message is."""

    POST = "post"
    DELETE = "delete"
    NOTICE = "notice"
    """Of v1.1, about posts and users: scrub_geo, status_withheld, user_withheld."""
    LIMIT = "limit"
    WARNING = "warning"
    ENDING = "ending"
    """The stream is over, whether or not the socket is closed."""
    UNREADABLE = "unreadable"
    """No JSON: the conversion says what is wrong with it."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Message:
    """One message, its bytes as they came."""

    raw: bytes
    kind: Kind
    id: str | None = None
    """Of a post or a deletion: decimal digits."""
    at_ms: int | None = None
    """When the post was written, in milliseconds since the epoch."""
    user_id: str | None = None
    """Of a deletion: whose post it was."""
    met: tuple[tuple[str, str], ...] = ()
    """Id and tag of each rule that the post has met; none where the message does not say."""
    words: str = ""
    """Of an ending or a warning: what X says."""
    number: int | None = None
    """Of a limit: posts withheld since the connection began; of an ending by v1.1: its code."""


class _Met(msgspec.Struct):
    id: str = ""
    tag: str | None = None


class _Data(msgspec.Struct):
    id: str
    created_at: str | None = None


class _Post(msgspec.Struct):
    """A message of v2 as it usually is."""

    data: _Data
    matching_rules: list[_Met] = []


_decode_post = msgspec.json.Decoder(_Post).decode


def read(raw: bytes) -> Message:
    """What the message is; never raises."""
    try:
        post = _decode_post(raw)
    except UNDECODABLE:
        return _read_any(raw)
    post_id = post.data.id
    if not _is_id(post_id):
        return Message(raw, Kind.UNKNOWN)
    met = tuple((rule.id, rule.tag or "") for rule in post.matching_rules)
    return Message(raw, Kind.POST, post_id, time_ms(post.data.created_at, post_id), met=met)


def _read_any(raw: bytes) -> Message:
    try:
        value = msgspec.json.decode(raw)
    except UNDECODABLE:
        return Message(raw, Kind.UNREADABLE)
    if not isinstance(value, dict):
        return Message(raw, Kind.UNKNOWN)
    data = value.get("data")
    post = data if isinstance(data, dict) else value if "text" in value else None
    if post is not None:
        post_id = _id_in(post)
        if post_id is not None:
            created_at = post.get("created_at")
            return Message(
                raw, Kind.POST, post_id, time_ms(created_at if isinstance(created_at, str) else None, post_id)
            )
    return _read_notice(raw, value)


def _read_notice(raw: bytes, value: Mapping[str, Any]) -> Message:
    message = Message(raw, Kind.UNKNOWN)
    match value:
        case {"delete": {"status": dict() as status}} if (post_id := _id_in(status)) is not None:
            user_id = status.get("user_id_str", status.get("user_id"))
            user = str(user_id) if user_id else None
            message = Message(raw, Kind.DELETE, post_id, time_ms(None, post_id), user_id=user)
        case {"scrub_geo": {}} | {"status_withheld": {}} | {"user_withheld": {}}:
            message = Message(raw, Kind.NOTICE)
        case {"limit": {"track": int(track)}}:
            message = Message(raw, Kind.LIMIT, number=track)
        case {"warning": dict() as warning}:
            message = Message(raw, Kind.WARNING, words=_words(warning, "code", "message"))
        case {"disconnect": dict() as ending}:
            code = ending.get("code")
            words = _words(ending, "reason", "code")
            message = Message(raw, Kind.ENDING, words=words, number=code if isinstance(code, int) else None)
        case {"errors": [dict() as error, *_]}:
            message = Message(raw, Kind.ENDING, words=_words(error, "title", "detail"))
        case {"errors": _} | {"title": str(), "detail": str()}:
            message = Message(raw, Kind.ENDING, words=_words(value, "title", "detail"))
    return message


def time_ms(created_at: str | None, post_id: str) -> int | None:
    """When a post was written: as it says, else by its id; None where neither tells. Milliseconds since the epoch."""
    if created_at is not None:
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(created_at)
            return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        with suppress(ValueError, OverflowError):
            return int(datetime.strptime(created_at, _OLD_TIME).astimezone(UTC).timestamp() * 1000)
    number = int(post_id)
    return (number >> _SNOWFLAKE_SHIFT) + SNOWFLAKE_EPOCH_MS if number >= _SNOWFLAKE_MIN else None


def _id_in(post: Mapping[str, Any]) -> str | None:
    """Of v2 a text, of v1.1 a number with its text beside it."""
    for name in ("id_str", "id"):
        value = post.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and _is_id(value):
            return value
    return None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS_MAX


def _words(value: Mapping[str, Any], *names: str) -> str:
    return ": ".join(str(value[name]) for name in names if value.get(name) is not None)
