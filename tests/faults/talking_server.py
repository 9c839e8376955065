"""A server that counts aloud, in its own thread: events and messages that can be had again, and lines that cannot."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

TICK_SECONDS = 0.01


@dataclass
class Counting:
    """Numbers from 0 on, one each tick, whether anybody listens or not."""

    url: str = ""
    numbers: int = 0
    _is_counting: threading.Event = field(default_factory=threading.Event)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _is_up: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve and count while the block runs."""
        self._is_counting.set()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="counting server")
        thread.start()
        try:
            assert self._is_up.wait(120)
            yield
        finally:
            self._is_over.set()
            thread.join()

    def stop_counting(self) -> None:
        """No more numbers; who listens is not hung up on."""
        self._is_counting.clear()

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get("/events", self._tell_events)
        app.router.add_get("/lines", self._tell_lines)
        app.router.add_get("/messages", self._tell_messages)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._is_up.set()
        while not self._is_over.is_set():
            await asyncio.sleep(TICK_SECONDS)
            self.numbers += self._is_counting.is_set()
        await runner.cleanup()

    async def _tell_events(self, request: web.Request) -> web.StreamResponse:
        """Everything after the last id."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        number = int(request.headers.get("Last-Event-ID", "-1")) + 1
        while True:
            end = self.numbers  # which grows while what is written has to wait
            for told in range(number, end):
                await response.write(b'id: %d\ndata: {"number": %d}\n\n' % (told, told))
            number = max(number, end)
            await asyncio.sleep(TICK_SECONDS)

    async def _tell_messages(self, request: web.Request) -> web.WebSocketResponse:
        """Everything after the number that the subscription names."""
        socket = web.WebSocketResponse(timeout=0.05)
        await socket.prepare(request)
        number = int(json.loads(await socket.receive_str())["after"]) + 1
        while not socket.closed:
            end = self.numbers
            for told in range(number, end):
                await socket.send_str(f'{{"number": {told}}}')
            number = max(number, end)
            await asyncio.sleep(TICK_SECONDS)
        return socket

    async def _tell_lines(self, request: web.Request) -> web.StreamResponse:
        """What comes from now on, and nothing that was."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        number = self.numbers
        while True:
            end = self.numbers
            for told in range(number, end):
                await response.write(b'{"number": %d}\r\n' % told)
            number = end
            await asyncio.sleep(TICK_SECONDS)
