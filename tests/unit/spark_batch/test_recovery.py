"""What an error asks for: told by what the JVM calls it, never by words that may have stood in a record."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from types import SimpleNamespace as Some
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectException

from spark_batch.recovery import Remedy, judged

ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.5 executor 1): "
)
STACK = "\n\tat java.base/java.io.FileOutputStream.open0(Native Method)\n\nDriver stacktrace:"
JAVA_ERROR = "An error occurred while calling o77.collectAsArrowToPython.\n: "
NO_ROOM = "java.io.IOException: No space left on device"
NO_FILE = "java.io.FileNotFoundException: /tmp/blockmgr-1/0a/temp_local (No space left on device)"
NO_QUOTA = "java.nio.file.FileSystemException: /tmp/a b: Disk quota exceeded"
EXECUTOR_LOST = (
    f"{ABORTED}ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Remote RPC"
)


@dataclass
class FakeSession:
    """Of Spark Connect, by its ``session_id``; its server answers unless it is said to have gone."""

    is_gone: bool = False
    session_id: str = "fake"
    asked: list[str] = field(default_factory=list)

    @property
    def conf(self) -> FakeSession:
        """Settings."""
        return self

    def get(self, name: str) -> str:
        """Of a setting."""
        self.asked.append(name)
        if self.is_gone:
            raise ConnectionRefusedError
        return "UTC"


def remedy(error: BaseException, session: FakeSession | None = None) -> Remedy:
    """Of an error on a session that answers, by default."""
    return judged(error, cast("Any", FakeSession() if session is None else session)).remedy


@pytest.mark.parametrize(
    "text",
    [
        NO_ROOM,
        NO_FILE,
        NO_QUOTA,
        f"{JAVA_ERROR}{NO_FILE}{STACK}",
        f"{ABORTED}{NO_QUOTA}{STACK}",
        f"{JAVA_ERROR}org.apache.spark.SparkException: {ABORTED}{NO_ROOM}{STACK}",
        f"(org.apache.spark.SparkException) {ABORTED}{NO_ROOM}{STACK}",
        "(java.io.FileNotFoundException) /tmp/x (No space left on device)",
        f"{JAVA_ERROR}org.apache.spark.SparkException: Failed.{STACK}\nCaused by: {NO_FILE}{STACK}",
    ],
)
def test_a_full_disk_is_told_by_the_exception_of_the_jvm(text: str) -> None:
    """Whether it was full when a file was written, or when one was to be made, and whatever became of the session."""
    assert remedy(PySparkException(text)) is Remedy.WAIT
    assert remedy(PySparkException(text), FakeSession(is_gone=True)) is Remedy.WAIT


@pytest.mark.parametrize(
    "text",
    [
        "[USER_RAISED_EXCEPTION] disk01 says No space left on device",
        f"[USER_RAISED_EXCEPTION] {NO_ROOM}",
        f"[USER_RAISED_EXCEPTION] a record of two lines\n{NO_ROOM}",
        f"{ABORTED}org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {NO_ROOM}{STACK}",
        f"{ABORTED}org.apache.spark.SparkException: [CAST] '(a executor 1): {NO_ROOM}'{STACK}",
        f"[CAST_INVALID_INPUT] The value '{NO_ROOM}' cannot be cast",
        f"The value of {EXECUTOR_LOST}",
        "java.io.FileNotFoundException: /data/No space left on device/a (Permission denied)",
        "java.lang.IllegalStateException: No space left on device",
    ],
)
def test_words_of_a_record_are_not_taken_for_those_of_the_jvm(text: str) -> None:
    """A log of disks is converted like any other: the rule that raises with its lines is to blame."""
    assert remedy(PySparkException(text)) is Remedy.NONE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_here_is_told_by_its_number(number: int) -> None:
    """Also as the cause of another error."""
    error = RuntimeError("not sent")
    error.__cause__ = OSError(number, "full")
    assert remedy(error) is Remedy.WAIT


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionResetError(), EOFError()])
def test_a_broken_connection_is_a_lost_session(error: Exception) -> None:
    """Nobody needs to be asked, who may be hanging."""
    session = FakeSession()
    assert remedy(error, session) is Remedy.RESTART
    assert session.asked == []


def test_an_error_of_a_session_that_is_replaced_already_is_its_loss() -> None:
    """Whatever it says."""
    assert judged(ValueError("a bug"), None).remedy is Remedy.RESTART


def test_lost_executors_ask_for_the_same_again() -> None:
    """The session has outlived them; where it has not, it is lost like any other."""
    for text in (EXECUTOR_LOST, f"{JAVA_ERROR}org.apache.spark.SparkException: {EXECUTOR_LOST}"):
        assert remedy(PySparkException(text)) is Remedy.REPEAT
        assert remedy(PySparkException(text), FakeSession(is_gone=True)) is Remedy.RESTART


def test_what_the_session_answers_is_believed() -> None:
    """The same error of a plan is to blame on the plan or on a server that is gone."""
    error = SparkConnectException(message="no", errorClass="UNRESOLVED_COLUMN", messageParameters={})
    assert remedy(error) is Remedy.NONE
    assert remedy(error, FakeSession(is_gone=True)) is Remedy.RESTART


@pytest.mark.parametrize(
    ("is_stopped", "exit_code", "wanted"),
    [(False, None, Remedy.NONE), (True, None, Remedy.RESTART), (False, 3, Remedy.RESTART)],
)
def test_a_context_that_spark_has_stopped_is_a_lost_session(
    monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool, exit_code: int | None, wanted: Remedy
) -> None:
    """Its JVM lives on and answers, and each job would fail until the worker is started anew."""
    context = Some(isStopped=lambda: is_stopped)
    monkeypatch.setattr(SparkContext, "_gateway", Some(proc=Some(poll=lambda: exit_code)))
    session = Some(sparkContext=Some(_jsc=Some(sc=lambda: context)))
    error = Exception(f"{JAVA_ERROR}java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")
    assert judged(error, cast("Any", session)).remedy is wanted


def test_words_of_a_java_error_name_it() -> None:
    """The first line of py4j says only what was called."""
    assert judged(Exception(f"{JAVA_ERROR}{NO_FILE}{STACK}"), None).words == (
        f"An error occurred while calling o77.collectAsArrowToPython.: {NO_FILE}"
    )


def test_an_error_that_has_lost_its_words_with_its_jvm_is_judged_all_the_same() -> None:
    """Java's errors ask the JVM for their text."""

    class Wordless(Exception):
        def __str__(self) -> str:
            raise Py4JNetworkError

    found = judged(Wordless(), cast("Any", FakeSession(is_gone=True)))
    assert found.remedy is Remedy.RESTART
    assert found.words.startswith("Wordless")
