"""How a fetcher speaks HTTP: values that say what to do, and the contract of the client that the worker gives.

The client itself is ``fetchers.toolkit.http``; the worker opens one for all tasks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

if TYPE_CHECKING:
    from fetchers.sdk.asker import Asker
    from fetchers.sdk.clock import Clock

MEBIBYTE = 1024 * 1024


class StatusVerdict(StrEnum):
    """What is done about an HTTP status."""

    ACCEPT = "accept"
    """Hand the answer to the fetcher."""
    RETRY = "retry"
    """Raise ``Retriable``."""
    RATE_LIMITED = "rate_limited"
    """Raise ``RateLimited``, with the wait that ``Retry-After`` asks for."""
    SKIP = "skip"
    """Hand over an answer with ``is_skipped`` and no body, as if the source had nothing."""
    FATAL = "fatal"
    """Raise ``Fatal``."""


_DEFAULTS = {
    204: StatusVerdict.SKIP,
    408: StatusVerdict.RETRY,
    425: StatusVerdict.RETRY,
    429: StatusVerdict.RATE_LIMITED,
}
_FIRST_OK, _FIRST_REDIRECT, _FIRST_SERVER_ERROR = 200, 300, 500


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """A verdict on answers with one of these statuses that also say something in a header field or in their body."""

    verdict: StatusVerdict
    statuses: frozenset[int]
    header: str | None = None
    """Name of the header field to look at."""
    path: str | None = None
    """Path of the field to look at in a JSON body (dots between names), where no header is. Only whole answers are
    judged by it, not those of ``HttpAccess.stream``."""
    text: str | None = None
    """What has to be there, such as ``0`` or ``false``; None: anything but null."""


@dataclass(frozen=True, slots=True)
class StatusTable:
    """Status → verdict.

    By default 204 is skipped and any other 2xx accepted, 408 425 429 5xx are tried again, all others are fatal.
    """

    special: Mapping[int, StatusVerdict] = field(default_factory=dict)
    rules: Sequence[AnswerRule] = ()
    """Come before what the status alone says; the first that is met counts."""

    def needs_body(self, status: int) -> bool:
        """Whether an answer with this status can only be judged by its body."""
        return any(rule.path is not None and status in rule.statuses for rule in self.rules)

    def verdict(self, status: int) -> StatusVerdict:
        """What is done about this status."""
        if status in self.special:
            return self.special[status]
        if status in _DEFAULTS:
            return _DEFAULTS[status]
        if _FIRST_OK <= status < _FIRST_REDIRECT:
            return StatusVerdict.ACCEPT
        return StatusVerdict.RETRY if status >= _FIRST_SERVER_ERROR else StatusVerdict.FATAL

    def with_verdict(self, verdict: StatusVerdict, statuses: Iterable[int]) -> StatusTable:
        """The same table, with this verdict for these statuses."""
        return replace(self, special={**self.special, **dict.fromkeys(statuses, verdict)})


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one request may cost."""

    connect_seconds: float = 10.0
    """Until the connection stands, TLS included."""
    read_seconds: float = 60.0
    """Between two pieces of the answer; not counted while the fetcher itself does not read."""
    total_seconds: float = 300.0
    """For a whole answer, first byte to last; a stream has no such limit."""
    response_bytes_max: int = 64 * MEBIBYTE
    """Bytes of a whole answer, decoded; a stream has no such limit."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How https is spoken. Files are PEM."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    is_verified: bool = True


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is added to a request so that the source knows who asks."""

    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


class Authorizer(Protocol):
    """Knows the credentials of a source."""

    @property
    def secrets(self) -> Sequence[str]:
        """Texts that must show up in no message."""

    async def credentials(self, http: HttpAccess) -> Credentials:
        """Credentials for the next request; may ask a token server through ``http``."""

    def refuse(self, credentials: Credentials) -> bool:
        """Hear that these were answered with 401; True when asking once more with new ones may help."""


class RequestBudget(Protocol):
    """How often a source may be asked, shared by all who use one credential."""

    def admitted(self, asker: Asker) -> AbstractAsyncContextManager[None]:
        """Wait until a request is allowed; the block lasts until the source has begun to answer."""

    def refuse(self, clock: Clock, *, asked_seconds: float | None) -> float:
        """Hear of a 429, and for how long it asks; gives the seconds for which nobody may ask now."""

    def accept(self, clock: Clock) -> None:
        """Hear that the source gave what it was asked for."""

    def hear(self, headers: Mapping[str, str], clock: Clock) -> float | None:
        """Hear the header fields of any answer, which may tell how much is left of the source's own limit.

        Gives the seconds for which nobody may ask now, None where they tell nothing of the kind.
        """


class RequestOptions(TypedDict, total=False):
    """What may be said about a request besides its method and URL."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    """Added to the URL's own query."""
    body: bytes | None
    auth: Authorizer | None
    limits: HttpLimits
    statuses: StatusTable
    budget: RequestBudget | None
    tls: TlsSettings
    secrets: Sequence[str]
    """Texts in this request that must show up in no message."""
    is_page_refused: bool
    """Raise ``Retriable`` where a web page (HTML) comes with an accepted 2xx: from a proxy or a login wall, not from
    the source. For formats in which a page could pass for records."""


class Records(Sequence[bytes]):
    """Records cut out of an answer: raw bytes of each, as they came in."""

    @property
    @abstractmethod
    def highest(self) -> str | int | float | None:
        """Greatest value of the ``newer_than`` field among all elements; the given value when there is none."""


class HttpResponse(Protocol):
    """A whole answer of an API, its body limited in size."""

    @property
    def status(self) -> int:
        """The HTTP status code, such as 200."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields, names without regard to case."""

    @property
    def body(self) -> bytes:
        """The whole body, its content encoding (gzip, deflate) undone."""

    @property
    def url(self) -> str:
        """Where the answer came from, redirects followed; may hold secrets."""

    @property
    def links(self) -> Sequence[str]:
        """Every value of the ``Link`` header field, as it was sent (RFC 8288)."""

    @property
    def is_skipped(self) -> bool:
        """Whether the status table said to go on without this answer."""

    @property
    def is_framed(self) -> bool:
        """Whether the answer itself proves where it ends (see ``HttpStream``)."""

    def records(self, path: str = "", *, newer_than: tuple[str, str | int | float | None] | None = None) -> Records:
        """Raw slices of the body: the elements of the array at ``path`` (dots between names; "" is the top).

        With ``newer_than=(field path, value)`` only elements whose field is greater; the result's ``highest``
        is the greatest value seen.
        """


class HttpStream(Protocol):
    """An answer whose body is read piece by piece."""

    @property
    def status(self) -> int:
        """The HTTP status code, such as 200."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields, names without regard to case."""

    @property
    def is_skipped(self) -> bool:
        """Whether the status table said to go on without this answer."""

    @property
    def is_framed(self) -> bool:
        """Whether the answer itself proves where it ends: by its length, its chunks or the trailer of its encoding.

        Else the body ends where the connection does (RFC 9112 §6.3), and a source that died in the middle of it
        looks like one that was done.
        """

    @property
    def is_complete(self) -> bool:
        """Whether the body was read to an end; to a clean one where it ``is_framed``."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Decoded bytes as they come, to be read once. Not reading holds the source back.

        Ends only at a clean end of a body that ``is_framed``; a cut body, a gzip stream without trailer, or a body
        that is not what its header says raises ``Retriable`` after the last good bytes.
        """

    async def excerpt(self, characters_max: int = 300) -> str:
        """The beginning of the body on one line, secrets hidden, for a message."""


class HttpAccess(Protocol):
    """The shared http client, bound to one task: its limits, rate budget and events.

    Every call may raise ``Retriable``, ``RateLimited`` or ``Fatal`` (see ``StatusTable``); messages name the
    place without its query, and quote the beginning of an error's body with secrets hidden.
    """

    def poll(self, url: str, *, every: float, **options: Unpack[RequestOptions]) -> AsyncIterator[HttpResponse]:
        """Ask again and again, ``every`` seconds apart; each time is one round of the source.

        The options are read anew each time: a dict given as ``query`` and changed between two answers, such as by
        ``query["since"] = newest``, changes the next question.
        """

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        """One request with its whole answer."""

    def stream(
        self, method: str, url: str, **options: Unpack[RequestOptions]
    ) -> AbstractAsyncContextManager[HttpStream]:
        """One request whose body is read in chunks and never held whole."""

    def websocket(
        self, url: str, *, message_bytes_max: int, **options: Unpack[RequestOptions]
    ) -> AbstractAsyncContextManager[HttpWebSocket]:
        """A WebSocket, open as long as the block lasts; ``ws(s)://`` and ``http(s)://`` are the same. No redirects.

        ``message_bytes_max``: a larger message ends the connection.
        """


class SocketMessage(Protocol):
    """One message of a WebSocket, its fragments joined; or only a sign of life."""

    @property
    def payload(self) -> bytes | None:
        """The bytes as they came; None for a ping or pong, which are answered by themselves."""

    @property
    def is_text(self) -> bool:
        """Whether it was sent as text, which nobody has decoded yet."""


class HttpWebSocket(Protocol):
    """A WebSocket that is open (RFC 6455)."""

    async def send(self, text: str) -> None:
        """Send one text message."""

    async def ping(self) -> None:
        """Show that we are here, also while we do not read."""

    async def receive(self) -> SocketMessage:
        """The next message. Not reading holds the source back.

        Raises ``Disconnected`` when the other side closes or breaks the connection, Fatal for a message over the limit.
        """


class HttpDoor(Protocol):
    """The worker's one http client, from which every task gets its own access."""

    def for_task(self, asker: Asker) -> HttpAccess:
        """The http client of one task; what it does is told in that task's name."""
