"""The http client of the worker: one session for all tasks, an access of its own for each task.

``shared`` owns the session; ``access`` is what a fetcher holds; ``stream`` and ``answer`` are its two ways to read
a body; ``decoding`` undoes gzip and finds cut streams; ``headers``, ``redirects``, ``retry_after`` and ``failures``
are rules.
"""

from fetchers.toolkit.http.access import TaskHttp
from fetchers.toolkit.http.answer import HttpAnswer
from fetchers.toolkit.http.shared import BoundResolver, SharedHttp, SharedHttpClosedError, check_literal

__all__ = ["BoundResolver", "HttpAnswer", "SharedHttp", "SharedHttpClosedError", "TaskHttp", "check_literal"]
