"""What can go wrong with an embedded server, by what its user can do about it."""

from __future__ import annotations


class EmbeddedError(Exception):
    """An embedded server cannot be used; the message says why and what to do."""


class DataDirectoryBusy(EmbeddedError):
    """Another worker uses this data directory: stop it, or give this one another directory."""


class PortBusy(EmbeddedError):
    """Something else listens on the port that was asked for."""


class StartFailed(EmbeddedError):
    """The server ended or did not become ready in time; the message carries the end of its log."""
