"""Class archives: what the JVMs load at each start, kept as they have it in memory (JEP 350).

A JVM that maps such an archive starts in half the time. Archives are a matter of speed only: one that is missing, or
was made by another Java or of other jars, is passed over by the JVM in silence. They are made once, by a rehearsal of
what a worker does (`service.rehearsal`), for one environment, one Java and one state of the locks.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

NAMES = ("kafka", "spark")
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)
"""For a JVM that lives for seconds: HotSpot's second compiler would never earn back its time."""
REHEARSAL_SECONDS_MAX = 600
_FOLDER = "class-archives"
_GIVEN_UP = "given-up"
_KEY_CHARACTERS = 16
_SILENT = ("-Xlog:cds*=off", "-Xlog:class+path*=off")
"""Said where an archive does not fit, on the JVM's standard output."""


class ClassArchives:
    """The archives of one environment, inside it, because they name the jars of its pyspark by their paths."""

    def __init__(self, root: Path, java: Path, *, environment: Path) -> None:
        """Take the folder of our packages, the Java that maps them and the environment's; nothing is made yet."""
        self._root = root
        self._all = environment / _FOLDER
        self.folder = self._all / _key(root / "requirements", java)

    def is_settled(self) -> bool:
        """Whether they are there, or could not be made: that is not tried at every start."""
        return (self.folder / _GIVEN_UP).exists() or all(self._path(name).exists() for name in NAMES)

    def options(self, name: str) -> tuple[str, ...]:
        """What makes a JVM map this archive; nothing where there is none."""
        path = self._path(name)
        return (f"-XX:SharedArchiveFile={path}", *_SILENT) if path.exists() else ()

    def make(self, *, python: Path) -> str | None:
        """Rehearse; why that failed, None where it did not. The caller holds the set-up lock."""
        unfinished = self.folder.with_name(f"{self.folder.name}.{os.getpid()}")
        for outdated in self._all.glob("*"):
            shutil.rmtree(outdated)
        unfinished.mkdir(parents=True)
        failure = _rehearsed([str(python), "-P", "-m", "service.rehearsal", str(unfinished)], self._root)
        if failure:
            # A JVM that was cut off may have left half of one.
            for half in unfinished.glob("*.jsa"):
                half.unlink()
        missing = [name for name in NAMES if not (unfinished / f"{name}.jsa").exists()]
        if missing:
            failure = failure or f"no archive was written for {' and '.join(missing)}"
            (unfinished / _GIVEN_UP).write_text(failure, encoding="utf-8")
        unfinished.replace(self.folder)
        return failure if missing else None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.jsa"


def archive_arguments(path: Path) -> tuple[str, ...]:
    """What makes a JVM write an archive when it ends; compiled code is no part of it."""
    return (f"-XX:ArchiveClassesAtExit={path}", *SHORT_LIVED)


def _rehearsed(command: Sequence[str], root: Path) -> str | None:
    try:
        ran = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
            timeout=REHEARSAL_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"the rehearsal did not end in {REHEARSAL_SECONDS_MAX} s"
    if ran.returncode == 0:
        return None
    said = (ran.stdout + ran.stderr).strip().split("\n")[-1]
    return f"the rehearsal ended with {ran.returncode}: {said}"


def _key(requirements: Path, java: Path) -> str:
    """Other jars or another Java have another key."""
    key = hashlib.sha256(str(java).encode())
    # Whole seconds: images round times.
    key.update(str(int(java.stat().st_mtime)).encode() if java.exists() else b"")
    for lock in ("run.txt", "jars.sha256"):
        key.update((requirements / lock).read_bytes())
    return key.hexdigest()[:_KEY_CHARACTERS]
