"""``IcebergSink`` with its catalogue in a real PostgreSQL: rows that arrive, and rights that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from service.sinks.contract import Fatal, StartAnew
from tests.databases import Postgres
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of, numbers

pytestmark = pytest.mark.integration


@dataclass
class Catalogue:
    """A lake whose catalogue is a database, with a role of its own besides ``postgres``."""

    lake: LakeFolder
    postgres: Postgres
    role: str

    def keys(self, user: str, database: str | None = None) -> dict[str, Any]:
        """Of a sink that logs in so."""
        place = f"127.0.0.1:{self.postgres.server.port}/{database or self.postgres.name}"
        return {"iceberg__catalog__uri": f"jdbc:postgresql://{place}", "iceberg__catalog__jdbc__user": user}

    async def write(self, values: range, user: str = "postgres", database: str | None = None) -> None:
        """As one task would, from the beginning to a commit."""
        async with self.lake.running(**self.keys(user, database)) as sink:
            await sink.open({HERE: values.start or None})
            await sink.put(batch_of(numbers(values), begin=values.start))
            await sink.flush({HERE: values.stop})

    def rows(self) -> list[int]:
        """What stands in the table."""
        uri = f"postgresql+psycopg://postgres@127.0.0.1:{self.postgres.server.port}/{self.postgres.name}"
        catalog = SqlCatalog("iceberg", uri=uri, warehouse=f"file://{self.lake.folder}/lake")
        try:
            found: list[Any] = catalog.load_table(self.lake.name).scan().to_arrow()["n"].to_pylist()
            return sorted(found)
        finally:
            catalog.close()


@pytest.fixture
def catalogue(tmp_path: Path, postgres: Postgres) -> Iterator[Catalogue]:
    """An empty one."""
    role = f"reader_{postgres.name}"
    postgres.run(f"create role {role} login")
    yield Catalogue(LakeFolder(tmp_path), postgres, role)
    postgres.run(f"drop owned by {role}", f"drop role {role}")


async def test_rows_of_a_user_who_may_read_and_change_the_catalogue(catalogue: Catalogue) -> None:
    """Each of them once; a right that is taken away fails the task with words, and nothing is written."""
    role, run = catalogue.role, catalogue.postgres.run
    await catalogue.write(range(3))
    tables = "iceberg_tables, iceberg_namespace_properties"
    run(f"grant select on {tables} to {role}")
    with pytest.raises(Fatal, match=r"permission denied .*; let its user read and change the catalogue's tables"):
        await catalogue.write(range(3, 6), role)
    assert catalogue.rows() == [0, 1, 2]
    run(f"grant insert, update on {tables} to {role}")
    await catalogue.write(range(3, 6), role)
    run(f"revoke all on {tables} from {role}")
    with pytest.raises(Fatal, match="permission denied"):
        await catalogue.write(range(6, 9), role)
    assert catalogue.rows() == list(range(6))


@pytest.mark.parametrize(("user", "database"), [("nobody_of_them", None), ("postgres", "no_such_database")])
async def test_a_login_that_is_refused(catalogue: Catalogue, user: str, database: str | None) -> None:
    """A person has to correct it."""
    with pytest.raises(Fatal, match=r"does not exist.*correct iceberg\.catalog\.uri and the login"):
        await catalogue.write(range(3), user, database)


async def test_a_database_that_is_away(catalogue: Catalogue) -> None:
    """It may come back: the task begins anew."""
    catalogue.postgres.server.stop()
    try:
        with pytest.raises(StartAnew, match="the catalogue's database fails"):
            await catalogue.write(range(3))
    finally:
        catalogue.postgres.server.start()
    await catalogue.write(range(3))
    assert catalogue.rows() == [0, 1, 2]
