"""One connection to the simulated stream: what waits to be written, keep-alives, and how it ends."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum

from aiohttp import web

from service.simulators.x_posts import Fields

LINE_END = b"\r\n"


class Ending(StrEnum):
    """How a connection ends."""

    CLEAN = "clean"
    """The body ends as HTTP asks for."""
    CUT = "cut"
    """The socket is reset; what was not yet read by the client may be lost on the way."""
    OVERFLOW = "overflow"
    """The client read too slowly: reset, and the buffer is thrown away."""


@dataclass(frozen=True, slots=True)
class Said:
    """Something to write; ``post_id`` where it tells a post."""

    text: bytes
    post_id: str | None = None


@dataclass(slots=True)
class Connection:
    """A client that listens. The server puts, ``serve`` writes."""

    fields: Fields
    told: Counter[str]
    """Of each post, how often it was handed to the operating system for a client."""
    keep_alive_seconds: float
    buffer_bytes_max: int
    is_silent: bool = False
    """True while neither keep-alives nor posts are written: a connection that is dead without being closed."""
    ending: Ending | None = None
    buffered_bytes: int = 0
    _waiting: deque[Said] = field(default_factory=deque)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, text: bytes, post_id: str | None = None) -> None:
        """Put a message, without its line end; nothing after the connection was ended."""
        self.say_raw(text + LINE_END, post_id)

    def say_raw(self, text: bytes, post_id: str | None = None) -> None:
        """Put bytes as they are."""
        if self.ending is not None:
            return
        self._waiting.append(Said(text, post_id))
        self.buffered_bytes += len(text)
        if self.buffered_bytes > self.buffer_bytes_max:
            self._waiting.clear()
            self.end(Ending.OVERFLOW)
        self._changed.set()

    def end(self, ending: Ending) -> None:
        """End after what was put so far."""
        if self.ending is None:
            self.ending = ending
        self._changed.set()

    def hush(self) -> None:
        """Write nothing from now on, and keep the socket open."""
        self.is_silent = True

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Write until the end; raises ConnectionError when the client goes away."""
        response = web.StreamResponse(headers={"Content-Type": "application/json; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        while True:
            while self._waiting and not self.is_silent:
                said = self._waiting.popleft()
                await response.write(said.text)
                self.buffered_bytes -= len(said.text)
                if said.post_id is not None:
                    self.told[said.post_id] += 1
            if self.ending is not None:
                break
            self._changed.clear()
            await self._wait(response)
        if self.ending is Ending.CLEAN:
            await response.write_eof()
        elif request.transport is not None:
            if self.ending is Ending.OVERFLOW:
                request.transport.abort()
            else:
                # Closed and not aborted: what was written arrives, but the body has no end.
                request.transport.close()
        return response

    async def _wait(self, response: web.StreamResponse) -> None:
        """Until there is something to do; a keep-alive is written where there was nothing for long."""
        try:
            async with asyncio.timeout(self.keep_alive_seconds):
                await self._changed.wait()
        except TimeoutError:
            if not self.is_silent:
                await response.write(LINE_END)
