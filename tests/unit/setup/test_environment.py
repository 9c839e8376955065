"""An installation that was interrupted or damaged is told from a whole one by pip's own records."""

from __future__ import annotations

import errno
import os
import subprocess
from importlib import import_module
from pathlib import Path
from zipfile import ZIP_STORED

import pytest

from service.setup import environment as environment_module
from service.setup.__main__ import set_up
from service.setup.environment import (
    BUILD_SETTINGS,
    BUILD_SETTINGS_VARIABLE,
    STAMP,
    Environment,
    damaged_distributions,
    digest,
)
from service.setup.prerequisites import find_java


def _install(site_packages: Path, name: str, version: str) -> Path:
    """Put a distribution there as pip leaves it; its folder of records."""
    module = site_packages / f"{name}.py"
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text("answer = 42\n", encoding="utf-8")
    records = site_packages / f"{name}-{version}.dist-info"
    records.mkdir()
    (records / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = [f"{name}.py,sha256=x,{module.stat().st_size}", f"{records.name}/METADATA,,", f"{records.name}/RECORD,,"]
    (records / "RECORD").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return records


def _whole(root: Path) -> Environment:
    """An environment with everything that its lock asks for, stamped."""
    environment = Environment(root)
    environment.python.parent.mkdir(parents=True)
    environment.python.touch(mode=0o755)
    environment.requirements.mkdir()
    lock = environment.requirements / "run.txt"
    lock.write_text(
        "some-part[extra]==1.2 \\\n    --hash=sha256:00\ncolorama==1.0 ; sys_platform == 'win32'\n", encoding="utf-8"
    )
    _install(root / ".venv/lib/python3.11/site-packages", "some_part", "1.2")
    (environment.folder / f"{STAMP}-run.txt").write_text(digest(lock), encoding="utf-8")
    return environment


def test_whole_environment_is_complete(tmp_path: Path) -> None:
    """Stamped and recorded means complete; what a marker excludes is not asked for."""
    assert _whole(tmp_path).is_complete(locks=("run.txt",))


@pytest.mark.parametrize("lost", ["stamp", "stamp damaged", "record", "python", "lock changed"])
def test_anything_lost_makes_it_incomplete(tmp_path: Path, lost: str) -> None:
    """Each part of the evidence counts."""
    environment = _whole(tmp_path)
    if lost == "stamp":
        (environment.folder / f"{STAMP}-run.txt").unlink()
    elif lost == "stamp damaged":
        (environment.folder / f"{STAMP}-run.txt").write_bytes(b"\xff\xfe\x00")
    elif lost == "record":
        (environment.site_packages / "some_part-1.2.dist-info" / "RECORD").unlink()
    elif lost == "python":
        environment.python.unlink()
    else:
        (environment.requirements / "run.txt").write_text("some-part==1.3\n", encoding="utf-8")
    assert not environment.is_complete(locks=("run.txt",))


def test_a_java_that_cannot_be_noted_is_asked_again(tmp_path: Path) -> None:
    """In a read-only checkout, say; all is installed, so set-up ends well."""
    environment = _whole(tmp_path)
    empty = environment.requirements / "build.txt"
    empty.touch()
    (environment.folder / f"{STAMP}-build.txt").write_text(digest(empty), encoding="utf-8")
    (environment.folder / f"{STAMP}-java").mkdir()  # stops root too
    set_up(environment, locks=("build.txt", "run.txt"), sets=("kafka",), with_archives=False)
    assert not environment.is_java_verified(find_java())


@pytest.mark.parametrize("name", [b"jdk", "jdk-é".encode(), b"jdk-\xe9"])
def test_a_java_is_remembered_under_any_path(tmp_path: Path, name: bytes) -> None:
    """A path need be no UTF-8; another Java is another one."""
    environment = _whole(tmp_path)
    java = tmp_path / os.fsdecode(name) / "java"
    environment.remember_java(java)
    assert environment.is_java_verified(java)
    assert not environment.is_java_verified(tmp_path / "java")


def test_a_python_that_does_not_answer_keeps_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy it may be in use by others, and what is installed takes long to fetch again."""
    monkeypatch.setattr(environment_module, "PYTHON_SECONDS_MAX", 0.1)
    environment = _whole(tmp_path)
    environment.python.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    with pytest.raises(subprocess.TimeoutExpired):
        environment.complete(locks=("run.txt",))
    assert (environment.site_packages / "some_part-1.2.dist-info" / "RECORD").exists()


def test_a_system_without_memory_keeps_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That no process can be started says nothing about this Python."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    environment = _whole(tmp_path)
    made: list[Path] = []
    monkeypatch.setattr(Environment, "_create", lambda self: made.append(self.folder))
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        environment.complete(locks=("run.txt",))
    assert made == []


@pytest.mark.parametrize("text", ["", "#!/nowhere/python\n", "#!/bin/sh\nexit 1\n"])
def test_a_python_that_cannot_run_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Empty, of a Python that was removed, or without pip."""
    environment = _whole(tmp_path)
    environment.python.write_text(text, encoding="utf-8")
    made: list[Path] = []
    monkeypatch.setattr(Environment, "_create", lambda self: made.append(self.folder))
    monkeypatch.setattr(Environment, "_install", lambda _self, _locks: None)
    environment.complete(locks=("run.txt",))
    assert made == [environment.folder]


def test_only_damaged_distributions_lose_their_records(tmp_path: Path) -> None:
    """A missing file, a cut file and a missing record are damage; a whole distribution is left alone."""
    _install(tmp_path, "whole", "1")
    lost = _install(tmp_path, "lost", "1")
    (tmp_path / "lost.py").unlink()
    cut = _install(tmp_path, "cut", "1")
    (tmp_path / "cut.py").write_text("", encoding="utf-8")
    unrecorded = _install(tmp_path, "unrecorded", "1")
    (unrecorded / "RECORD").unlink()
    assert damaged_distributions(tmp_path) == sorted([lost, cut, unrecorded])


def test_a_wheel_that_is_built_here_is_only_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unpacked at once: compressing half a gigabyte of jars again would take longer than all else."""
    monkeypatch.setenv(BUILD_SETTINGS_VARIABLE, str(BUILD_SETTINGS))
    distribution = import_module("setuptools").Distribution()  # which ships no types
    distribution.parse_config_files()
    wheel = distribution.get_command_obj("bdist_wheel")
    wheel.ensure_finalized()
    assert wheel.supported_compressions[wheel.compression] == ZIP_STORED


@pytest.mark.parametrize(("given", "expected"), [(None, BUILD_SETTINGS), ("mine.cfg", "mine.cfg")])
def test_pip_is_told_how_to_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str | Path
) -> None:
    """Somebody's own settings are left to him."""
    if given is None:
        monkeypatch.delenv(BUILD_SETTINGS_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(BUILD_SETTINGS_VARIABLE, given)
    environment = _whole(tmp_path)
    (environment.requirements / "build.txt").touch()
    environment.python.write_text(
        f'#!/bin/sh\necho "${BUILD_SETTINGS_VARIABLE}" >"{tmp_path}/told"\n', encoding="utf-8"
    )
    environment.complete(locks=("build.txt",))
    assert (tmp_path / "told").read_text(encoding="utf-8") == f"{expected}\n"
