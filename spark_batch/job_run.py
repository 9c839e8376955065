"""Running a job on one frame: rows in order again, and rules that raise narrowed down to the rows they raise on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException

from spark_batch.errors import ConversionFatal
from spark_batch.job import ORDINAL, VERDICT, Job
from spark_batch.recovery import Remedy, judged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RAISED = -1
"""Verdict on a row that no rule passes judgement on, because one of them raises."""
SPLIT_JOBS_MAX = 200
"""Jobs spent on finding the rows on which rules raise (about a dozen for each); then the plan is called wrong."""


def run_job(session: SparkSession, job: Job, frame: pa.Table, *, has_rules: bool) -> pa.Table:
    """The job's rows in the order of the frame; raises what Spark raises.

    Spark has no way to catch an error of any expression, and an error of one row ends the whole job: where the plan has
    rules, halves of the frame are tried until the rows that raise stand alone. A lost session is no rule that raises.
    """
    try:
        return in_order(job.applied(session.createDataFrame(frame)).toArrow())
    except AnalysisException:
        raise
    except PySparkException as error:
        if not has_rules or not frame.num_rows or not _is_of_a_row(session, error):
            raise
    return _split(session, job, frame)


def _split(session: SparkSession, job: Job, frame: pa.Table) -> pa.Table:
    waiting = [_half(frame, 0), _half(frame, 1)]
    done: list[pa.Table] = []
    for _ in range(SPLIT_JOBS_MAX):
        if not waiting:
            return in_order(pa.concat_tables(done, promote_options="default").combine_chunks())
        part = waiting.pop()
        if part.num_rows == 0:
            continue
        try:
            done.append(job.applied(session.createDataFrame(part)).toArrow())
        except PySparkException as error:
            if not _is_of_a_row(session, error):
                raise
            if part.num_rows == 1:
                done.append(pa.table({ORDINAL: part.column(ORDINAL), VERDICT: pa.array([RAISED], pa.int32())}))
            else:
                waiting += [_half(part, 0), _half(part, 1)]
    raise ConversionFatal("the rules raise on too many records: mend them so that they give null or false")


def _is_of_a_row(session: SparkSession, error: PySparkException) -> bool:
    """Whether a rule may have raised the error, rather than a lost session, a lost executor or a full disk."""
    return judged(error, session).remedy is Remedy.NONE


def _half(frame: pa.Table, which: int) -> pa.Table:
    middle = frame.num_rows // 2
    return frame.slice(middle) if which else frame.slice(0, middle)


def in_order(written: pa.Table) -> pa.Table:
    """The rows sorted by their ordinals; executors may have given their parts in any order."""
    ordinals = np.asarray(written.column(ORDINAL))
    if np.any(ordinals[1:] < ordinals[:-1]):
        return written.take(np.argsort(ordinals, kind="stable"))
    return written
