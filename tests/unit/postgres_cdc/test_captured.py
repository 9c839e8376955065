"""Tables that would share a topic are found, and all tables are looked at only where that may have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from fetchers.postgres_cdc.captured import CapturedTables
from fetchers.postgres_cdc.catalogue import Catalogue
from fetchers.postgres_cdc.columns import Type
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import change_form
from fetchers.postgres_cdc.pgoutput import LogRelation, RelationColumn
from fetchers.sdk import Fatal

COLUMNS = (RelationColumn("id", 23, -1, is_identity=True),)


class Server:
    """Says what the catalogue says of tables with one column, and counts how often all tables are asked for."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.asked = 0

    def tables(self) -> list[tuple[str, str]]:
        """All that are published."""
        self.asked += 1
        return [("public", name) for name in self.names]

    def types(self, columns: Sequence[RelationColumn]) -> Mapping[str, Type]:
        """Of the columns."""
        return {column.name: Type("int4") for column in columns}

    def keys(self, _relation: LogRelation) -> tuple[str, ...]:
        """The only column."""
        return ("id",)


class Taking:
    """Tables of one connector, captured as the log tells of them."""

    def __init__(self, server: Server) -> None:
        found = PostgresCdcConfig.parse(
            {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "srv"}
        )
        assert found.config is not None
        self.server = server
        self.tables = CapturedTables(found.config, change_form(found.config, "0"))

    def take(self, name: str) -> Any:
        """The table's schema and name as they were captured."""
        relation = LogRelation(1, "public", name, "d", COLUMNS)
        return self.tables.captured(cast("Catalogue", self.server), relation).relation.name


def test_all_tables_are_looked_at_once_for_all_that_are_there() -> None:
    """And once more for one that was not there."""
    names = [f"t{number}" for number in range(50)]
    taking = Taking(Server(*names))
    assert [taking.take(name) for name in names] == names
    assert taking.server.asked == 1
    taking.server.names.append("later")
    assert [taking.take(name) for name in ("later", *names, "later")] == ["later", *names, "later"]
    assert taking.server.asked == 2


@pytest.mark.parametrize("first", [(), ("other",), ("顧客",)])
def test_two_tables_of_one_topic_are_refused_whichever_was_told_first(first: tuple[str, ...]) -> None:
    """Also where one of them is made, or renamed, when the others are known."""
    taking = Taking(Server("other", "顧客"))
    assert [taking.take(name) for name in first] == list(first)
    taking.server.names.append("注文")
    with pytest.raises(Fatal, match=r"public.注文 and public.顧客 would both be told in the topic srv.public.__;"):
        taking.take("注文")


def test_both_of_two_that_were_there_are_refused_and_others_are_not() -> None:
    """Those that share a topic are never known to be apart."""
    taking = Taking(Server("other", "顧客", "注文"))
    assert taking.take("other") == "other"
    for name in ("注文", "顧客", "注文"):
        with pytest.raises(Fatal, match="would both be told"):
            taking.take(name)


def test_a_table_that_is_not_there_any_more_shares_nothing() -> None:
    """It was dropped, or renamed: its name is free."""
    taking = Taking(Server("顧客"))
    assert taking.take("顧客") == "顧客"
    taking.server.names[:] = ["注文"]
    assert taking.take("注文") == "注文"
