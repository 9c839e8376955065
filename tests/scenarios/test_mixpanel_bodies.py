"""Traps of Mixpanel's export that are about bodies: size, line ends, chunks, encodings, odd JSON (M4, M11, M15–M18)."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Page
from fetchers.sdk.testing import FakeClock, FakeContext, collect
from metrics.events import FetchCompleted
from service.simulators.mixpanel_settings import MixpanelSettings
from tests.contracts.loopback import answering
from tests.scenarios.mixpanel_memory import DAY
from tests.scenarios.mixpanel_worker import RETRIES_MAX, MemoryWorker, properties, source_of
from tests.scenarios.scripted_export import Scripted, ScriptedExport, scripted_export

PROJECT = MixpanelSettings(first_day=DAY, days=1)
MEMORY_SECONDS_MAX = 500


def event(number: int, **told: object) -> bytes:
    """One line."""
    properties = {"time": 1704844800 + number, "distinct_id": "u", "$insert_id": f"i{number}", **told}
    return json.dumps({"event": "e", "properties": properties}, ensure_ascii=False).encode()


async def delivered(*answers: Scripted) -> tuple[MemoryWorker, ScriptedExport]:
    """Read one day that is answered so."""
    async with scripted_export({str(DAY): answers}) as export, shared_http() as http:
        worker = MemoryWorker(properties(PROJECT, export.url, mixpanel_to_date=str(DAY)), http)
        await worker.run()
        return worker, export


@pytest.mark.slow
@pytest.mark.timeout(2 * MEMORY_SECONDS_MAX)
async def test_m04_a_gibibyte_takes_no_more_memory_than_a_small_day() -> None:
    """A day of 1 GiB is streamed: the process peaks where it peaks with 8 MiB."""
    peaks = []
    for copies in (2, 256):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.scenarios.mixpanel_memory",
            str(copies),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        async with asyncio.timeout(MEMORY_SECONDS_MAX):
            told, _ = await process.communicate()
        figures = json.loads(told)
        assert figures["records"] == copies * 13_600
        assert figures["bytes"] > copies * 4_000_000
        peaks.append(figures["peak_mib"])
    assert peaks[1] < peaks[0] + 64
    assert peaks[1] < 512


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
@pytest.mark.parametrize("chunk_bytes", [1, 65536])
async def test_m11_only_a_line_feed_ends_a_line(separator: str, chunk_bytes: int) -> None:
    """What other readers take for line ends stays inside its record, byte for byte."""
    odd = b'{"event":"e","properties":{"time":1,"$insert_id":"i","text":"before' + separator.encode() + b'after"}}'
    worker, _ = await delivered(Scripted(b"\n".join([event(1), odd, event(2), b""]), chunk_bytes=chunk_bytes))
    assert worker.delivered == [event(1), odd, event(2)]


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("is_gzipped", [False, True])
async def test_m15_records_and_characters_cut_by_chunks_are_whole(*, chunk_bytes: int, is_gzipped: bool) -> None:
    """Records glued over chunks, and characters of several bytes cut by them, arrive as they were."""
    lines = [event(number, text="Köln 東京 🚀 " * number) for number in range(1, 12)]
    body = b"\n".join([*lines, b""])
    headers = {"Content-Encoding": "gzip"} if is_gzipped else {}
    wire = gzip.compress(body) if is_gzipped else body
    worker, _ = await delivered(Scripted(wire, headers=headers, chunk_bytes=chunk_bytes))
    assert worker.delivered == lines


async def test_m16_gzip_and_plain_are_read_and_a_false_gzip_is_retried() -> None:
    """The header decides how a body is read, and a body that does not keep its word is broken."""
    body = event(1) + b"\n"
    is_gzip = {"Content-Encoding": "gzip"}
    for good in (Scripted(body), Scripted(gzip.compress(body), headers=is_gzip)):
        worker, export = await delivered(good)
        assert (worker.delivered, worker.retries) == ([event(1)], [])
        assert "gzip" in export.headers[0]["Accept-Encoding"]
    worker, _ = await delivered(Scripted(body, headers=is_gzip), Scripted(body))
    assert [str(error) for error in worker.retries if "gzip" in str(error)]
    assert worker.delivered == [event(1)]


async def test_m17_a_last_line_without_end_is_a_record() -> None:
    """It is whole when it parses and the transfer ended cleanly."""
    worker, _ = await delivered(Scripted(event(1) + b"\n" + event(2)))
    assert (worker.delivered, worker.retries) == ([event(1), event(2)], [])


async def test_m17_a_last_line_without_end_is_none_after_a_cut() -> None:
    """A broken transfer makes no record of its last line, even of one that parses."""
    worker, _ = await delivered(Scripted(event(1) + b"\n" + event(2), is_cut=True), Scripted(event(1) + b"\n"))
    assert len(worker.retries) == 1
    assert worker.delivered == [event(1)]


async def test_m17_half_a_line_at_a_clean_end_is_read_again() -> None:
    """Half a record is no record; the day is asked for again and comes whole."""
    worker, _ = await delivered(Scripted(event(1) + b"\n" + event(2)[:30]), Scripted(event(1) + b"\n" + event(2)))
    assert len(worker.retries) == 1
    assert worker.delivered == [event(1), event(2)]


async def test_m17_a_day_that_ends_in_half_a_line_is_never_finished() -> None:
    """However often it is read: no offset passes it, and the message says what an operator sees."""
    worker, export = await delivered(Scripted(event(1) + b"\n" + b'{"event":"s3'))
    assert len(worker.retries) == len(export.asked) == RETRIES_MAX - 1
    assert (worker.delivered, worker.offsets) == ([], {})
    assert {str(error) for error in worker.retries} == {
        f'Mixpanel export of {DAY}: the body stops in the middle of line 2, which begins {{"event":"s3'
    }


async def test_m17_a_day_cut_again_and_again_comes_whole_and_once() -> None:
    """Ten reads end in the same half line; the first whole one ends the day."""
    half = Scripted(event(1) + b"\n" + event(2)[:30])
    worker, export = await delivered(*[half] * 10, Scripted(event(1) + b"\n" + event(2) + b"\n" + event(3) + b"\n"))
    assert (len(worker.retries), len(export.asked)) == (10, 11)
    assert worker.delivered == [event(1), event(2), event(3)]
    assert worker.offset["position"] > str(DAY)


async def test_m17_half_a_line_is_quoted_without_the_secret() -> None:
    """Whatever stands in it, even where the quotation is cut."""
    line = b"x" * 70 + PROJECT.secret.encode() + b"y" * 500
    worker, _ = await delivered(Scripted(line), Scripted(event(1)))
    assert PROJECT.secret[:8] not in str(worker.retries[0])
    assert len(str(worker.retries[0])) < 250


PAGE = b"<!DOCTYPE html>\n<html>\n<body>log in</body>\n</html>\n"


@pytest.mark.parametrize(
    ("wall", "words"),
    [
        (Scripted(PAGE, headers={"Content-Type": "text/html; charset=utf-8"}), "a web page .*log in"),
        (Scripted(b"please log in\n", headers={"Content-Type": "text/html"}), "a web page .*log in"),
        (Scripted(PAGE, headers={"Content-Type": "text/plain"}), "a web page"),
        (Scripted(event(1) + b"\n", status=206), "status 206"),
        (Scripted(status=204), "status 204"),
    ],
)
async def test_what_stands_before_the_export_is_no_day(wall: Scripted, words: str) -> None:
    """A login wall or a proxy that answers with success closes no day; its words are no bad lines of the day."""
    worker, _ = await delivered(wall, wall, Scripted(event(1) + b"\n"))
    assert [re.search(words, str(error)) is not None for error in worker.retries] == [True, True]
    assert worker.delivered == [event(1)]


async def test_a_body_that_nothing_frames_is_no_day() -> None:
    """Where only the end of the connection ends it, a server that dies between two lines looks done."""
    answer = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + event(1) + b"\n"
    async with answering(answer) as url, shared_http() as http:
        worker = MemoryWorker(properties(PROJECT, url, mixpanel_to_date=str(DAY)), http)
        await worker.run()
    assert (worker.delivered, worker.offsets) == ([], {})
    assert {"where it ends" in str(error) for error in worker.retries} == {True}


async def test_m18_odd_json_is_handed_over_byte_for_byte() -> None:
    """Duplicate keys, big integers, NaN and lone surrogates are judged by conversion, so no byte may change."""
    lines = [
        b'{"event":"a","event":"b","properties":{"time":1,"$insert_id":"1"}}',
        b'{"event":"big","properties":{"time":2,"$insert_id":"2","n":9007199254740993,"m":-9223372036854775808}}',
        b'{"event":"nan","properties":{"time":3,"$insert_id":"3","n":NaN}}',
        b'{"event":"\\ud800","properties":{"time":4,"$insert_id":"4"}}',
        b'{"event":"digits","properties":{"time":5,"$insert_id":"5","n":1.10000000000000000001e2}}',
        b' {"event" : "blanks" ,"properties":{"time":6,"$insert_id":"6"}} \t',
        b"\xff\xfe",
    ]
    worker, _ = await delivered(Scripted(b"\n".join(lines) + b"\n"))
    assert worker.delivered == lines


async def test_blank_lines_are_no_records() -> None:
    """They are counted as lines and otherwise passed over."""
    async with scripted_export({str(DAY): [Scripted(b"\n\n" + event(1) + b"\n\r\n" + event(2) + b"\n\n")]}) as export:
        pages = await _pages(export)
    assert [payload for page in pages for payload in page.values()] == [event(1), event(2)]
    assert [number for page in pages for number in _line_numbers(page)] == [3, 5]


async def test_a_line_beyond_the_limit_is_marked_for_the_dead_letters() -> None:
    """It is told with its size and place, holds no memory, and its neighbours are whole."""
    huge = b'{"event":"' + b"x" * 3_000_000 + b'"}'
    async with scripted_export({str(DAY): [Scripted(b"\n".join([event(1), huge, event(2)]))]}) as export:
        pages = await _pages(export, mixpanel_line_bytes_max="2097152")
    rejections = [(page, rejection) for page in pages for rejection in page.rejections]
    assert [rejection.reason for _, rejection in rejections] == ["too_large"]
    page, rejection = rejections[0]
    assert f"{len(huge)} bytes" in rejection.message
    assert _line_numbers(page)[rejection.index] == 2
    assert page.payload_column[rejection.index].as_py() == huge[: 1024 * 1024]
    assert [payload for page in pages for payload in page.values() if payload and len(payload) < 1000] == [
        event(1),
        event(2),
    ]


async def test_every_request_is_told_in_an_event() -> None:
    """One event for each answer, with its bytes and how it went."""
    worker, _ = await delivered(Scripted(event(1), is_cut=True), Scripted(status=503), Scripted(event(1)))
    events = [event for event in worker.contexts[0].events if isinstance(event, FetchCompleted)]
    assert [event.outcome for event in events] == ["retriable", "retriable", "ok"]
    assert events[-1].bytes > 0


async def _pages(export: ScriptedExport, **changes: str) -> Sequence[Page]:
    async with shared_http() as http:
        context = FakeContext(http=http, clock=FakeClock(datetime(2024, 2, 1, tzinfo=UTC)))
        texts = properties(PROJECT, export.url, mixpanel_to_date=str(DAY), **changes)
        return await collect(source_of(texts), context)


def _line_numbers(page: Page) -> list[int]:
    return [] if page.positions is None else [int(str(number)) for number in page.positions]
