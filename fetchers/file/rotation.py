"""What was at a path after a file that has left it: the file that is there now, or one that has left it too.

A rotated file shows by its own new name how its rotator names files. Two ways of naming say themselves which file came
next, and are believed where the times of modification say the same: numbers that count up with age (``app.log.2`` →
``app.log.1`` → ``app.log``) and stamps of a date (``app.log-20260131`` → ``app.log-20260201`` → ``app.log``). Anything
else would be a guess, which could repeat or skip lines: it is only told.
"""

# ruff: noqa: PTH118, PTH207 - paths stay the texts that were configured: they name source partitions

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fetchers.file.disk import ABSENT, DENIED, FileLook, look_at, look_from

NUMBER = re.compile(r"\.[1-9]\d*")
STAMP = re.compile(r"[-._]\d{4}(?:[-._T:]?\d\d){2,5}")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Next:
    """What to read next."""

    path: str
    identity: tuple[int, int] | None = None
    """The file that is meant, when it is no longer at the path that is followed."""
    names: tuple[str, ...] = ()
    """Files that are likely to have been at the path in between."""


def next_after(left: FileLook, path: str, pattern: str) -> Next:
    """Find what was at ``path`` after ``left``. What matches ``pattern`` is read on its own. Blocks; raises OSError."""
    folder, name = os.path.split(path)
    try:
        own, others = _likely_rotated(folder or ".", name, left, but=_names_listed(folder, pattern))
    except OSError as error:
        if error.errno in ABSENT | DENIED:
            return Next(path)  # a folder that is gone, or may be passed through but not listed
        raise
    later = {other: look for other, look in others.items() if look.modified_ns >= left.modified_ns}
    found = _certain_next(name, own, left, later)
    names = tuple(sorted(other for other, look in later.items() if look.size))
    if found is not None:
        return Next(os.path.join(folder, found), later[found].identity, names)
    return Next(path, names=names)


def _names_listed(folder: str, pattern: str) -> set[str]:
    paths = (os.path.split(path) for path in glob.glob(pattern, recursive=True))
    return {name for head, name in paths if head == folder}


def _likely_rotated(
    folder: str, name: str, left: FileLook, *, but: Collection[str]
) -> tuple[str | None, dict[str, FileLook]]:
    """The name that the file has now, and what else has such a name."""
    with os.scandir(folder) as found:
        entries = [entry for entry in found if entry.name != name and entry.is_file(follow_symlinks=False)]
    own = next((entry.name for entry in entries if entry.inode() == left.inode), None)
    alike = [entry for entry in entries if _is_rotated(entry.name, name, own) and entry.name not in but]
    looks = {entry.name: look_from(entry.stat(follow_symlinks=False)) for entry in alike}
    at_path = look_at(os.path.join(folder, name))
    known = {left.identity, at_path and at_path.identity}
    return own, {other: look for other, look in looks.items() if look.identity not in known}


def _is_rotated(other: str, name: str, own: str | None) -> bool:
    """Whether a name differs only in numbers from that which the rotator gave, or might have given."""
    if own is not None:
        return _DIGITS.sub("0", other) == _DIGITS.sub("0", own)
    suffix = other.removeprefix(name)
    return suffix != other and bool(NUMBER.fullmatch(suffix) or STAMP.fullmatch(suffix))


def _certain_next(name: str, own: str | None, left: FileLook, later: Mapping[str, FileLook]) -> str | None:
    """The name that came next, when the names of all later files tell their order, and their times agree."""
    if own is None or not own.startswith(name) or not later:
        return None
    names = _in_order(name, own, tuple(later))
    times = [left.modified_ns, *(later[other].modified_ns for other in names)]
    is_rising = all(before < after for before, after in pairwise(times))
    return names[0] if names and is_rising else None


def _in_order(name: str, own: str, later: Sequence[str]) -> list[str]:
    """Names of all files that followed ``own``, oldest first; none when the names do not tell."""
    suffixes = [other.removeprefix(name) for other in (own, *later)]
    if all(map(STAMP.fullmatch, suffixes)):
        return sorted(later) if own < min(later) else []
    if all(map(NUMBER.fullmatch, suffixes)):
        age = int(suffixes[0][1:])
        followers = [f"{name}.{number}" for number in range(age - 1, 0, -1)]
        return followers if set(followers) == set(later) else []
    return []
