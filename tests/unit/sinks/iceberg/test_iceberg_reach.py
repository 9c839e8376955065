"""What ``IcebergSink`` lets a config, a catalogue, a table or a record make PyIceberg touch."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField
from sqlalchemy.engine import make_url

from fetchers.sdk.reach import AllowedAddresses, AllowedPaths, parse_networks
from service.sinks.contract import Fatal
from service.sinks.iceberg.config import IcebergSinkConfig
from service.sinks.iceberg.reach import StorageReach
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of, numbers

STRANGERS = AllowedAddresses().for_strangers
CALLED: list[tuple[object, ...]] = []
CODE = f"{__name__}.remember"


def remember(*told: object) -> object:
    """Stands for any function of an installed package."""
    CALLED.append(told)
    raise AssertionError(told)


@pytest.fixture
def lake(tmp_path: Path) -> LakeFolder:
    """In a folder of its own."""
    folder = tmp_path / "lake folder"
    folder.mkdir()
    CALLED.clear()
    return LakeFolder(folder)


async def put_and_commit(lake: LakeFolder, **changes: Any) -> None:
    """What a task does."""
    async with lake.running(**changes) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(numbers(range(3))))
        await sink.flush({HERE: 3})


def files_below(folder: Path) -> list[Path]:
    """All that is not a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("key", ["write.py-location-provider.impl", "py-io-impl"])
async def test_a_property_of_a_table_names_no_code(lake: LakeFolder, key: str) -> None:
    """Whoever has set it: another engine, or the catalogue's server."""
    lake.catalog.create_namespace("shop")
    table = lake.catalog.create_table(lake.name, Schema(NestedField(1, "n", IntegerType(), required=True)))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    document = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**document, "properties": {key: CODE}}))
    with pytest.raises(Fatal, match=f"property {key} is set, which names code"):
        await put_and_commit(lake)
    assert not CALLED


@pytest.mark.parametrize(
    "key",
    [
        "iceberg.tables.write-props.write.py-location-provider.impl",
        "iceberg.tables.auto-create-props.write.py-location-provider.impl",
        "iceberg.tables.auto-create-props.py-io-impl",
        "iceberg.catalog.s3.retry-strategy-impl",
        "iceberg.catalog.py-io-impl",
    ],
)
def test_a_config_names_no_code(key: str) -> None:
    """PyIceberg imports what these properties name, and calls it."""
    given = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://c:8181", "iceberg.tables": "a.b", key: CODE}
    config = IcebergSinkConfig.parse(given).config
    assert config is not None
    assert [finding.key for finding in config.own_findings()] == [key]


@pytest.mark.parametrize("key", ["write.data.path", "write.metadata.path"])
async def test_files_lie_only_where_the_worker_allows(lake: LakeFolder, tmp_path: Path, key: str) -> None:
    """Not where properties of a table say besides, in a config or in the table itself."""
    elsewhere = tmp_path / "elsewhere"
    paths = AllowedPaths((str(lake.folder),))
    # A property that is written over the table's own, or one that the table is made with.
    name = "iceberg__tables__write___props" if key == "write.data.path" else "iceberg__tables__auto___create___props"
    with pytest.raises(Fatal, match=r"connector\.allowed\.paths"):
        await put_and_commit(lake, paths=paths, **{f"{name}__{key.replace('.', '__')}": f"file://{elsewhere}"})
    assert not elsewhere.exists()


@pytest.mark.parametrize("warehouse", ["{}/../elsewhere", "file:{}/../elsewhere", "../elsewhere"])
async def test_a_warehouse_is_looked_at_as_pyiceberg_reads_it(
    lake: LakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warehouse: str
) -> None:
    """Relative ones too."""
    monkeypatch.chdir(lake.folder)
    paths = AllowedPaths((str(lake.folder),))
    with pytest.raises(Fatal, match=r"connector\.allowed\.paths"):
        await put_and_commit(lake, paths=paths, iceberg__catalog__warehouse=warehouse.format(lake.folder))
    assert not files_below(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "name",
    ["shop/../../../elsewhere.orders", "shop./etc", "shop..orders", ".shop.orders", "shop.a\nb", "shop.a\\b", "shop. "],
)
async def test_a_record_s_table_is_a_name_and_no_path(lake: LakeFolder, tmp_path: Path, name: str) -> None:
    """It is refused by itself; nothing is made for it, and the task goes on."""
    routing: dict[str, Any] = {
        "iceberg__tables__dynamic___enabled": "true",
        "iceberg__tables__route___field": "kind",
        "iceberg__tables": "",
    }
    refused: list[tuple[int, str, str]] = []
    async with lake.running(**routing) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of([{"n": 0, "kind": "shop.orders"}, {"n": 1, "kind": name}], refused=refused))
        await sink.flush({HERE: 2})
    assert [row for row, _, _ in refused] == [1]
    assert lake.rows() == [0]
    assert {path.name for path in tmp_path.iterdir()} == {lake.folder.name}


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://127.0.0.1/lake",
        "postgresql://8.8.8.8/lake?host=127.0.0.1",
        "postgresql://8.8.8.8/lake?host=8.8.4.4&host=127.0.0.1:5432",
        "postgresql://8.8.8.8/lake?hostaddr=127.0.0.1",
        "postgresql://8.8.8.8/lake?host=8.8.4.4,127.0.0.1",
        "postgresql://8.8.8.8:5432/x@127.0.0.1/lake",
        "postgresql://8.8.8.8/lake?service=internal",
        "postgresql:///lake?host=/var/run/postgresql",
        "postgresql:///lake",
        "sqlite:///file:/etc/other.db?uri=true",
    ],
)
def test_a_database_is_looked_at_as_its_driver_reads_the_address(uri: str) -> None:
    """SQLAlchemy's and libpq's ways to name a host, of which a URL as browsers read it has none."""
    config = IcebergSinkConfig.parse(
        {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": uri, "iceberg.tables": "a.b"}
    ).config
    assert config is not None
    url = make_url(config.catalog["uri"])
    StorageReach(AllowedPaths(), AllowedAddresses()).check_database(url)
    with pytest.raises(Fatal):
        StorageReach(AllowedPaths((str(Path.cwd()),)), STRANGERS).check_database(url)


@pytest.mark.parametrize("uri", ["postgresql://me:secret@host:port/lake", "postgresql://me:se/cret@host:5x/lake"])
def test_an_address_that_is_none_is_told_without_its_words(uri: str) -> None:
    """A password may be among them."""
    given = {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": uri, "iceberg.tables": "a.b"}
    config = IcebergSinkConfig.parse(given).config
    assert config is not None
    (found,) = config.own_findings()
    assert found.key == "iceberg.catalog.uri"
    assert "cret" not in found.message
    assert found.value is None


@pytest.mark.parametrize(
    "properties",
    [
        {"s3.endpoint": "http://127.0.0.1:9000"},
        {"s3.endpoint": "127.0.0.1:9000"},
        {"s3.proxy-uri": "http://127.0.0.1:3128"},
        {"glue.endpoint": "http://127.0.0.1:4566"},
        {"gcs.service.host": "http://127.0.0.1:4443"},
        {"adls.blob-storage-authority": "127.0.0.1:10000"},
    ],
)
def test_every_client_s_address_is_looked_at(properties: dict[str, str]) -> None:
    """Not that of Amazon's storage alone."""
    StorageReach(AllowedPaths(), AllowedAddresses()).check_properties(properties)
    with pytest.raises(Fatal, match="internal address"):
        StorageReach(AllowedPaths(), STRANGERS).check_properties(properties)


@pytest.mark.parametrize(
    ("place", "lent"),
    [
        ("s3://bucket/x", {"s3.access-key-id": "k"}),
        ("gs://bucket/x", {"gcs.oauth2.token": "t"}),
        ("abfss://box@account.dfs.core.windows.net/x", {"adls.sas-token": "s"}),
    ],
)
def test_no_file_is_opened_with_the_worker_s_identity(place: str, lent: dict[str, str]) -> None:
    """Whichever storage a catalogue's server leads to; with keys of the config, or what the server lends, it is."""
    reach = StorageReach(AllowedPaths(), STRANGERS)
    reach.check_location(place, lent)
    with pytest.raises(Fatal, match="own identity"):
        reach.check_location(place, {})
    for kind, properties in (("glue", {}), ("rest", {"uri": "http://8.8.8.8", "rest.sigv4-enabled": "true"})):
        with pytest.raises(Fatal, match="own identity"):
            reach.check_catalog(kind, properties)


@pytest.mark.parametrize(
    ("uri", "places"),
    [
        ("postgresql://me:word@a.test/lake", ("a.test,a.test", "10.0.0.1,10.0.0.2", ",")),
        ("postgresql://me:word@a.test:6/lake", ("a.test,a.test", "10.0.0.1,10.0.0.2", "6,6")),
        ("postgresql://me:word@b.test:6/lake", ("b.test", "10.0.0.3", "6")),
        ("postgresql://me:word@b.test,a.test/lake", ("b.test,a.test,a.test", "10.0.0.3,10.0.0.1,10.0.0.2", ",,")),
        (
            "postgresql://me:word@/lake?host=a.test:6&host=b.test:7",
            ("a.test,a.test,b.test", "10.0.0.1,10.0.0.2,10.0.0.3", "6,6,7"),
        ),
        (
            "postgresql://me:word@/lake?host=b.test,a.test&port=7,6",
            ("b.test,a.test,a.test", "10.0.0.3,10.0.0.1,10.0.0.2", "7,6,6"),
        ),
    ],
)
def test_every_allowed_address_of_a_database_is_dialled(
    uri: str, places: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In turn, as where nothing is bounded: the first may be one at which no server listens, as `::1` often is."""
    known = {"a.test": ["10.0.0.1", "10.9.9.9", "10.0.0.2"], "b.test": ["10.0.0.3"]}

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (number, port)) for number in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    bounds = AllowedAddresses(is_internal_free=False, networks=parse_networks(["10.0.0.0/24"]))
    dialled = make_url(
        StorageReach(AllowedPaths(), bounds).dialled(make_url(uri)).render_as_string(hide_password=False)
    )
    _, told = dialled.get_dialect()().create_connect_args(dialled)
    assert (told["host"], told["hostaddr"], str(told["port"])) == places
    assert (told["user"], told["password"], told["dbname"]) == ("me", "word", "lake")
