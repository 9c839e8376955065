"""Writes the lock of the JVM parts anew from `requirements/jars.in`: `python -m service.setup.relock`.

Resolves each set with everything it needs at run time, and writes what came with its SHA-256. Run it by hand
after changing a version, and read the difference before committing it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from service.setup.failure import SetupFailure
from service.setup.ivy import Ivy
from service.setup.jars import LOCK_PATH, LockedFile, sha256_of
from service.setup.parts import ivy_program
from service.setup.prerequisites import require_java

_HEADING = """\
# SHA-256 of the JVM parts, by set, written by `python -m service.setup.relock` from jars.in.
# Paths are organisation/module/revision/file; checked by hand with sha256sum -c in the cache's folder jars.
"""


def wanted_sets(text: str) -> dict[str, list[str]]:
    """The coordinates of each set in the text of `jars.in`."""
    sets: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, coordinate = line.split()
            sets.setdefault(name, []).append(coordinate)
    return sets


def alone(coordinate: str) -> LockedFile:
    """The file named by `organisation:module:revision[:classifier:type]!`, its digest still unknown."""
    organisation, module, revision, *rest = coordinate.removesuffix("!").split(":")
    classifier, kind = (f"-{rest[0]}", rest[1]) if rest else ("", "jar")
    return LockedFile("", f"{organisation}/{module}/{revision}/{module}-{revision}{classifier}.{kind}")


def lock_lines(name: str, coordinates: list[str], *, java: Path, folder: Path) -> list[str]:
    """Fetch one set into `folder` and return its part of the lock."""
    ivy = Ivy(java=java, program=ivy_program(), folder=folder)
    resolved = [coordinate for coordinate in coordinates if not coordinate.endswith("!")]
    single = [alone(coordinate) for coordinate in coordinates if coordinate.endswith("!")]
    if resolved:
        ivy.resolve(resolved)
    if single:
        ivy.fetch(single)
    files = sorted(path for path in ivy.retrieved.rglob("*") if path.is_file())
    return [f"# set {name}", *(f"{sha256_of(path)}  {path.relative_to(ivy.retrieved).as_posix()}" for path in files)]


def relock() -> None:
    """Write the lock; the old one stays where anything fails."""
    java = require_java()
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="headrace-relock-") as folder:
        for name, coordinates in wanted_sets(LOCK_PATH.with_name("jars.in").read_text(encoding="utf-8")).items():
            lines += lock_lines(name, coordinates, java=java, folder=Path(folder, name))
    LOCK_PATH.write_text(_HEADING + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        relock()
    except SetupFailure as failure:
        sys.exit(f"headrace: {failure}")
