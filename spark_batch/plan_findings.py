"""What is wrong with a plan, all at once, told without starting Spark."""

from __future__ import annotations

from spark_batch.avro_types import AvroType, Enum, Map, Narrow, Primitive, Record, Temporal, Uuid
from spark_batch.plan import ConversionPlan, ConverterKind, PlanFinding
from spark_batch.plan_events import event_findings
from spark_batch.plan_misfits import misfits, row_misfits
from spark_batch.plan_transforms import has_sql
from spark_batch.rules.select_text import select_refusal
from spark_batch.rules.tree import RuleRefused, text_refusal
from spark_batch.transforms.catalog import Sql

_PLAIN_KEYS = {Primitive.STRING, Primitive.INT, Primitive.LONG, Primitive.BOOLEAN}


def plan_findings(plan: ConversionPlan) -> list[PlanFinding]:
    """All findings; empty means the plan can be run (rules are checked by the runner, which has Spark)."""
    findings = _schema_findings(plan)
    findings += _converter_findings(plan)
    findings += _short_findings(plan)
    findings += _path_findings(plan)
    findings += event_findings(plan)
    findings += _sql_findings(plan)
    if plan.transformations and not findings and not (plan.is_of_rows and plan.contract is None):
        findings += [PlanFinding(*misfit) for misfit in misfits(plan)]
    if plan.is_of_rows:
        findings += _row_findings(plan, is_known=not findings and plan.contract is not None)
    if plan.record_bytes_max < 1:
        findings.append(PlanFinding("record.bytes.max", str(plan.record_bytes_max), "a number of bytes, at least 1"))
    return findings


def _sql_findings(plan: ConversionPlan) -> list[PlanFinding]:
    """What can be told of SQL without Spark."""
    sqls = [
        (step.name, step.transformation.sql) for step in plan.transformations if isinstance(step.transformation, Sql)
    ]
    refusals = [(name, sql, select_refusal(sql)) for name, sql in sqls]
    return [refusal_finding(name, sql, refusal) for name, sql, refusal in refusals if refusal is not None]


def refusal_finding(name: str, sql: str, refusal: RuleRefused) -> PlanFinding:
    """Of the SQL of the transformation ``name``."""
    return PlanFinding(f"transforms.{name}.sql", sql, f"{refusal.expected}; {refusal.found} is not allowed")


def is_judged_by_spark(plan: ConversionPlan) -> bool:
    """Whether there is more to find, which only Spark can tell: of rules, and of Sql."""
    return (plan.contract is not None and bool(plan.contract.rules)) or has_sql(plan)


def _row_findings(plan: ConversionPlan, *, is_known: bool) -> list[PlanFinding]:
    """What cannot be done with rows; as far as their schema `is_known`."""
    findings = []
    if plan.value_converter.kind == "bytes":
        findings.append(PlanFinding("value.converter", "bytes", "Avro, JSON or string for rows, which are no bytes"))
    if plan.contract is not None and plan.contract.unknown_fields == "keep":
        findings.append(PlanFinding("contract.unknown.fields", "keep", "ignore or reject for rows"))
    if plan.key_schema is not None and plan.key_record is None:
        told = [f"{finding.path or 'schema'}: {finding.seen}" for finding in plan.key_findings]
        findings.append(PlanFinding("key_schema", "; ".join(told), "an Avro record that can be converted"))
    if plan.record is not None:
        findings += [
            PlanFinding("dedupe.fields", path, "a column of texts, whole numbers or booleans")
            for path in plan.dedupe_fields
            if not _has_typed_hash(plan.record, path)
        ]
    if is_known and not findings:
        findings += [PlanFinding(*misfit) for misfit in row_misfits(plan)]
    return findings


def _has_typed_hash(record: Record, path: str) -> bool:
    kind = type_at(record, path)
    return not isinstance(kind, bool) and (kind in _PLAIN_KEYS or isinstance(kind, (Enum, Uuid)))


def _schema_findings(plan: ConversionPlan) -> list[PlanFinding]:
    if plan.contract is None:
        return []
    findings = [
        PlanFinding("contract.schema", f"{finding.path or 'schema'}: {finding.seen}", finding.expected)
        for finding in plan.contract.parsed.findings
    ]
    names = [rule.name for rule in plan.contract.rules]
    findings += [
        PlanFinding(f"contract.rules.{name}", name, "a rule name used once")
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    for rule in plan.contract.rules:
        refusal = text_refusal(rule.expression)
        if refusal is not None:
            expected = f"{refusal.expected}; {refusal.found} is not allowed"
            findings.append(PlanFinding(f"contract.rules.{rule.name}", rule.expression, expected))
    kind = plan.value_converter
    if plan.contract.unknown_fields == "keep" and (kind.kind != "json" or kind.is_schema_enveloped):
        findings.append(PlanFinding("contract.unknown.fields", "keep", "a JSON value converter without schemas"))
    if kind.kind == "json" and kind.is_schema_enveloped and plan.record and _has_null_type(plan.record):
        findings.append(PlanFinding("contract.schema", "null", "no field of type null (Connect has no such type)"))
    return findings


def _has_null_type(record: Record) -> bool:
    return any(_is_null_type(field.slot.type) for field in record.fields)


def _is_null_type(kind: AvroType) -> bool:
    slot = getattr(kind, "items", None) or getattr(kind, "values", None)
    if slot is not None:
        return _is_null_type(slot.type)
    return _has_null_type(kind) if isinstance(kind, Record) else kind is Primitive.NULL


def _converter_findings(plan: ConversionPlan) -> list[PlanFinding]:
    findings = []
    is_loose_json = plan.payload_format == "json" and plan.contract is None
    if is_loose_json and plan.value_converter.kind == "avro":
        findings.append(PlanFinding("value.converter", "avro", "a contract.schema, which Avro values need"))
    if is_loose_json and plan.key_fields and plan.key_converter.kind == "avro":
        findings.append(PlanFinding("key.converter", "avro", "a contract.schema, which Avro keys need"))
    if is_loose_json and plan.key_fields and plan.key_converter.is_schema_enveloped:
        findings.append(PlanFinding("key.converter.schemas.enable", "true", "a contract.schema, or no schemas"))
    if plan.payload_format == "bytes" and plan.contract is None and plan.value_converter.kind in {"json", "string"}:
        expected = "a converter for bytes or Avro, or a contract.schema"
        findings.append(PlanFinding("value.converter", plan.value_converter.kind, expected))
    if plan.value_converter.kind.number and not (plan.transformations or plan.is_of_rows):
        expected = "a converter of what values are: only a transformation makes single numbers of them"
        findings.append(PlanFinding("value.converter", plan.value_converter.kind, expected))
    if is_loose_json and plan.key_fields and plan.key_converter.kind.number:
        expected = "a contract.schema, which keys of numbers need"
        findings.append(PlanFinding("key.converter", plan.key_converter.kind, expected))
    if plan.key_fields and plan.key_converter.kind.is_single and len(plan.key_fields) > 1:
        findings.append(
            PlanFinding("key.converter", plan.key_converter.kind, "JSON or Avro for a key of several fields")
        )
    return findings


def _short_findings(plan: ConversionPlan) -> list[PlanFinding]:
    """A contract does not hold its numbers to 16 bits, whatever `connect.type` says; casts and databases do."""
    if plan.contract is None or plan.contract.is_of_rows or plan.record is None:
        return []
    # Of what is written to headers.
    forms = [getattr(step.transformation, "form", None) for step in plan.transformations]
    kinds = {plan.key_converter.kind, plan.value_converter.kind, *(form.kind for form in forms if form is not None)}
    narrow = [field.name for field in plan.record.fields if field.slot.connect_type == Narrow(16)]
    if ConverterKind.SHORT not in kinds or not narrow:
        return []
    expected = "an int beside ShortConverter, cast to int16 by a transformation, so that each number is one"
    return [PlanFinding("contract.schema", f"connect.type int16 of {narrow[0]}", expected)]


def _path_findings(plan: ConversionPlan) -> list[PlanFinding]:
    named = [("key.fields", plan.key_fields), ("dedupe.fields", plan.dedupe_fields)]
    named.append(("timestamp.field", (plan.timestamp_field,) if plan.timestamp_field else ()))
    findings = []
    for key, paths in named:
        if paths and not plan.is_json and not plan.is_of_rows:
            findings.append(PlanFinding(key, ",".join(paths), "JSON payloads or a contract.schema"))
        findings += [
            PlanFinding(key, path, "a field named once") for path in sorted({p for p in paths if paths.count(p) > 1})
        ]
        findings += [PlanFinding(key, path, "a non-empty dotted path") for path in paths if not all(path.split("."))]
    if plan.record is not None:
        findings += _contract_paths(plan, plan.record)
    return findings


def _contract_paths(plan: ConversionPlan, record: Record) -> list[PlanFinding]:
    findings = [
        PlanFinding("key.fields", name, "a field of contract.schema")
        for name in plan.key_fields
        if record.field(name) is None
    ]
    may_be_unknown = plan.contract is not None and plan.contract.unknown_fields != "reject"
    for path in plan.dedupe_fields:
        kind = type_at(record, path)
        if kind is False or (kind is None and not may_be_unknown):
            findings.append(PlanFinding("dedupe.fields", path, "a path that payloads under contract.schema can have"))
    if plan.timestamp_field is not None:
        kind = type_at(record, plan.timestamp_field)
        instants = {Temporal.TIMESTAMP_MILLIS, Temporal.TIMESTAMP_MICROS, Primitive.LONG}
        if not isinstance(kind, (Primitive, Temporal)) or kind not in instants:
            expected = "a long or timestamp field of contract.schema"
            findings.append(PlanFinding("timestamp.field", plan.timestamp_field, expected))
    if plan.key_converter.kind.is_single and len(plan.key_fields) == 1:
        findings += _single_key_findings(plan, record)
    return findings


def _single_key_findings(plan: ConversionPlan, record: Record) -> list[PlanFinding]:
    """Only values with one text form that every reader expects may be a key by themselves, or what a number is."""
    field, number = record.field(plan.key_fields[0]), plan.key_converter.kind.number
    if number is not None:
        # What transformations make of the key is asked where they are.
        is_fit = field is None or field.slot.connect_type == number.type or plan.transformations
        expected = f"a converter of what the key's field is, which is no {number.connect_type}"
        return [] if is_fit else [PlanFinding("key.converter", plan.key_converter.kind, expected)]
    if field is None or field.slot.type in _PLAIN_KEYS or isinstance(field.slot.type, (Enum, Uuid)):
        return []
    return [
        PlanFinding(
            "key.converter", plan.key_converter.kind, "JSON or Avro for a key that is not text or a whole number"
        )
    ]


def type_at(record: Record, path: str) -> AvroType | bool | None:
    """The type at a dotted path of payload names; None where the contract knows none, False where there can be none."""
    kind: AvroType = record
    for name in path.split("."):
        if isinstance(kind, Map):
            return None
        if not isinstance(kind, Record):
            return False
        field = next((field for field in kind.fields if field.json_name == name), None)
        if field is None:
            return None
        kind = field.slot.type
    return kind
