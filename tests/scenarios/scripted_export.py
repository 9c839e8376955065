"""A server that gives the export's answers word for word from a script: for bodies that no simulator would make up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.contracts.loopback import serve


@dataclass(frozen=True, slots=True)
class Scripted:
    """One answer."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunk_bytes: int = 65536
    is_cut: bool = False
    """The connection breaks after the body, before the transfer's end."""


@dataclass(slots=True)
class ScriptedExport:
    """Answers by first day asked for; the last of a day's answers is repeated, other days are empty."""

    answers: Mapping[str, Sequence[Scripted]]
    url: str = ""
    asked: list[Mapping[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    _turns: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def days_asked(self) -> list[str]:
        """First day of every request."""
        return [query["from_date"] for query in self.asked]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Give the next answer."""
        self.asked.append(dict(request.query))
        self.headers.append(dict(request.headers))
        day = request.query["from_date"]
        script = self.answers.get(day, (Scripted(),))
        scripted = script[min(self._turns[day], len(script) - 1)]
        self._turns[day] += 1
        response = web.StreamResponse(status=scripted.status, headers=scripted.headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        for start in range(0, len(scripted.body), scripted.chunk_bytes):
            await response.write(scripted.body[start : start + scripted.chunk_bytes])
        if scripted.is_cut and request.transport is not None:
            request.transport.abort()
            return response
        await response.write_eof()
        return response


@asynccontextmanager
async def scripted_export(answers: Mapping[str, Sequence[Scripted]]) -> AsyncIterator[ScriptedExport]:
    """Serve a script on a free port."""
    export = ScriptedExport(answers)
    async with serve(export.answer, path="/api/2.0/export") as export.url:
        yield export
