"""Whose fault an error is, where rules may raise: a verdict on a record is given only by a session that works."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectException

from spark_batch.driver_run import DriverRuns
from spark_batch.job import ORDINAL, VALID, VERDICT, Job
from spark_batch.job_run import RAISED, run_job

BAD = 3
FRAME = pa.table({ORDINAL: pa.array(np.arange(8, dtype=np.int32))})
BY_RULE = SparkConnectException(message="no", errorClass="USER_RAISED_EXCEPTION", messageParameters={})


def remote_error(condition: str) -> SparkConnectException:
    """As the client makes it of what a server says."""
    return SparkConnectException(message="refused", errorClass=condition, messageParameters={})


@dataclass
class FakeSession:
    """Gives a frame back as its job's outcome, unless it holds the bad row. Of Spark Connect, by its ``session_id``."""

    error: PySparkException
    error_of_settings: PySparkException | None = None
    session_id: str = "fake"
    jobs: list[int] = field(default_factory=list)

    @property
    def conf(self) -> FakeSession:
        """Settings."""
        return self

    def get(self, _name: str) -> str:
        """Of a setting."""
        if self.error_of_settings is not None:
            raise self.error_of_settings
        return "UTC"

    def createDataFrame(self, frame: pa.Table) -> pa.Table:  # noqa: N802 - PySpark's name
        """What each job begins with."""
        self.jobs.append(frame.num_rows)
        if BAD in frame.column(ORDINAL).to_pylist():
            raise self.error
        return frame


@dataclass
class FakeJob:
    """Finds every row valid."""

    driver_runs: DriverRuns = field(default_factory=DriverRuns)
    left_to_arrow: dict[str, Any] = field(default_factory=dict)

    def applied(self, frame: pa.Table) -> FakeJob:
        """The job on a frame."""
        self.rows = frame
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 - PySpark's name
        """The job's rows."""
        return self.rows.append_column(VERDICT, pa.array([VALID] * self.rows.num_rows, pa.int32()))


def outcome(session: FakeSession, frame: pa.Table = FRAME) -> list[int]:
    """Verdicts by a plan with rules."""
    found = run_job(cast("Any", session), cast("Job", FakeJob()), frame, has_rules=True)
    verdicts: list[int] = np.asarray(found.column(VERDICT)).tolist()
    return verdicts


def test_a_row_on_which_a_rule_raises_stands_alone() -> None:
    """The session answers, so it is the rule."""
    assert outcome(FakeSession(BY_RULE)) == [VALID] * BAD + [RAISED] + [VALID] * 4


@pytest.mark.parametrize(
    "condition",
    [
        "INVALID_HANDLE.SESSION_CHANGED",
        "INVALID_HANDLE.SESSION_CLOSED",
        "INVALID_HANDLE.SESSION_NOT_FOUND",
        "NO_ACTIVE_SESSION",
        "OPERATION_CANCELED",
    ],
)
@pytest.mark.parametrize("rows", [8, 1])
def test_a_session_that_is_gone_condemns_no_row(condition: str, rows: int) -> None:
    """Spark's error goes on as it is, after one job: halves of the frame are not tried."""
    session = FakeSession(remote_error(condition))
    with pytest.raises(SparkConnectException, match="refused"):
        outcome(session, FRAME.slice(BAD if rows == 1 else 0, rows))
    assert session.jobs == [rows]


def test_an_error_of_a_session_that_does_not_answer_condemns_no_row() -> None:
    """Whatever the error is called."""
    session = FakeSession(BY_RULE, error_of_settings=remote_error("INVALID_HANDLE.SESSION_CHANGED"))
    with pytest.raises(SparkConnectException, match="no"):
        outcome(session)
    assert session.jobs == [8]


def test_a_session_that_is_lost_between_halves_condemns_no_row() -> None:
    """The rows that were tried are tried again, too."""

    @dataclass
    class Dying(FakeSession):
        def createDataFrame(self, frame: pa.Table) -> pa.Table:  # noqa: N802 - PySpark's name
            if frame.num_rows == 1:
                self.error = remote_error("INVALID_HANDLE.SESSION_CHANGED")
            return super().createDataFrame(frame)

    with pytest.raises(SparkConnectException, match="refused"):
        outcome(Dying(BY_RULE))


def test_a_full_disk_where_spark_runs_condemns_no_row() -> None:
    """It says so in the words of the JVM."""
    session = FakeSession(PySparkException("java.io.FileNotFoundException: /tmp/x (No space left on device)"))
    with pytest.raises(PySparkException, match="No space left"):
        outcome(session)
    assert session.jobs == [8]
