"""A body read piece by piece, with a sure verdict on its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import aiohttp

from fetchers.sdk.errors import FetchError
from fetchers.toolkit.http.decoding import decoder_for
from fetchers.toolkit.http.failures import EXCERPT_CHARACTERS_MAX, excerpt, outside_errors
from fetchers.toolkit.http.headers import is_framed

_EXCERPT_BYTES = 16 * 1024
_SECRET_BYTES_MAX = 4 * 1024


class ResponseStream:
    """The ``HttpStream`` of a fetcher."""

    def __init__(
        self, response: aiohttp.ClientResponse, *, place: str, secrets: Sequence[str], is_skipped: bool
    ) -> None:
        self._response = response
        self._place = place
        self._secrets = secrets
        self.is_skipped = is_skipped
        self.is_complete = False
        self.bytes_received = 0
        self._body: bytes | None = None

    @property
    def status(self) -> int:
        """The HTTP status code, such as 200."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields, names without regard to case; of a repeated field the first."""
        return self._response.headers

    @property
    def is_framed(self) -> bool:
        """Whether the answer itself proves where it ends; else only the end of the connection tells."""
        return is_framed(self._response.headers)

    @property
    def links(self) -> Sequence[str]:
        """Every value of the ``Link`` header field, as it was sent (RFC 8288)."""
        return tuple(self._response.headers.getall("Link", ()))

    @property
    def url(self) -> str:
        """Where the answer came from, redirects followed; may hold secrets."""
        return str(self._response.url)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Decoded bytes as they come; a framed body ends only at a clean end, else ``Retriable`` is raised."""
        if self.is_skipped:
            self.is_complete = True
            return
        content = self._response.content
        with outside_errors(self._place):
            decoder = decoder_for(
                self._response.headers.get("Content-Encoding", ""),
                is_empty=self._response.headers.get("Content-Length") == "0",
            )
        while True:
            # The consumer's own errors must not pass through ``outside_errors``: nothing is yielded inside it.
            with outside_errors(self._place):
                data = await content.readany()
            if not data:
                break
            self.bytes_received += len(data)
            pieces = decoder.feed(data)
            while True:
                with outside_errors(self._place):
                    piece = next(pieces, None)
                if piece is None:
                    break
                yield piece
        with outside_errors(self._place):
            decoder.finish()
        self.is_complete = True

    def close(self) -> None:
        """Give the connection back, or break it where the body was not read to its end."""
        if self.is_complete and not self.is_skipped:
            self._response.release()
        else:
            self._response.close()

    async def read(self, *, bytes_max: int) -> bytes:
        """The whole decoded body, once more where it is asked for again.

        Raises Retriable when it is cut, ``TooLargeError`` over ``bytes_max``.
        """
        if self._body is not None:
            return self._body
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > bytes_max:
                raise TooLargeError(bytes_max)
            parts.append(chunk)
        self._body = parts[0] if len(parts) == 1 else b"".join(parts)
        return self._body

    @property
    def read_body(self) -> bytes:
        """The whole body where it was read as one, else nothing."""
        return self._body or b""

    async def excerpt(self, characters_max: int = EXCERPT_CHARACTERS_MAX) -> str:
        """The beginning of the body on one line, secrets hidden; empty when nothing of it can be read."""
        if self._body is not None:
            return excerpt(self._body[:_EXCERPT_BYTES], self._secrets, characters_max=characters_max)
        head = b""
        try:
            async for chunk in self.chunks():
                head += chunk
                if len(head) >= _EXCERPT_BYTES:
                    head = head[:-_SECRET_BYTES_MAX]  # a secret that the cut divides would not be found
                    break
        except FetchError:
            pass  # what came before a cut is still worth showing, and of what cannot be decoded nothing is
        return excerpt(head, self._secrets, characters_max=characters_max)


class TooLargeError(Exception):
    """An answer is larger than the limit given as ``bytes_max``."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.bytes_max = bytes_max
