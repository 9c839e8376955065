"""Runs the guides to a fetcher, to a listener and to a sink: their classes, configs and tests, as they stand there."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from aiohttp import web

from fetchers.catalog import find_plugin, shared_http
from fetchers.sdk.testing import FakeContext, FetcherContract, ListenerContract, collect
from service.sinks.testing import SinkContract
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from tests.contracts.loopback import serve

ROOT = Path(__file__).parents[2]
GUIDES = tuple(ROOT / "docs" / "guides" / f"add-a-{kind}.md" for kind in ("fetcher", "listener", "sink"))
_BLOCK = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES_MAX = {"quakes.py": 20, "meters.py": 25, "webhook.py": 20}
SOURCE_LINES_MAX = 39
SECONDS_MAX = 500


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    """A folder with the files of the guides."""
    for guide in GUIDES:
        for name, text in _BLOCK.findall(guide.read_text(encoding="utf-8")):
            (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_useful_fetcher_has_few_lines(folder: Path) -> None:
    """The fetcher, the listener and the sink are as short as the guides' readers are promised."""
    for name, lines_max in LINES_MAX.items():
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        assert len([line for line in lines if line.strip()]) <= lines_max


async def test_the_fetcher_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the name in its config, it delivers what is new, and after a restart only what is newer."""
    quakes = [{"id": number, "properties": {"updated": number}} for number in range(3)]

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"type": "FeatureCollection", "features": quakes})

    monkeypatch.syspath_prepend(str(folder))
    properties = dict(line.split("=", 1) for line in (folder / "quakes.properties").read_text("utf-8").splitlines())
    plugin = find_plugin(properties["connector.class"])
    assert plugin is not None
    kind = plugin.load()
    async with shared_http() as http, serve(answer) as url:
        config = kind.config_class.parse({**properties, "url": url}).config
        assert config is not None
        (page,) = await collect(kind(config), FakeContext(http=http), rounds=2)
        assert [json.loads(payload or b"") for payload in page.values()] == quakes
        quakes.insert(0, {"id": 3, "properties": {"updated": 9}})
        (more,) = await collect(kind(config), FakeContext(http=http, offset=page.offset), rounds=2)
        assert [json.loads(payload or b"") for payload in more.values()] == quakes[:1]


async def test_the_source_of_rows_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guide says of its rows is what the conversion makes of them."""
    monkeypatch.syspath_prepend(str(folder))
    kind = importlib.import_module("tables").Tables
    config = kind.config_class.parse({}).config
    (page,) = await collect(kind(config), FakeContext())
    assert await collect(kind(config), FakeContext(offset=page.offset)) == []
    plan = ConversionPlan(PayloadFormat.ROWS, key_converter=ConverterSpec(ConverterKind.JSON))
    schema, key_schema, topic = page.schema, page.key_schema, page.topic
    assert schema is not None
    assert key_schema is not None
    plan = plan.for_rows(schema=schema.avro, key_schema=key_schema.avro, topic=str(topic))
    rows = pa.table({"key": page.keys, "value": page.payload_column, "timestamp": pa.nulls(2, pa.int64())})
    found = convert_exactly(plan, rows)
    assert found["key"][0].as_py() == b'{"id":1}'
    assert found["value"][0].as_py() == b'{"id":1,"at":1700000000000,"price":"Awzc","note":"two for one"}'
    assert found["message"].to_pylist() == [None, "at: expected a value other than null"]


def test_an_incremental_source_and_its_suite_have_few_lines(folder: Path) -> None:
    """Paged, with a login, a rate limit and more ties than a page holds: what a newcomer writes, with its test.

    (``test_new`` runs them, since ``headrace new source`` writes the same.)
    """
    lines = [
        line for name in ("issues.py", "test_issues.py") for line in (folder / name).read_text("utf-8").splitlines()
    ]
    assert len([line for line in lines if line.strip()]) <= SOURCE_LINES_MAX


@pytest.mark.parametrize(
    ("test_file", "suite", "skipped"),
    [
        ("test_quakes.py", FetcherContract, 1),
        ("test_meters.py", ListenerContract, 0),
        ("test_webhook.py", SinkContract, 0),
    ],
)
async def test_its_tests_pass(
    folder: Path, test_file: str, suite: type[FetcherContract | SinkContract], skipped: int
) -> None:
    """The test file of a guide runs the whole contract suite, and passes; quakes cannot tell what they gave."""
    pytest_run = (sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider")
    process = await asyncio.create_subprocess_exec(
        *pytest_run,
        test_file,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SECONDS_MAX):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    tests = [name for name in dir(suite) if name.startswith("test_")]
    # None of these sources has a limit of requests.
    tests = [name for name in tests if name != "test_waits_as_a_rate_limit_asks"]
    told = f"{len(tests) - skipped} passed" + (f", {skipped} skipped" if skipped else "")
    assert told in output.decode()
