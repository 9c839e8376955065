"""The cache of JVM parts believes only what the lock says, and mends what is damaged."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from pathlib import Path

import pytest

from service.setup.failure import SetupFailure
from service.setup.jars import CACHE_VARIABLE, LOCK_PATH, JarCache, LockedFile, cache_folder, read_lock

_JAR = "org.example/tool_2.13/4.1.1/tool_2.13-4.1.1.jar"
_ARCHIVE = "org.example/server-app/3.0.9/server-app-3.0.9-all.tar.gz"


def _archive() -> bytes:
    contents = io.BytesIO()
    with tarfile.open(fileobj=contents, mode="w:gz") as archive:
        for name in ("server.jar", "lib/part.jar"):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return contents.getvalue()


def _cache(folder: Path, contents: dict[str, bytes]) -> JarCache:
    """A cache whose lock has one set `tools` with these files; none of them is there yet."""
    lock = folder / "jars.sha256"
    lines = [f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in contents.items()]
    lock.write_text("# A lock.\n# set tools\n" + "".join(lines), encoding="utf-8")
    return JarCache(folder / "cache", lock_path=lock)


def _accept(cache: JarCache, folder: Path, contents: dict[str, bytes]) -> None:
    for file in cache.missing("tools"):
        fetched = folder / "fetched"
        fetched.write_bytes(contents[file.path])
        cache.accept(file, fetched)
    cache.finish("tools")


def test_file_with_another_digest_is_refused(tmp_path: Path) -> None:
    """What came but is not what was locked never reaches its place."""
    cache = _cache(tmp_path, {_JAR: b"right"})
    with pytest.raises(SetupFailure, match="not used"):
        _accept(cache, tmp_path, {_JAR: b"wrong"})
    assert not (cache.jars / _JAR).exists()
    assert not cache.is_complete("tools")


def test_damaged_file_is_noticed_and_asked_for_again(tmp_path: Path) -> None:
    """A jar whose bytes have changed makes the set incomplete, and is the only one fetched again."""
    contents = {_JAR: b"right", _ARCHIVE: _archive()}
    cache = _cache(tmp_path, contents)
    _accept(cache, tmp_path, contents)
    assert cache.is_complete("tools")
    (cache.jars / _JAR).write_bytes(b"wring")
    assert not cache.is_complete("tools")
    assert [file.path for file in cache.missing("tools")] == [_JAR]
    _accept(cache, tmp_path, contents)
    assert (cache.jars / _JAR).read_bytes() == b"right"
    assert cache.is_complete("tools")


def test_copies_that_round_times_stay_complete(tmp_path: Path) -> None:
    """A cache in an image's layer, whose times have been rounded to seconds, needs no second verification."""
    contents = {_JAR: b"right", _ARCHIVE: _archive()}
    cache = _cache(tmp_path, contents)
    _accept(cache, tmp_path, contents)
    for path in cache.jars.rglob("*"):
        os.utime(path, (round(path.stat().st_mtime), round(path.stat().st_mtime)))
    assert cache.is_complete("tools")


def test_damaged_unpacked_archive_is_unpacked_again(tmp_path: Path) -> None:
    """A file lost from an unpacked archive needs no network, only the archive."""
    contents = {_ARCHIVE: _archive()}
    cache = _cache(tmp_path, contents)
    _accept(cache, tmp_path, contents)
    part = cache.unpacked(cache.sets["tools"][0]) / "lib" / "part.jar"
    part.unlink()
    assert not cache.is_complete("tools")
    assert cache.missing("tools") == ()
    cache.finish("tools")
    assert part.read_text(encoding="utf-8") == "lib/part.jar"
    assert cache.is_complete("tools")


def test_whole_unpacked_archive_is_left_in_place(tmp_path: Path) -> None:
    """Verifying again does not pull the files from under a server that runs from them."""
    contents = {_ARCHIVE: _archive()}
    cache = _cache(tmp_path, contents)
    _accept(cache, tmp_path, contents)
    folder = cache.unpacked(cache.sets["tools"][0])
    before = folder.stat().st_ino
    cache.finish("tools")
    assert folder.stat().st_ino == before


def test_interrupted_unpacking_leaves_the_set_incomplete(tmp_path: Path) -> None:
    """A folder that was being unpacked when the power went is no unpacked archive, and is cleared away."""
    contents = {_ARCHIVE: _archive()}
    cache = _cache(tmp_path, contents)
    folder = cache.unpacked(cache.sets["tools"][0])
    leftover = folder.with_name(f"{folder.name}.4711")
    leftover.mkdir(parents=True)
    assert not cache.is_complete("tools")
    _accept(cache, tmp_path, contents)
    assert not leftover.exists()
    assert cache.is_complete("tools")


@pytest.mark.parametrize(
    ("path", "classifier", "kind"), [(_JAR, "", "jar"), (_ARCHIVE, "all", "tar.gz")], ids=["jar", "archive"]
)
def test_path_says_what_to_ask_for(path: str, classifier: str, kind: str) -> None:
    """Coordinates are read from the path alone, versions with dots included."""
    file = LockedFile("", path)
    assert (file.classifier, file.type) == (classifier, kind)
    assert f"{file.organisation}/{file.module}/{file.revision}" in path


def test_committed_lock_pins_what_is_promised() -> None:
    """The lock has the promised versions in their sets, digests only, and no address."""
    sets = read_lock()
    promised = {
        "kafka": "kafka_2.13-4.1.1.jar",
        "spark": "spark-avro_2.13-4.1.1.jar",
        "registry": "apicurio-registry-app-3.0.9-all.tar.gz",
        "connect": "connect-file-4.1.1.jar",
        "opensearch": "opensearch-2.19.1.jar",
        "hdfs": "hadoop-client-minicluster-3.4.2.jar",
    }
    for name, wanted in promised.items():
        assert any(file.path.endswith(f"/{wanted}") for file in sets[name])
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for files in sets.values() for file in files)
    for lock in LOCK_PATH.parent.iterdir():
        assert "://" not in lock.read_text(encoding="utf-8"), lock.name


def test_a_cache_in_the_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line that names the variable."""
    monkeypatch.setenv(CACHE_VARIABLE, "~nobody-of-this-name/cache")
    with pytest.raises(SetupFailure, match=f"set {CACHE_VARIABLE} to a folder"):
        cache_folder()
