"""Gzipped files: whole, growing, cut, damaged, of several members."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.file.fetcher import open_source
from fetchers.file.fileset import FileSet
from fetchers.file.followed import UNFINISHED_SECONDS_MAX, FollowedFile
from fetchers.file.gz import GzipFile, GzipStream
from fetchers.file.mark import StoredOffset, stored_offset
from fetchers.file.reading import Reading, ReadResult
from fetchers.sdk import Fatal, Page

MakeReading = Callable[..., Reading]
ReadAll = Callable[..., list[ReadResult]]
LinesOf = Callable[..., list[bytes]]
TEXT = b"".join(b"%d %d\n" % (number, random.Random(number).getrandbits(64)) for number in range(2_000))
LINES = TEXT.splitlines()
SHARE_BYTES = 4_000


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Where the archive stands."""
    return tmp_path / "lines.gz"


@pytest.fixture
def follow(archive: Path, reading: MakeReading) -> Callable[..., FollowedFile]:
    """Follow the archive."""

    def make(**options: object) -> FollowedFile:
        stopping = Event()
        settings = reading(opener=lambda path: open_source(path, stopping=stopping), page_bytes=5_000)
        return FollowedFile(str(archive), settings, **options)  # type: ignore[arg-type]

    return make


def test_a_damaged_archive_hands_over_nothing(archive: Path, follow: Callable[..., FollowedFile]) -> None:
    """One flipped bit, anywhere: no line before the checksum has been seen."""
    content = bytearray(gzip.compress(TEXT))
    content[-6] ^= 1
    archive.write_bytes(content)
    with pytest.raises(Fatal, match=r"lines.gz.*damaged"):
        follow().read_once(0.0)


def test_what_is_no_gzip_is_refused(archive: Path, follow: Callable[..., FollowedFile]) -> None:
    """The name says gzip; lines of rubbish would be worse than none."""
    archive.write_bytes(TEXT)
    with pytest.raises(Fatal, match="not gzip"):
        follow().read_once(0.0)


def test_a_cut_archive_is_waited_for_and_then_told(
    archive: Path, follow: Callable[..., FollowedFile], read_all: ReadAll, lines_of: LinesOf
) -> None:
    """It may be growing; when it does not for a minute, that is said, and still nothing is handed over."""
    content = gzip.compress(TEXT)
    archive.write_bytes(content[:-3])
    followed = follow()
    results = read_all(followed, 0.0)
    assert results[-1].is_waiting
    assert results[-1].trouble is None
    late = read_all(followed, UNFINISHED_SECONDS_MAX)
    assert late[-1].trouble is not None
    assert lines_of(results + late) == []
    with archive.open("ab") as file:
        file.write(content[-3:])
    assert lines_of(read_all(followed, UNFINISHED_SECONDS_MAX + 1)) == LINES


def test_an_empty_archive_is_unfinished(archive: Path, follow: Callable[..., FollowedFile], read_all: ReadAll) -> None:
    """Zero bytes have no trailer."""
    archive.touch()
    assert read_all(follow(), 0.0)[-1].is_waiting


def test_members_padding_and_a_last_line_without_end(
    archive: Path, follow: Callable[..., FollowedFile], read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Members are one text; zeros between and behind are padding; a whole archive's last line needs no end."""
    archive.write_bytes(gzip.compress(b"a\nb") + b"\0\0" + gzip.compress(b"c\nd") + bytes(512))
    followed = follow()
    assert lines_of(read_all(followed, 0.0) + read_all(followed, 1.0)) == [b"a", b"bc", b"d"]


def test_a_member_added_later_is_read_when_it_is_whole(
    archive: Path, follow: Callable[..., FollowedFile], read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Growth by members is growth."""
    archive.write_bytes(gzip.compress(b"a\n"))
    followed = follow()
    assert lines_of(read_all(followed)) == [b"a"]
    more = gzip.compress(b"b\n")
    with archive.open("ab") as file:
        file.write(more[:12])
        file.flush()
        assert lines_of(read_all(followed)) == []
        file.write(more[12:])
    assert lines_of(read_all(followed)) == [b"b"]


def test_resumes_from_every_page(
    archive: Path, follow: Callable[..., FollowedFile], read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Positions are bytes of text."""
    archive.write_bytes(gzip.compress(TEXT))
    results = [result for result in read_all(follow()) if result.page is not None]
    assert lines_of(results) == LINES
    for count, result in enumerate(results, 1):
        assert result.page is not None
        rest = read_all(follow(stored=stored_offset(result.page.offset)))
        assert lines_of(results[:count]) + lines_of(rest) == LINES


def test_an_archive_written_anew_is_read_anew(
    archive: Path, follow: Callable[..., FollowedFile], read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Truncated in place, shorter or longer than before."""
    archive.write_bytes(gzip.compress(b"a\nb\n", mtime=1))
    followed = follow()
    read_all(followed)
    archive.write_bytes(gzip.compress(TEXT, mtime=2))
    assert lines_of(read_all(followed)) == LINES
    archive.write_bytes(gzip.compress(b"c\n", mtime=3))
    assert lines_of(read_all(followed)) == [b"c"]


def test_a_long_check_can_be_stopped(archive: Path) -> None:
    """A stop does not wait until gigabytes are decompressed."""
    archive.write_bytes(gzip.compress(bytes(5 << 20)))
    stopping = Event()
    source = open_source(str(archive), stopping=stopping)
    stopping.set()
    with pytest.raises(InterruptedError):
        source.is_checked()
    source.close()


def test_a_long_check_is_done_in_shares(
    archive: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """No result decompresses more than a few shares, read from the beginning or from an offset; the next goes on."""
    archive.write_bytes(gzip.compress(TEXT))
    settings = reading(opener=open_with_small_shares, page_bytes=1_000)
    results = read_all(FollowedFile(str(archive), settings))
    waiting = [result for result in results if result.is_waiting]
    assert len(TEXT) // SHARE_BYTES <= len(waiting) <= len(TEXT) // SHARE_BYTES + 2
    assert all(result.has_more and result.page is None for result in waiting)
    assert lines_of(results) == LINES
    pages = [result.page for result in results if result.page is not None]
    late = len(pages) - 3
    resumed = read_all(FollowedFile(str(archive), settings, stored=stored_offset(pages[late - 1].offset)))
    assert lines_of(resumed) == lines_of(pages[late:])
    assert sum(result.is_waiting for result in resumed) > len(waiting), (
        "what stands before the offset is skipped in shares"
    )


def test_an_archive_that_is_renamed_while_it_is_checked_is_read_once(
    archive: Path, reading: MakeReading, lines_of: LinesOf
) -> None:
    """Within a pattern, resumed or not, and while its new name is only being verified."""
    archive.write_bytes(gzip.compress(TEXT))
    settings = reading(opener=open_with_small_shares, page_bytes=10_000)
    for stored in ({}, {str(archive): offset_in_the_middle(archive, settings)}):
        files = FileSet(f"{archive}*", settings, stored=stored, is_from_end=False)
        found = list(filter(None, files.arrange(files.look())))
        (followed,) = files.needing_turn(files.look())
        assert followed.read_once(0.0).is_waiting
        archive.rename(f"{archive}.1.gz")
        found += filter(None, files.arrange(files.look()))
        (followed,) = files.needing_turn(files.look())
        found += pages_of(followed)
        position = sum(offset.position for offset in stored.values())
        assert lines_of(found) == TEXT[position:].splitlines()
        files.close()
        files = FileSet(f"{archive}*", settings, stored=stored, is_from_end=False)
        again = list(files.arrange(files.look()))
        assert (again.count(None) > len(TEXT) // SHARE_BYTES) == bool(stored)
        (followed,) = files.needing_turn(files.look())
        assert lines_of([*filter(None, again), *pages_of(followed)]) == TEXT[position:].splitlines()
        files.close()
        Path(f"{archive}.1.gz").rename(archive)


def test_an_archive_can_begin_at_its_end(archive: Path, reading: MakeReading) -> None:
    """Behind the last line end of the members that are whole."""
    archive.write_bytes(
        gzip.compress(b"a\nb") + gzip.compress(b"") + gzip.compress(b"c\nd") + gzip.compress(b"e\n")[:-1]
    )
    files = FileSet(str(archive), reading(opener=open_with_small_shares), stored={}, is_from_end=True)
    assert [page.offset["position"] for page in files.arrange(files.look()) if page is not None] == [len(b"a\nbc\n")]
    files.close()


def open_with_small_shares(path: str) -> GzipFile:
    """Small enough to have many."""
    return GzipFile(path, Event(), share_bytes=SHARE_BYTES)


def offset_in_the_middle(archive: Path, settings: Reading) -> StoredOffset:
    """The offset of a page that is not the last."""
    stored = stored_offset(pages_of(FollowedFile(str(archive), settings))[1].offset)
    assert stored is not None
    return stored


def pages_of(followed: FollowedFile) -> list[Page]:
    """All it gives now."""
    results = [followed.read_once(0.0)]
    while results[-1].has_more:
        results.append(followed.read_once(0.0))
    return [result.page for result in results if result.page is not None]


@given(
    texts=st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    sizes=st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=30),
    step=st.integers(min_value=1, max_value=60),
)
def test_any_members_in_any_steps_give_their_text(texts: list[bytes], sizes: list[int], step: int) -> None:
    """Read in pieces of any size, of a file that grows in steps of any size."""
    content = b"".join(map(gzip.compress, texts))
    length = 0

    def read_at(bytes_max: int, position: int) -> bytes:
        return content[: min(length, position + bytes_max)][position:]

    stream = GzipStream(read_at)
    found = b""
    while length < len(content):
        length += step
        for size in sizes:
            found += stream.read(size)
    while piece := stream.read(7):
        found += piece
    assert found == b"".join(texts)
    assert stream.is_complete
    assert stream.members_end == stream.position == len(found)
