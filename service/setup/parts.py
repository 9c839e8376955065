"""Filling the cache: fetches what a set lacks, verifies it and puts it in place, one process at a time."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from service.setup.exclusive import exclusive
from service.setup.failure import SetupFailure
from service.setup.ivy import Ivy
from service.setup.jars import JarCache, LockedFile
from service.setup.prerequisites import require_java


def ivy_program(site_packages: Path | None = None) -> Path:
    """Ivy's jar inside the pyspark of `site_packages`, or of the Python that is running."""
    if site_packages is None:
        found = importlib.util.find_spec("pyspark")
        folder = Path(found.origin).parent if found and found.origin else Path("pyspark")
    else:
        folder = site_packages / "pyspark"
    programs = sorted(folder.glob("jars/ivy-2*.jar"))
    if not programs:
        message = f"there is no Ivy in {folder / 'jars'}: is pyspark installed?"
        raise SetupFailure(message)
    return programs[-1]


def fetch_sets(cache: JarCache, names: Iterable[str], *, program: Path) -> None:
    """Make the sets complete, by one run of Ivy at most: no network where every file is there and right."""
    with exclusive(cache.folder / "lock", on_wait=lambda: say("another set-up is fetching JVM parts; waiting for it")):
        lacking = [name for name in names if not cache.is_complete(name)]
        missing = _missing(cache, lacking)
        wanted = [file for files in missing.values() for file in files]
        if wanted:
            sets = ", ".join(name for name, files in missing.items() if files)
            say(f"fetching {len(wanted)} JVM files ({sets}) into {cache.folder}")
            # What an interrupted or failed fetch got stays there, and the next call goes on from it.
            incoming = cache.folder / "incoming"
            ivy = Ivy(java=require_java(), program=program, folder=incoming)
            ivy.fetch(wanted)
            try:
                for name, files in missing.items():
                    _accept(cache, name, files, ivy)
            finally:
                # A file that failed its check must not be found in Ivy's own cache again.
                shutil.rmtree(incoming)
        for name in lacking:
            cache.finish(name)


def say(line: str) -> None:
    """Tell the user what takes time, where output of commands cannot be spoiled by it."""
    print(f"headrace: {line}", file=sys.stderr, flush=True)


def _missing(cache: JarCache, names: Iterable[str]) -> dict[str, list[LockedFile]]:
    """What each set lacks; a file of several sets is the first one's."""
    missing: dict[str, list[LockedFile]] = {}
    found: set[LockedFile] = set()
    for name in names:
        missing[name] = [file for file in cache.missing(name) if file not in found]
        found.update(missing[name])
    return missing


def _accept(cache: JarCache, name: str, files: Iterable[LockedFile], ivy: Ivy) -> None:
    for file in files:
        fetched = ivy.retrieved / file.path
        if not fetched.is_file():
            message = f"{file.path} (set {name}) was asked for but did not come"
            raise SetupFailure(message)
        try:
            cache.accept(file, fetched)
        except SetupFailure as failure:
            message = f"set {name}: {failure}"
            raise SetupFailure(message) from failure
