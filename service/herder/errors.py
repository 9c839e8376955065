"""Why a request is not carried out; the REST surface gives each its status and Connect's error body."""

from __future__ import annotations


class RequestError(Exception):
    """A request that cannot be carried out; the text is for the client."""

    status: int = 500


class BadRequestError(RequestError):
    """The request is wrong as it is."""

    status = 400


class ForbiddenError(RequestError):
    """Switched off by the worker's config, or not signed by a member of the group."""

    status = 403


class NotFoundError(RequestError):
    """The connector, task, plugin or logger that a request names is not there."""

    status = 404


class ConflictError(RequestError):
    """Not now: a rebalance, a concurrent change, or the name is taken. Clients retry on it."""

    status = 409


class StartingError(RequestError):
    """The worker has not read the internal topics yet; the same request will be answered later."""

    status = 503


class ElsewhereError(Exception):
    """Another worker has to do it: the leader, or the owner of the instance."""

    def __init__(self, url: str) -> None:
        """Its URL, to forward the request to."""
        super().__init__(url)
        self.url = url
