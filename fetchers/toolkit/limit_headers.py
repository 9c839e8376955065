"""Header fields in which a source tells how much of its own rate limit is left.

Four kinds are in use: two fields of a vendor's own for what is left and when it is filled up again
(``X-RateLimit-Remaining`` and ``X-RateLimit-Reset``, https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api);
one field by the IETF (``RateLimit``, https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/); a bucket
that leaks (``X-Shopify-Shop-Api-Call-Limit: 32/40``, https://shopify.dev/docs/api/admin-rest/usage/rate-limits); and
``Retry-After``, which needs no setting (see ``retry_after``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from fetchers.toolkit.http.retry_after import WAIT_SECONDS_MAX

_EPOCH_SECONDS_MIN = 1_000_000_000
"""Smaller numbers are seconds from now: no limit lasts for 31 years."""
_EPOCH_MILLISECONDS_MIN = 1_000_000_000_000
_NUMBER = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*\Z", re.ASCII)
_BUCKET = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*/\s*(\d{1,9}(?:\.\d{1,9})?)\s*\Z", re.ASCII)
_ITEM = re.compile(r"""(?:"[^"]*"|[^",])+""")
_QUOTA = re.compile(r";\s*([rt])\s*=\s*(\d{1,18})", re.ASCII)
_OLD_QUOTA = re.compile(r"\b(remaining|reset)\s*=\s*(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class LimitHeaders:
    """Names of header fields, None for those that a source has not, and how they are to be read."""

    remaining: str | None = None
    """Requests that are left."""
    reset: str | None = None
    """When there are more: seconds from now, seconds or milliseconds since 1970, or a date (ISO 8601, HTTP)."""
    quota: str | None = None
    """The field of the IETF's draft: ``"default";r=0;t=30``, or in its older form ``remaining=0, reset=30``."""
    bucket: str | None = None
    """How full the bucket is: ``32/40``."""
    leak_per_second: float = 1.0
    """By how many requests a second the bucket becomes emptier."""
    spare: int = 0
    """Requests of what is left that are for others."""

    def wait_seconds(self, headers: Mapping[str, str], *, now: datetime) -> float | None:
        """Seconds from ``now`` (aware) until the source has room for a request; 0 where it has.

        None where the fields are absent, cannot be read, or do not say when there is room again. A time of day is
        compared with the source's own clock (``Date``), where it tells it.
        """
        waits = [wait for wait in self._waits(headers, now) if wait is not None]
        return min(max(waits), WAIT_SECONDS_MAX) if waits else None

    def _waits(self, headers: Mapping[str, str], now: datetime) -> Iterator[float | None]:
        if self.remaining is not None:
            left = _number(headers.get(self.remaining))
            if left is not None:
                reset = headers.get(self.reset) if self.reset else None
                yield 0.0 if left > self.spare else _until(reset, _clock_of(headers, now))
        if self.quota is not None:
            yield from self._quota_waits(headers.get(self.quota, ""))
        if self.bucket is not None:
            filled = _BUCKET.match(headers.get(self.bucket, ""))
            if filled:
                excess = float(filled[1]) + 1 + self.spare - float(filled[2])
                yield max(0.0, excess / self.leak_per_second)

    def _quota_waits(self, text: str) -> Iterator[float | None]:
        old = dict(_OLD_QUOTA.findall(text))
        if "remaining" in old:
            yield self._quota_wait(old["remaining"], old.get("reset"))
            return
        for item in _ITEM.findall(text):
            found = dict(_QUOTA.findall(item))
            if "r" in found:
                yield self._quota_wait(found["r"], found.get("t"))

    def _quota_wait(self, remaining: str, reset: str | None) -> float | None:
        if int(remaining) > self.spare:
            return 0.0
        return None if reset is None else float(reset)


def _number(text: str | None) -> float | None:
    found = _NUMBER.match(text or "")
    return float(found[1]) if found else None


def _until(text: str | None, now: datetime) -> float | None:
    """Seconds until the moment that a source names; 0 where it is past, None where it cannot be read."""
    number = _number(text)
    if number is None:
        moment = _moment(text or "")
        return None if moment is None else max(0.0, (moment - now).total_seconds())
    if number < _EPOCH_SECONDS_MIN:
        return number
    since_epoch = number / 1000 if number >= _EPOCH_MILLISECONDS_MIN else number
    return max(0.0, since_epoch - now.timestamp())


def _moment(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text.strip())
        except ValueError:
            continue
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None


def _clock_of(headers: Mapping[str, str], now: datetime) -> datetime:
    """The source's own time, which need not be ours."""
    return _moment(headers.get("Date", "")) or now
