"""What is wrong with the transformations of a plan, and with what its converters are to write of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from spark_batch.avro_documents import each_definition
from spark_batch.avro_types import Array, AvroType, Decimal, Enum, Map, Narrow, Primitive, Record, Temporal, Uuid
from spark_batch.plan import ConversionPlan, ConverterKind
from spark_batch.plan_transforms import (
    is_page_key_written,
    is_reshaped,
    key_shape,
    plain_key_shape,
    plain_value_shape,
    value_shape,
)
from spark_batch.transforms.applied import asked_headers, header_sets
from spark_batch.transforms.catalog import (
    HEADER_EDITS,
    ByLogicalTableRouter,
    Filter,
    HasHeaderKey,
    HeaderFrom,
    HoistField,
    InsertField,
    RegexRouter,
    Side,
    Sql,
    Step,
    TimestampRouter,
    TopicNameMatches,
    ValueToKey,
)
from spark_batch.transforms.java_pattern import JavaPatternError
from spark_batch.transforms.selection import NotAnalysed
from spark_batch.transforms.shape import Misfit, Shape

_LEGAL_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEADERS_ASKED_MAX = 6
"""Names of headers that predicates of one connector may ask for: each doubles what has to be known before."""
_STRING_FORMS = {
    Primitive.STRING,
    Primitive.INT,
    Primitive.LONG,
    Primitive.BOOLEAN,
    Primitive.FLOAT,
    Primitive.DOUBLE,
    Primitive.NULL,
}


def row_misfits(plan: ConversionPlan) -> list[tuple[str, str, str]]:
    """What converters have no form for in rows as they come, and in their keys."""
    try:
        _check_rows(plan, Side.VALUE)
        if plan.key_schema is not None:
            _check_rows(plan, Side.KEY)
    except Misfit as misfit:
        return [_told(misfit)]
    return []


def _check_rows(plan: ConversionPlan, side: Side) -> None:
    is_value = side is Side.VALUE
    spec = plan.value_converter if is_value else plan.key_converter
    shape = plain_value_shape(plan) if is_value else plain_key_shape(plan)
    if shape is None or is_reshaped(plan, side):
        return
    _check_form(shape, spec.kind, f"{side}.converter")
    if spec.kind == "json" and spec.is_decimal_numeric and _has_wide_decimal(shape.slot.type):
        expected = "BASE64 for decimals of more than 38 digits"
        raise Misfit(f"{side}.converter.decimal.format", "NUMERIC", expected)


def _has_wide_decimal(kind: AvroType) -> bool:
    if isinstance(kind, Record):
        return any(_has_wide_decimal(field.slot.type) for field in kind.fields)
    if isinstance(kind, (Array, Map)):
        return _has_wide_decimal(kind.items.type if isinstance(kind, Array) else kind.values.type)
    return isinstance(kind, Decimal) and kind.is_wide


def misfits(plan: ConversionPlan) -> list[tuple[str, str, str]]:
    """Everything that is wrong: key, value seen, what was expected."""
    steps = plan.transformations
    found = [*pattern_misfits(steps), *map(_told, (*_sink_fields(steps), *_unknown_topics(steps)))]
    if found:
        return found
    try:
        _check_headers(plan)
        for headers in header_sets(steps):
            _check_topics(replace(plan, headers=headers))
        _check(plan)
    except Misfit as misfit:
        return [_told(misfit)]
    except NotAnalysed:
        # What Spark makes of a SELECT is asked where Spark is (`plan_selections`), and what follows from it.
        return []
    return []


def _check(plan: ConversionPlan) -> None:
    """For records with the plan's headers."""
    _check_tombstones(plan)
    if is_reshaped(plan, Side.VALUE):
        _check_value(plan)
    if is_reshaped(plan, Side.KEY):
        _check_key(plan)


def _check_headers(plan: ConversionPlan) -> None:
    """Schemas are registered before the first record, and so before its headers are known."""
    names = asked_headers(plan.transformations)
    if len(names) > HEADERS_ASKED_MAX:
        raise Misfit("predicates", ",".join(sorted(names)), f"at most {HEADERS_ASKED_MAX} names of headers")
    is_avro = ConverterKind.AVRO in {plan.key_converter.kind, plan.value_converter.kind}
    for step in plan.transformations:
        form = step.transformation
        is_aside = isinstance(form, (Filter, *HEADER_EDITS)) or (isinstance(form, HeaderFrom) and not form.is_moved)
        is_decided = isinstance(step.predicate, HasHeaderKey) and not is_aside
        if is_avro and is_decided:
            expected = "converters other than Avro, whose schemas are registered before headers are known"
            raise Misfit(f"transforms.{step.name}.predicate", "HasHeaderKey", expected)
        if is_avro and isinstance(step.transformation, TimestampRouter):
            expected = "converters other than Avro, whose schemas are registered before times are known"
            raise Misfit(f"transforms.{step.name}.type", "TimestampRouter", expected)
        if isinstance(step.transformation, ValueToKey) and plan.key_fields:
            raise Misfit("key.fields", ",".join(plan.key_fields), f"none beside the keys that {step.name} makes")


def _unknown_topics(steps: Iterable[Step]) -> Iterator[Misfit]:
    """After a router by time no topic is known before the records are."""
    is_timed = False
    for step in steps:
        form = step.transformation
        if is_timed and isinstance(step.predicate, TopicNameMatches):
            yield Misfit(f"transforms.{step.name}.predicate", "TopicNameMatches", "no topic made of times before it")
        if is_timed and isinstance(form, InsertField) and form.topic is not None:
            key = f"transforms.{step.name}.topic.field"
            yield Misfit(key, form.topic.name, "its place before the router by time")
        if is_timed and isinstance(form, ByLogicalTableRouter):
            yield Misfit(f"transforms.{step.name}.type", form.NAME, "its place before the router by time")
        is_timed = is_timed or isinstance(form, TimestampRouter)


def untyped_selects(steps: Iterable[Step], *, plain: set[Side], loose: set[Side]) -> Iterator[tuple[str, Side]]:
    """Names of a sink's `Sql` whose records can have no fields of known types, and whose converter makes them so.

    `plain` sides are texts or bytes, of which `HoistField` makes records; `loose` ones are JSON without schemas.
    """
    plain, origin = set(plain), {side: side for side in Side}
    for step in steps:
        form = step.transformation
        if isinstance(form, ValueToKey):
            origin[Side.KEY] = Side.VALUE
            plain = (plain - {Side.KEY}) | ({Side.KEY} if Side.VALUE in plain else set())
        elif isinstance(form, HoistField):
            plain.discard(form.side)
        elif isinstance(form, Sql) and (form.side in plain or origin[form.side] in loose):
            yield step.name, origin[form.side]


def pattern_misfits(steps: Iterable[Step]) -> list[tuple[str, str, str]]:
    """Expressions that cannot be carried out; before them nothing can be said of topics."""
    return [_told(misfit) for step in steps for misfit in _pattern_misfits(step)]


def _sink_fields(steps: Iterable[Step]) -> Iterator[Misfit]:
    """A plan is of a source, whose records have neither partition nor offset yet."""
    for step in steps:
        insert = step.transformation
        if isinstance(insert, InsertField):
            for key, field in (("partition.field", insert.partition), ("offset.field", insert.offset)):
                if field is not None:
                    yield Misfit(f"transforms.{step.name}.{key}", field.name, "none: records of sources have none yet")


def _told(misfit: Misfit) -> tuple[str, str, str]:
    return misfit.key, misfit.value, misfit.expected


def _pattern_misfits(step: Step) -> Iterator[Misfit]:
    router, predicate = step.transformation, step.predicate
    if isinstance(router, ByLogicalTableRouter):
        for key, each in (("topic.regex", router.topics), ("key.field.regex", router.keys)):
            try:
                _ = each is None or each.routed("")
            except JavaPatternError as error:
                regex = "" if each is None else each.regex
                yield Misfit(f"transforms.{step.name}.{key}", regex, f"what this version can carry out ({error})")
    if isinstance(predicate, TopicNameMatches):
        try:
            predicate.is_match("")
        except JavaPatternError as error:
            expected = f"a predicate whose pattern this version can carry out ({error})"
            yield Misfit(f"transforms.{step.name}.predicate", predicate.pattern, expected)
    if isinstance(router, RegexRouter):
        try:
            router.routed("")
        except JavaPatternError as error:
            yield Misfit(f"transforms.{step.name}.regex", router.regex, f"what this version can carry out ({error})")


def _check_topics(plan: ConversionPlan) -> None:
    for is_tombstone in (False, True):
        applied = plan.applied_steps(is_tombstone=is_tombstone)
        topic = applied.topic
        for router in applied.routers:
            topic = router.routed(topic, 0) if isinstance(router, TimestampRouter) else router.routed(topic)
        if plan.topic and not _LEGAL_TOPIC.fullmatch(topic):
            raise Misfit("transforms", topic, "names of topics that Kafka allows to come out of it")


def _check_tombstones(plan: ConversionPlan) -> None:
    tombstones, values = plan.applied_steps(is_tombstone=True), plan.applied_steps()
    if tombstones.is_dropped or values.is_dropped or (values.has_key_of_value and not plan.is_of_rows):
        # Keys of tombstones are those of their pages then, or none at all.
        return
    if tombstones.of(Side.KEY) != values.of(Side.KEY):
        expected = "no predicate that treats keys of tombstones unlike other keys"
        raise Misfit("transforms", "RecordIsTombstone", expected)


def _check_value(plan: ConversionPlan) -> None:
    if plan.contract is not None and plan.contract.unknown_fields == "keep":
        raise Misfit("contract.unknown.fields", "keep", "ignore or reject, where values are transformed")
    kind = plan.value_converter.kind
    shape = value_shape(plan)
    if shape is not None:
        _check_form(shape, kind, "value.converter")
        return
    if kind != "json":
        raise Misfit("value.converter", kind, "JSON for transformed values without a contract.schema")
    for step in plan.applied_steps().of(Side.VALUE):
        if isinstance(step.reshaping, Sql):
            expected = "a contract.schema: JSON without one has no fields whose types are known"
            raise Misfit(f"transforms.{step.name}.type", Sql.NAME, expected)
        if isinstance(step.reshaping, InsertField) and step.reshaping.timestamp is not None:
            expected = "a contract.schema: JSON without one has no timestamps"
            raise Misfit(f"transforms.{step.name}.timestamp.field", step.reshaping.timestamp.name, expected)


def _check_key(plan: ConversionPlan) -> None:
    kind = plan.key_converter.kind
    if kind == "bytes" and not plan.key_fields:
        raise Misfit("key.converter", kind, "a converter other than that of bytes for transformed keys")
    if is_page_key_written(plan) and not plan.is_of_rows:
        for step in plan.applied_steps().of(Side.KEY):
            if isinstance(step.reshaping, Sql):
                expected = "keys of the value's fields (key.fields, ValueToKey), or rows with keys"
                raise Misfit(f"transforms.{step.name}.type", f"{Sql.NAME}$Key", expected)
    shape = key_shape(plan)
    if shape is None:
        raise Misfit("key.fields", ",".join(plan.key_fields), "a contract.schema for keys that are transformed")
    _check_form(shape, kind, "key.converter")


def _check_form(shape: Shape, kind: ConverterKind, key: str) -> None:
    """Whether the converter can write it."""
    if kind == "string" and not _has_string_form(shape.slot.type):
        raise Misfit(key, kind, "JSON or Avro, or a shape of texts, numbers and booleans")
    if kind == "bytes" and shape.slot.type not in {Primitive.STRING, Primitive.BYTES}:
        raise Misfit(key, kind, "JSON, Avro or string: the value is no longer bytes")
    if kind.number is not None and shape.slot.connect_type != kind.number.type:
        raise Misfit(key, kind, f"the converter of what is there, which is no {kind.number.connect_type}")
    if kind == "avro":
        for name in _names(shape.slot.type):
            if not _AVRO_NAME.fullmatch(name):
                raise Misfit(key, kind, f"names of fields that Avro allows, not {name}")
        names = [name for name, _ in each_definition(json.loads(shape.avro), "")]
        for name in names:
            if not all(map(_AVRO_NAME.fullmatch, name.split("."))):
                raise Misfit(key, kind, f"a name of the schema that Avro allows, not {name}")
            if names.count(name) > 1:
                raise Misfit(key, kind, f"JSON, or one record of the name {name} alone: Avro allows each name once")


def _has_string_form(kind: AvroType) -> bool:
    if isinstance(kind, Record):
        return all(_has_string_form(field.slot.type) for field in kind.fields)
    if isinstance(kind, (Array, Map, Temporal)):
        return False
    return kind in _STRING_FORMS or isinstance(kind, (Enum, Narrow, Uuid))


def _names(kind: AvroType) -> Iterator[str]:
    for field in kind.fields if isinstance(kind, Record) else ():
        yield field.name
        yield from _names(field.slot.type)
