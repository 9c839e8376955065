"""What listeners on HTTP share: their keys, how they ask, where they go on, and which messages are for the topic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pydantic import Field

from fetchers.sdk import (
    Authorizer,
    Fatal,
    Finding,
    HttpLimits,
    Importance,
    Inbox,
    Key,
    NameList,
    Offset,
    Rejection,
    RequestOptions,
)
from fetchers.toolkit.access import HttpAccessConfig, odd_value
from fetchers.toolkit.fields import UNDECODABLE, raw_field, text_at
from fetchers.toolkit.http.failures import excerpt

_LISTENER = Key(group="Listener", importance=Importance.LOW)
_MATCH = re.compile(r"([^=\s]+)=(.*)\Z", re.DOTALL)
_PLACEHOLDER = "{offset}"
CURSOR = "cursor"
"""In the source offset: the value of the cursor's field in the last message that had one, as it is written there."""


class ListenerConfig(HttpAccessConfig):
    """Keys of every listener that speaks HTTP."""

    listener_silence_ms: Annotated[int, Field(ge=1), _LISTENER] = 120_000
    """Milliseconds after which a connection on which nothing comes, not even a keep-alive, is made anew."""
    listener_message_bytes_max: Annotated[int, Field(ge=1), _LISTENER] = 1_048_576
    """Size of one message; the first bytes of a larger one become a dead letter."""
    listener_skip: Annotated[NameList, Key(group="Listener")] = ()
    """JSON messages that are not for the topic, such as type=heartbeat,method=subscribe: a field (dots between names)
    and its value, as it is written there if it is no text, such as success=true. They are passed over."""
    listener_fatal: Annotated[NameList, Key(group="Listener")] = ()
    """JSON messages by which the source refuses us, such as type=error: the task fails, and shows what they say."""

    http_timeout_connect_ms: Annotated[int, Field(ge=1), _LISTENER] = 10_000
    """Milliseconds for a connection."""

    @property
    def silence_seconds(self) -> float:
        """``listener.silence.ms`` in seconds."""
        return self.listener_silence_ms / 1000

    def request(self, auth: Authorizer | None, headers: dict[str, str] | None = None) -> RequestOptions:
        """What each connection is asked for with; ``auth`` is made once for a task (``auth``)."""
        return RequestOptions(
            headers={**(headers or {}), **self.headers()},
            auth=auth,
            limits=HttpLimits(connect_seconds=self.http_timeout_connect_ms / 1000, read_seconds=self.silence_seconds),
            tls=self.tls(),
            secrets=self.access_secrets(),
            is_page_refused=True,
        )

    def findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        yield from self.access_findings()
        for key in ("listener.skip", "listener.fatal"):
            for text in getattr(self, key.replace(".", "_")):
                if not _MATCH.match(text):
                    yield odd_value(key, text, "Expected a field and its value, such as type=heartbeat.")


def address_finding(key: str, url: str) -> Iterator[Finding]:
    """Credentials in a URL would be shown in every answer and log."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        yield Finding(key, None, f"Invalid value for configuration {key}: Credentials go into http.auth.")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Goes on where it was: a field of the messages, whose last value is sent when connecting again."""

    field: str | None
    initial: str | None
    """What is sent the first time."""

    def findings(self, prefix: str, templates: Sequence[str], *, asked_by: str) -> Iterator[Finding]:
        """``prefix``: of its keys; ``templates``: texts that may hold ``{offset}``, of the key ``asked_by``."""
        is_asked = any(_PLACEHOLDER in text for text in templates)
        if is_asked and self.field is None:
            yield Finding(f"{prefix}.cursor.field", None, f"Missing: {{offset}} is used in {asked_by}.")
        if is_asked and self.initial is None:
            message = "Missing: the first connection has no other value for {offset}."
            yield Finding(f"{prefix}.cursor.initial", None, message)
        if self.field is not None and not is_asked:
            yield odd_value(
                f"{prefix}.cursor.field", self.field, f"There is no {{offset}} in {asked_by} to send it by."
            )

    def filled(self, template: str, offset: Offset, *, encode: Callable[[str], str]) -> str:
        """The text with what was read last in place of ``{offset}``."""
        value = offset.get(CURSOR)
        text = (self.initial or "") if value is None else str(value)
        return template.replace(_PLACEHOLDER, encode(text))

    def after(self, payloads: Sequence[bytes] | pa.Array[Any], offset: Offset) -> Offset | None:
        """Where to resume after these messages: by the last one that has the field. None without a cursor."""
        if self.field is None:
            return None
        for index in range(len(payloads) - 1, -1, -1):
            payload = payloads[index]
            raw = payload if isinstance(payload, bytes) else payload.as_py()
            place = _place(raw_field(raw, self.field))
            if place:
                return {CURSOR: place}
        return dict(offset)


def _place(raw: bytes | None) -> str | None:
    """A text, or a number with all its digits; None for anything else."""
    try:
        value = None if raw is None else msgspec.json.decode(raw, type=str | int | float | None)
    except UNDECODABLE:
        return None
    return value if raw is None or value is None or isinstance(value, str) else raw.decode()


def in_url(text: str) -> str:
    """As it stands in a URL."""
    return quote(text, safe="")


def in_json(text: str) -> str:
    """As it stands between quotation marks; numbers may stand without them."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class Sorting:
    """Tells messages for the topic from those that are about the connection."""

    def __init__(self, config: ListenerConfig) -> None:
        self._secrets = config.access_secrets()
        self._skip = _matches(config.listener_skip)
        self._fatal = _matches(config.listener_fatal)

    async def put(
        self,
        inbox: Inbox,
        payloads: Sequence[bytes] | pa.Array[Any],
        *,
        offset_after: Callable[[int], Offset | None],
        rejections: tuple[Rejection, ...] = (),
    ) -> None:
        """Put in what is for the topic. Raises Fatal, with the words of the source, where it refuses us.

        ``offset_after``: where to resume after so many of the payloads; None where the source cannot be resumed.
        """
        if not self._skip and not self._fatal:
            await inbox.put(payloads, offset=offset_after(len(payloads)), rejections=rejections)
            return
        values = [each if isinstance(each, bytes) else each.as_py() for each in payloads]
        bad = {rejection.index: rejection for rejection in rejections}
        kept: list[bytes] = []
        moved: list[Rejection] = []
        for index, value in enumerate(values):
            if index in bad:
                moved.append(Rejection(len(kept), bad[index].reason, bad[index].message))
            elif _is_any(self._fatal, value):
                if kept:
                    await inbox.put(kept, offset=offset_after(index), rejections=tuple(moved))
                raise Fatal(f"the source refuses: {excerpt(value, self._secrets)}")
            elif _is_any(self._skip, value):
                continue
            kept.append(value)
        await inbox.put(kept, offset=offset_after(len(payloads)), rejections=tuple(moved))


def _matches(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = (_MATCH.match(text) for text in texts)
    return tuple((match[1], match[2]) for match in found if match)


def _is_any(matches: tuple[tuple[str, str], ...], value: bytes) -> bool:
    return any(text_at(value, path) == text for path, text in matches)
