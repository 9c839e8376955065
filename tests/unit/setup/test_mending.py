"""A command that cannot be imported because an installed file is damaged is mended and started again, once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.setup.environment import STAMP

_ROOT = Path(__file__).parents[3]
_MAIN = """
COMPLETION_VARIABLE = ""

def main(**_: object) -> None:
    {begin}
    import part
    print("done", part.answer)
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with an environment of one distribution; its launcher only says how it was called."""
    root = tmp_path_factory.mktemp("clone")
    shutil.copytree(_ROOT / "service" / "setup", root / "service" / "setup")
    (root / "requirements").mkdir()
    commands = root / "service" / "cli"
    commands.mkdir()
    shutil.copy(_ROOT / "service" / "cli" / "__main__.py", commands)
    launcher = root / "headrace"
    launcher.write_text('#!/bin/sh\necho "mended=$HEADRACE_MENDED $*"\n', encoding="utf-8")
    launcher.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True, timeout=300)
    (site_packages,) = (root / ".venv").glob("lib/python*/site-packages")
    records = site_packages / "part-1.0.dist-info"
    records.mkdir()
    (records / "METADATA").write_text("Name: part\nVersion: 1.0\n", encoding="utf-8")
    (records / "RECORD").write_text("part.py,sha256=x,12\n", encoding="utf-8")
    return root


def run(clone: Path, *, part: str | None, begin: str = "pass", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose first import is ``part``, after ``begin``."""
    (file,) = (folder / "part.py" for folder in (clone / ".venv").glob("lib/python*/site-packages"))
    file.unlink(missing_ok=True)
    if part is not None:
        file.write_text(part, encoding="utf-8")
    (clone / "service" / "cli" / "main.py").write_text(_MAIN.format(begin=begin), encoding="utf-8")
    (clone / ".venv" / f"{STAMP}-run.txt").touch()
    return subprocess.run(
        [clone / ".venv" / "bin" / "python", "-P", "-m", "service.cli", "topic", "read"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(clone), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def is_trusted(clone: Path) -> bool:
    """Whether the next set-up would take everything for whole."""
    return (clone / ".venv" / f"{STAMP}-run.txt").exists()


@pytest.mark.parametrize("part", [None, "", "answer = ("], ids=["deleted", "emptied", "cut"])
def test_a_damaged_part_is_mended_and_the_command_started_again(clone: Path, part: str | None) -> None:
    """With its arguments; set-up looks closely then."""
    # An empty module shows only where something of it is missed.
    done = run(clone, part=part, begin="from part import answer")
    assert (done.returncode, done.stdout) == (0, "mended=1 topic read\n"), done.stderr
    assert done.stderr == "headrace: damaged: part-1.0; mending\n"
    assert not is_trusted(clone)


def test_a_whole_part_is_used(clone: Path) -> None:
    """Nothing is compared or told."""
    done = run(clone, part="answer = 42\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done 42\n", "")


@pytest.mark.parametrize(
    ("begin", "environment"),
    [("from part import answer", {"HEADRACE_MENDED": "1"}), ("import json; json.loads('')", {})],
    ids=["mended already", "begun already"],
)
def test_what_a_mend_cannot_help_is_an_error(clone: Path, begin: str, environment: dict[str, str]) -> None:
    """Never twice in a row, and never a command that may have done something."""
    done = run(clone, part="", begin=begin, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" in done.stderr
    assert is_trusted(clone)


def test_an_error_without_damage_is_an_error(clone: Path) -> None:
    """Whatever could not be imported is no distribution of ours."""
    done = run(clone, part="answer = 42\n", begin="import absent")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No module named 'absent'" in done.stderr
    assert is_trusted(clone)
