"""The columns of a plan, built once: payloads in, verdicts, values, keys, timestamps and hashes out.

Three forms of the same job. The *typed* one is given records that Arrow has read and proven; the *swift* one reads raw
payloads and marks the records it cannot vouch for as suspicious; the *canonical* one reads what the exact path has
judged and rewritten. All end in the same rules and serializers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.avro_types import Primitive, Record, Slot
from spark_batch.decode import canonical_value, decode_record, proven_record
from spark_batch.driver_run import DriverRuns
from spark_batch.payload_fields import (
    dedupe_fields,
    dedupe_hash,
    dedupe_text,
    dedupe_texts,
    is_plain,
    loose_key,
    timestamp_at,
    typed_dedupe_hash,
)
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, UnknownFields
from spark_batch.plan_transforms import (
    is_reshaped,
    is_timestamp_inserted,
    is_value_written,
    key_schema,
    plain_key_shape,
    plain_value_shape,
    value_schema,
)
from spark_batch.selecting import (
    Selecting,
    Written,
    any_of,
    header_columns,
    left_to_arrow,
    or_dropped,
    written_columns,
)
from spark_batch.serialize import framed_avro, number_bytes, record_bytes, shaped_bytes, text_bytes
from spark_batch.serialize.json_columns import JsonColumns, json_columns
from spark_batch.shapes import CORRUPT, canonical_shape, payload_shape
from spark_batch.transforms.catalog import HeaderFrom, Side, Sql
from spark_batch.transforms.form import Row, Values, joined
from spark_batch.transforms.shape import Shape
from spark_batch.variant_paths import PAYLOAD, VARIANT, is_one_value, parsed_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

ORDINAL = "__headrace_ordinal"
KEY = "__headrace_key"
VALUE = "__headrace_value"
VERDICT = "__headrace_verdict"
RECORD = "__headrace_record"
STAMP = "__headrace_page_timestamp"
"""Column of the page's timestamps, in milliseconds; there only for plans whose transformations ask for them."""
TIMESTAMP = "__headrace_timestamp"
DEDUPE = "__headrace_dedupe"
COERCED = "__headrace_coerced"
"""Bits of the coerced fields, only for plans that coerce."""
VALID, SUSPICIOUS, FIRST_RULE, UNDONE = 0, 1, 2, -2
"""Numbers in the job's column of verdicts, one a row; FIRST_RULE + n means that rule n of the contract failed, UNDONE
that a transformation failed which Spark alone can carry out."""
_PARSED, _SWIFT = "__headrace_parsed", "__headrace_swift"
_HASHED = "__headrace_hashed"
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}


Rules: TypeAlias = "tuple[Column, ...]"
"""The rules of the plan's contract as boolean columns, in their order, as `rules.columns` makes them."""


@dataclass(frozen=True)
class Job:
    """What Spark is asked to select, in steps: each step selects from the columns of the one before."""

    steps: tuple[tuple[Column, ...], ...]
    left_to_arrow: Mapping[str, JsonColumns] = field(default_factory=dict)
    """What comes out in parts, by the name of the column that is to be written of them."""
    driver_runs: DriverRuns = field(default_factory=DriverRuns, compare=False, repr=False)

    def applied(self, frame: DataFrame) -> DataFrame:
        """The frame (columns ORDINAL, PAYLOAD as text, and KEY where asked for) with the job applied."""
        for step in self.steps:
            frame = frame.select(*step)
        return frame

    def behind(self, *steps: tuple[Column, ...]) -> Job:
        """The same job with these steps before its own."""
        return replace(self, steps=(*steps, *self.steps))


def swift_job(plan: ConversionPlan, rules: Rules, *, has_key: bool) -> Job:
    """The job over raw payloads; `has_key` where page keys are to be converted too."""
    kept = [F.col(KEY)] if has_key else []
    kept += _stamps(plan)
    if not plan.is_json:
        return _text_outputs(plan, has_key=has_key)
    parsed = [] if plan.record is None else [F.from_json(F.col(PAYLOAD), payload_shape(plan.record), _JSON_OPTIONS)]
    first = [F.col(ORDINAL), F.col(PAYLOAD), *kept, parsed_payload().alias(VARIANT)]
    first += [column.alias(_PARSED) for column in parsed]
    proof, coerced = is_one_value(), None
    second = [F.col(ORDINAL), F.col(PAYLOAD), *kept, F.col(VARIANT)]
    if plan.record is not None and plan.contract is not None:
        is_refused = plan.contract.unknown_fields is UnknownFields.REJECT
        decoded = decode_record(plan.record, F.col(_PARSED), is_unknown_refused=is_refused)
        proof = proof & (F.ascii(F.ltrim(PAYLOAD)) == ord("{")) & F.col(_PARSED).getField(CORRUPT).isNull()
        proof = _certain(proof if decoded.proof is None else proof & decoded.proof)
        second.append(F.when(proof, decoded.value).alias(RECORD))
        if decoded.coerced is not None:
            coerced = F.nullif(F.col(COERCED), F.lit(0))
            second.append(decoded.coerced.cast("bigint").alias(COERCED))
    second.append(_certain(proof).alias(_SWIFT))
    hashed = dedupe_fields(plan.dedupe_fields, plan.record)
    second += dedupe_texts(hashed)
    third = [] if not hashed else [(F.col("*"), dedupe_text(hashed, F.col(RECORD)).alias(_HASHED))]
    proof, dedupe = F.col(_SWIFT), None
    if hashed:
        proof = proof & F.col(_HASHED).isNotNull()
        dedupe = dedupe_hash(F.col(_HASHED), count=len(hashed))
    last = _outputs(plan, rules, proof, has_key=has_key, dedupe=dedupe, coerced=coerced)
    return last.behind(tuple(first), tuple(second), *third, *_scope_for_rules(plan))


def typed_job(plan: ConversionPlan, record: Record, rules: Rules) -> Job:
    """The job over proven records (columns ORDINAL and RECORD, read as `proof_shape` says)."""
    dedupe = None
    if plan.dedupe_fields:
        dedupe = typed_dedupe_hash(dedupe_fields(plan.dedupe_fields, record), F.col(RECORD))
    typed = (F.col(ORDINAL), proven_record(record, F.col(RECORD)).alias(RECORD), *_stamps(plan))
    outputs = _outputs(plan, rules, F.lit(True), has_key=False, dedupe=dedupe)  # noqa: FBT003 - a literal
    return outputs.behind(typed, *_scope_for_rules(plan))


def rows_job(plan: ConversionPlan, record: Record, rules: Rules, *, has_key: bool) -> Job:
    """The job over rows that fit the record (columns ORDINAL and RECORD, null for a tombstone, and KEY)."""
    dedupe = None
    if plan.dedupe_fields:
        hashed = typed_dedupe_hash(dedupe_fields(plan.dedupe_fields, record), F.col(RECORD), absent="n")
        dedupe = F.when(F.col(RECORD).isNotNull(), hashed)
    key = [] if not has_key else [F.col(KEY)]
    if has_key and plan.key_record is not None:
        key = [canonical_value(plan.key_record, F.col(KEY)).alias(KEY)]
    typed = (F.col(ORDINAL), canonical_value(record, F.col(RECORD)).alias(RECORD), *key, *_stamps(plan))
    is_key_written = has_key and not plan.key_fields
    # What transformations leave to the exact path is judged by the rules here: only a row that passes comes there.
    rules = tuple(F.col(RECORD).isNull() | rule for rule in rules)
    proof = F.lit(True)  # noqa: FBT003 - a literal
    outputs = _outputs(plan, rules, proof, has_key=is_key_written, dedupe=dedupe, is_ruled_first=True)
    return outputs.behind(typed, *_scope_for_rules(plan))


def canonical_job(plan: ConversionPlan, record: Record, rules: Rules) -> Job:
    """The job over canonical texts (columns ORDINAL and PAYLOAD) of a plan with a contract."""
    parsed = F.from_json(F.col(PAYLOAD), canonical_shape(record), _JSON_OPTIONS)
    is_read = _certain(F.col(_PARSED).getField(CORRUPT).isNull())
    typed = F.when(is_read, canonical_value(record, F.col(_PARSED)))
    return _outputs(plan, rules, F.col(_SWIFT), has_key=False, dedupe=None, is_judged=True).behind(
        (F.col(ORDINAL), parsed.alias(_PARSED), *_stamps(plan)),
        (F.col(ORDINAL), typed.alias(RECORD), is_read.alias(_SWIFT), *_stamps(plan)),
        *_scope_for_rules(plan),
    )


def _stamps(plan: ConversionPlan) -> list[Column]:
    return [F.col(STAMP)] if is_timestamp_inserted(plan) else []


def _record_timestamp(plan: ConversionPlan) -> Column:
    """The timestamp that transformations see: what the plan's field says, or else the page."""
    stamp = F.col(STAMP) if is_timestamp_inserted(plan) else F.lit(None).cast("bigint")
    if plan.timestamp_field is None or plan.record is None:
        return stamp
    return F.coalesce(timestamp_at(plan.timestamp_field, plan.record, F.col(RECORD))[0], stamp)


def _page_key(plan: ConversionPlan, selecting: Selecting) -> Written:
    if plan.key_record is not None and not is_reshaped(plan, Side.KEY):
        shape = plain_key_shape(plan)
        assert shape is not None  # noqa: S101 - told to the type checker
        return _plain_bytes(shape, F.col(KEY), spec=plan.key_converter)
    if is_reshaped(plan, Side.KEY):
        return _transformed(plan, Side.KEY, F.col(KEY), F.col(KEY).isNotNull(), selecting=selecting)
    return _text(F.col(KEY), plan.key_converter)


def _text(text: Column, spec: ConverterSpec) -> Written:
    """Plain text; null stays null."""
    left = json_columns(Slot(Primitive.STRING), text, is_there=text.isNotNull(), spec=spec)
    return Written(left or text_bytes(text, spec=spec))


def _text_outputs(plan: ConversionPlan, *, has_key: bool) -> Job:
    """To the verdict and what is written, of text or bytes that no contract describes."""
    written: dict[str, Written] = {}
    selecting = Selecting()
    if is_value_written(plan):
        spec = plan.value_converter
        if is_reshaped(plan, Side.VALUE):
            is_there = F.col(PAYLOAD).isNotNull()
            written[VALUE] = _transformed(plan, Side.VALUE, F.col(PAYLOAD), is_there, selecting=selecting)
        elif plan.payload_format is PayloadFormat.BYTES:
            framed = framed_avro(F.col(PAYLOAD), avro_schema=value_schema(plan), schema_id=spec.schema_id)
            written[VALUE] = Written(framed)
        else:
            written[VALUE] = _text(F.col(PAYLOAD), spec)
    if plan.has_key_of_value:
        written[KEY] = _transformed(plan, Side.KEY, F.col(PAYLOAD), F.col(PAYLOAD).isNotNull(), selecting=selecting)
    elif has_key:
        written[KEY] = _page_key(plan, selecting)
    proof = _all(each.proof for each in written.values())
    unproven = F.lit(UNDONE if selecting.steps else SUSPICIOUS)
    verdict = F.lit(VALID) if proof is None else F.when(or_dropped(proof, written), F.lit(VALID)).otherwise(unproven)
    last = (F.col(ORDINAL), verdict.alias(VERDICT), *written_columns(written, _header_steps(plan)))
    return Job((*selecting.steps, last), left_to_arrow(written))


def _outputs(
    plan: ConversionPlan,
    rules: Rules,
    proof: Column,
    *,
    has_key: bool,
    dedupe: Column | None,
    coerced: Column | None = None,
    is_judged: bool = False,
    is_ruled_first: bool = False,
) -> Job:
    """The steps that every form of the job ends with.

    `is_judged`: the transformations were tried on each record before; `is_ruled_first`: the rules judge what is not
    proven too, since the record itself is sure.
    """
    written: dict[str, Written] = {}
    selecting = Selecting()
    if is_value_written(plan):
        written[VALUE] = _value(plan, selecting)
    if plan.has_key_of_value:
        written[KEY] = _transformed(plan, Side.KEY, F.col(RECORD), F.col(RECORD).isNotNull(), selecting=selecting)
    elif has_key:
        written[KEY] = _page_key(plan, selecting)
    if plan.key_fields:
        written[KEY] = (
            _record_key(plan, plan.record, selecting)
            if plan.record is not None
            else Written(loose_key(plan.key_fields, is_json=plan.key_converter.kind is ConverterKind.JSON))
        )
        if plan.record is None:
            proof = reduce(lambda left, right: left & right, map(is_plain, plan.key_fields), proof)
    is_done = None if is_judged and not selecting.steps else _all(each.proof for each in written.values())
    undone = None
    if is_done is not None and selecting.steps:
        undone = ~_certain(or_dropped(is_done, written))
    elif is_done is not None:
        proof = proof & is_done
    outputs = written_columns(written, _header_steps(plan))
    if plan.timestamp_field is not None:
        timestamp, is_certain = timestamp_at(plan.timestamp_field, plan.record, F.col(RECORD))
        outputs.append(timestamp.alias(TIMESTAMP))
        proof = proof if is_certain is None else proof & is_certain
    outputs += [] if dedupe is None else [dedupe.alias(DEDUPE)]
    outputs += [] if coerced is None else [coerced.alias(COERCED)]
    verdict = _verdict(rules, _certain(proof), undone, is_ruled_first=is_ruled_first)
    return Job((*selecting.steps, (F.col(ORDINAL), verdict.alias(VERDICT), *outputs)), left_to_arrow(written))


def _header_steps(plan: ConversionPlan) -> list[str]:
    return [step.name for step, _ in plan.applied_steps().header_steps] if plan.transformations else []


def _verdict(rules: Rules, proof: Column, undone: Column | None, *, is_ruled_first: bool) -> Column:
    unproven = (~proof, SUSPICIOUS)
    broken = [(~_certain(rule), FIRST_RULE + index) for index, rule in enumerate(rules)]
    cases = [*broken, unproven] if is_ruled_first else [unproven, *broken]
    cases += [] if undone is None else [(undone, UNDONE)]
    verdict = F.when(F.lit(False), F.lit(VALID))  # noqa: FBT003 - a literal
    for is_it, number in cases:
        verdict = verdict.when(is_it, F.lit(number))
    return verdict.otherwise(F.lit(VALID))


def _scope_for_rules(plan: ConversionPlan) -> list[tuple[Column, ...]]:
    """A step that puts the contract's fields beside the job's own columns, for the rules to name them."""
    if plan.record is None or plan.contract is None or not plan.contract.rules:
        return []
    fields = [F.col(RECORD).getField(field.name).alias(field.name) for field in plan.record.fields]
    return [(F.col("*"), *fields)]


def _value(plan: ConversionPlan, selecting: Selecting) -> Written:
    if is_reshaped(plan, Side.VALUE):
        return _transformed(plan, Side.VALUE, F.col(RECORD), F.col(RECORD).isNotNull(), selecting=selecting)
    if plan.record is not None and plan.is_of_rows:
        return _plain_bytes(
            Shape(Slot(plan.record), plan.plain_value_schema()), F.col(RECORD), spec=plan.value_converter
        )
    if plan.record is not None:
        return _record(plan.record, F.col(RECORD), spec=plan.value_converter, avro_schema=value_schema(plan))
    return Written(F.concat(F.lit('{"schema":null,"payload":'), F.col(PAYLOAD), F.lit("}")).cast("binary"))


def _plain_bytes(shape: Shape, value: Column, *, spec: ConverterSpec) -> Written:
    """A struct as it comes, in the form of the converter; null stays null."""
    if spec.kind in {ConverterKind.AVRO, ConverterKind.JSON} and shape.record is not None:
        return _record(shape.record, value, spec=spec, avro_schema=shape.avro)
    return Written(shaped_bytes(shape, value, is_there=value.isNotNull(), spec=spec))


def _record(record: Record, value: Column, *, spec: ConverterSpec, avro_schema: str | None) -> Written:
    left = json_columns(Slot(record), value, is_there=value.isNotNull(), spec=spec)
    return Written(left or record_bytes(record, value, spec=spec, avro_schema=avro_schema))


def _transformed(plan: ConversionPlan, side: Side, value: Column, is_there: Column, *, selecting: Selecting) -> Written:
    """A transformed key or value whose type is known."""
    is_value = side is Side.VALUE
    shape = plain_value_shape(plan) if is_value else plain_key_shape(plan)
    assert shape is not None  # noqa: S101 - told to the type checker; loose values take the exact path, loose keys none
    proofs: list[Column] = []
    dropped: list[Column] = []
    texts: dict[str, list[Column]] = {}
    after: Values = value
    applied = plan.applied_steps()
    spec = plan.value_converter if is_value else plan.key_converter
    for step in applied.of(side):
        if isinstance(step.reshaping, Sql):
            # Its texts need not be UTF-8, and only Spark's writer mends them.
            spec = replace(spec, is_by_spark=True)
            selected = selecting.of(step.reshaping, shape, after, is_there)
            after, is_there = selected.parts, is_there & selected.parts.is_there
            proofs.append(selected.proof)
            dropped.append(selected.is_dropped)
            shape = step.reshaping.reshaped(step.name, shape)
            continue
        if isinstance(step.reshaping, HeaderFrom):
            if step.reshaping.side is side:
                made = header_columns(step.reshaping, shape, after)
                texts[step.name] = [each.value for each in made]
                # Without a key there is nothing to make a header of; tombstones have no such step.
                proofs.append(after.isNotNull() if side is Side.KEY else ~is_there | after.isNotNull())
                proofs += [~is_there | _certain(each.proof) for each in made if each.proof is not None]
            continue
        proof = step.reshaping.proof(shape, after)
        proofs += [] if proof is None else [~is_there | _certain(proof)]
        after = step.reshaping.column(shape, after, Row(is_there, _record_timestamp(plan), step.topic))
        shape = step.reshaping.reshaped(step.name, shape)
        if step.reshaping is applied.events:
            # A delete leaves nothing to write: its value is a tombstone, whatever the converter.
            is_there = is_there & after.isNotNull()
    left = json_columns(shape.slot, after, is_there=is_there, spec=spec, origin=shape.origin)
    column = left or shaped_bytes(shape, joined(after), is_there=is_there, spec=spec)
    return Written(column, _all(proofs), any_of(dropped), texts)


def _all(proofs: Iterable[Column | None]) -> Column | None:
    given = [proof for proof in proofs if proof is not None]
    return reduce(lambda left, right: left & right, given) if given else None


def _record_key(plan: ConversionPlan, record: Record, selecting: Selecting) -> Written:
    fields = [field for field in map(record.field, plan.key_fields) if field is not None]
    columns = [F.col(RECORD).getField(field.name).alias(field.name) for field in fields]
    is_there = F.col(RECORD).isNotNull()
    if plan.is_of_rows and plan.has_keys_of_fields:
        columns = [
            F.when(is_there, column).otherwise(F.col(KEY).getField(field.name)).alias(field.name)
            for field, column in zip(fields, columns, strict=True)
        ]
        is_there = is_there | F.col(KEY).isNotNull()
    is_single = plan.key_converter.kind.is_single
    key = columns[0] if is_single else F.when(is_there, F.struct(*columns))
    if is_reshaped(plan, Side.KEY):
        return _transformed(plan, Side.KEY, key, is_there, selecting=selecting)
    if is_single:
        number = plan.key_converter.kind.number
        return Written(key.cast("string").cast("binary") if number is None else number_bytes(number, key))
    shape = Record(f"{record.name}Key", tuple(fields))
    return _record(shape, key, spec=plan.key_converter, avro_schema=key_schema(plan))


def _certain(column: Column) -> Column:
    return F.coalesce(column, F.lit(False))  # noqa: FBT003 - a literal
