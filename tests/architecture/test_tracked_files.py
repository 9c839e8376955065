"""No tracked file names a package registry or a path of one particular machine."""

from __future__ import annotations

import re

from tests.architecture.tracked import ROOT, tracked_paths

# Put together from parts, so that this file does not hold what it forbids.
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("maven", "org"),
            ("maven", "apache", "org"),
            ("registry", "npmjs"),
            ("proxy", "golang", "org"),
            ("crates", "io"),
            ("deb", "debian", "org"),
            ("docker", "io"),
        )
    )
)
MACHINE_FOLDERS = ("work", "farm", "root", "home", "Users")
MACHINE_PATH = re.compile(rf"(?:^|[^A-Za-z0-9_./-])/(?:{'|'.join(MACHINE_FOLDERS)})/[A-Za-z0-9_.]")
TEXT_BYTES_MAX = 4 * 1024 * 1024


def findings(pattern: re.Pattern[str]) -> list[str]:
    """``path:line`` of every match in a tracked text file."""
    found = []
    for path in tracked_paths():
        raw = (ROOT / path).read_bytes()
        if b"\0" in raw[:8192] or len(raw) > TEXT_BYTES_MAX:
            continue
        lines = raw.decode(errors="replace").splitlines()
        found += [f"{path}:{number}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def test_the_patterns_find_what_they_forbid() -> None:
    """A host, or a path at the beginning of a line, in quotes or after a blank, is found; a part of one is not."""
    assert REGISTRY_HOSTS.search("https://" + "pypi" + "." + "org/simple")
    assert MACHINE_PATH.search('"' + "/" + "work/main")
    assert MACHINE_PATH.search("/" + "root/.m2")
    assert not MACHINE_PATH.search("docs/work/main")
    assert not MACHINE_PATH.search("$HOME/work/")


def test_no_file_names_a_package_registry() -> None:
    """Where packages come from is the business of the machine's settings, not of the repository."""
    assert findings(REGISTRY_HOSTS) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    """What runs here runs in any folder of any machine."""
    assert findings(MACHINE_PATH) == []


def test_no_run_leaves_its_traces() -> None:
    """Process ids, logs and caches are never tracked."""
    traces = [
        path for path in tracked_paths() if path.endswith((".pid", ".log", ".pyc", ".tmp")) or ".headrace/" in path
    ]

    assert traces == []
