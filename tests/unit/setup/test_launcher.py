"""What is missing on the machine gets one clear line and exit code 2, before anything is installed."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli.main import REMOTE_COMMANDS
from service.setup import __main__ as setup
from service.setup.__main__ import needs_java
from service.setup.prerequisites import java_release

_ROOT = Path(__file__).parents[3]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout with what the launcher needs and nothing set up."""
    root = tmp_path / "clone"
    shutil.copytree(_ROOT / "service" / "setup", root / "service" / "setup")
    shutil.copytree(_ROOT / "requirements", root / "requirements")
    shutil.copy(_ROOT / "headrace", root / "headrace")
    return root


def _launch(clone: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "headrace", *(words or ("standalone",))],
        env={"PATH": "/usr/bin:/bin", "HOME": str(clone), "HEADRACE_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def _fake_java(folder: Path, says: str) -> Path:
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return program.parents[1]


def _assert_one_line(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("headrace: ")
    for word in words:
        assert word in line


@pytest.mark.parametrize("words", [("standalone",), ("dead-letters", "orders", "--data", "folder")])
def test_missing_java_names_the_package(clone: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Without Java the line says which package brings it, and nothing has been installed."""
    _assert_one_line(_launch(clone, *words, JAVA_HOME=str(tmp_path)), "Java 17", "openjdk-17-jre-headless")
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize(
    ("command", "rule", "is_needed"),
    [
        ("preview", "contract.rules.adult=age >= 18", True),
        ("preview --max 5 --json", "contract.schema=file:order.avsc", False),
        ("validate", "contract.rules.adult=age >= 18", False),
        ("validate --deep", "contract.rules.adult=age >= 18", True),
        ("validate --deep", "contract.schema=file:order.avsc", False),
    ],
)
def test_connectors_are_looked_at_without_java_where_spark_is_not_asked(
    tmp_path: Path, command: str, rule: str, *, is_needed: bool
) -> None:
    """Spark evaluates rules, and nothing else of a sample or a file; names that are no files are passed over."""
    connector = tmp_path / "orders.properties"
    connector.write_text(f"name=orders\n{rule}\n", encoding="utf-8")
    assert needs_java([*command.split(), str(connector), str(tmp_path), "no\0name"]) == is_needed


def test_commands_that_ask_a_worker_need_no_java() -> None:
    """Each that only speaks to a worker; a new one too."""
    assert not [command.name for command in REMOTE_COMMANDS if needs_java([str(command.name)])]


@pytest.mark.parametrize(
    ("line", "is_needed"),
    [
        ("", False),
        ("--version", False),
        ("new source mine --http", False),
        ("topic read orders --bootstrap broker:9092", False),
        ("topic read orders --data folder", True),
        ("dead-letters orders", False),
        ("dead-letters orders --data=folder --open", True),
        ("status orders --data", False),
        ("contract infer orders.jsonl", False),
        ("contract check order.avsc orders.jsonl", False),
        ("contract infer orders --data folder", True),
        ("preview absent.properties", False),
        ("validate absent.properties --deep", False),
        ("standalone worker.properties", True),
        ("parts", True),
    ],
)
@pytest.mark.parametrize("is_wheel", [False, True])
def test_java_and_its_parts_are_asked_for_where_a_command_line_needs_them(
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    *,
    is_needed: bool,
    is_wheel: bool,
) -> None:
    """The same for the launcher of a clone and for the command of a wheel; ``--data`` starts an embedded Kafka."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(setup, "set_up", lambda *_, sets, **__: asked.append(sets))
    if is_wheel:
        wheel = runpy.run_path(str(_ROOT / "deploy" / "wheel" / "__init__.py"))
        monkeypatch.setattr(sys, "argv", ["headrace", *line.split()])
        monkeypatch.setattr(runpy, "run_module", lambda *_, **__: None)
        monkeypatch.setattr(sys, "path", [*sys.path])
        wheel["main"]()
    else:
        assert setup.main(["--for", *line.split()]) == 0
    assert asked == [setup.RUN_SETS if is_needed else ()]


def test_old_java_is_told_with_its_release(clone: Path, tmp_path: Path) -> None:
    """A Java that is too old is named with what is needed instead."""
    home = _fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    _assert_one_line(_launch(clone, JAVA_HOME=str(home)), "is Java 11", "Java 17 or newer")


def test_wrong_python_is_told(clone: Path) -> None:
    """A HEADRACE_PYTHON that cannot be used is refused, not replaced by another one."""
    _assert_one_line(_launch(clone, HEADRACE_PYTHON="/nowhere/python"), "/nowhere/python", "3.11")


def test_no_python_names_the_package(clone: Path, tmp_path: Path) -> None:
    """Without any Python the line says what to install."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "dirname"):
        found = shutil.which(tool)
        assert found
        (tools / tool).symlink_to(found)
    _assert_one_line(_launch(clone, HEADRACE_PYTHON="", PATH=str(tools)), "python3-venv")


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_java_release_is_read(text: str, release: int | None) -> None:
    """Both forms of Java's versions are understood; anything else is no version."""
    assert java_release(text) == release
