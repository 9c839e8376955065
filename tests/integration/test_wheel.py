"""The wheel, built from this tree and installed as pip does it: the command `headrace` and the names connectors use."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.version import VERSION
from tests import journal
from tests.bound import bound
from tests.faults.worker_life import write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

_ROOT = Path(__file__).parents[2]
_OWN_CONNECTOR = '''
from collections.abc import AsyncIterator

from fetchers.sdk import FetchContext, FetcherConfig, Page, SourceConnector


class CounterConfig(FetcherConfig):
    """Counts to three."""


class Counter(SourceConnector[CounterConfig]):
    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        if not context.offset:
            yield Page([b'{"n":%d}' % n for n in range(3)], offset={"n": 3})
        context.finish_round()
        await context.clock.sleep(3600)
'''


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, far from the repository; what the wheel depends on is lent by this run's."""

    wheel: Path
    environment: Path
    folder: Path

    def run(
        self, *arguments: str, environ: Mapping[str, str] | None = None, seconds_max: int = 180
    ) -> subprocess.CompletedProcess[str]:
        """Call `headrace` in a folder of its own, without a path to the repository."""
        return subprocess.run(
            bound([str(self.environment / "bin" / "headrace"), *arguments]),
            cwd=self.folder,
            env={**{key: value for key, value in os.environ.items() if key != "PYTHONPATH"}, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_max,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built and installed once, without a registry being asked."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(_ROOT)]
    subprocess.run(built, check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=180)
    (lent,) = Path(sys.prefix).glob("lib/python*/site-packages")
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
    # The same jars under the same Java: archives fit, and no second rehearsal is needed.
    (environment / "class-archives").symlink_to(Path(sys.prefix) / "class-archives")
    into = [*pip, "--python", str(environment / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(into, check=True, timeout=300)
    (folder / "work").mkdir()
    return Installed(wheel, environment, folder / "work")


def test_everything_is_under_one_name(installed: Installed) -> None:
    """No `service` or `metrics` of ours lands beside other people's packages."""
    names = {name.split("/")[0] for name in zipfile.ZipFile(installed.wheel).namelist()}
    assert names == {"headrace", "pyspark_headrace.py", f"headrace-{VERSION}.dist-info"}


def test_spark_s_processes_can_take_the_data_source_up(installed: Installed) -> None:
    """What Spark pickles brings headrace's packages with it, into a process that has imported nothing of them."""
    python = str(installed.environment / "bin" / "python")

    def run(program: str, given: bytes = b"") -> bytes:
        done = subprocess.run([python, "-c", program], input=given, capture_output=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    schema = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
    options = {"connector.class": "HttpSource", "http.url": "http://127.0.0.1:1", "contract.schema": schema}
    pickled = run(
        "import sys, pyspark_headrace as h; from pyspark.serializers import CloudPickleSerializer as S\n"
        f"source = h.DefaultSource({options!r})\n"
        "reader = source.reader(source.schema())\n"
        "sys.stdout.buffer.write(S().dumps((h.DefaultSource, reader, reader.partitions(), source)))"
    )
    told = run(
        "import sys; from pyspark.serializers import CloudPickleSerializer as S\n"
        "kind, reader, parts, source = S().loads(sys.stdin.buffer.read())\n"
        "print(kind.name(), reader.feed.schema.names, len(parts))",
        pickled,
    )
    assert told.decode().split() == ["headrace", "['a']", "1"]


def test_versions_agree(installed: Installed) -> None:
    """The command, the wheel's name and the changelog."""
    assert installed.run("--version").stdout == f"headrace, version {VERSION}\n"
    assert f"-{VERSION}-" in installed.wheel.name
    changelog = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nWhat will be {VERSION}," in changelog or f"\n## [{VERSION}]" in changelog


def test_what_speaks_to_a_worker_needs_no_java(installed: Installed, tmp_path: Path) -> None:
    """On a machine that only controls others there is none; what needs it says so in one line."""
    without = {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)}
    asked = installed.run("connectors", "--url", "http://127.0.0.1:1", environ=without)
    assert asked.returncode == 4
    assert "127.0.0.1:1" in asked.stderr
    assert "Java" not in asked.stderr
    refused = installed.run("standalone", "worker.properties", environ=without)
    assert refused.returncode == 2
    assert "openjdk-17-jre-headless" in refused.stderr


@pytest.mark.spark
def test_an_own_connector_runs(installed: Installed, kafka: KafkaStack, topic_name: str) -> None:
    """A module that says `from fetchers.sdk import …`, as in a clone, leads its records into Kafka."""
    (installed.folder / "counter.py").write_text(_OWN_CONNECTOR, encoding="utf-8")
    worker = write_properties(
        installed.folder / "worker.properties",
        {"bootstrap.servers": kafka.bootstrap, "group.id": topic_name, "listeners": "http://127.0.0.1:0"},
    )
    connector = write_properties(
        installed.folder / "counter.properties",
        {"name": topic_name, "connector.class": "counter:Counter", "topic": topic_name},
    )
    ran = installed.run(
        "standalone",
        *(str(worker), str(connector), "--until-idle", "1"),
        environ={"PYTHONPATH": str(installed.folder)},
        seconds_max=200,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    values = [record.value for record in journal.committed_records(kafka.bootstrap, topic_name)]
    assert values == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
