"""A plan made ready for one session: its columns built once, and what is learned of its payloads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_batch.driver_run import ALWAYS, JOBS_KEY
from spark_batch.exact.keep import is_kept_whole
from spark_batch.job import Job, canonical_job, rows_job, swift_job, typed_job
from spark_batch.plan import ConversionPlan, UnknownFields
from spark_batch.plan_selections import analyse_selections
from spark_batch.plan_transforms import (
    is_loose,
    is_page_key_written,
    is_reshaped,
    is_timestamp_inserted,
    is_value_written,
)
from spark_batch.proof import ProofHabit, ProofShape, proof_shape
from spark_batch.row_bytes import RowWriter, row_writer
from spark_batch.rules.columns import rule_columns
from spark_batch.transforms.catalog import Side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANS_MAX = 512
"""Compiled plans kept; the least recently used one goes first."""


@dataclass(frozen=True)
class TypedPath:
    """The job for proven payloads, what has to be proven, and whether trying has paid."""

    job: Job
    shape: ProofShape
    habit: ProofHabit = field(default_factory=ProofHabit)


@dataclass(frozen=True)
class CompiledPlan:
    """A plan with its columns, valid for one session. `swift` None: nothing for Spark to do, or nothing swift."""

    plan: ConversionPlan
    typed: TypedPath | None
    swift: Job | None
    canonical: Job | None
    is_all_exact: bool
    rows: Job | None = None
    """The job over rows, of a plan that has no other."""
    writer: RowWriter | None = None
    """What writes rows that have only to be written; then there is no job."""

    @property
    def has_page_key(self) -> bool:
        """Whether the swift job wants the keys of the page."""
        return is_page_key_written(self.plan)

    @property
    def has_timestamps(self) -> bool:
        """Whether the jobs want the timestamps of the page."""
        return is_timestamp_inserted(self.plan)

    @property
    def has_rules(self) -> bool:
        """Whether its jobs evaluate rules, which may raise an error on a record."""
        return self.plan.contract is not None and bool(self.plan.contract.rules)


def compile_plan(session: SparkSession, plan: ConversionPlan) -> CompiledPlan:
    """Build the columns once; raises ValueError where an Avro plan has no schema id, or a rule is not allowed."""
    is_by_jobs = session.conf.get(JOBS_KEY, "") == ALWAYS
    plan = plan.by_spark() if is_by_jobs else plan
    analyse_selections(session, plan)
    record = plan.record
    is_keep = plan.contract is not None and plan.contract.unknown_fields is UnknownFields.KEEP
    is_all_exact = is_keep and record is not None and not is_kept_whole(record)
    # Objects without a contract have no columns: transforming them is the exact path's.
    is_all_exact = is_all_exact or (is_loose(plan) and is_reshaped(plan, Side.VALUE))
    has_key = is_page_key_written(plan)
    if plan.is_of_rows:
        if record is None:
            raise ValueError("rows are converted by their schema, and this plan has none")
        writer = None if is_by_jobs else row_writer(plan)
        if writer is not None:
            return CompiledPlan(plan, None, None, None, is_all_exact=False, writer=writer)
        job = rows_job(plan, record, rule_columns(session, plan), has_key=has_key or plan.key_record is not None)
        return CompiledPlan(plan, None, None, None, is_all_exact=False, rows=job)
    is_needed = (plan.is_json and not is_all_exact) or has_key or is_value_written(plan) or plan.has_key_of_value
    rules = rule_columns(session, plan)
    canonical = None if record is None else canonical_job(plan, record, rules)
    swift = swift_job(plan, rules, has_key=has_key) if is_needed else None
    shape = None if is_all_exact else proof_shape(plan)
    typed = None if record is None or shape is None else TypedPath(typed_job(plan, record, rules), shape)
    return CompiledPlan(plan, typed, swift, canonical, is_all_exact)


class CompiledPlans:
    """The plans of the session in use, compiled when they are first asked for. For the threads of conversions."""

    def __init__(self) -> None:
        self._generation = 0
        self._kept: OrderedDict[ConversionPlan, CompiledPlan] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, session: SparkSession, plan: ConversionPlan, *, generation: int) -> CompiledPlan:
        """The plan for the session of that generation; with it those of older ones are forgotten.

        Raises ValueError as `compile_plan` does.
        """
        with self._lock:
            if generation > self._generation:
                self._generation = generation
                self._kept.clear()
            if generation == self._generation and plan in self._kept:
                self._kept.move_to_end(plan)
                return self._kept[plan]
        compiled = compile_plan(session, plan)
        with self._lock:
            if generation == self._generation:
                self._kept[plan] = compiled
                while len(self._kept) > PLANS_MAX:
                    self._kept.popitem(last=False)
        return compiled
