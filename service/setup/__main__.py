"""`python -m service.setup [--dev] [--set NAME]… [--for COMMAND…]`: what the launcher runs before every command.

The command `headrace` of an installed wheel runs it too (`--installed`): the environment is there then, and JVM parts
alone are fetched, at the first command that needs them.

Ready already: a few dozen file states are compared and nothing else happens (well under a tenth of a second,
no network). Exit code 2 with one line where a person has to do something first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
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
NEED_NO_JAVA = frozenset(
    "--help -h --version help completion connectors create apply config patch delete status logs pause resume stop "  # noqa: SIM905 - two lines are read sooner than 23
    "restart offsets plugins topics loggers new".split()
)
"""Commands that start no JVM here: they speak to a worker, or only write and print."""
READ_KAFKA = frozenset({"topic", "dead-letters", "contract"})
"""Commands that need a JVM only for a Kafka that they start themselves, in the folder of `--data`."""
JUDGE_BY_RULES = frozenset({"preview", "validate"})
"""Commands that need a JVM only for rules, which Spark evaluates; a look that is not `--deep` leaves them alone."""
OWN_SETS = {("demo", "pipeline"): ("opensearch",)}
"""JVM parts that a command needs besides those of every worker, by its first words."""
RULES = (b"contract.rules.", b".sql")
CONNECTOR_BYTES_MAX = 1 << 20
"""A larger file is no connector's."""


def needs_java(arguments: Sequence[str]) -> bool:
    """Whether a command line starts a JVM here; one without a command does not, as a shell's completion calls it."""
    command, *options = arguments or ("help",)
    if command in READ_KAFKA:
        return any(option.partition("=")[0] == "--data" for option in options)
    if command in JUDGE_BY_RULES:
        is_asked = command == "preview" or "--deep" in options
        return is_asked and any(map(_has_rules, options))
    return command not in NEED_NO_JAVA


def _has_rules(name: str) -> bool:
    """Whether this argument is a connector's file with rules in its contract, or SQL."""
    path = Path(name)
    try:
        if not path.is_file() or path.stat().st_size > CONNECTOR_BYTES_MAX:
            return False
        content = path.read_bytes()
        return any(word in content for word in RULES)
    except (OSError, ValueError):
        return False


def set_up(environment: Environment, *, locks: tuple[str, ...], sets: tuple[str, ...], with_archives: bool) -> None:
    """Complete the environment, the jar sets and the class archives; what is complete is left alone."""
    java = find_java()
    if sets and not environment.is_java_verified(java):
        java = require_java()
    if locks and not environment.is_complete(locks=locks):
        require_venv()
        with exclusive(environment.lock, on_wait=lambda: say("another set-up is at work here; waiting for it")):
            if not environment.is_complete(locks=locks):
                say(f"installing locked requirements into {environment.folder} (a few minutes the first time)")
                environment.complete(locks=locks)
    if sets and java and not environment.is_java_verified(java):
        with suppress(OSError):  # in a read-only checkout the question is asked again each time
            environment.remember_java(java)
    cache = JarCache(cache_folder())
    if not all(cache.is_complete(name) for name in sets):
        fetch_sets(cache, sets, program=ivy_program(environment.site_packages if locks else None))
    if sets and java and with_archives:
        make_archives(environment, java)


def make_archives(environment: Environment, java: Path) -> None:
    """Make starts quick; they go without it where that fails, in a read-only checkout for example."""
    archives = ClassArchives(environment.root, java, environment=environment.folder)
    if archives.is_settled():
        return
    try:
        with exclusive(environment.lock, on_wait=lambda: say("another set-up is at work here; waiting for it")):
            if archives.is_settled():
                return
            say("rehearsing a start of Kafka and Spark, so that all others are quicker (a minute, once)")
            failure = archives.make(python=environment.python)
    except OSError as error:
        failure = str(error)
    if failure:
        say(f"starts stay slow: {failure}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run set-up with the command line's choices, or those given, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m service.setup", description=__doc__, allow_abbrev=False)
    parser.add_argument("--dev", action="store_true", help="also what tests and checks need")
    parser.add_argument("--set", action="append", dest="sets", help="also this set of JVM parts")
    parser.add_argument("--without-jars", action="store_true", help="no JVM parts at all")
    parser.add_argument("--without-archives", action="store_true", help="nothing that only makes starts quicker")
    parser.add_argument("--installed", action="store_true", help="the environment is this Python's, and complete")
    parser.add_argument(
        "--for",
        dest="line",
        nargs=argparse.REMAINDER,
        help="no JVM parts where the command line that follows, which may be empty, needs none",
    )
    options = parser.parse_args(arguments)
    needs_jars = not options.without_jars and (options.line is None or needs_java(options.line))
    own = OWN_SETS.get(tuple((options.line or ())[:2]), ())
    sets = (*RUN_SETS, *own, *(options.sets or ())) if needs_jars else ()
    locks = () if options.installed else ("build.txt", "run.txt", *(("dev.txt",) if options.dev else ()))
    environment = Environment(ROOT, folder=Path(sys.prefix) if options.installed else None)
    with_archives = not options.without_archives and (not options.installed or os.access(sys.prefix, os.W_OK))
    try:
        set_up(environment, locks=locks, sets=sets, with_archives=with_archives)
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
