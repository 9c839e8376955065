"""``FileStreamSource`` as the worker runs it: rounds, several files, standard input, errors."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fetchers.catalog import find_plugin
from fetchers.file.config import FileStreamConfig
from fetchers.file.disk import fetch_error
from fetchers.file.fetcher import FileStreamSource
from fetchers.file.reading import FileFollowed, FileMissing, FilePassedOver
from fetchers.sdk import Fatal, Page, PayloadKind, Retriable, Severity
from fetchers.sdk.testing import FakeContext, collect, running

MakeSource = Callable[..., FileStreamSource]
LinesOf = Callable[..., list[bytes]]


@pytest.mark.parametrize(
    ("number", "kind"), [(13, Fatal), (21, Fatal), (5, Retriable), (24, Retriable), (116, Retriable)]
)
def test_errors_of_the_system_are_classed_by_recovery(number: int, kind: type[Exception]) -> None:
    """EACCES and EISDIR need a person; EIO, EMFILE and ESTALE may pass. The message names the file."""
    error = fetch_error(OSError(number, os.strerror(number)), "/logs/app.log")
    assert type(error) is kind
    assert "/logs/app.log" in str(error)


async def test_an_offset_without_position_fails_the_task(source: MakeSource, log: Path) -> None:
    """It is not guessed at."""
    log.write_bytes(b"a\n")
    context = FakeContext(offset={"line": 3}, partition={"filename": str(log)})
    with pytest.raises(Fatal, match="position"):
        await collect(source(file=log), context)


async def test_a_cut_archive_fails_retriably_after_the_other_files_are_read(
    source: MakeSource, tmp_path: Path, lines_of: LinesOf
) -> None:
    """One bad file holds up no other, and is not passed over in silence."""
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b\x08")
    (tmp_path / "b").write_bytes(b"1\n2\n")
    found: list[Page] = []
    context = FakeContext()
    with pytest.raises(Retriable, match=r"a\.gz"):
        await collect(source(file=tmp_path / "*"), context, on_page=found.append)
    assert lines_of(found) == [b"1", b"2"]
    assert context.rounds == 0, "a source with an unread file has not finished a round"


async def test_a_missing_file_finishes_its_round_and_is_told_once(
    source: MakeSource, log: Path, lines_of: LinesOf
) -> None:
    """There is nothing to read; that is no failure, and it is read as soon as it is there."""
    context = FakeContext()
    async with running(source(file=log), context) as pages, asyncio.TaskGroup() as group:
        first = group.create_task(_next(pages))
        while len(context.clock.slept) < 5:
            await asyncio.sleep(0.01)
        log.write_bytes(b"here\n")
        assert lines_of([await first]) == [b"here"]
    assert (context.rounds, [type(event) for event in context.events]) == (1, [FileMissing])


async def test_values_partition_offset_and_positions_are_those_of_connect(source: MakeSource, log: Path) -> None:
    """Raw bytes, null keys and times, ``filename`` as configured, ``position`` in bytes."""
    log.write_bytes("é\r\n\n\xff\0\n".encode("latin-1"))
    (page,) = await collect(source(file=log), FakeContext())
    assert list(page.values()) == [b"\xe9", b"", b"\xff\0"]
    assert page.partition == {"filename": str(log)}
    assert page.offset["position"] == log.stat().st_size
    assert page.positions is not None
    assert list(page.positions.to_pylist()) == [0, 3, 4]  # type: ignore[union-attr]
    assert (page.keys, page.timestamps_ms, page.position_name) == (None, None, "position")
    assert FileStreamSource.payload_kind is PayloadKind.TEXT


@pytest.mark.parametrize(
    "name",
    ["FileStreamSource", "FileStreamSourceConnector", "org.apache.kafka.connect.file.FileStreamSourceConnector"],
)
def test_is_found_by_the_names_that_configs_use(name: str) -> None:
    """Configs written for Kafka Connect run unchanged."""
    plugin = find_plugin(name)
    assert plugin is not None
    assert plugin.load() is FileStreamSource


def test_defaults_are_those_of_connect() -> None:
    """``file`` has no default, ``topic`` must be given, ``batch.size`` is 2000."""
    keys = {key.name: key for key in FileStreamSource.config_class.config_keys()}
    assert (keys["file"].default, keys["file"].is_required, keys["topic"].is_required) == (None, False, True)
    assert (keys["batch.size"].default, keys["batch.size"].kind) == ("2000", "INT")


async def test_files_of_a_pattern_take_turns(source: MakeSource, tmp_path: Path) -> None:
    """A large file does not keep a small one waiting."""
    (tmp_path / "large.log").write_bytes(b"large\n" * 10_000)
    (tmp_path / "small.log").write_bytes(b"small\n" * 10)
    pages = await collect(source(file=tmp_path / "*.log", file_page_bytes=100, batch_size=1), FakeContext(), pages=4)
    assert b"small" in {payload for page in pages for payload in page.values()}


async def test_a_pattern_picks_up_new_files_and_passes_over_folders(
    source: MakeSource, tmp_path: Path, lines_of: LinesOf
) -> None:
    """A second name of a file is not a second file."""
    (tmp_path / "a.log").write_bytes(b"1\n")
    (tmp_path / "folder.log").mkdir()
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")
    found: list[Page] = []
    async with running(source(file=tmp_path / "*.log"), FakeContext()) as stream:
        found.append(await anext(stream))
        (tmp_path / "b.log").write_bytes(b"2\n")
        found.append(await anext(stream))
    assert lines_of(found) == [b"1", b"2"]
    assert [page.partition for page in found] == [{"filename": str(tmp_path / name)} for name in ("a.log", "b.log")]


LATIN = os.fsdecode(b"caf\xe9.log")
"""As an archive from an older system leaves it."""


@pytest.mark.parametrize("start", ["beginning", "end"])
async def test_a_name_that_cannot_be_stored_is_passed_over_and_told_once(
    source: MakeSource, tmp_path: Path, lines_of: LinesOf, *, start: str
) -> None:
    """The other files go on, now and later; it is read when it has got a name that can be told."""
    (tmp_path / "a.log").write_bytes(b"")
    (tmp_path / LATIN).write_bytes(b"latin\n")
    (tmp_path / "folder\udce9.log").mkdir()
    context = FakeContext()
    found: list[Page] = []
    async with running(source(file=tmp_path / "*.log", file_start=start, poll_interval_ms=10), context) as stream:
        if start == "end":
            assert len(await anext(stream)) == 0
        for name in ("a.log", "b.log", "é.log"):
            (tmp_path / name).write_bytes(f"{name}\n".encode())
            found.append(await anext(stream))
        (tmp_path / LATIN).rename(tmp_path / "café.log")
        found.append(await anext(stream))
    assert lines_of(found) == [b"a.log", b"b.log", "é.log".encode(), b"latin"]
    told = [event.file for event in context.events if isinstance(event, FilePassedOver)]
    assert told == [str(tmp_path / "caf\\xe9.log")]


async def test_a_name_that_cannot_be_stored_is_told_also_when_it_comes_later(
    source: MakeSource, tmp_path: Path
) -> None:
    """Beside a file that is at its end; a file that has another name too is read by that one."""
    (tmp_path / "a.log").write_bytes(b"1\n")
    context = FakeContext()
    async with running(source(file=tmp_path / "*.log", poll_interval_ms=10), context) as stream:
        await anext(stream)
        (tmp_path / os.fsdecode(b"A\xe9.log")).hardlink_to(tmp_path / "a.log")
        (tmp_path / LATIN).write_bytes(b"latin\n")
        (tmp_path / "b.log").write_bytes(b"2\n")
        assert list((await anext(stream)).values()) == [b"2"]
    told = [event.file for event in context.events if isinstance(event, FilePassedOver)]
    assert told == [str(tmp_path / "caf\\xe9.log")]


async def test_a_file_with_the_name_of_a_pattern_goes_first(
    source: MakeSource, tmp_path: Path, lines_of: LinesOf
) -> None:
    """Brackets are allowed in names."""
    (tmp_path / "a[1].log").write_bytes(b"literal\n")
    (tmp_path / "a1.log").write_bytes(b"pattern\n")
    assert lines_of(await collect(source(file=tmp_path / "a[1].log"), FakeContext())) == [b"literal"]


async def test_from_the_end_skips_what_was_there_but_no_file_that_comes_later(
    source: MakeSource, tmp_path: Path, lines_of: LinesOf
) -> None:
    """Also after a restart: only the first start of all begins at the end."""
    (tmp_path / "a.log").write_bytes(b"old\n")
    keys = {"file": tmp_path / "*.log", "file_start": "end"}
    context = FakeContext()
    pages = await collect(source(**keys), context)
    for page in pages:
        context.commit(page)
    assert lines_of(pages) == []
    (tmp_path / "b.log").write_bytes(b"new\n")
    with (tmp_path / "a.log").open("ab") as file:
        file.write(b"newer\n")
    assert Counter(lines_of(await collect(source(**keys), context))) == Counter([b"new", b"newer"])


@pytest.mark.parametrize("name", ["app.log", "*.log"])
async def test_from_the_end_without_any_file_is_a_first_start_too(
    source: MakeSource, log: Path, lines_of: LinesOf, *, name: str
) -> None:
    """What is written while the connector is stopped appeared later, and is read from its beginning."""
    keys = {"file": log.with_name(name), "file_start": "end"}
    context = FakeContext()
    for page in await collect(source(**keys), context):
        context.commit(page)
    log.write_bytes(b"new\n")
    assert lines_of(await collect(source(**keys), context)) == [b"new"]


async def test_from_the_end_a_file_that_comes_a_moment_after_the_start_is_read_whole(
    source: MakeSource, log: Path
) -> None:
    """It was not there when the connector started."""
    async with running(source(file=log, file_start="end"), FakeContext()) as stream:
        assert len(await anext(stream)) == 0
        log.write_bytes(b"first\n")
        assert list((await anext(stream)).values()) == [b"first"]


async def test_a_file_renamed_within_the_pattern_is_not_read_again(source: MakeSource, tmp_path: Path) -> None:
    """It goes on under its new name, whose offset is stored before the new file's."""
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n")
    context = FakeContext()
    found: list[Page] = []
    async with running(source(file=tmp_path / "app.log*"), context) as stream:
        found.append(await anext(stream))
        log.rename(tmp_path / "app.log.1")
        log.write_bytes(b"2\n")
        found += [await anext(stream), await anext(stream)]
    assert [(page.partition, list(page.values())) for page in found[1:]] == [
        ({"filename": f"{log}.1"}, []),
        ({"filename": str(log)}, [b"2"]),
    ]
    assert [event.former for event in context.events if isinstance(event, FileFollowed)] == [str(log)]


async def test_standard_input_ends_with_its_last_line(lines_of: LinesOf, source: MakeSource) -> None:
    """Its end is its end: the last line needs none; there are no offsets."""
    reader, writer = os.pipe()
    connector = source(batch_size=1)
    connector.standard_input = reader
    try:
        os.write(writer, "a\nbé".encode())
        async with asyncio.timeout(60):
            stream = connector.fetch(FakeContext())
            pages = [await anext(stream)]
            os.write(writer, b"c\nd")
            os.close(writer)
            pages += [page async for page in stream]
    finally:
        os.close(reader)
    assert lines_of(pages) == [b"a", "béc".encode(), b"d"]
    assert {(len(page.offset), len(page.partition or {})) for page in pages} == {(0, 0)}


async def test_a_stop_does_not_wait_for_standard_input(source: MakeSource) -> None:
    """A read that nobody answers holds nothing up."""
    reader, writer = os.pipe()
    connector = source()
    connector.standard_input = reader
    context = FakeContext()
    try:
        async with asyncio.timeout(60):
            assert await collect(connector, context, rounds=1) == []
    finally:
        os.close(writer)
        os.close(reader)


async def test_more_files_than_may_be_open_at_once_are_all_read(
    source: MakeSource, tmp_path: Path, lines_of: LinesOf
) -> None:
    """In one round, with few of them held open; and what is added to one at rest is read."""
    open_max = 4
    connector = source(file=tmp_path / "*.log")
    connector.files_open_max = open_max
    paths = [tmp_path / f"{number:02}.log" for number in range(30)]
    for path in paths:
        path.write_bytes(path.name.encode() + b"\n")
    held: list[int] = []

    def count_held(page: Page) -> None:
        del page
        held.append(sum(target.parent == tmp_path for target in open_files()))

    context = FakeContext()
    pages = await collect(connector, context, on_page=count_held)
    assert sorted(lines_of(pages)) == [path.name.encode() for path in paths]
    assert max(held) <= open_max
    async with running(connector, FakeContext()) as stream:
        for _ in paths:
            await anext(stream)
        with paths[0].open("ab") as file:
            file.write(b"more\n")
        assert list((await anext(stream)).values()) == [b"more"]


@pytest.mark.parametrize("wait_ms", [0, 40_000])
async def test_a_successor_is_read_after_the_wait_that_is_configured(
    source: MakeSource, log: Path, lines_of: LinesOf, *, wait_ms: int
) -> None:
    """``file.rotate.wait.ms``, whatever the other waits are."""
    log.write_bytes(b"old\n")
    context = FakeContext()
    connector = source(file=log, file_rotate_wait_ms=wait_ms, file_last_line_idle_ms=7_000_000)
    async with running(connector, context) as pages:
        found = [await anext(pages)]
        log.rename(log.with_suffix(".1"))
        log.write_bytes(b"new\n")
        renamed_at = context.clock.monotonic()
        found.append(await anext(pages))
    assert lines_of(found) == [b"old", b"new"]
    assert 0 <= context.clock.monotonic() - renamed_at - wait_ms / 1000 <= 2, "two looks come on top"


async def test_a_last_line_is_delivered_after_the_idleness_that_is_configured(
    source: MakeSource, log: Path, lines_of: LinesOf
) -> None:
    """``file.last.line.idle.ms``, whatever the other waits are."""
    log.write_bytes(b"unfinished")
    context = FakeContext()
    connector = source(file=log, file_last_line="deliver", file_last_line_idle_ms=40_000, file_rotate_wait_ms=7_000_000)
    assert lines_of(await collect(connector, context, pages=1)) == [b"unfinished"]
    assert 0 <= context.clock.monotonic() - 40 <= 2, "two looks come on top"


def open_files() -> list[Path]:
    """Where the descriptors lead that are open now."""
    found: list[Path] = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed, here or by another thread
            found.append(entry.readlink())
    return found


async def _next(pages: AsyncIterator[Page]) -> Page:
    return await anext(pages)


async def test_a_check_opens_the_file(tmp_path: Path) -> None:
    """Or the first that matches; none yet is odd, but no error, for it is waited for."""
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "folder").mkdir()
    told = {}
    for name in ("a.log", "*.log", "b.log", "*.txt", "folder"):
        parsed = FileStreamSource.config_class.parse({"topic": "t", "file": str(tmp_path / name)})
        assert isinstance(parsed.config, FileStreamConfig)
        told[name] = [(each.key, each.severity) for each in await FileStreamSource(parsed.config).check(FakeContext())]
    waiting, wrong = [("file", Severity.WARNING)], [("file", Severity.ERROR)]
    assert told == {"a.log": [], "*.log": [], "b.log": waiting, "*.txt": waiting, "folder": wrong}
