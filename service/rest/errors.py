"""Errors become Connect's error body; the border at which a bug in a handler becomes an answer."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from metrics.events import Emit, RequestFailed
from service.herder.errors import RequestError
from service.rest.bodies import error_answer
from service.rest.observing import route_name

_CLIENT_ERROR = 400


def answering_errors(emit: Emit, *, request_bytes_max: int, hide: Callable[[str], str]) -> Middleware:
    """Whatever is raised is answered with a status and the error body; ``hide`` takes known secrets out of its text."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RequestError as error:
            if error.__cause__ is not None and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                # The client is told what it can do; what broke is for the log.
                emit(_failure(request, error.__cause__))
            return error_answer(error.status, hide(str(error)))
        except web.RequestPayloadError as error:
            return error_answer(_CLIENT_ERROR, f"The body cannot be read: {error}")
        except web.HTTPException as error:
            return _refusal(request, error, request_bytes_max=request_bytes_max)
        except Exception as error:  # noqa: BLE001 - the border of a request: any bug in it is a 500, told in the log
            emit(_failure(request, error))
            # The text may hold anything, a secret too; the log has it, redacted.
            return error_answer(500, f"Internal error: {type(error).__name__}; the worker's log says more")

    return middleware


def _failure(request: web.Request, error: BaseException) -> RequestFailed:
    return RequestFailed(
        method=request.method,
        route=route_name(request),
        error_class=type(error).__name__,
        message=str(error),
        trace="".join(traceback.format_exception(error)),
    )


def _refusal(request: web.Request, error: web.HTTPException, *, request_bytes_max: int) -> web.StreamResponse:
    """The framework's own refusals, in Connect's words."""
    text = f"HTTP {error.status} {HTTPStatus(error.status).phrase}"
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        text = f"The body is longer than {request_bytes_max} bytes (rest.request.bytes.max)"
    if not isinstance(error, web.HTTPMethodNotAllowed):
        return error_answer(error.status, text)
    allow = {"Allow": ",".join(sorted({*error.allowed_methods, "OPTIONS"}))}
    return web.Response(headers=allow) if request.method == "OPTIONS" else error_answer(405, text, headers=allow)
