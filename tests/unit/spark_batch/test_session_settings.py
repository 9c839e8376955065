"""Settings of a session: a worker's file may tune Spark, and may not change what verdicts rest on."""

from __future__ import annotations

import pytest

from spark_batch.pinned_settings import PINNED_SETTINGS, refused_settings
from spark_batch.session import SparkSettings, session_settings

PASSED = {"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.shuffle.partitions": "7", "spark.cores.max": "2"}


@pytest.mark.parametrize("remote", ["sc://spark:15002", None])
def test_no_option_stands_above_what_verdicts_rest_on(remote: str | None) -> None:
    """With Spark Connect as with a JVM of our own, whose launch has taken the other options."""
    found = session_settings(SparkSettings(remote=remote, options=tuple(PASSED.items())))
    assert found.items() >= PINNED_SETTINGS.items()
    assert found.keys() - PINNED_SETTINGS.keys() == ({"spark.sql.shuffle.partitions"} if remote else set())


def test_options_that_ask_for_something_else_are_refused() -> None:
    """Not those that ask for what is so anyway."""
    options = {**PASSED, "spark.sql.ansi.enabled": "FALSE", "spark.sql.avro.datetimeRebaseModeInWrite": "LEGACY"}
    assert set(refused_settings(options)) == {
        "spark.sql.session.timeZone",
        "spark.sql.avro.datetimeRebaseModeInWrite",
    }
