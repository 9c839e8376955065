"""The JVM parts: which files belong to which set, where they lie, and whether they are what was locked.

`requirements/jars.sha256` is the only list. It is in the form of `sha256sum`, so that
`cd <cache>/jars && sha256sum -c <lock>` checks a cache by hand; a comment line `# set NAME` opens a set, and a
path is `organisation/module/revision/file`, which is also what the file is asked for by.
Besides the files there is, for archives, the unpacked folder next to the archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from service.setup.failure import SetupFailure

CACHE_VARIABLE = "HEADRACE_CACHE"
LOCK_PATH = Path(__file__).resolve().parents[2] / "requirements" / "jars.sha256"
ARCHIVE_TYPE = "tar.gz"

# Given to every file that was verified. Whole seconds, because copies into the layers of an image round times.
_VERIFIED_TIME_SECONDS = 1_000_000_000
_SET_MARK = "# set "


@dataclass(frozen=True)
class LockedFile:
    """One JVM part: the digest it must have and the path, relative to the cache, that names it."""

    sha256: str
    path: str

    @property
    def organisation(self) -> str:
        """The Maven group, such as ``org.apache.kafka``."""
        return self.path.split("/")[0]

    @property
    def module(self) -> str:
        """The Maven artifact, such as ``kafka_2.13``."""
        return self.path.split("/")[1]

    @property
    def revision(self) -> str:
        """The version of the artifact."""
        return self.path.split("/")[2]

    @property
    def classifier(self) -> str:
        """What stands between version and type in the file's name; mostly nothing."""
        return self._ending().removeprefix("-").partition(".")[0] if self._ending().startswith("-") else ""

    @property
    def type(self) -> str:
        """The file's type: `jar` or `tar.gz`."""
        return self._ending().partition(".")[2]

    @property
    def is_archive(self) -> bool:
        """Whether it is used unpacked."""
        return self.type == ARCHIVE_TYPE

    def _ending(self) -> str:
        return self.path.split("/")[3].removeprefix(f"{self.module}-{self.revision}")


def read_lock(path: Path = LOCK_PATH) -> dict[str, tuple[LockedFile, ...]]:
    """The locked files of every set, by the set's name."""
    sets: dict[str, list[LockedFile]] = {}
    current: list[LockedFile] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(_SET_MARK):
            current = sets.setdefault(line.removeprefix(_SET_MARK).strip(), [])
        elif line and not line.startswith("#"):
            sha256, _, name = line.partition("  ")
            current.append(LockedFile(sha256, name))
    return {name: tuple(files) for name, files in sets.items()}


def cache_folder() -> Path:
    """Where fetched parts are kept: HEADRACE_CACHE, else XDG_CACHE_HOME/headrace, else ~/.cache/headrace."""
    own = os.environ.get(CACHE_VARIABLE)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        if own:
            return Path(own).expanduser().absolute()
        return (Path(shared) if shared else Path.home() / ".cache") / "headrace"
    except RuntimeError as error:
        # What Python says of a home directory that nobody has.
        message = f"there is no place for fetched parts ({error}): set {CACHE_VARIABLE} to a folder"
        raise SetupFailure(message) from error


class JarCache:
    """The parts that have been fetched, with a stamp by which a start sees in milliseconds that all is there."""

    def __init__(self, folder: Path, *, lock_path: Path = LOCK_PATH) -> None:
        """Take the cache's folder and the lock; nothing is read from the folder yet."""
        self.folder = folder
        self.jars = folder / "jars"
        self.sets = read_lock(lock_path)

    def is_complete(self, name: str) -> bool:
        """Whether the set was verified and no file of it has changed size or time since; reads no contents."""
        try:
            verified = json.loads(self._stamp(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(verified == self._seen(name))

    def missing(self, name: str) -> tuple[LockedFile, ...]:
        """The files of the set that are absent or are not what the lock says; the latter are removed."""
        absent = []
        for file in self.sets[name]:
            path = self.jars / file.path
            if not path.is_file():
                absent.append(file)
            elif sha256_of(path) != file.sha256:
                path.unlink()
                absent.append(file)
        return tuple(absent)

    def accept(self, file: LockedFile, fetched: Path) -> None:
        """Move a fetched file to its place, or fail where it is not what the lock says."""
        seen = sha256_of(fetched)
        if seen != file.sha256:
            message = f"{file.path} was fetched with SHA-256 {seen}, but {file.sha256} is locked; it is not used"
            raise SetupFailure(message)
        place = self.jars / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        fetched.replace(place)

    def finish(self, name: str) -> None:
        """Unpack what has to be unpacked and stamp the set. Every file has just been verified."""
        for file in self.sets[name]:
            if file.is_archive:
                self._unpack(file)
        for path in self._paths(name):
            os.utime(path, (_VERIFIED_TIME_SECONDS, _VERIFIED_TIME_SECONDS))
        stamp = self._stamp(name)
        unfinished = stamp.with_name(f"{stamp.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(self._seen(name)), encoding="utf-8")
        unfinished.replace(stamp)

    def files(self, name: str) -> tuple[Path, ...]:
        """The paths of a set's files, whether they are there or not."""
        return tuple(self.jars / file.path for file in self.sets[name])

    def unpacked(self, file: LockedFile) -> Path:
        """The folder with an archive's contents; another locked archive would have another folder."""
        return self.jars / Path(file.path).parent / f"unpacked-{file.sha256[:16]}"

    def _unpack(self, file: LockedFile) -> None:
        folder = self.unpacked(file)
        with tarfile.open(self.jars / file.path) as archive:
            # A whole folder stays: a running server may have its files open.
            if _is_unpacked(archive, folder):
                return
            unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
            for leftover in folder.parent.glob(f"{folder.name}*"):
                shutil.rmtree(leftover)
            # Python before 3.11.4 has no filters and ignores the attribute; the archive's digest was checked.
            archive.extraction_filter = getattr(tarfile, "data_filter", _unfiltered)
            archive.extractall(unfinished)  # noqa: S202 -- its digest is locked
        unfinished.replace(folder)

    def _stamp(self, name: str) -> Path:
        lock = hashlib.sha256("\n".join(file.sha256 for file in self.sets[name]).encode()).hexdigest()
        return self.folder / f"verified-{name}-{lock[:16]}.json"

    def _paths(self, name: str) -> list[Path]:
        """Every file of the set that is there, unpacked ones included."""
        paths = list(self.files(name))
        for file in self.sets[name]:
            if file.is_archive:
                paths += self.unpacked(file).rglob("*")
        return sorted(path for path in paths if path.is_file())

    def _seen(self, name: str) -> dict[str, list[int]]:
        """Size and modification time of every file of the set."""
        states = {path.relative_to(self.folder).as_posix(): path.stat() for path in self._paths(name)}
        return {path: [state.st_size, int(state.st_mtime)] for path, state in states.items()}


def _is_unpacked(archive: tarfile.TarFile, folder: Path) -> bool:
    """Whether every file of the archive stands in the folder with the right size and has not been touched since."""
    for member in archive:
        path = folder / member.name
        if not member.isfile():
            continue
        if not path.is_file():
            return False
        state = path.stat()
        if (state.st_size, int(state.st_mtime)) != (member.size, _VERIFIED_TIME_SECONDS):
            return False
    return True


def _unfiltered(member: tarfile.TarInfo, _destination: str) -> tarfile.TarInfo:
    return member


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's contents, in hexadecimal."""
    with path.open("rb") as contents:
        return hashlib.file_digest(contents, "sha256").hexdigest()
