"""Filling the cache: fetches what a set lacks, verifies it and puts it in place, one process at a time."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from service.setup.exclusive import exclusive
from service.setup.failure import SetupFailure
from service.setup.ivy import Ivy
from service.setup.jars import JarCache
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


def fetch_set(cache: JarCache, name: str, *, program: Path) -> None:
    """Make the set complete. Nothing is asked of the network where every file is there and right."""
    with exclusive(cache.folder / "lock", on_wait=lambda: say("another set-up is fetching JVM parts; waiting for it")):
        if cache.is_complete(name):
            return
        missing = cache.missing(name)
        if missing:
            say(f"fetching {len(missing)} JVM files ({name}) into {cache.folder}")
            # What an interrupted or failed fetch got stays there, and the next call goes on from it.
            incoming = cache.folder / "incoming" / name
            ivy = Ivy(java=require_java(), program=program, folder=incoming)
            ivy.fetch(missing)
            try:
                for file in missing:
                    cache.accept(file, _retrieved(ivy, file.path))
            finally:
                # A file that failed its check must not be found in Ivy's own cache again.
                shutil.rmtree(incoming)
        cache.finish(name)


def say(line: str) -> None:
    """Tell the user what takes time, where output of commands cannot be spoiled by it."""
    print(f"headrace: {line}", file=sys.stderr, flush=True)


def _retrieved(ivy: Ivy, path: str) -> Path:
    fetched = ivy.retrieved / path
    if not fetched.is_file():
        message = f"{path} was asked for but did not come"
        raise SetupFailure(message)
    return fetched
