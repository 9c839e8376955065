"""What is to be done about an error: one answer, for the runner and for rules that raise.

Spark and PySpark have no classes for it. A broken connection is told by its class, a session that is gone by its error
condition or by asking it, a full disk and lost executors by the words of the JVM. These are looked for only where the
JVM names an exception, for a message may hold what stood in a record.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from spark_batch.session import is_remote, is_session_answering

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Remedy(StrEnum):
    """What has to be done before the same conversion can succeed."""

    WAIT = "wait"
    """Nothing but time, for there is no room on a disk; neither the session nor a micro-batch is to blame."""
    RESTART = "restart"
    """Another session: this one is lost."""
    REPEAT = "repeat"
    """The same again, a few times: executors were lost, which the session has outlived."""
    NONE = "none"
    """Nothing: a rule, the plan or the job is to blame."""


@dataclass(frozen=True)
class Judgement:
    """On an error; ``words`` is its first line."""

    remedy: Remedy
    words: str


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_JOB_ABORTED = r"(?:: )?(?:[\w.$]+: |\([\w.$]+\) )?Job aborted due to stage failure: [^()]*\(TID \d+\) \([^()]*\): "
"""How Spark tells what became of the task on which a job failed."""
_FULL_IN_JVM = re.compile(
    rf"^(?:: |Caused by: |{_JOB_ABORTED})?\(?java\.(?:io|nio\.file)\.\w+Exception(?:: |\) )"
    r"(?:.*\W)?(?:No space left on device|Disk quota exceeded)\)?$",
    re.MULTILINE,
)
_EXECUTOR_LOST = re.compile(rf"^(?:Caused by: )?{_JOB_ABORTED}ExecutorLostFailure \(", re.MULTILINE)
_RAISED_BY_RULE = "[USER_RAISED_EXCEPTION]"
"""What follows are the words of a rule, or of a record."""
_LOST_CONDITIONS = frozenset(
    {
        "INVALID_HANDLE.SESSION_CHANGED",
        "INVALID_HANDLE.SESSION_CLOSED",
        "INVALID_HANDLE.SESSION_NOT_FOUND",
        "NO_ACTIVE_SESSION",
        "OPERATION_CANCELED",
        "RESPONSE_ALREADY_RECEIVED",
    }
)
"""What Spark Connect's errors are called that tell of a session that is gone, or was given up in mid-job."""


def judged(error: BaseException, session: SparkSession | None) -> Judgement:
    """What helps after an error of that session, None for one that is gone. Asks it, so may block as a job does.

    A server that was started anew refuses the session in errors of the same kind as those of a rule that raises.
    """
    return Judgement(_remedy(error, session), first_words(error))


def first_words(error: BaseException) -> str:
    """Its first line, and the next where py4j says first what was called. Asks the JVM, so may block as a job does."""
    lines = _text(error).splitlines() or [type(error).__name__]
    is_of_java = len(lines) > 1 and lines[1].startswith(": ")
    return "".join(lines[: 2 if is_of_java else 1])[:300]


def _remedy(error: BaseException, session: SparkSession | None) -> Remedy:
    if any(getattr(seen, "errno", None) in _FULL for seen in _chain(error) if isinstance(seen, OSError)):
        return Remedy.WAIT
    told = [_text(seen).partition(_RAISED_BY_RULE)[0] for seen in _chain(error)]
    if any(_FULL_IN_JVM.search(text) for text in told):
        return Remedy.WAIT
    if session is None or _is_connection_broken(error) or _is_session_refused(error, session):
        return Remedy.RESTART
    if not is_session_answering(session):
        return Remedy.RESTART
    return Remedy.REPEAT if any(_EXECUTOR_LOST.search(text) for text in told) else Remedy.NONE


def _is_connection_broken(error: BaseException) -> bool:
    return any(isinstance(seen, (Py4JNetworkError, OSError, EOFError)) for seen in _chain(error))


def _is_session_refused(error: BaseException, session: SparkSession) -> bool:
    return isinstance(error, PySparkException) and is_remote(session) and error.getCondition() in _LOST_CONDITIONS


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that led to it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _text(error: BaseException) -> str:
    """Its words; errors of a JVM ask that for them, and it may be gone."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - there are many ways to say that Spark is gone
        return f"{type(error).__name__}, whose words are lost ({type(failure).__name__})"
