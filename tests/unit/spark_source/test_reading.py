"""Spark's data source without Spark: options, parts, rows."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fetchers.sdk import FetchContext, Inbox, Page, Retriable, listen
from service.config.files import ConfigFileError
from service.spark_source.feed import SourceFeed
from service.spark_source.fetching import EndlessSourceError
from service.spark_source.options import OptionsRefusedError, Rejects, read_options
from service.spark_source.rows import RecordRejectedError
from service.validation.files import validate_file
from tests.counting_source import CLASS, SCHEMA, CountingSource

REJECTED_FIRST = {
    "stage": "VALUE_CONVERTER",
    "reason": "wrong_type",
    "message": "n: expected an integer",
    "payload": b'{"n":"0"}',
    "partition": '{"first": 0}',
    "offset": '{"next": 10}',
    "position": None,
}


@pytest.fixture(name="options")
def options_fixture(tmp_path: Path) -> dict[str, str]:
    """Twenty-five numbers."""
    until = tmp_path / "until"
    until.write_text("25")
    return {"connector.class": CLASS, "counting.until": str(until), "contract.schema": SCHEMA, "poll.interval.ms": "5"}


def rows(options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every row of a batch read, in the order of its parts, each pickled on its way as by Spark."""
    feed = pickle.loads(pickle.dumps(SourceFeed(read_options(options))))  # noqa: S301 - our own
    parts = [pickle.loads(pickle.dumps(part)) for part in feed.tasks()]  # noqa: S301 - our own
    found = []
    for part in parts:
        for batch in feed.read(part):
            assert batch.schema == feed.schema
            found += batch.to_pylist()
    return found


def test_a_batch_ends_with_the_first_round(options: dict[str, str]) -> None:
    """Everything the source has, once, though its fetcher would go on for ever."""
    assert rows(options) == [{"n": at, "text": f"t{at}"} for at in range(25)]


def test_parts_are_the_connectors_tasks(options: dict[str, str]) -> None:
    """By ``tasks.max``; together they have every record once."""
    options["tasks.max"] = "3"
    assert len(SourceFeed(read_options(options)).tasks()) == 3
    assert sorted(row["n"] for row in rows(options)) == list(range(25))


def test_a_source_with_nothing_gives_nothing(options: dict[str, str]) -> None:
    """No row, and no error."""
    Path(options["counting.until"]).write_text("0")
    assert rows(options) == []


def test_a_rejected_record_fails_the_read_unless_something_else_is_asked_for(options: dict[str, str]) -> None:
    """As a task with ``errors.tolerance=none``; the text says where, why, and what to do."""
    options["counting.bad"] = "7"
    with pytest.raises(RecordRejectedError, match=r"wrong_type.*n: expected an integer.*headrace\.rejected=column"):
        rows(options)


def test_rejected_records_are_where_they_are_asked_for(options: dict[str, str]) -> None:
    """In a column, alone, or nowhere; ``errors.tolerance=all`` means the column."""
    options["counting.bad"] = "7"
    bad, good = [0, 7, 14, 21], [at for at in range(25) if at % 7]
    for choice in ({"headrace.rejected": "column"}, {"errors.tolerance": "all"}):
        found = rows({**options, **choice})
        assert [row["n"] for row in found if row["_rejected"] is None] == good
        assert [json.loads(row["_rejected"]["payload"])["n"] for row in found if row["_rejected"]] == list(
            map(str, bad)
        )
        assert found[0] == {"n": None, "text": None, "_rejected": REJECTED_FIRST}
    only = rows({**options, "headrace.rejected": "only"})
    assert only[0] == {**REJECTED_FIRST, "topic": "spark", "key": None, "timestamp": None}
    assert len(only) == len(bad)
    assert [row["n"] for row in rows({**options, "headrace.rejected": "without"})] == good


def test_equal_records_come_once(options: dict[str, str]) -> None:
    """By ``dedupe.fields``, as the service drops them; a rejected one is no reason to drop the good one."""
    more = {"counting.twice": "5", "counting.bad": "10", "headrace.rejected": "column"}
    assert len(rows({**options, **more})) == 30
    found = rows({**options, **more, "dedupe.fields": "n"})
    assert sorted(row["n"] for row in found if row["_rejected"] is None) == [at for at in range(25) if at % 10]
    assert len([row for row in found if row["_rejected"]]) == 3


def test_what_a_fetcher_cannot_vouch_for_is_rejected(options: dict[str, str]) -> None:
    """With the fetcher's own reason, whatever the contract would say."""
    found = rows({**options, "connector.class": "tests.counting_source:DoubtingSource", "headrace.rejected": "only"})
    assert [(row["stage"], row["reason"], row["offset"]) for row in found] == [
        ("TASK_POLL", "too_large", json.dumps({"next": at})) for at in (10, 20, 25)
    ]


def test_without_a_contract_rows_have_the_bytes(options: dict[str, str]) -> None:
    """And everything else that a page tells of a record; what is no JSON is rejected all the same."""
    del options["contract.schema"]
    found = rows({**options, "topic": "numbers"})
    assert found[0] == {
        "value": b'{"n":0,"text":"t0"}',
        "topic": "numbers",
        "key": None,
        "timestamp": None,
        "partition": '{"first": 0}',
        "offset": '{"next": 10}',
        "position": None,
    }
    assert rows({**options, "contract.schema": SCHEMA, "headrace.source.column": "true"})[24]["_source"]["offset"] == (
        '{"next": 25}'
    )


def test_a_connectors_file_is_read_by_load(options: dict[str, str], tmp_path: Path) -> None:
    """The file that a worker runs; options of the call stand above it."""
    file = tmp_path / "numbers.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in {**options, "name": "n", "topic": "t"}.items()))
    assert len(rows({"path": str(file)})) == 25
    assert rows({"path": str(file), "headrace.source.column": "true"})[0]["_source"]["topic"] == "t"
    with pytest.raises(OptionsRefusedError, match="path"):
        rows({"path": str(tmp_path / "nowhere.properties")})
    assert issubclass(ConfigFileError, Exception)


@pytest.mark.parametrize(
    "wrong",
    [
        {"connector.class": "Nope"},
        {"connector.class": "FileStreamSource", "file": "f", "batch.records.max": "0"},
        {"connector.class": "FileStreamSource", "file": "f", "contract.schema": "{", "tasks.max": "0"},
        {"connector.class": "HttpSource", "http.url": "nowhere", "dedupe.fields": "a,a"},
        {"connector.class": "MixpanelSource", "mixpanel.timezone": "Mars"},
    ],
)
def test_refusals_are_those_of_validate(wrong: dict[str, str], tmp_path: Path) -> None:
    """Every finding at once, with the same words."""
    file = tmp_path / "wrong.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in {"name": "spark", "topic": "spark", **wrong}.items()))
    with pytest.raises(OptionsRefusedError) as refusal:
        read_options(wrong)
    told = [finding.message for finding in validate_file(file).findings if finding.is_error]
    assert told
    assert [finding.message for finding in refusal.value.findings][: len(told)] == told
    assert all(message in str(refusal.value) for message in told)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"contract.rules.big": "n > 3"}, "contract.rules.big"),
        (
            {
                "transforms": "a",
                "transforms.a.type": "org.apache.kafka.connect.transforms.HoistField$Value",
                "transforms.a.field": "x",
            },
            "transforms",
        ),
        ({"contract.unknown.fields": "keep"}, "contract.unknown.fields"),
        ({"contract.schema": SCHEMA.replace('"text"', '"_rejected"')}, "contract.schema"),
        ({"headrace.rejectd": "column"}, "headrace.rejectd"),
        ({"headrace.rejected": "maybe"}, "headrace.rejected"),
        ({"connector.class": "FileStreamSink", "topics": "t", "file": "f"}, "connector.class"),
        ({"connector.class": "FileStreamSource"}, "connector.class"),
    ],
)
def test_what_would_silently_mean_nothing_is_refused(options: dict[str, str], wrong: dict[str, str], key: str) -> None:
    """Keys that only records of Kafka obey, and options that are none."""
    with pytest.raises(OptionsRefusedError) as refusal:
        read_options({**options, **wrong})
    assert key in {finding.key for finding in refusal.value.findings}


def test_variables_are_resolved_on_the_driver(options: dict[str, str]) -> None:
    """By providers among the options, with the driver's environment; executors are given values."""
    providers = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
    given = {**options, **providers, "topic": "${env:TOPIC_OF_MINE}"}
    read = read_options(given, environ={"TOPIC_OF_MINE": "mine"})
    assert read.properties["topic"] == "mine"
    assert read.rejects is Rejects.FAIL


def test_what_is_only_doubtful_is_said(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """In the log of the driver: a key that nothing reads is no reason to refuse."""
    read_options({**options, "dedupe.field": "n"})
    assert "dedupe.fields" in caplog.text


def test_the_folder_of_pages_is_the_driver_s(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever folder an executor works in; an address stays as it is."""
    monkeypatch.chdir("/")
    assert read_options({**options, "headrace.pages.path": "pages"}).pages_path == "/pages"
    assert read_options({**options, "headrace.pages.path": "s3://b/p"}).pages_path == "s3://b/p"


class Talking(CountingSource):
    """A listener."""

    async def fetch(self, context: FetchContext) -> Any:
        """Nothing ever comes."""

        async def receive(inbox: Inbox) -> None:
            inbox.connected(is_resumed=True)
            await asyncio.Event().wait()

        async for page in listen(context, receive):
            yield page


class Failing(CountingSource):
    """Two pages, a failure that passes, the rest."""

    has_failed = False

    def _page(self, numbers: range, at: int) -> Page:
        if at > 20 and not type(self).has_failed:
            type(self).has_failed = True
            raise Retriable("away for a moment", wait_seconds=0.001)
        return super()._page(numbers, at)


@pytest.fixture(name="here")
def here_fixture(options: dict[str, str]) -> Iterator[dict[str, str]]:
    """Options whose class is one of this file's."""
    yield options
    Failing.has_failed = False


def test_a_listener_is_no_batch(here: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no end, which is said rather than waited for."""
    monkeypatch.setattr("tests.counting_source.CountingSource", Talking)
    with pytest.raises(EndlessSourceError, match="readStream"):
        rows(here)


def test_a_failure_that_passes_costs_nothing(here: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetch goes on after the last page, as in a task."""
    monkeypatch.setattr("tests.counting_source.CountingSource", Failing)
    assert [row["n"] for row in rows(here)] == list(range(25))
    assert Failing.has_failed
