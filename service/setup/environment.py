"""The virtual environment: made once, completed from locked requirements, mended in place.

pip records what it installed in `<name>.dist-info/RECORD`, with the size of every file. So an interrupted or
damaged installation can be told from a whole one: a distribution whose record is missing or does not match
its files loses its record, and pip then installs it again over what is there. The environment is therefore
never thrown away while its Python runs, which would pull it from under processes that use it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from service.setup.failure import SetupFailure

STAMP = "headrace-requirements"
PYTHON_SECONDS_MAX = 60
"""For the environment's Python to answer; on a cold or busy disk it may take half of that."""
PIP_SECONDS_MAX = 3600
PIP_TIMEOUT_SECONDS = 60
BUILD_SETTINGS = Path(__file__).with_name("wheels.cfg")
BUILD_SETTINGS_VARIABLE = "DIST_EXTRA_CONFIG"
"""Names a file that setuptools reads beside its own: https://setuptools.pypa.io/en/latest/deprecated/distutils/configfile.html"""

_NO_PROGRAM = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENOEXEC})
"""What the system says of a file that it cannot run; all else (no memory, no descriptors) says nothing about it."""

# A requirement with a marker (third group) may rightly be absent on this system.
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)( ;)?", re.MULTILINE)


class Environment:
    """The folder `.venv` of a checkout and the requirement files that say what belongs into it."""

    def __init__(self, root: Path, *, folder: Path | None = None) -> None:
        """Take the root of our packages, and the environment's folder if it is another; nothing is read or made yet."""
        self.root = root
        self.folder = root / ".venv" if folder is None else folder
        self.lock = self.folder.with_name(".venv.lock") if folder is None else self.folder / ".headrace.lock"
        self.python = self.folder / "bin" / "python" if folder is None else Path(sys.executable)
        self.requirements = root / "requirements"

    def is_complete(self, *, locks: tuple[str, ...]) -> bool:
        """Whether every lock's requirements are stamped as installed and still recorded; no process is started."""
        stamps = self._stamps()
        if not os.access(self.python, os.X_OK):
            return False
        if any(stamps.get(lock) != digest(self.requirements / lock) for lock in locks):
            return False
        recorded = {_normalised(path.parent.name) for path in self.site_packages.glob("*.dist-info/RECORD")}
        return all(self._pinned(lock) <= recorded for lock in locks)

    def is_java_verified(self, java: Path | None) -> bool:
        """Whether exactly this Java was found new enough before."""
        stamp = self.folder / f"{STAMP}-java"
        return java is not None and stamp.is_file() and _read(stamp) == str(java)

    def remember_java(self, java: Path) -> None:
        """Spare later starts the question which release this Java is."""
        _write_atomically(self.folder / f"{STAMP}-java", str(java))

    def complete(self, *, locks: tuple[str, ...]) -> None:
        """Make or mend the environment so that `is_complete` holds. The caller holds the set-up lock.

        Raises SetupFailure, OSError, or TimeoutExpired for a program that does not end; the next call goes on then.
        """
        self._unstamp(locks)
        if not self._python_runs():
            self._create()
        for folder in damaged_distributions(self.site_packages):
            shutil.rmtree(folder)
        self._install(("build.txt",))
        self._install(tuple(lock for lock in locks if lock != "build.txt"))
        for lock in locks:
            _write_atomically(self.folder / f"{STAMP}-{lock}", digest(self.requirements / lock))

    def distrust_damaged(self) -> list[str]:
        """Have the next set-up look closely where anything is damaged; the names of that. Raises OSError."""
        damaged = damaged_distributions(self.site_packages)
        if damaged:
            self._unstamp(tuple(self._stamps()))
        return [folder.name.removesuffix(".dist-info") for folder in damaged]

    def _python_runs(self) -> bool:
        """Whether it is worth mending. One that does not answer is told, not taken for broken: it may be in use."""
        command = (self.python, "-c", "import pip")
        try:
            check = subprocess.run(command, capture_output=True, check=False, timeout=PYTHON_SECONDS_MAX)
        except OSError as error:
            if error.errno in _NO_PROGRAM:
                return False
            raise
        return check.returncode == 0

    def _create(self) -> None:
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(self.folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if made.returncode != 0:
            last = (made.stdout + made.stderr).strip().splitlines()[-1:] or ["no output"]
            message = f"python -m venv failed in {self.folder}: {last[0]}"
            raise SetupFailure(message)

    def _install(self, locks: tuple[str, ...]) -> None:
        files = [part for lock in locks for part in ("-r", str(self.requirements / lock))]
        command: list[str | Path] = [
            self.python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
        ]
        # No build isolation: what builds the one source distribution is locked too (build.txt).
        command += ["--require-hashes", "--no-build-isolation", "--timeout", str(PIP_TIMEOUT_SECONDS), *files]
        installed = subprocess.run(
            command,
            check=False,
            stdout=sys.stderr,
            env={BUILD_SETTINGS_VARIABLE: str(BUILD_SETTINGS), **os.environ},
            timeout=PIP_SECONDS_MAX,
        )
        if installed.returncode != 0:
            message = "pip could not install the locked requirements (see above); the next call goes on from here"
            raise SetupFailure(message)

    @property
    def site_packages(self) -> Path:
        """Where packages are installed; a path that does not exist as long as the environment does not."""
        found = sorted(self.folder.glob("lib/python*/site-packages"))
        return found[-1] if found else self.folder / "lib"

    def _stamps(self) -> dict[str, str]:
        prefix = f"{STAMP}-"
        found = self.folder.glob(f"{prefix}*.txt")
        return {path.name.removeprefix(prefix): _read(path) for path in found}

    def _unstamp(self, locks: tuple[str, ...]) -> None:
        for lock in locks:
            (self.folder / f"{STAMP}-{lock}").unlink(missing_ok=True)

    def _pinned(self, lock: str) -> set[str]:
        text = (self.requirements / lock).read_text(encoding="utf-8")
        pins = (match.groups() for match in _PINNED.finditer(text))
        return {_normalised(f"{name}-{version}.dist-info") for name, version, marker in pins if not marker}


def digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def damaged_distributions(site_packages: Path) -> list[Path]:
    """The `.dist-info` folders without a record, or with a recorded file that is missing or has another size."""
    return [folder for folder in sorted(site_packages.glob("*.dist-info")) if _is_damaged(folder)]


def _is_damaged(dist_info: Path) -> bool:
    from importlib.metadata import PathDistribution  # noqa: PLC0415 - takes long, and is for what is damaged

    files = PathDistribution(dist_info).files
    if not files:
        return True
    for file in files:
        if file.size is None:
            continue
        try:
            size = Path(str(file.locate())).stat().st_size
        except OSError:
            return True
        if size != file.size:
            return True
    return False


def _normalised(dist_info_name: str) -> str:
    return re.sub(r"[-_.]+", "-", dist_info_name).lower()


def _read(stamp: Path) -> str:
    """What it says, whatever bytes these are: a path need be no UTF-8, and a damaged stamp is only a wrong one."""
    return stamp.read_text(encoding="utf-8", errors="surrogateescape")


def _write_atomically(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8", errors="surrogateescape")
    unfinished.replace(path)
