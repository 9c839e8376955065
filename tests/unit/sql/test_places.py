"""Offsets in Confluent's form."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fetchers.sdk import Page, Partition
from fetchers.sdk.testing.context import FakeContext
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Table
from fetchers.sql.fetcher import JdbcSource
from fetchers.sql.load import Part
from fetchers.sql.places import (
    OTHERS_QUERY,
    Place,
    earliest_to_come,
    query_partition,
    stored_offset,
    stored_query_offset,
    table_partition,
    written,
)


def test_an_offset_of_another_connector_is_taken_over() -> None:
    """Its two numbers make the timestamp, in the zone of a column that has none."""
    offset = {"incrementing": 17, "timestamp": 1476423962123, "timestamp_nanos": 123456000}
    assert Place.read(offset, zone=None) == Place(17, "2016-10-14 05:46:02.123456", None)
    assert Place.read(offset, zone="Europe/Berlin").at == "2016-10-14 07:46:02.123456"
    assert Place.read({"incrementing": -1}, zone=None) == Place()


def test_ours_has_its_names_and_reads_back() -> None:
    """Beside its numbers ours says what the database has written, which goes before them."""
    place = Place(17, "2016-10-14 07:46:02.123456", ("1", "ü"), "0a1b")
    offset = place.offset(zone="Europe/Berlin")
    assert offset["timestamp"] == 1476423962123
    assert offset["timestamp_nanos"] == 123456000
    assert Place.read(offset, zone="Europe/Berlin") == place
    earlier = {name: value for name, value in offset.items() if name != "after_order"}
    assert Place.read(earlier, zone="Europe/Berlin") == replace(place, order=None)


def test_another_query_has_another_partition() -> None:
    """So that it does not go on where the old one was; white space makes no other query."""
    assert query_partition("select 1") != query_partition("select 2")
    assert query_partition("select  1\n") == query_partition("select 1")


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001 - UTC is added
def test_an_instant_keeps_its_microseconds(moment: datetime) -> None:
    """In both directions."""
    passed = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    text = written(passed // 1000, passed % 1_000_000 * 1000, zone=None)
    assert text == moment.isoformat(" ", "microseconds")
    assert Place(None, text).offset(zone=None)["timestamp"] == passed // 1000


def _left(forgotten: Partition, stored: list[Partition]) -> list[Partition]:
    """Partitions that are still there when one is forgotten by hand."""
    properties = {"connection.url": "jdbc:postgresql://db/x", "mode": "incrementing", "topic.prefix": "t."}
    config = JdbcConfig.parse(properties).config
    assert config is not None
    others = JdbcSource(config).forgotten_with(forgotten, stored)
    assert all(other in stored for other in others)
    return [one for one in stored if one not in (forgotten, *others)]


def test_a_table_that_is_forgotten_is_forgotten_in_every_form() -> None:
    """It begins anew then, and not where an older release or a part of its first load once stood."""
    table, other = Table("orders", "public", None, "x"), Table("customers", "public", None, "x")
    own = table_partition(table.full_name)
    older: list[Partition] = [
        table_partition("x.public.orders"), table_partition("orders"), {"table": "public.orders"}, {"table": "orders"}
    ]  # fmt: skip
    parts = [Part(None, 10).partition(table), Part(10, 20).partition(table)]
    others = [table_partition(other.full_name), table_partition("border.orders2"), {"table": "customers"}]
    left = _left(own, [own, *older, *parts, *others])
    assert left == others
    context = FakeContext()
    for partition in left:
        context.commit(Page([], {"incrementing": 7}, partition=partition))
    assert stored_offset(context, table) == {}
    assert stored_offset(context, other) == {"incrementing": 7}


def test_an_older_form_or_a_part_is_forgotten_alone() -> None:
    """A person has named just that."""
    own, older = table_partition("public.orders"), {"table": "orders"}
    part = Part(None, 10).partition(Table("orders", "public"))
    assert _left(older, [own, older, part]) == [own, part]
    assert _left(part, [own, older, part]) == [own, older]


def test_a_query_that_is_forgotten_does_not_go_on_where_another_connector_stood() -> None:
    """Confluent's place of a query is the same for each of them."""
    own = query_partition("select 1")
    assert _left(own, [own, OTHERS_QUERY]) == []
    assert stored_query_offset(FakeContext(), "select 1") == {}


@given(
    st.integers(0, 30 * 3600),
    st.sampled_from(
        [
            ("Europe/Berlin", datetime(2024, 10, 26, 12, tzinfo=UTC)),
            ("Europe/Berlin", datetime(2024, 3, 30, 12, tzinfo=UTC)),
            ("America/St_Johns", datetime(2024, 11, 2, 12, tzinfo=UTC)),
            ("Antarctica/Casey", datetime(2018, 3, 10, 0, tzinfo=UTC)),
            ("Asia/Kolkata", datetime(2024, 10, 26, 12, tzinfo=UTC)),
        ]
    ),
)
@example(12 * 3600 + 1, ("Europe/Berlin", datetime(2024, 10, 26, 12, tzinfo=UTC)))
def test_no_local_time_comes_that_is_earlier_than_the_earliest(second: int, case: tuple[str, datetime]) -> None:
    """Around the days on which clocks are set back: what is read up to it has all rows that will ever be before it."""
    zone, moment = ZoneInfo(case[0]), case[1] + timedelta(seconds=second, microseconds=second % 1000)
    shown = [
        (moment + timedelta(minutes=minutes)).astimezone(zone).replace(tzinfo=None, second=0, microsecond=0)
        for minutes in range(1, 600)
    ]
    local = moment.astimezone(zone).replace(tzinfo=None)
    assert earliest_to_come(moment, zone) == min(local, *shown)


@pytest.mark.parametrize(
    ("moment", "earliest"),
    [
        ("2024-10-26 23:59:59.5", "2024-10-27 01:59:59.5"),
        ("2024-10-27 00:30:00.5", "2024-10-27 02:00:00"),  # the first of two hours from two to three
        ("2024-10-27 01:30:00.5", "2024-10-27 02:30:00.5"),
        ("2024-03-31 00:59:59.5", "2024-03-31 01:59:59.5"),
        ("2024-03-31 01:00:00.5", "2024-03-31 03:00:00.5"),
    ],
)
def test_an_hour_that_comes_twice_is_waited_for(moment: str, earliest: str) -> None:
    """In the first of the two, rows may still come with times of its beginning."""
    found = earliest_to_come(datetime.fromisoformat(moment).replace(tzinfo=UTC), ZoneInfo("Europe/Berlin"))
    assert found == datetime.fromisoformat(earliest)
