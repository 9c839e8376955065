"""Posts of the time in which nobody listened: sent again by the stream (backfill), or found by the search.

Facts: https://docs.x.com/x-api/fundamentals/recovery-and-redundancy and
https://docs.x.com/x-api/posts/search/integrate/paginate.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from fetchers.sdk import HttpAccess, Retriable
from fetchers.toolkit.fields import UNDECODABLE, text_at
from fetchers.x.api import SEARCH_PATH, XApi
from fetchers.x.bookmark import OVERLAP_MS, Bookmark, Missing, iso
from fetchers.x.messages import Message, read
from fetchers.x.rules import Rule

BACKFILL_MINUTES_MAX = 5
SEARCH_DAYS_MAX = 7
SETTLE_MS = 10_000
"""So long after a connection was accepted it surely brings whatever is posted."""
INDEXED_SECONDS = 15.0
"""X searches up to ten seconds ago and no later."""
QUERY_CHARACTERS_MAX = 512
"""Of a search by the smallest account."""
_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
_STREAM_ONLY = re.compile(r"\b(?:sample|bio|bio_name|bio_location|embedding):")
_RESULTS_MAX = "100"
_INCLUDED = {"users": "id", "tweets": "id", "media": "media_key", "polls": "id", "places": "id"}


@dataclass(frozen=True, slots=True)
class Plan:
    """How what is missing will be had."""

    missing: Missing | None = None
    """All of it, as it is remembered until it is there."""
    backfill_minutes: int | None = None
    search: Missing | None = None
    """What the search is asked for."""
    lost_seconds: float = 0.0
    """Time that nobody can give again."""


def plan(bookmark: Bookmark, recovery: str, *, now_ms: int) -> Plan:
    """What to do on a connection that is made now; ``recovery`` as in ``x.recovery``."""
    is_backfilled = recovery == "backfill"
    if bookmark.last_ms is None or recovery == "none":
        # Asked for from the beginning, so that an account without it hears so at once.
        return Plan(backfill_minutes=1 if is_backfilled else None)
    heard_ms = bookmark.last_ms if bookmark.missing is None else min(bookmark.missing.from_ms, bookmark.last_ms)
    first_ms = min(heard_ms, now_ms) - OVERLAP_MS
    oldest_ms = now_ms - SEARCH_DAYS_MAX * _DAY_MS + OVERLAP_MS
    lost_seconds = max(0, oldest_ms - heard_ms) / 1000
    first_ms = max(first_ms, oldest_ms)
    missing = Missing(max(heard_ms, oldest_ms), now_ms)
    if not is_backfilled:
        return Plan(missing, search=Missing(first_ms, now_ms + SETTLE_MS), lost_seconds=lost_seconds)
    minutes = min(BACKFILL_MINUTES_MAX, math.ceil((now_ms - first_ms) / _MINUTE_MS))
    searched_until_ms = now_ms - BACKFILL_MINUTES_MAX * _MINUTE_MS + OVERLAP_MS
    needs_search = heard_ms < now_ms - BACKFILL_MINUTES_MAX * _MINUTE_MS
    search = Missing(first_ms, searched_until_ms) if needs_search else None
    return Plan(missing, minutes, search, lost_seconds)


def queries(rules: Sequence[Rule]) -> Iterator[str]:
    """Rules as few searches; what only the stream understands stands alone, so that its refusal costs no other."""
    together: list[str] = []
    for rule in rules:
        part = f"({rule.value})" if " " in rule.value else rule.value
        if _STREAM_ONLY.search(rule.value):
            yield rule.value
        elif together and len(" OR ".join((*together, part))) > QUERY_CHARACTERS_MAX:
            yield " OR ".join(together)
            together = [part]
        else:
            together.append(part)
    if together:
        yield " OR ".join(together) if len(together) > 1 else together[0].removeprefix("(").removesuffix(")")


class _Meta(msgspec.Struct):
    next_token: str | None = None


class _Answer(msgspec.Struct):
    data: list[msgspec.Raw] = []
    includes: dict[str, list[msgspec.Raw]] = {}
    meta: _Meta = msgspec.field(default_factory=_Meta)


async def found(
    api: XApi, http: HttpAccess, *, query: str, missing: Missing, parameters: Mapping[str, str]
) -> AsyncIterator[list[Message]]:
    """Posts that a search finds, in the form of the stream, oldest first in each answer; later answers are older.

    Raises as ``HttpAccess`` does: Fatal, with X's own words, where it refuses the search.
    """
    asked = {
        **parameters,
        "query": query,
        "start_time": _seconds(missing.from_ms),
        "end_time": _seconds(missing.until_ms),
        "max_results": _RESULTS_MAX,
    }
    while True:
        try:
            answer = msgspec.json.decode((await api.get(http, SEARCH_PATH, asked)).body, type=_Answer)
        except UNDECODABLE as error:
            raise Retriable("X's answer to a search cannot be read") from error
        messages = [read(raw) for raw in _as_streamed(answer)]
        if messages:
            yield messages[::-1]
        if not answer.meta.next_token:
            return
        asked["next_token"] = answer.meta.next_token


def _as_streamed(answer: _Answer) -> Iterator[bytes]:
    """Each post with what belongs to it, as the stream would have sent it; its own bytes are as they came."""
    included = [
        (name, [(f'"{text_at(bytes(raw), _INCLUDED[name])}"'.encode(), bytes(raw)) for raw in things])
        # Posts before users: a quoted post belongs to it, and so does who wrote that.
        for name, things in sorted(answer.includes.items(), key=lambda each: each[0] != "tweets")
        if name in _INCLUDED
    ]
    for post in map(bytes, answer.data):
        known, parts = post, []
        for name, things in included:
            own = [raw for reference, raw in things if reference in known]
            known += b"".join(own) if name == "tweets" else b""
            if own:
                parts.append(f'"{name}":['.encode() + b",".join(own) + b"]")
        includes = b',"includes":{' + b",".join(parts) + b"}" if parts else b""
        yield b'{"data":' + post + includes + b"}"


def _seconds(at_ms: int) -> str:
    """A moment as the search takes it, to the second."""
    return iso(at_ms)[:19] + "Z"
