"""Offsets in Confluent's form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fetchers.sql.places import Place, query_partition, written


def test_an_offset_of_another_connector_is_taken_over() -> None:
    """Its two numbers make the timestamp, in the zone of a column that has none."""
    offset = {"incrementing": 17, "timestamp": 1476423962123, "timestamp_nanos": 123456000}
    assert Place.read(offset, zone=None) == Place(17, "2016-10-14 05:46:02.123456", None)
    assert Place.read(offset, zone="Europe/Berlin").at == "2016-10-14 07:46:02.123456"
    assert Place.read({"incrementing": -1}, zone=None) == Place()


def test_ours_has_its_names_and_reads_back() -> None:
    """Beside its numbers ours says what the database has written, which goes before them."""
    place = Place(17, "2016-10-14 07:46:02.123456", ("1", "ü"))
    offset = place.offset(zone="Europe/Berlin")
    assert offset["timestamp"] == 1476423962123
    assert offset["timestamp_nanos"] == 123456000
    assert Place.read(offset, zone="Europe/Berlin") == place


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
