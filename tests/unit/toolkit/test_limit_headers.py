"""Header fields in which a source tells what is left of its limit, in every form in use."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.toolkit.http.retry_after import WAIT_SECONDS_MAX
from fetchers.toolkit.limit_headers import LimitHeaders

NOW = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
PAIR = LimitHeaders(remaining="X-Left", reset="X-Reset")
QUOTA = LimitHeaders(quota="RateLimit")
BUCKET = LimitHeaders(bucket="X-Calls", leak_per_second=2.0)


@pytest.mark.parametrize(
    ("fields", "headers", "expected"),
    [
        (PAIR, {"X-Left": "1", "X-Reset": "30"}, 0.0),
        (PAIR, {"X-Left": "0", "X-Reset": "30"}, 30.0),
        (PAIR, {"X-Left": "0", "X-Reset": "1.5"}, 1.5),
        (PAIR, {"X-Left": "0", "X-Reset": str(int(NOW.timestamp()) + 90)}, 90.0),
        (PAIR, {"X-Left": "0", "X-Reset": str(int(NOW.timestamp() * 1000) + 1500)}, 1.5),
        (PAIR, {"X-Left": "0", "X-Reset": str(int(NOW.timestamp()) - 90)}, 0.0),
        (PAIR, {"X-Left": "0", "X-Reset": "2024-05-01T12:01:00Z"}, 60.0),
        (PAIR, {"X-Left": "0", "X-Reset": "Wed, 01 May 2024 12:00:10 GMT"}, 10.0),
        (PAIR, {"X-Left": "0", "X-Reset": "99999999"}, WAIT_SECONDS_MAX),
        (PAIR, {"X-Left": "0", "X-Reset": "soon"}, None),
        (PAIR, {"X-Left": "0"}, None),
        (PAIR, {"X-Left": "many", "X-Reset": "30"}, None),
        (PAIR, {}, None),
        (LimitHeaders(remaining="X-Left", reset="X-Reset", spare=5), {"X-Left": "5", "X-Reset": "30"}, 30.0),
        (QUOTA, {"RateLimit": '"default";r=50;t=30'}, 0.0),
        (QUOTA, {"RateLimit": '"default";r=0;t=30'}, 30.0),
        (QUOTA, {"RateLimit": '"burst";r=0;t=2, "day, long";r=0;t=3600'}, 3600.0),
        (QUOTA, {"RateLimit": '"burst";r=9;t=2, "daily"; r=0; t=3600'}, 3600.0),
        (QUOTA, {"RateLimit": "limit=100, remaining=0, reset=5"}, 5.0),
        (QUOTA, {"RateLimit": "limit=100, remaining=7, reset=5"}, 0.0),
        (QUOTA, {"RateLimit": '"default";r=0'}, None),
        (QUOTA, {"RateLimit": "?"}, None),
        (BUCKET, {"X-Calls": "32/40"}, 0.0),
        (BUCKET, {"X-Calls": "39/40"}, 0.0),
        (BUCKET, {"X-Calls": "40/40"}, 0.5),
        (BUCKET, {"X-Calls": "43/40"}, 2.0),
        (BUCKET, {"X-Calls": "full"}, None),
    ],
)
def test_how_long_to_wait(fields: LimitHeaders, headers: dict[str, str], expected: float | None) -> None:
    """Seconds until there is room for a request; None where the fields do not tell."""
    assert fields.wait_seconds(headers, now=NOW) == expected


def test_a_moment_is_compared_with_the_clock_of_the_source() -> None:
    """Our clock is ten minutes fast, and the wait is as long as the source means it."""
    headers = {"X-Left": "0", "X-Reset": str(int(NOW.timestamp()) + 90), "Date": "Wed, 01 May 2024 12:00:00 GMT"}
    assert PAIR.wait_seconds(headers, now=datetime(2024, 5, 1, 12, 10, 0, tzinfo=UTC)) == 90.0


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_of_a_source_breaks_it(one: str, other: str) -> None:
    """Whatever stands in the fields: a wait within a day, or none."""
    fields = LimitHeaders(remaining="a", reset="b", quota="b", bucket="b")
    for headers in ({"a": "0", "b": one, "Date": other}, {"a": one, "b": other}):
        wait = fields.wait_seconds(headers, now=NOW)
        assert wait is None or 0 <= wait <= WAIT_SECONDS_MAX
