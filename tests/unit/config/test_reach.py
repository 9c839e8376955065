"""What connectors may reach through a worker: all on one's own machine, what is named beyond it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fetchers.catalog import SINKS_GROUP, SOURCES_GROUP, PluginLoadError, installed_plugins
from fetchers.file.disk import PlainFile
from fetchers.sdk import Fatal, SourceConnector
from fetchers.sdk.reach import AllowedPaths
from service.config.definition import read_definition
from service.config.reach import reach_of
from service.config.worker import WorkerConfig
from service.herder.errors import BadRequestError
from service.sinks.contract import SinkConnector
from service.sinks.definition import read_sink_definition
from service.sinks.file.writing import SinkFile
from service.validation.connectors import find_connector, known_connectors
from service.validation.validator import Validation

CONVERTERS = {"key.converter": "string", "value.converter": "json"}
OPEN = {**CONVERTERS, "listeners": "http://0.0.0.0:8083"}
LOCAL = {**CONVERTERS, "listeners": "http://127.0.0.1:8083,http://[::1]:8083"}


@pytest.mark.parametrize(
    ("worker", "is_local"),
    [
        ({}, True),
        (LOCAL, True),
        ({"listeners": "http://localhost:8083"}, True),
        ({"listeners": "http://127.0.0.1:8083,http://10.0.0.1:8083"}, False),
        ({"listeners": "http://:8083"}, False),
        ({"admin.listeners": "http://0.0.0.0:1"}, False),
        ({"admin.listeners": ""}, True),
        ({"rest.port": "8083"}, True),
        ({"rest.host.name": "0.0.0.0", "rest.port": "8083"}, False),
        ({"rest.host.name": "worker.example.org"}, False),
        ({"listeners": "http://0.0.0.0:8083", "rest.host.name": "127.0.0.1"}, True),
    ],
)
def test_a_worker_is_local_where_only_its_machine_reaches_it(worker: dict[str, str], *, is_local: bool) -> None:
    """By the listeners that REST will have, in each of their forms."""
    reach = reach_of(worker)
    assert reach.is_local is is_local
    assert (reach.modules.refusal("quakes") is None) is is_local
    assert (reach.paths.refusal("/etc/passwd") is None) is is_local
    assert reach.addresses.permits("169.254.169.254") is is_local
    assert reach.addresses.permits("8.8.8.8")


def test_what_is_named_bounds_a_local_worker_too() -> None:
    """Whoever names a bound wants it."""
    reach = reach_of({**LOCAL, "plugin.modules": "quakes", "connector.allowed.addresses": "10.0.0.0/8"})
    assert reach.modules.refusal("quakes.more") is None
    assert reach.modules.refusal("quakesmore")
    assert reach.addresses.permits("10.1.2.3")
    assert not reach.addresses.permits("127.0.0.1")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("connector.allowed.paths", "data", "is not absolute"),
        ("connector.allowed.addresses", "example.org", "Expected addresses"),
    ],
)
def test_bounds_that_bound_nothing_are_findings(key: str, value: str, told: str) -> None:
    """A misprint would close, or open, what nobody meant."""
    (finding,) = WorkerConfig.parse({key: value}).findings
    assert finding.key == key
    assert told in finding.message


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that exists once the module `imported_witness` was imported."""
    told = tmp_path / "imported"
    (tmp_path / "imported_witness.py").write_text(f"open({str(told)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "imported_witness", raising=False)
    return told


def test_a_module_that_is_not_allowed_is_not_even_imported(witness: Path) -> None:
    """Importing runs its code: neither validation, nor a start, nor the question for its kind does that."""
    config = {"name": "x", "connector.class": "imported_witness:X", "topic": "t"}
    with pytest.raises(BadRequestError, match=r"plugin\.modules"):
        Validation(OPEN).validate(config)
    (finding,) = (each for each in read_definition(config, worker=OPEN).findings if each.key == "connector.class")
    assert "plugin.modules" in finding.message
    known = find_connector("imported_witness:X", OPEN)
    assert known is not None
    with pytest.raises(PluginLoadError):
        known.plugin.load()
    assert not witness.exists()
    find_connector("imported_witness:X", {**OPEN, "plugin.modules": "imported_witness"})
    assert witness.exists()


@pytest.mark.parametrize(
    "name", ["service.sinks.file.sink:FileStreamSink", "fetchers.file.fetcher:FileStreamSource", "os:PathLike"]
)
@pytest.mark.parametrize("worker", [LOCAL, {**OPEN, "plugin.modules": "service,fetchers,os"}])
def test_modules_of_the_house_and_of_python_are_no_plugins(name: str, worker: dict[str, str]) -> None:
    """Whether anything is bounded or not."""
    with pytest.raises(BadRequestError, match="it is part of headrace, or of Python"):
        Validation(worker).validate({"name": "x", "connector.class": name})


@pytest.mark.parametrize("error", ["SystemExit(3)", "GeneratorExit()", "asyncio.CancelledError()", "StopIteration()"])
def test_a_module_that_wants_to_end_the_process_is_a_finding(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the thread that imported it lives on."""
    (tmp_path / "wants_to_end.py").write_text(f"import asyncio\nraise {error}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadRequestError, match=error.partition("(")[0].rpartition(".")[2]):
        Validation(LOCAL).validate({"name": "x", "connector.class": "wants_to_end:X"})


PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "tiny-connectors"
version = "7.8.9"
[project.entry-points."headrace.sources"]
TinySource = "tiny_connectors:TinySource"
[project.entry-points."headrace.sinks"]
TinySink = "tiny_connectors:TinySink"
BrokenSink = "tiny_connectors.missing:Broken"
[tool.setuptools]
py-modules = ["tiny_connectors"]
"""
MODULE = """\
from fetchers.sdk import FetcherConfig, SourceConnector
from service.sinks.contract import SinkConfig, SinkConnector


class TinyConfig(FetcherConfig):
    \"\"\"Nothing.\"\"\"


class TinySource(SourceConnector[TinyConfig]):
    \"\"\"Gives nothing.\"\"\"

    async def fetch(self, context):
        return
        yield


class TinySinkConfig(SinkConfig):
    \"\"\"Nothing.\"\"\"


class TinySink(SinkConnector[TinySinkConfig]):
    \"\"\"Takes everything.\"\"\"

    async def put(self, batch):
        pass
"""


def test_an_installed_package_is_listed_and_needs_no_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed by pip for real; its entry points say what it has, and nothing of it is imported for the listing."""
    project, target = tmp_path / "project", tmp_path / "site"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "tiny_connectors.py").write_text(MODULE)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(project)], check=True, timeout=400)
    monkeypatch.syspath_prepend(str(target))
    installed_plugins.cache_clear()
    try:
        names = [each.name for each in installed_plugins(SINKS_GROUP, SinkConnector)]
        assert names == ["BrokenSink", "TinySink"]
        assert [each.name for each in installed_plugins(SOURCES_GROUP, SourceConnector)] == ["TinySource"]
        listed = [(known.class_name, known.kind.name, known.plugin.version) for known in known_connectors()]
        assert ("TinySource", "source", "7.8.9") in listed
        assert ("TinySink", "sink", "7.8.9") in listed
        assert "tiny_connectors" not in sys.modules
        validated = Validation(OPEN).validate({"name": "x", "connector.class": "TinySource", "topic": "t"})
        assert validated.infos.errors == ()
        with pytest.raises(BadRequestError, match="tiny_connectors"):
            Validation(OPEN).validate({"name": "x", "connector.class": "BrokenSink", "topics": "t"})
    finally:
        installed_plugins.cache_clear()
        sys.modules.pop("tiny_connectors", None)


SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


def path_errors(config: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """Texts of the errors that name a path, by key."""
    found = Validation(worker).validate({"name": "x", **config}).infos
    return {info.value.name: " ".join(info.value.errors) for info in found.configs if info.value.errors}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that is allowed; beside it one that is not, with a secret."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret").write_text("root:s3cr3t-hash:0:0\n")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out" / "secret")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "schema.avsc").write_text(SCHEMA)
    return tmp_path


CONFIGS = (
    ({"connector.class": "FileStreamSource", "topic": "t"}, "file"),
    ({"connector.class": "FileStreamSink", "topics": "t"}, "file"),
    ({"connector.class": "HttpSource", "topic": "t", "http.url": "http://h"}, "http.tls.ca.file"),
    ({"connector.class": "HttpSource", "topic": "t", "http.url": "http://h"}, "http.tls.certificate.file"),
)


@pytest.mark.parametrize(("config", "key"), CONFIGS)
@pytest.mark.parametrize("path", ["out/secret", "in/link", "in/folder/secret", "in/../out/secret", "in/folder/new"])
def test_a_path_outside_is_a_finding(config: dict[str, str], key: str, path: str, place: Path) -> None:
    """Whether it leads there by itself, by a link, or by the link of a folder."""
    named = {**config, key: str(place / path)}
    within = {**OPEN, "connector.allowed.paths": str(place / "in")}
    assert "is not within connector.allowed.paths" in path_errors(named, within)[key]
    assert "names no path in connector.allowed.paths" in path_errors(named, OPEN)[key]
    assert key not in path_errors(named, LOCAL)


@pytest.mark.parametrize(("config", "key"), CONFIGS)
def test_a_path_within_is_none(config: dict[str, str], key: str, place: Path) -> None:
    """By a folder, by the file itself, or through a link of the worker's own."""
    (place / "door").symlink_to(place / "in")
    named = {**config, key: str(place / "in" / "schema.avsc")}
    for root in (place / "in", place / "in" / "schema.avsc", place / "door"):
        assert key not in path_errors(named, {**OPEN, "connector.allowed.paths": f"/nowhere,{root}"})


@pytest.mark.parametrize("pattern", ["out/*", "*/secret", "in/*/../../out/*", "in/folder/*"])
def test_a_pattern_outside_is_a_finding(pattern: str, place: Path) -> None:
    """By the folder before its first sign; what a sign might lead back out of is refused as a whole."""
    config = {"connector.class": "FileStreamSource", "topic": "t", "file": str(place / pattern)}
    within = {**OPEN, "connector.allowed.paths": str(place / "in")}
    assert "connector.allowed.paths" in path_errors(config, within)["file"] or ".." in pattern
    assert path_errors(config, within)["file"]
    assert "file" not in path_errors({**config, "file": str(place / "in" / "*.log")}, within)


def test_certificates_of_overrides_are_files_too(place: Path) -> None:
    """A policy that allows the key does not allow every file."""
    config = {"connector.class": "FileStreamSource", "topic": "t", "file": str(place / "in" / "a")}
    key = "producer.override.ssl.truststore.location"
    within = {**OPEN, "connector.allowed.paths": str(place / "in"), "connector.client.config.override.policy": "All"}
    assert "is not within" in path_errors({**config, key: str(place / "in" / "link")}, within)[key]


CONTRACT = {"connector.class": "FileStreamSource", "topic": "t"}


def test_a_schema_is_read_only_from_where_it_is_allowed(place: Path) -> None:
    """And nothing of another file stands in the finding."""
    within = {**OPEN, "connector.allowed.paths": str(place / "in")}
    files = {"file": str(place / "in" / "a")}
    good = {**CONTRACT, **files, "contract.schema": f"file:{place}/in/schema.avsc"}
    assert path_errors(good, within) == {}
    for path in ("out/secret", "in/link"):
        (text,) = path_errors({**good, "contract.schema": f"file:{place}/{path}"}, within).values()
        assert "is not within connector.allowed.paths" in text


def test_a_file_that_is_no_schema_is_not_quoted(place: Path) -> None:
    """Whoever may write a config learns nothing of what stands in the worker's files."""
    (place / "in" / "plain").write_text("root:s3cr3t-hash:0:0\n")
    (place / "in" / "json").write_text('{"type": "s3cr3t-hash", "name": "s3cr3t-hash"}')
    within = {**OPEN, "connector.allowed.paths": str(place / "in")}
    for name in ("plain", "json"):
        config = {**CONTRACT, "file": str(place / "in" / "a"), "contract.schema": f"file:{place}/in/{name}"}
        found = path_errors(config, within)
        assert set(found) == {"contract.schema"}
        assert "s3cr3t" not in str(found)


def test_only_regular_files_of_a_bounded_size_are_schemas(place: Path) -> None:
    """A named pipe would hold the thread that opens it; on one's own machine too."""
    os.mkfifo(place / "in" / "pipe")
    with (place / "in" / "large").open("wb") as large:
        large.truncate(4 * 1024 * 1024 + 1)
    for name, told in (("pipe", "is not a regular file"), ("large", "is larger than"), ("folder", "cannot be read")):
        config = {**CONTRACT, "contract.schema": f"file:{place}/in/{name}"}
        assert told in path_errors(config, LOCAL)["contract.schema"]


def test_a_link_that_is_changed_after_the_check_gains_nothing(place: Path) -> None:
    """What was opened is compared once more with what stands there: another file is not what was allowed."""
    paths = AllowedPaths((str(place / "in"),))
    changing = place / "in" / "changing"
    changing.symlink_to(place / "in" / "schema.avsc")
    paths.check(changing)
    changing.unlink()
    changing.symlink_to(place / "out" / "secret")
    descriptor = os.open(changing, os.O_RDONLY)
    try:
        changing.unlink()
        changing.symlink_to(place / "in" / "schema.avsc")
        with pytest.raises(BlockingIOError):
            paths.check_open(descriptor, changing)
    finally:
        os.close(descriptor)


def test_a_source_and_a_sink_check_again_when_they_open(place: Path) -> None:
    """A link may have come since their config was checked."""
    paths = AllowedPaths((str(place / "in"),))
    with pytest.raises(Fatal, match="is not within"):
        PlainFile(str(place / "in" / "link"), paths)
    PlainFile(str(place / "in" / "schema.avsc"), paths).close()
    sink = SinkFile(place / "in" / "link", "x", allowed=paths)
    with pytest.raises(Fatal, match="is not within"):
        sink.begin({("t", 0): None})
    assert (place / "out" / "secret").read_text() == "root:s3cr3t-hash:0:0\n"
    assert not (place / "in" / ".link.headrace").exists()
    os.mkfifo(place / "in" / "pipe")
    with pytest.raises(Fatal, match="is not a regular file"):
        SinkFile(place / "in" / "pipe", "x", allowed=paths).begin({})
    fine = SinkFile(place / "in" / "new", "x", allowed=paths)
    fine.begin({("t", 0): None})
    assert (place / "in" / "new").exists()


def test_definitions_hand_the_bounds_on(place: Path) -> None:
    """To each instance that will open files."""
    worker = {**OPEN, "connector.allowed.paths": str(place / "in")}
    file = str(place / "in" / "a")
    source = read_definition({"name": "x", **CONTRACT, "file": file}, worker=worker).definition
    sink = read_sink_definition(
        {"name": "x", "connector.class": "FileStreamSink", "topics": "t", "file": file}, worker=worker
    ).definition
    assert source is not None
    assert sink is not None
    expected = AllowedPaths((str(place / "in"),))
    assert (source.for_task({}).allowed_paths, sink.new_connector().allowed_paths) == (expected, expected)
