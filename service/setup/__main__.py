"""`python -m service.setup [--dev] [--set NAME]…`: what the launcher runs before every command.

Ready already: a few dozen file states are compared and nothing else happens (well under a tenth of a second,
no network). Exit code 2 with one line where a person has to do something first.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from service.setup.archives import ClassArchives
from service.setup.environment import Environment
from service.setup.exclusive import exclusive
from service.setup.failure import SetupFailure
from service.setup.jars import JarCache, cache_folder
from service.setup.parts import fetch_sets, ivy_program, say
from service.setup.prerequisites import find_java, require_java, require_venv

EXIT_PREREQUISITE = 2
ROOT = Path(__file__).resolve().parents[2]
RUN_SETS = ("kafka", "spark", "registry")


def set_up(root: Path, *, is_development: bool, sets: tuple[str, ...], with_archives: bool) -> None:
    """Complete the environment, the jar sets and the class archives; what is complete is left alone."""
    environment = Environment(root)
    java = find_java()
    if sets and not environment.is_java_verified(java):
        java = require_java()
    locks = ("build.txt", "run.txt", "dev.txt") if is_development else ("build.txt", "run.txt")
    if not environment.is_complete(locks=locks):
        require_venv()
        with exclusive(root / ".venv.lock", on_wait=lambda: say("another set-up is at work here; waiting for it")):
            if not environment.is_complete(locks=locks):
                say(f"installing locked requirements into {environment.folder} (a few minutes the first time)")
                environment.complete(locks=locks)
    if sets and java and not environment.is_java_verified(java):
        with suppress(OSError):  # in a read-only checkout the question is asked again each time
            environment.remember_java(java)
    cache = JarCache(cache_folder())
    if not all(cache.is_complete(name) for name in sets):
        fetch_sets(cache, sets, program=ivy_program(environment.site_packages))
    if sets and java and with_archives:
        make_archives(root, java, python=environment.python)


def make_archives(root: Path, java: Path, *, python: Path) -> None:
    """Make starts quick; they go without it where that fails, in a read-only checkout for example."""
    archives = ClassArchives(root, java)
    if archives.is_settled():
        return
    try:
        with exclusive(root / ".venv.lock", on_wait=lambda: say("another set-up is at work here; waiting for it")):
            if archives.is_settled():
                return
            say("rehearsing a start of Kafka and Spark, so that all others are quicker (a minute, once)")
            failure = archives.make(python=python)
    except OSError as error:
        failure = str(error)
    if failure:
        say(f"starts stay slow: {failure}")


def main() -> int:
    """Run set-up with the command line's choices and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m service.setup", description=__doc__)
    parser.add_argument("--dev", action="store_true", help="also what tests and checks need")
    parser.add_argument("--set", action="append", dest="sets", help="also this set of JVM parts")
    parser.add_argument("--without-jars", action="store_true", help="no JVM parts at all")
    parser.add_argument("--without-archives", action="store_true", help="nothing that only makes starts quicker")
    options = parser.parse_args()
    sets = () if options.without_jars else (*RUN_SETS, *(options.sets or ()))
    try:
        set_up(ROOT, is_development=options.dev, sets=sets, with_archives=not options.without_archives)
    except SetupFailure as failure:
        say(str(failure))
        return EXIT_PREREQUISITE
    except subprocess.TimeoutExpired as failure:
        say(f"{failure.cmd[0]} did not end in {failure.timeout:.0f} s; the next call goes on from here")
        return EXIT_PREREQUISITE
    except OSError as failure:
        say(f"set-up could not go on: {failure}; the next call goes on from here")
        return EXIT_PREREQUISITE
    return 0


if __name__ == "__main__":
    sys.exit(main())
