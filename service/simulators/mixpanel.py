"""A local Mixpanel project: a real HTTP server that answers ``GET /api/2.0/export`` as the raw export API does.

Facts: Mixpanel's ``openapi/export.openapi.yaml``, ``reference/rate-limits`` and ``reference/project-secret``. The
parameters ``event`` and ``where`` are noted in the ledger and not applied.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections import deque
from collections.abc import Mapping
from datetime import UTC, date, datetime
from types import TracebackType
from typing import Self
from zoneinfo import ZoneInfo

from aiohttp import web

from fetchers.sdk import Clock, SystemClock
from service.simulators.mixpanel_answer import Answer, Library, make_answer
from service.simulators.mixpanel_ledger import Ledger, RequestSeen, Truth
from service.simulators.mixpanel_settings import Fault, FaultKind, MixpanelSettings

EXPORT_PATH = "/api/2.0/export"
LIMITS: tuple[tuple[int, float], ...] = ((60, 3600.0), (3, 1.0))
"""Most queries within so many seconds (``reference/rate-limits``)."""
_CLOCK_ERROR_SECONDS = 1e-6
"""Sums of floating point are not exact; a client that waits to the second must not be refused for it."""
_RATE_LIMIT_BODY = json.dumps(
    {
        "code": 429,
        "error": "Project exceeded rate limits. Please retry the request with exponential backoff.",
        "status": "Too Many Requests",
    }
)


class MixpanelSimulator:
    """One project on a free port of loopback, while the context is open."""

    def __init__(self, settings: MixpanelSettings, *, port: int = 0, clock: Clock | None = None) -> None:
        """``port`` 0 takes a free one; ``clock`` is what limits and days go by, the machine's when None."""
        self.settings = settings
        self.ledger = Ledger(settings)
        self._library = Library(settings)
        self._port = port
        self._runner: web.AppRunner | None = None
        self._now = settings.now
        self._clock = clock or SystemClock()
        self._sent: deque[float] = deque()

    async def __aenter__(self) -> Self:
        """Listen."""
        app = web.Application()
        app.router.add_get(EXPORT_PATH, self._export)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the socket and what is still being answered."""
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Base URL: the value of ``mixpanel.base.url``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> list[RequestSeen]:
        """Every request that the simulator has had, in order."""
        return self.ledger.requests

    def truth(self) -> Truth:
        """What must have come out by now."""
        return self.ledger.truth()

    def set_now(self, now: datetime) -> None:
        """Move the server's clock (aware time)."""
        self._now = now

    async def prepare(self) -> None:
        """Render and encode every day beforehand, so that the server's work does not count in a measurement."""
        for day in self.settings.calendar:
            await make_answer(
                self._library, [(day, False)], None, is_time_in_ms=False, is_gzipped=self.settings.is_gzipped
            )

    # --- one request ------------------------------------------------------------------------------

    async def _export(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        refusal = self._limit_refusal() or self._authentication_refusal(request) or self._parameter_refusal(query)
        if refusal is not None:
            return self._answered(query, refusal)
        first, last = date.fromisoformat(query["from_date"]), date.fromisoformat(query["to_date"])
        fault = self._fault(first, attempt=self.ledger.begin_attempt(first))
        if fault is not None and fault.kind is FaultKind.STATUS:
            return self._answered(query, _status(fault.status, fault.body, dict(fault.headers)), fault)
        days = [(day, self.ledger.has_late(day)) for day in self.settings.calendar if first <= day <= last]
        accepts_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        answer = await make_answer(
            self._library,
            days,
            fault,
            is_time_in_ms=query.get("time_in_ms", "false").lower() == "true",
            is_gzipped=self.settings.is_gzipped and accepts_gzip,
        )
        return await self._send(request, query, answer, fault)

    async def _send(
        self, request: web.Request, query: Mapping[str, str], answer: Answer, fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        if answer.is_gzipped:
            response.headers["Content-Encoding"] = "gzip"
        if answer.length is None or self.settings.is_chunked:
            response.enable_chunked_encoding()
        else:
            response.content_length = answer.length
        self._answered(query, response, fault)
        try:
            await response.prepare(request)
            is_whole = await self._write(request, response, answer, fault)
        except ConnectionError:
            return response  # the client went away: nothing of this answer counts
        if is_whole:
            for day, body, is_late in answer.told:
                self.ledger.told(day, body, is_late_included=is_late)
        return response

    async def _write(
        self, request: web.Request, response: web.StreamResponse, answer: Answer, fault: Fault | None
    ) -> bool:
        """Send a body; False where a fault cut it."""
        bend_at = int(answer.length_estimated * fault.fraction) if fault is not None else None
        sent = 0
        async for piece in answer.pieces:
            view = memoryview(piece)
            while view:
                if sent == bend_at and fault is not None:
                    if fault.kind is FaultKind.CUT:
                        _reset(request)
                        return False
                    if fault.kind is FaultKind.PAUSE:
                        await asyncio.sleep(fault.seconds)
                size = self.settings.chunk_bytes
                if bend_at is not None and sent < bend_at:
                    size = min(size, bend_at - sent)
                await response.write(view[:size])
                sent += min(size, len(view))
                view = view[size:]
        await response.write_eof()
        return True

    def _answered(
        self, query: Mapping[str, str], response: web.StreamResponse, fault: Fault | None = None
    ) -> web.StreamResponse:
        scaled = self._clock.monotonic() * self.settings.time_scale
        self.ledger.requests.append(RequestSeen(scaled, response.status, query, fault.kind if fault else ""))
        return response

    # --- why a request is refused -----------------------------------------------------------------

    def _limit_refusal(self) -> web.Response | None:
        now = self._clock.monotonic() * self.settings.time_scale
        while self._sent and self._sent[0] <= now - LIMITS[0][1]:
            self._sent.popleft()
        self._sent.append(now)
        is_over = any(
            sum(now - moment < seconds - _CLOCK_ERROR_SECONDS for moment in self._sent) > count
            for count, seconds in LIMITS
        )
        if not (is_over and self.settings.enforces_limits):
            return None
        after = self.settings.retry_after_seconds
        return _status(429, _RATE_LIMIT_BODY, {} if after is None else {"Retry-After": str(after)})

    def _authentication_refusal(self, request: web.Request) -> web.Response | None:
        credentials = _basic_credentials(request.headers.get("Authorization", ""))
        if credentials == (self.settings.project_secret, ""):
            return None
        if credentials != (self.settings.username, self.settings.secret):
            return _status(401, _error("Invalid credentials"))
        project = request.query.get("project_id")
        if project is None:
            return _status(400, _error("project_id is a required parameter for service accounts"))
        if project != self.settings.project_id:
            return _status(403, _error("Service account has no access to this project"))
        return None

    def _parameter_refusal(self, query: Mapping[str, str]) -> web.Response | None:
        days: dict[str, date] = {}
        for name in ("from_date", "to_date"):
            try:
                days[name] = datetime.strptime(query[name], "%Y-%m-%d").replace(tzinfo=UTC).date()
            except KeyError:
                return _status(400, _error(f"{name} is a required parameter"))
            except ValueError:
                return _status(400, _error(f"{name} must be of the form yyyy-mm-dd"))
        if days["from_date"] > days["to_date"]:
            return _status(400, _error("from_date cannot be later than to_date"))
        if days["to_date"] > self._today():
            return _status(400, _error("to_date cannot be later than today"))
        return None

    def _today(self) -> date:
        now = self._now or self._clock.now()
        return now.astimezone(ZoneInfo(self.settings.time_zone)).date()

    def _fault(self, day: date, *, attempt: int) -> Fault | None:
        number = len(self.ledger.requests) + 1
        return next(
            (
                fault
                for fault in self.settings.faults
                if (fault.day, fault.attempt) == (day, attempt) or (fault.day is None and fault.attempt == number)
            ),
            None,
        )


def _basic_credentials(header: str) -> tuple[str, str] | None:
    """User and password of an ``Authorization`` field (RFC 7617); None when it has none."""
    scheme, _, code = header.partition(" ")
    try:
        user, _, password = base64.b64decode(code, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if scheme.lower() == "basic" else None


def _status(status: int, body: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=body, content_type="application/json", headers=headers)


def _error(text: str) -> str:
    return json.dumps({"error": text, "status": "error"})


def _reset(request: web.Request) -> None:
    """Break the connection as a failing proxy does."""
    if request.transport is not None:
        request.transport.abort()
