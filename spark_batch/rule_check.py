"""Rules checked by Spark before any record is read: they must parse, name known fields and be boolean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.types import BooleanType

from spark_batch.decode import canonical_value
from spark_batch.plan import Finding
from spark_batch.shapes import canonical_shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_batch.avro_types import Record
    from spark_batch.plan import ConversionPlan, Rule

_EXPECTED = "a Spark SQL boolean expression over the contract's fields"


def rule_findings(session: SparkSession, plan: ConversionPlan) -> list[Finding]:
    """One finding for each rule that Spark cannot take."""
    if plan.record is None or plan.contract is None:
        return []
    return [finding for rule in plan.contract.rules for finding in _findings(session, plan.record, rule)]


def _findings(session: SparkSession, record: Record, rule: Rule) -> list[Finding]:
    key = f"contract.rules.{rule.name}"
    empty = session.range(0).select(F.from_json(F.lit("{}"), canonical_shape(record)).alias("r"))
    value = canonical_value(record, F.col("r"))
    fields = empty.select(value.alias("r")).select(*[F.col("r").getField(f.name).alias(f.name) for f in record.fields])
    try:
        kind = fields.select(F.col("*"), F.expr(rule.expression)).schema.fields[-1].dataType
    except PySparkException as error:
        told = (line.strip() for line in str(error).splitlines())
        reason = next(filter(None, told), "")[:200]  # of a syntax error the first line is empty
        return [Finding(key, rule.expression, f"{_EXPECTED} ({reason})")]
    if isinstance(kind, BooleanType):
        return []
    return [Finding(key, rule.expression, f"{_EXPECTED}, not {kind.simpleString()}")]
