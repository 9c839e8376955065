"""Class archives: made once for one Java and one state of the locks, and done without where they cannot be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.setup.__main__ import make_archives
from service.setup.archives import NAMES, ClassArchives
from service.setup.environment import Environment

REHEARSED = 'for name in kafka spark; do echo classes >"$4/$name.jsa"; done'
"""``$4``: after ``-P -m service.rehearsal``."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with locks."""
    (tmp_path / "requirements").mkdir()
    for lock in ("run.txt", "jars.sha256"):
        (tmp_path / "requirements" / lock).write_text(lock, encoding="utf-8")
    return tmp_path


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A Java, as far as its file matters."""
    program = tmp_path / "java"
    program.touch()
    return program


def _python(folder: Path, script: str) -> Path:
    """What is run for the rehearsal."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def test_archives_are_mapped_once_they_are_made(root: Path, java: Path) -> None:
    """Before, a JVM is given nothing."""
    archives = ClassArchives(root, java, environment=root / ".venv")
    assert not archives.is_settled()
    assert archives.options("kafka") == ()
    assert archives.make(python=_python(root, REHEARSED)) is None
    assert archives.is_settled()
    for name in NAMES:
        assert f"-XX:SharedArchiveFile={archives.folder / name}.jsa" in archives.options(name)


@pytest.mark.parametrize("changed", ["java", "requirements/run.txt", "requirements/jars.sha256"])
def test_another_java_or_other_jars_need_others(root: Path, java: Path, changed: str) -> None:
    """The old ones go."""
    before = ClassArchives(root, java, environment=root / ".venv")
    before.make(python=_python(root, REHEARSED))
    (root / changed).write_text("another", encoding="utf-8")
    os.utime(root / changed, (1, 1))
    after = ClassArchives(root, java, environment=root / ".venv")
    assert not after.is_settled()
    after.make(python=_python(root, REHEARSED))
    assert after.is_settled()
    assert not before.folder.exists()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo starting; echo 'no memory' >&2; exit 3", "the rehearsal ended with 3: no memory"),
        ("exit 0", "no archive was written for kafka and spark"),
        ('echo classes >"$4/kafka.jsa"', "no archive was written for spark"),
        (f"{REHEARSED}; echo 'cut off'; exit 1", "the rehearsal ended with 1: cut off"),
    ],
)
def test_what_cannot_be_made_is_said_once(root: Path, java: Path, script: str, expected: str) -> None:
    """The next start does not try again; what was made is used."""
    archives = ClassArchives(root, java, environment=root / ".venv")
    assert archives.make(python=_python(root, script)) == expected
    assert archives.is_settled()
    assert archives.options("spark") == ()


def test_an_interrupted_rehearsal_leaves_nothing_that_counts(root: Path, java: Path) -> None:
    """Its folder has another name, and goes with the next."""
    archives = ClassArchives(root, java, environment=root / ".venv")
    leftover = archives.folder.with_name(f"{archives.folder.name}.1")
    leftover.mkdir(parents=True)
    (leftover / "kafka.jsa").touch()
    assert not archives.is_settled()
    archives.make(python=_python(root, REHEARSED))
    assert [each.name for each in archives.folder.parent.iterdir()] == [archives.folder.name]


def test_a_checkout_that_cannot_be_written_to_is_no_obstacle(
    root: Path, java: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It starts slowly, and says why."""
    environment = Environment(root)
    environment.folder.touch()
    environment.python = _python(root, REHEARSED)
    make_archives(environment, java)
    assert "starts stay slow: " in capsys.readouterr().err
    assert not ClassArchives(root, java, environment=root / ".venv").is_settled()
