"""What is made of answers that are none of X's: pages, redirects, silence, bytes that are no text."""

from __future__ import annotations

import pytest

from fetchers.sdk import Fatal
from service.simulators.x_settings import RULES_PATH, STREAM_PATH, Fault
from tests.apis.x.hearing import hearing, simulated
from tests.apis.x.test_twitter_source import connector, fetched, rows_of
from tests.apis.x.test_twitter_source import simulated as simulated_for_twitter

paths = pytest.mark.parametrize("path", [RULES_PATH, STREAM_PATH])


@paths
async def test_a_web_page_with_status_200_is_tried_again(path: str) -> None:
    """A proxy has answered for X."""
    async with simulated() as (x, clock):
        x.faults.append(Fault(path=path, status=200, body="<html>log in</html>", content_type="text/html"))
        async with hearing(x, clock) as heard:
            await x.wait_for_connections(1)
            x.post("kafka")
            await heard.wait_for(1)
        assert "a web page (HTML) came" in str(heard.context.retries[0][0])


@paths
async def test_an_endless_redirect_is_fatal(path: str) -> None:
    """And says so."""
    async with simulated() as (x, clock):
        x.faults.extend(Fault(path=path, status=302, headers={"Location": path}) for _ in range(50))
        async with hearing(x, clock) as heard:
            error = await heard.failure()
    assert isinstance(error, Fatal)
    assert "redirected more than" in str(error)


async def test_what_is_no_utf8_keeps_its_bytes() -> None:
    """The conversion rejects it, and the posts around it come."""
    async with simulated() as (x, clock), hearing(x, clock) as heard:
        await x.wait_for_connections(1)
        x.say(b'{"data":{"id":"6","text":"\xff"}}')
        x.post("kafka")
        await heard.wait_for(2)
        assert heard.records[0][1] == b'{"data":{"id":"6","text":"\xff"}}'


async def test_what_is_no_utf8_is_a_dead_letter_of_the_seed_connector() -> None:
    """A row's text is text: the bytes that are none stand in it as escapes, and none is lost."""
    async with simulated_for_twitter() as (x, context):
        made = connector(x)

        def talk() -> None:
            x.say(b'{"data":{"id":"6","text":"\xff"}}')
            x.post("kafka")

        x.on_connect = talk
        pages = await fetched(context, made, records=2)
    ((page, row),) = [(page, row) for page in pages if page.rejections for row in rows_of(page)]
    assert len(page.rejections) == 1
    assert row["Text"] == '{"data":{"id":"6","text":"\\xff"}}'
