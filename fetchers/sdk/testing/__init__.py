"""Fakes for testing a fetcher, and the contract suite that every fetcher must pass.

``FakeContext`` stands in for the worker, ``collect`` runs a fetcher against it. ``FetcherContract`` is the suite; it
needs a ``FetcherCase``: which config to use and how to set up a scripted source (see ``case``); for sources of JSON
over HTTP ``HttpCase`` brings the server. Of a source that talks
by itself it is ``ListenerContract``, with a ``ListenerCase``.
"""

from fetchers.sdk.testing.case import BadConfig, FetcherCase, ListenerCase, ScriptedSource, TalkingSource
from fetchers.sdk.testing.clock import FakeClock
from fetchers.sdk.testing.collect import ManyPagesError, collect, running
from fetchers.sdk.testing.context import FakeContext
from fetchers.sdk.testing.contract import FetcherContract
from fetchers.sdk.testing.http_case import HttpCase
from fetchers.sdk.testing.listening import ListenerContract

__all__ = [
    "BadConfig",
    "FakeClock",
    "FakeContext",
    "FetcherCase",
    "FetcherContract",
    "HttpCase",
    "ListenerCase",
    "ListenerContract",
    "ManyPagesError",
    "ScriptedSource",
    "TalkingSource",
    "collect",
    "running",
]
