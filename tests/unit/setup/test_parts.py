"""What all sets lack is fetched by one run of Ivy, and a set that did not come right is named."""

from __future__ import annotations

import hashlib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from service.setup.failure import SetupFailure
from service.setup.ivy import Ivy
from service.setup.jars import JarCache, LockedFile
from service.setup.parts import fetch_sets

SETS = {
    "kafka": {"org.example/broker/1.0/broker-1.0.jar": "broker", "org.example/both/1.0/both-1.0.jar": "both"},
    "spark": {"org.example/avro/1.0/avro-1.0.jar": "avro", "org.example/both/1.0/both-1.0.jar": "both"},
}
_ANSWERS = r"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"'; exit; fi
here=$(dirname "$0")/..
echo run >>"$here/runs"
for last; do :; done
mkdir -p "${last%%/\[*}"
cp -r "$here/repository/." "${last%%/\[*}"
"""
"""A Java that has Ivy bring all that there is to its last argument, `FOLDER/[organisation]/…`."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of Java whose Ivy finds every file of `SETS` in the folder `repository`, and counts its `runs`."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_ANSWERS, encoding="utf-8")
    java.chmod(0o755)
    for files in SETS.values():
        for path, content in files.items():
            offered = tmp_path / "repository" / path
            offered.parent.mkdir(parents=True, exist_ok=True)
            offered.write_text(content, encoding="utf-8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def cache(home: Path) -> JarCache:
    """An empty cache whose lock has `SETS`."""
    lock = home / "jars.sha256"
    with lock.open("w", encoding="utf-8") as lines:
        for name, files in SETS.items():
            lines.write(f"# set {name}\n")
            lines.writelines(f"{hashlib.sha256(text.encode()).hexdigest()}  {path}\n" for path, text in files.items())
    return JarCache(home / "cache", lock_path=lock)


def _runs(home: Path) -> int:
    return len((home / "runs").read_text(encoding="utf-8").splitlines())


def test_all_sets_are_fetched_at_once(home: Path, cache: JarCache, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of two sets is asked for once; what is complete is asked for no more, and nothing is left behind."""
    for _ in range(2):
        fetch_sets(cache, SETS, program=home / "ivy.jar")
    assert all(cache.is_complete(name) for name in SETS)
    assert _runs(home) == 1
    assert "fetching 3 JVM files (kafka, spark)" in capsys.readouterr().err
    assert not (cache.folder / "incoming").exists()


def test_only_what_is_lacking_is_fetched(home: Path, cache: JarCache, capsys: pytest.CaptureFixture[str]) -> None:
    """The other set is told of neither."""
    fetch_sets(cache, ["kafka"], program=home / "ivy.jar")
    capsys.readouterr()
    fetch_sets(cache, SETS, program=home / "ivy.jar")
    assert "fetching 1 JVM files (spark)" in capsys.readouterr().err
    assert all(cache.is_complete(name) for name in SETS)


@pytest.mark.parametrize(
    ("content", "expected"),
    [("another", "set spark: .*avro.* it is not used"), (None, "avro.*set spark.*did not come")],
)
def test_a_broken_set_is_told_by_name(home: Path, cache: JarCache, content: str | None, expected: str) -> None:
    """What is right of the others is kept, what is wrong is not; the next call mends it."""
    broken = home / "repository/org.example/avro/1.0/avro-1.0.jar"
    broken.unlink()
    if content is not None:
        broken.write_text(content, encoding="utf-8")
    with pytest.raises(SetupFailure, match=expected):
        fetch_sets(cache, SETS, program=home / "ivy.jar")
    assert cache.missing("kafka") == ()
    assert not cache.is_complete("spark")
    broken.write_text("avro", encoding="utf-8")
    fetch_sets(cache, SETS, program=home / "ivy.jar")
    assert all(cache.is_complete(name) for name in SETS)
    assert _runs(home) == 2


def test_two_files_of_one_module_are_one_dependency(home: Path) -> None:
    """Of two dependencies on one module Ivy would bring the first alone, such as a jar without that of its tests."""
    files = [LockedFile("", f"org.example/core/{name}") for name in ("1.0/core-1.0.jar", "1.0/core-1.0-tests.jar")]
    other = LockedFile("", "org.example/core/2.0/core-2.0.jar")
    ivy = Ivy(java=home / "bin" / "java", program=home / "ivy.jar", folder=home / "incoming")
    ivy.fetch([*files, other])
    dependencies = ET.parse(home / "incoming" / "ivy.xml").findall("dependencies/dependency")  # noqa: S314 - ours
    assert [(each.get("rev"), len(each.findall("artifact"))) for each in dependencies] == [("1.0", 2), ("2.0", 1)]
