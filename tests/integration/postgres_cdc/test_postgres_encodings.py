# ruff: noqa: S608 - statements of tests
"""``PostgresCdcSource`` of a database without an encoding (``SQL_ASCII``), whose texts are any bytes."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from fetchers.sdk import Offset, Page
from tests.databases import DatabaseServer, Postgres, own_postgres
from tests.integration.postgres_cdc.test_postgres_log import Followed, records

pytestmark = pytest.mark.integration
WHY = "are no UTF-8: is the database's encoding SQL_ASCII?"


@pytest.fixture
def bare(postgres_server: DatabaseServer) -> Iterator[Followed]:
    """It, followed."""
    settings = "encoding 'SQL_ASCII' template template0 locale 'C'"
    with own_postgres(Postgres(postgres_server, f"test_{uuid.uuid4().hex[:10]}"), settings) as postgres:
        postgres.run("create table marker (id serial primary key)")
        made = Followed(postgres)
        yield made
        made.drop()


def told(pages: list[Page]) -> tuple[list[tuple[str, Any]], list[str]]:
    """Operations and ids of what is delivered, and what is said of what is rejected."""
    delivered, rejected = [], []
    for page in pages:
        wrong = {one.index for one in page.rejections}
        rejected += [one.message for one in page.rejections]
        if page.topic == "srv.public.t":
            each = enumerate(records(page))
            delivered += [(value["op"], key["id"]) for at, (key, value) in each if value and at not in wrong]
    return delivered, rejected


async def test_a_text_that_is_no_utf8_rejects_its_row_alone(bare: Followed) -> None:
    """In the snapshot, in stretches and in the log, in every type that is told as a text; the others are delivered."""
    bare.postgres.run(
        "create table t (id int primary key, v text, a text[], j json)",
        "insert into t values (1, 'grün', '{ü}', '{\"a\": \"ü\"}'), (5, null, null, null)",
        r"insert into t (id, v) values (2, E'\xfcber')",
        r"insert into t (id, a) values (3, array[E'\xe4'])",
        r"insert into t (id, j) values (4, E'\"\xf6\"')",
    )
    bare.properties["snapshot.fetch.size"] = "2"
    pages = await bare.read(stops=lambda page: "snapshot_key" in page.offset)  # one page; the others by stretches
    assert told(pages)[0] == [("r", 1)]
    ((_, value),) = [record for page in pages for record in records(page) if record[0] == {"id": 1}]
    assert {name: value["after"][name] for name in "vaj"} == {"v": "grün", "a": ["ü"], "j": '{"a": "ü"}'}
    pages += await bare.read(stops=lambda _: bare.is_read)
    delivered, rejected = told(pages)
    assert sorted(delivered) == [("r", 1), ("r", 5)]
    assert [message.partition(", in a snapshot")[0] for message in rejected] == [
        f'public.t, key {{"id":{number}}}' for number in (2, 3, 4)
    ]
    assert [message.partition(": ")[2] for message in rejected] == [
        f"column v: the bytes fc626572 {WHY}",
        f"column a: the bytes 7be47d {WHY}",
        f"column j: the bytes 22f622 {WHY}",
    ]
    bare.postgres.run(r"insert into t (id, v) values (6, E'\xdf'), (7, 'ß')", "insert into marker default values")
    delivered, rejected = told(await bare.read(stops=lambda page: page.topic == "srv.public.marker"))
    assert delivered == [("c", 7)]
    assert [(message[:24], message.partition(": ")[2]) for message in rejected] == [
        ('public.t, key {"id":6}, ', f"column v: the bytes df {WHY}")
    ]


def has_moved(bare: Followed, stored: Offset, _page: Page) -> bool:
    """Whether the reading of tables stands elsewhere by now."""
    return bare.offsets.get("tables", {}) != stored


async def test_a_snapshot_goes_on_behind_a_key_of_any_bytes(bare: Followed) -> None:
    """Each row once, however often it is broken off; those whose key is no text are rejected."""
    keys = [r"\'", r"\\", r"\\x", "a", r"\xfc", r"\xfc\\\xff", "ü", r"\377"]
    bare.postgres.run(
        "create table t (k text, id int, primary key (k, id))",
        *(f"insert into t values (E'{key}', {at}), (E'{key}', {at + 100})" for at, key in enumerate(keys)),
    )
    bare.properties["snapshot.fetch.size"] = "1"
    pages: list[Page] = []
    begun = [page async for page in bare.pages(stops=lambda page: "snapshot_key" in page.offset)]
    while not bare.is_read:  # each run reads a stretch or so, and begins behind the key of the last one
        stored = dict(bare.offsets.get("tables", {}))
        pages += await bare.read(stops=partial(has_moved, bare, stored))
    delivered, rejected = told([*begun, *pages])
    assert sorted(number for _, number in delivered) == sorted([0, 100, 1, 101, 2, 102, 3, 103, 6, 106])
    assert sorted(re.findall(r'key {"k":null,"id":(\d+)}', " ".join(rejected))) == ["104", "105", "107", "4", "5", "7"]
