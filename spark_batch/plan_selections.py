"""Asks Spark about every `SELECT` of a plan, so that the plan's shapes are known, and tells what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spark_batch.plan import ConversionPlan, PlanFinding
from spark_batch.plan_findings import refusal_finding
from spark_batch.plan_misfits import misfits
from spark_batch.plan_transforms import has_sql, plain_key_shape, plain_value_shape
from spark_batch.rules.select import analyse, text_refusal
from spark_batch.transforms.applied import header_sets
from spark_batch.transforms.catalog import Side, Sql
from spark_batch.transforms.selection import NotAnalysed, selection
from spark_batch.transforms.shape import Misfit, Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def analyse_selections(session: SparkSession, plan: ConversionPlan) -> None:
    """Whatever headers its records have. Blocks, where it is asked for the first time."""
    if not has_sql(plan):
        return
    for headers in {plan.headers, *header_sets(plan.transformations)}:
        own = replace(plan, headers=headers)
        for side, shape in ((Side.VALUE, plain_value_shape(own)), (Side.KEY, plain_key_shape(own))):
            if shape is not None:
                _analyse_side(session, own, side, shape)


def _analyse_side(session: SparkSession, plan: ConversionPlan, side: Side, shape: Shape) -> None:
    for step in plan.applied_steps().of(side):
        form = step.reshaping
        if isinstance(form, Sql) and shape.record is not None:
            try:
                selection(form.sql, shape.record)
            except NotAnalysed:
                analyse(session, form.sql, shape.record)
        try:
            shape = form.reshaped(step.name, shape)
        except Misfit:
            return


def selection_findings(session: SparkSession, plan: ConversionPlan) -> list[PlanFinding]:
    """What only Spark can tell of them, and of what comes behind them; of rows that are still to come, of the texts."""
    if not has_sql(plan):
        return []
    if plan.is_of_rows and plan.contract is None:
        sqls = [
            (each.name, each.transformation.sql)
            for each in plan.transformations
            if isinstance(each.transformation, Sql)
        ]
        refused = [(name, sql, text_refusal(session, sql)) for name, sql in sqls]
        return [refusal_finding(name, sql, refusal) for name, sql, refusal in refused if refusal is not None]
    analyse_selections(session, plan)
    return [PlanFinding(*misfit) for misfit in misfits(plan)]
