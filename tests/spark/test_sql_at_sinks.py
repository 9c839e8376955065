"""`Sql` at a sink says what it says at a source: of every type, in chains, of records that it drops or fails on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from metrics.events import RetryScheduled
from service.domain.errors import PoisonedBatchError
from service.sinks.batch import Form
from service.sinks.converters import ColumnReader, EnvelopeReader, JsonReader, TextReader
from service.sinks.decoding import VALUE_STAGE, Decoded
from service.sinks.transforms.selecting import select_plan
from service.sinks.transforms.stage import TRANSFORMATION_STAGE
from spark_batch.avro_types import Primitive
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_transforms import value_schema
from spark_batch.transforms.cast import Cast, To
from spark_batch.transforms.catalog import (
    FieldName,
    HasHeaderKey,
    HeaderFrom,
    HoistField,
    InsertField,
    RecordIsTombstone,
    Side,
    Sql,
    Step,
    TopicNameMatches,
    ValueToKey,
)
from tests.spark.engines import Engine, LocalEngine, table
from tests.spark.sinks_by_engines import At
from tests.spark.test_sql import ORDER, REFUSED, SCHEMA
from tests.unit.sinks.fake_library import polled
from tests.unit.sinks.test_sink_decoding import Registry, avro_reader, framed

EVERY_TYPE: Any = {
    "type": "record",
    "name": "every.Type",
    "fields": [
        {"name": "yes", "type": "boolean"},
        {"name": "few", "type": "int"},
        {"name": "many", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "rate", "type": "double"},
        {"name": "text", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {
            "name": "home",
            "type": {
                "type": "record",
                "name": "Home",
                "fields": [
                    {"name": "city", "type": "string"},
                    {"name": "floors", "type": {"type": "array", "items": ["null", "int"]}},
                ],
            },
        },
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "maybe_day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ],
}
ONLY_AVRO: Any = [
    {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "suit", "type": {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}},
    {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "fixed", "type": {"type": "fixed", "name": "Two", "size": 2}},
    {"name": "later", "type": {"type": "long", "logicalType": "time-micros"}},
]
"""Types that Connect has no word for."""
FULL = {
    "yes": True, "few": -7, "many": 1 << 53, "single": 0.5, "rate": -2.25, "text": "grüße", "raw": "AQID",
    "money": -12.345, "day": "2024-02-29", "at": "2024-02-29T23:59:59.999Z", "time": "12:34:56.789",
    "tags": ["a", ""], "counts": {"x": 1, "y": -1}, "home": {"city": "K", "floors": [1, None]},
    "maybe": "there", "maybe_day": "1969-12-31",
    "micros": "2024-02-29T23:59:59.999999Z", "local": "2024-02-29T23:59:59.999999", "suit": "SPADES",
    "token": "00000000-0000-4000-8000-000000000000", "fixed": "AQI=", "later": "12:34:56.789012",
}  # fmt: skip
SPARE = {**FULL, "maybe": None, "maybe_day": None, "tags": [], "counts": {}, "home": {"city": "", "floors": []}}
SQL = (
    "SELECT *, few + 1 AS more, many * 2 AS twice, CAST(few AS SMALLINT) AS small, rate / 2 AS half,"
    " upper(text) AS loud,"
    " concat(raw, raw) AS doubled, money * 2 AS gain, date_add(day, 1) AS tomorrow, at AS same, to_date(at) AS at_day,"
    " transform(tags, t -> upper(t)) AS loud_tags, home.city AS town, coalesce(maybe, 'none') AS sure,"
    " maybe_day > day AS is_later, map_keys(counts) AS names, NOT yes AS no FROM record"
)
AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=7)
ENVELOPED = ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)


def sql(text: str, side: Side = Side.VALUE, *more: Any, **keys: Any) -> Step:
    """A step."""
    return Step("picked", Sql(side, text), *more, **keys)


def registry_of(*schemas: Any) -> Registry:
    """Numbered from 7."""
    return Registry(dict(enumerate(schemas, start=7)))


def orders(*changes: dict[str, Any]) -> list[bytes | None]:
    """Orders as Connect writes them with their schema."""
    schema = {
        "type": "struct",
        "name": "shop.Order",
        "fields": [
            {"field": "id", "type": "int64"},
            {"field": "customer", "type": "string"},
            {"field": "pieces", "type": "int32", "default": 1},
            {"field": "coupon", "type": "string", "optional": True},
        ],
    }
    order = {"id": 1, "customer": "Ada", "pieces": 2}
    return [json.dumps({"schema": schema, "payload": {**order, **each}}).encode() for each in changes]


def rows_of(decoded: Decoded) -> list[Any]:
    """All values that the sink is handed."""
    return [value for batch in decoded.batches for value in batch.records["value"].to_pylist()]


def offsets_of(decoded: Decoded) -> list[int]:
    """Of all records that the sink is handed."""
    columns: list[Any] = [batch.records["offset"].to_pylist() for batch in decoded.batches]
    return [offset for column in columns for offset in column]


def written(engine: Engine, schema: Any, payloads: Sequence[object], *steps: Step, spec: ConverterSpec) -> list[Any]:
    """What a source writes of payloads; and the schema that it registers."""
    contract = Contract(json.dumps(schema))
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=spec, transformations=steps, topic="t")
    assert plan_findings(plan) == []
    assert engine.check(plan) == []
    outcome = engine.convert(plan, table([json.dumps(each).encode() for each in payloads]))
    assert outcome["message"].to_pylist() == [None] * len(payloads)
    return [outcome["value"].to_pylist(), value_schema(plan)]


@pytest.mark.parametrize("form", ["avro", "json"])
async def test_values_are_those_of_a_source(local_engine: LocalEngine, form: str) -> None:
    """A sink behind a source with `Sql` is handed what a sink with `Sql` is handed behind the source without."""
    is_avro = form == "avro"
    schema = {**EVERY_TYPE, "fields": [*EVERY_TYPE["fields"], *(ONLY_AVRO if is_avro else ())]}
    names = [each["name"] for each in schema["fields"]]
    payloads = [{name: each[name] for name in names} for each in (FULL, SPARE)]
    selected, after = written(local_engine, schema, payloads, sql(SQL), spec=AVRO)
    plain, before = written(local_engine, schema, payloads, spec=AVRO if is_avro else ENVELOPED)
    at_source = await At(local_engine, (), avro_reader(registry_of(json.loads(after)))).decode(polled(selected))
    reader = avro_reader(registry_of(json.loads(before))) if is_avro else EnvelopeReader()
    at_sink = await At(local_engine, (sql(SQL),), reader).decode(polled(plain))
    assert at_sink.refusals == []
    assert rows_of(at_sink) == rows_of(at_source)
    assert len(rows_of(at_sink)) == 2
    (batch,) = at_sink.batches
    assert batch.value.form is Form.RECORD
    if is_avro:
        assert json.loads(batch.value.schema or "") == json.loads(after)
        assert batch.records.schema.field("value") == at_source.batches[0].records.schema.field("value")


async def test_one_job_for_each_schema_and_one_question(local_engine: LocalEngine) -> None:
    """However many topics, keys and partitions a poll mixes; the plan of a schema is the same in the next poll."""
    first, second = ({"type": "record", "name": name, "fields": [{"name": "n", "type": "long"}]} for name in "ab")
    reader = avro_reader(registry_of(first, second))
    sink = At(local_engine, (sql("SELECT n + 1 AS n FROM record"),), reader)
    values: list[bytes | None] = [
        framed(7 + number % 2, (first, second)[number % 2], {"n": number}) for number in range(9)
    ]
    poll = pa.concat_tables([polled(values, topic="a"), polled(values, topic="b", partition=3)])
    for _ in range(2):
        decoded = await sink.decode(poll)
        assert [row["n"] for row in rows_of(decoded)] == [*range(1, 10)] * 2
    assert len(sink.spark.plans) == 4
    assert len(set(sink.spark.plans)) == 2
    assert len(sink.spark.asked) == 2


async def test_dropped_and_failing_records_and_tombstones(local_engine: LocalEngine) -> None:
    """`WHERE` drops, an error refuses its record alone, and what has no value passes; all in their order."""
    sink = At(
        local_engine, (sql("SELECT id, 10 / pieces AS x FROM record WHERE customer <> 'drop'"),), EnvelopeReader()
    )
    values = orders({"id": 0}, {"pieces": 0}, {"customer": "drop"}, {"id": 3}, {"customer": "drop", "pieces": 0})
    decoded = await sink.decode(polled([*values, None, b"{", *orders({"id": 7})]))
    assert rows_of(decoded) == [{"id": 0, "x": 5.0}, {"id": 3, "x": 5.0}, None, {"id": 7, "x": 5.0}]
    assert offsets_of(decoded) == [0, 3, 5, 7]
    assert decoded.filtered == 2
    assert decoded.left_out(8).tolist() == [1, 2, 4, 6]
    told = {refusal.row: (refusal.stage, refusal.reason, refusal.class_name) for refusal in decoded.refusals}
    assert told[1] == (TRANSFORMATION_STAGE, "expression_failed", "headrace.transforms.Sql$Value")
    assert told[6][0] == VALUE_STAGE
    assert "picked" in next(refusal.message for refusal in decoded.refusals if refusal.row == 1)


async def test_all_of_a_poll_dropped_or_refused(local_engine: LocalEngine) -> None:
    """Nothing is left for the sink, and everything is accounted for."""
    for text, filtered in (("SELECT id FROM record WHERE id > 99", 3), ("SELECT 1 / (pieces - 2) AS x FROM record", 0)):
        decoded = await At(local_engine, (sql(text),), EnvelopeReader()).decode(polled(orders({}, {}, {})))
        assert (decoded.batches, decoded.filtered, len(decoded.refusals)) == ([], filtered, 3 - filtered)


async def test_a_chain_with_predicates_and_headers(local_engine: LocalEngine) -> None:
    """It sees what steps before made, those behind see what it made; predicates choose by topic and header."""
    steps = (
        Step("more", InsertField(Side.VALUE, offset=FieldName("o"))),
        sql("SELECT id, o, concat(customer, '!') AS c FROM record WHERE id < 9", Side.VALUE, TopicNameMatches("lines")),
        Step("again", Sql(Side.VALUE, "SELECT o + 1 AS o, c FROM record"), HasHeaderKey("h"), is_negated=True),
        Step("typed", Cast(Side.VALUE, casts=(("o", To(Primitive.STRING)),)), TopicNameMatches("lines")),
        Step("told", HeaderFrom(Side.VALUE, fields=("c",), headers=("c",), is_moved=True), TopicNameMatches("lines")),
    )
    poll = polled(orders({}, {"id": 9}, {"id": 5}))
    kind = poll.schema.field("headers").type
    heads: Any = pa.array([None, None, [{"name": "h", "value": b""}]], kind)
    poll = poll.set_column(poll.schema.get_field_index("headers"), "headers", heads)
    poll = pa.concat_tables([poll, polled(orders({"id": 99}), topic="others")])
    decoded = await At(local_engine, steps, EnvelopeReader()).decode(poll)
    (refusal,) = decoded.refusals
    assert (refusal.row, refusal.reason) == (3, "wrong_type")
    assert "the name c" in refusal.message
    assert decoded.filtered == 1
    by_place = {
        (topic, offset): (value, headers)
        for batch in decoded.batches
        for topic, offset, value, headers in zip(
            *(batch.records[name].to_pylist() for name in ("topic", "offset", "value", "headers")), strict=True
        )
    }
    assert by_place["lines", 0][0] == {"o": "1"}
    assert [(each["name"], each["value"]) for each in by_place["lines", 0][1]] == [("c", b"Ada!")]
    assert by_place["lines", 2][0] == {"id": 5, "o": "2"}
    assert len(by_place) == 2


async def test_keys(local_engine: LocalEngine) -> None:
    """`$Key` makes keys of what `ValueToKey` has made, and its `WHERE` drops the record."""
    steps = (
        Step("keyed", ValueToKey(Side.KEY, fields=("id", "customer")), RecordIsTombstone(), is_negated=True),
        sql("SELECT id % 10 AS shard FROM record WHERE customer <> 'x'", Side.KEY),
    )
    decoded = await At(local_engine, steps, EnvelopeReader()).decode(polled(orders({"id": 12}, {"customer": "x"})))
    assert [key for batch in decoded.batches for key in batch.records["key"].to_pylist()] == [{"shard": 2}]
    assert json.loads(rows_of(decoded)[0])["id"] == 12
    assert decoded.filtered == 1


async def test_lines_that_were_hoisted(local_engine: LocalEngine) -> None:
    """Texts have no fields; hoisted they have one."""
    steps = (Step("hoisted", HoistField(Side.VALUE, "line")), sql("SELECT upper(line) AS loud FROM record"))
    decoded = await At(local_engine, steps, TextReader()).decode(polled([b"a", b"b"]))
    assert rows_of(decoded) == [{"loud": "A"}, {"loud": "B"}]


@pytest.mark.parametrize(
    ("reader", "value", "reason"),
    [
        (TextReader(), b"text", "wrong_type"),
        (JsonReader(), b'{"id": 1}', "no_schema"),
        (EnvelopeReader(), b'{"schema":{"type":"string"},"payload":"x"}', "wrong_type"),
        (EnvelopeReader(), b'{"schema":null,"payload":{"id":1}}', "no_schema"),
        (EnvelopeReader(), orders({"id": "no number"})[0], "wrong_type"),
        (
            EnvelopeReader(),
            b'{"schema":{"type":"struct","fields":[{"field":"no-name","type":"int32"}]},"payload":{}}',
            "wrong_type",
        ),
        (avro_reader(Registry()), framed(3, "string", "x"), "wrong_type"),
        (
            EnvelopeReader(),
            b'{"schema":{"type":"struct","fields":[{"field":"b","type":"int32"}]},"payload":{"b":1}}',
            "wrong_type",
        ),
    ],
)
async def test_records_without_such_fields_are_refused(
    local_engine: LocalEngine, reader: ColumnReader, value: bytes, reason: str
) -> None:
    """By themselves, in words that say what is needed; nobody else's record is held up."""
    sink = At(local_engine, (sql("SELECT id FROM record"),), reader)
    decoded = await sink.decode(polled([value, None]))
    (refusal,) = decoded.refusals
    assert (refusal.row, refusal.stage, refusal.reason) == (0, TRANSFORMATION_STAGE, reason)
    assert refusal.message
    assert rows_of(decoded) == [None]


async def test_a_lost_spark_is_waited_for(local_engine: LocalEngine) -> None:
    """The same records go again, alone after two losses; they come out once. Lost for ever, the task is told so."""
    sink = At(local_engine, (sql("SELECT id FROM record"),), EnvelopeReader())
    sink.spark.lost = 3
    assert rows_of(await sink.decode(polled(orders({"id": 5})))) == [{"id": 5}]
    assert sink.spark.alone == [False, False, True, True]
    assert len([event for event in sink.events if isinstance(event, RetryScheduled) and event.stage == "convert"]) == 3
    sink.spark.lost = 4
    with pytest.raises(PoisonedBatchError, match="lost 4 times"):
        await sink.decode(polled(orders({})))


BY_RECORD = {
    "SELECT nobody FROM record",
    "SELECT customer AS x FROM record WHERE pieces",
    "SELECT NULL AS n FROM record",
    "SELECT CAST(customer AS DECIMAL(38, 2)) AS d FROM record",
    "SELECT customer || pieces + AS n FROM record",
} | {text for text, word in REFUSED.items() if word == "size"}
"""Refused because of the record's types, which at a sink are known when records come."""


@pytest.mark.parametrize("text", REFUSED)
async def test_what_a_select_may_not_say(local_engine: LocalEngine, text: str) -> None:
    """What is refused at sources is refused at sinks, before records come or for each; nothing is carried out."""
    step = sql(text)
    found = plan_findings(select_plan([step])) or local_engine.check(select_plan([step]))
    if text not in BY_RECORD:
        (finding,) = found
        assert finding.key == "transforms.picked.sql"
        assert REFUSED[text].lower() in finding.expected.lower()
    sink = At(local_engine, (step,), avro_reader(registry_of(SCHEMA)))
    record = {**ORDER, "amount": "1.00", "coupon": None, "rate": 1.0, "home": {"city": "K"}, "tags": []}
    plain, _ = written(local_engine, SCHEMA, [record | {"amount": 1}], spec=AVRO)
    decoded = await sink.decode(polled(plain))
    assert len(decoded.refusals) == 1
    assert "not allowed" in decoded.refusals[0].message
    assert sink.spark.plans == []


def test_honest_texts_are_not_refused_before_records_come(local_engine: LocalEngine) -> None:
    """Names and types that nobody knows yet are no reason."""
    for text in (
        SQL,
        "SELECT * EXCEPT (a), record.b.c AS d FROM record WHERE e IN (1, 2) AND f['x'] > 1",
        "SELECT filter(a, x -> x.b = c) AS d, array_distinct(e) AS g, CAST(h AS DECIMAL(9, 2)) AS i FROM record",
    ):
        plan = select_plan([sql(text)])
        assert (plan_findings(plan) or local_engine.check(plan)) == [], text


def test_spark_connect_is_refused_before_records_come(connect_engine: Engine) -> None:
    """As at sources."""
    (finding,) = connect_engine.check(select_plan([sql("SELECT id FROM record")]))
    assert "spark.master" in finding.expected
