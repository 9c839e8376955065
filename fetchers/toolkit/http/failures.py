"""What went wrong outside, said as an error by recovery, without a secret in its message."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import aiohttp
from yarl import URL

from fetchers.sdk.config import HIDDEN
from fetchers.sdk.errors import Disconnected, Fatal
from fetchers.sdk.reach import AddressRefusedError
from fetchers.toolkit.http.decoding import BrokenBodyError, UnknownEncodingError

EXCERPT_CHARACTERS_MAX = 300
_PATTERNS_MAX = 1024
SECRET_CHARACTERS_MIN = 4
"""Shorter secrets are not searched for: hiding every ``a`` would make messages unreadable and betray the letter."""
_UNSEEMLY = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret, plain or as it stands in a URL or in JSON, shown as ``[hidden]``."""
    for secret in sorted(set(secrets), key=len, reverse=True):  # longest first: one may be part of another
        if len(secret) >= SECRET_CHARACTERS_MIN:
            text = _pattern(secret).sub(HIDDEN, text)
    return text


@lru_cache(maxsize=_PATTERNS_MAX)
def _pattern(secret: str) -> re.Pattern[str]:
    return re.compile("".join(f"(?:{_forms(character)})" for character in secret))


def _forms(character: str) -> str:
    """How one character may be written; servers differ in what they encode."""
    percent = "".join(f"(?i:%{byte:02x})" for byte in character.encode("utf-8", "surrogatepass"))
    escaped = re.escape(json.dumps(character)[1:-1])
    # The longest first, or of "%25" only "%" would be hidden.
    return "|".join((percent, escaped, re.escape(character), *((r"\+",) if character == " " else ())))


def excerpt(body: bytes, secrets: Iterable[str], *, characters_max: int = EXCERPT_CHARACTERS_MAX) -> str:
    """The beginning of a body on one line, fit for a message.

    Hides before it cuts: a secret that the cut divides would otherwise be shown in part.
    """
    line = _UNSEEMLY.sub(" ", hide(body.decode("utf-8", "replace"), secrets)).strip()
    return line if len(line) <= characters_max else line[: characters_max - 1] + "…"


def place_of(url: URL, secrets: Iterable[str]) -> str:
    """Scheme, host and path: the query and the user part may hold credentials."""
    if not url.absolute or not url.host:
        return "an address without a host"
    return hide(str(url.with_user(None).with_query(None).with_fragment(None)), secrets)


@contextmanager
def outside_errors(place: str) -> Iterator[None]:
    """Raise what the network does as ``Disconnected`` (a ``Retriable``) or ``Fatal``."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        told = error.certificate_error
        reason = told.verify_message if isinstance(told, ssl.SSLCertVerificationError) else type(told).__name__
        message = (
            f"{place}: the certificate of the server is not trusted ({reason}): have it mended, or name its authority "
            "in the connector's keys of TLS"
        )
        raise Fatal(message) from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        message = f"{place}: not a URL that can be asked"
        raise Fatal(message) from error
    except AddressRefusedError as error:
        message = f"{place}: {error}"
        raise Fatal(message) from error
    except UnknownEncodingError as error:
        message = f"{place}: {error}"
        raise Fatal(message) from error
    except (aiohttp.ClientError, BrokenBodyError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        message = f"{place}: {_words(error)}"
        raise Disconnected(message) from error


def _words(error: BaseException) -> str:
    """Say it without the library's text, which may quote the request."""
    match error:
        case BrokenBodyError():
            words = str(error)
        case aiohttp.ConnectionTimeoutError():
            words = "no connection in time"
        case TimeoutError():
            words = "no answer in time"
        case aiohttp.ClientConnectorError():
            words = f"cannot connect ({error.os_error.strerror or type(error.os_error).__name__})"
        case aiohttp.ServerDisconnectedError():
            words = "the source closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            words = "the body was cut before its end"
        case OSError():
            words = f"the connection broke ({error.strerror or type(error).__name__})"
        case _:
            words = f"the answer is no proper HTTP ({type(error).__name__})"
    return words
