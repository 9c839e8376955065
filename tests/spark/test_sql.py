"""`Sql`: what a `SELECT` of a config makes of records, what it may not say, and records on which it fails."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from spark_batch.avro_types import Primitive
from spark_batch.outcome import Reason, Stage
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_transforms import value_schema
from spark_batch.transforms.cast import Cast, To
from spark_batch.transforms.catalog import (
    FieldName,
    HasHeaderKey,
    HoistField,
    InsertField,
    RecordIsTombstone,
    Side,
    Sql,
    Step,
    ValueToKey,
)
from tests.spark.engines import Engine, LocalEngine, rows, table
from tests.spark.test_rows import BASE, KINDS, batch
from tests.spark.test_rows import plan_of as rows_plan

JSON = ConverterSpec(ConverterKind.JSON)
AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=7)
SCHEMA = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long", "doc": "Its number."},
        {"name": "customer", "type": "string"},
        {"name": "pieces", "type": "int"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "coupon", "type": ["null", "string"], "default": None},
        {"name": "rate", "type": "double", "default": 1.0},
        {
            "name": "home",
            "type": {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "string"}]},
            "default": {"city": "K"},
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
ORDER = {"id": 1, "customer": "Ada", "pieces": 2, "amount": 12.50, "placed_at": 1_700_000_000_123}


def order(**changes: object) -> bytes:
    """A payload."""
    return json.dumps({**ORDER, **changes}).encode()


def plan_of(
    sql: str, *more: Step, value: ConverterSpec = JSON, rules: tuple[Rule, ...] = (), **keys: Any
) -> ConversionPlan:
    """A plan of one SELECT over orders, and of the steps behind it."""
    steps = (Step("picked", Sql(Side.VALUE, sql)), *more)
    contract = Contract(json.dumps(SCHEMA), rules)
    return ConversionPlan(PayloadFormat.JSON, contract, value_converter=value, transformations=steps, topic="t", **keys)


def converted(engine: Engine, plan: ConversionPlan, *payloads: bytes | None, keys: Any = None) -> pa.Table:
    """The outcome, once nothing is found wrong with the plan."""
    assert plan_findings(plan) == []
    assert engine.check(plan) == []
    return engine.convert(plan, table(payloads, keys=keys))


def values(outcome: pa.Table) -> list[Any]:
    """The values, read as JSON."""
    return [None if value is None else json.loads(value) for value in outcome.column("value").to_pylist()]


def test_expressions_aliases_and_a_star(local_engine: LocalEngine) -> None:
    """Fields keep their types and order, expressions come under their names."""
    plan = plan_of("SELECT *, upper(customer) AS loud, record.pieces * 2 twice, home.city FROM record")
    (value,) = values(converted(local_engine, plan, order()))
    assert list(value) == [*(field["name"] for field in SCHEMA["fields"]), "loud", "twice", "city"]  # type: ignore[index]
    assert (value["loud"], value["twice"], value["city"]) == ("ADA", 4, "K")


def test_a_star_without_some_fields(local_engine: LocalEngine) -> None:
    """`* EXCEPT (…)` leaves fields out."""
    plan = plan_of("SELECT * EXCEPT (home, tags, placed_at, rate, coupon, amount) FROM record")
    assert values(converted(local_engine, plan, order())) == [{"id": 1, "customer": "Ada", "pieces": 2}]


def test_the_schema_is_derived(local_engine: LocalEngine) -> None:
    """Names, types and nullability: what a reader of the registered schema gets is what was written."""
    plan = plan_of(
        "SELECT id AS number, coupon, pieces + 1 AS more, amount * 2 AS twice, to_date(placed_at) AS day,"
        " length(coupon) AS letters, rate > 0.5 AS is_high, CAST(pieces AS SMALLINT) AS few,"
        " transform(tags, t -> upper(t)) AS loud, current_timestamp > placed_at AS is_past FROM record",
        value=AVRO,
    )
    outcome = converted(local_engine, plan, order(tags=["a"], coupon="FREE"), order())
    schema: Any = json.loads(value_schema(plan) or "")
    fields: dict[str, Any] = {field["name"]: field for field in schema["fields"]}
    assert schema["name"] == "shop.Order"
    assert fields["number"] == {"name": "number", "type": "long", "doc": "Its number."}
    assert fields["coupon"] == {"name": "coupon", "type": ["null", "string"], "default": None}
    assert fields["more"]["type"] == "int"
    assert fields["twice"]["type"][1] == {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    assert fields["day"]["type"] == {"type": "int", "logicalType": "date"}
    assert fields["letters"] == {"name": "letters", "type": ["null", "int"], "default": None}
    assert fields["few"]["type"] == {"type": "int", "connect.type": "int16"}
    written: list[Any] = outcome.column("value").to_pylist()
    read: list[Any] = [fastavro.schemaless_reader(io.BytesIO(value[5:]), schema) for value in written]
    assert [row["letters"] for row in read] == [4, None]
    assert [row["loud"] for row in read] == [["A"], []]
    assert str(read[0]["twice"]) == "25.00"
    assert str(read[0]["day"]) == "2023-11-14"
    assert read[0]["is_past"] is True


def test_brackets_behind_the_words_of_a_select(local_engine: LocalEngine) -> None:
    """They are no calls of functions."""
    plan = plan_of("select (pieces + 1) AS x, (id) AS id FROM record where(pieces > 0) AND (customer IN ('Ada'))")
    assert values(converted(local_engine, plan, order())) == [{"x": 3, "id": 1}]


def test_where_drops_records(local_engine: LocalEngine) -> None:
    """Neither delivered nor rejected, as by `Filter`; null is not true; tombstones pass."""
    plan = plan_of("SELECT id FROM record WHERE length(coupon) > 1")
    payloads = [order(coupon="AB"), order(id=2), order(id=3, coupon="A"), None]
    outcome = converted(local_engine, plan, *payloads, keys=[b"1", b"2", b"3", b"4"])
    assert outcome.column("is_dropped").to_pylist() == [False, True, True, False]
    assert outcome.column("reason").to_pylist() == [None] * 4
    assert values(outcome)[0] == {"id": 1}
    assert values(outcome)[3] is None
    assert outcome.column("key").to_pylist()[3] == b"4"


@pytest.mark.parametrize(
    ("expression", "bad", "good"),
    [
        ("CAST(customer AS INT)", {"customer": "x"}, {"customer": "7"}),
        ("pieces + 2147483647", {"pieces": 1}, {"pieces": 0}),
        ("CAST(id AS INT)", {"id": 1 << 40}, {"id": 1}),
        ("10 / pieces", {"pieces": 0}, {"pieces": 5}),
        ("rate * 1e308", {"rate": 1e10}, {"rate": 1.0}),
        ("tags[1]", {"tags": ["a"]}, {"tags": ["a", "b"]}),
        ("CAST(customer AS DATE)", {"customer": "2024-13-01"}, {"customer": "2024-12-01"}),
    ],
)
def test_an_expression_that_fails_rejects_its_record_alone(
    local_engine: LocalEngine, expression: str, bad: dict[str, Any], good: dict[str, Any]
) -> None:
    """In ANSI mode an overflow or a bad cast is an error, of this record and at this stage; its neighbours go on."""
    plan = plan_of(f"SELECT id, {expression} AS x FROM record")  # noqa: S608 - no query
    outcome = converted(local_engine, plan, *[order(**good), order(**bad)] * 40, order(**good))
    assert outcome.column("reason").to_pylist() == [None, Reason.EXPRESSION_FAILED] * 40 + [None]
    assert set(outcome.column("stage").to_pylist()) == {None, Stage.TRANSFORMATION}
    assert "picked" in str(outcome.column("message").to_pylist()[1])
    assert outcome.column("value").to_pylist()[1] is None
    assert values(outcome)[0]["x"] is not None


def test_suspicious_records_take_the_same_way(local_engine: LocalEngine) -> None:
    """Records that the swift path leaves to the exact one are transformed, dropped and rejected like the others."""
    plan = plan_of("SELECT id, 10 / pieces AS x FROM record WHERE customer <> 'drop'")
    odd = b'{"id": 1, "customer": "A\\u0064a", "pieces": 5, "amount": 1.25e1, "placed_at": "2024-01-01T00:00:00Z"}'
    rows_of = [odd, odd.replace(b'"pieces": 5', b'"pieces": 0'), odd.replace(b"A\\u0064a", b"d\\u0072op")]
    outcome = converted(local_engine, plan, *rows_of, order())
    assert outcome.column("reason").to_pylist() == [None, Reason.EXPRESSION_FAILED, None, None]
    assert outcome.column("is_dropped").to_pylist() == [False, False, True, False]
    assert values(outcome)[0] == {"id": 1, "x": 2.0}


def test_steps_around_it(local_engine: LocalEngine) -> None:
    """It sees what the steps before have made, and those behind see what it makes; two of them in one chain."""
    steps = (
        Step("more", InsertField(Side.VALUE, static=FieldName("source"), static_value="file")),
        Step("second", Sql(Side.VALUE, "SELECT concat(source, '-', n) AS s, n FROM record WHERE n > 1")),
        Step("typed", Cast(Side.VALUE, casts=(("n", To(Primitive.STRING)),))),
    )
    plan = plan_of("SELECT pieces AS n FROM record WHERE pieces < 9", *steps)
    outcome = converted(local_engine, plan, *(order(pieces=n) for n in (1, 2, 9)))
    assert values(outcome)[1] == {"s": "file-2", "n": "2"}
    assert outcome.column("is_dropped").to_pylist() == [True, False, True]


def test_keys(local_engine: LocalEngine) -> None:
    """Of `$Key` the record is the key, made of fields of the value."""
    steps = (
        Step("keyed", ValueToKey(Side.KEY, fields=("id", "customer"))),
        Step("key", Sql(Side.KEY, "SELECT id % 10 AS shard FROM record WHERE customer <> 'x'")),
        Step("value", Sql(Side.VALUE, "SELECT pieces FROM record"), RecordIsTombstone(), is_negated=True),
    )
    plan = ConversionPlan(
        PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), value_converter=JSON, key_converter=JSON,
        transformations=steps, topic="t",
    )  # fmt: skip
    outcome = converted(local_engine, plan, order(id=12), order(customer="x"))
    assert outcome.column("key").to_pylist()[0] == b'{"shard":2}'
    assert outcome.column("is_dropped").to_pylist() == [False, True]
    assert values(outcome)[0] == {"pieces": 2}


def test_lines_that_were_hoisted(local_engine: LocalEngine) -> None:
    """Lines have no fields; hoisted they have one."""
    steps = (
        Step("hoisted", HoistField(Side.VALUE, "line")),
        Step(
            "cut",
            Sql(
                Side.VALUE,
                "SELECT split_part(line, ',', 1) AS a, CAST(split_part(line, ',', 2) AS INT) AS b FROM record",
            ),
        ),
    )
    plan = ConversionPlan(PayloadFormat.TEXT, value_converter=JSON, transformations=steps, topic="t")
    outcome = converted(local_engine, plan, b"x,7", b"x,y", None)
    assert values(outcome)[0] == {"a": "x", "b": 7}
    assert outcome.column("reason").to_pylist() == [None, Reason.EXPRESSION_FAILED, None]


def test_rules_come_first(local_engine: LocalEngine) -> None:
    """A record that breaks a rule is rejected for it, even where the SELECT would drop it or fail."""
    rules = (Rule("some", "pieces > 0"), Rule("sure", "10 / id > 0"))
    plan = plan_of("SELECT 10 / pieces AS x FROM record WHERE pieces <> 2", rules=rules)
    outcome = converted(local_engine, plan, order(pieces=0), order(pieces=2), order(pieces=5))
    assert outcome.column("reason").to_pylist() == [Reason.RULE_FAILED, None, None]
    assert outcome.column("is_dropped").to_pylist() == [False, True, False]


LARGE = ", ".join(f"concat(customer, customer, '{at}') AS c{at}" for at in range(9))
REFUSED = {
    "SELECT customer FROM record JOIN other": "JOIN",
    "SELECT customer FROM record, other": "",
    "SELECT customer FROM record GROUP BY customer": "GROUP BY",
    "SELECT customer FROM record ORDER BY customer": "ORDER BY",
    "SELECT customer FROM record LIMIT 3": "LIMIT",
    "SELECT DISTINCT customer FROM record": "DISTINCT",
    "SELECT customer FROM record WHERE id IN (SELECT 1)": "subquery",
    "SELECT customer FROM record WHERE id > 1 GROUP BY customer": "GROUP BY",
    "SELECT count(*) AS n FROM record": "count",
    "SELECT sum(pieces) AS n FROM record": "sum",
    "SELECT max(pieces) AS n FROM record WHERE id > 1": "max",
    "SELECT row_number() OVER (ORDER BY id) AS n FROM record": "row_number",
    "SELECT java_method('java.lang.System', 'getenv', customer) AS n FROM record": "java_method",
    "SELECT `reflect`('java.lang.System', 'getenv', customer) AS n FROM record": "reflect",
    "SELECT explode(tags) AS n FROM record": "explode",
    "SELECT a.customer FROM record a": "",
    "SELECT customer FROM text.`/etc/passwd`": "",
    "SELECT customer FROM record UNION SELECT customer FROM record": "UNION",
    "SELECT pieces + 1 FROM record": "name",
    "SELECT pieces AS a, id AS a FROM record": "a",
    "SELECT nobody FROM record": "nobody",
    "SELECT customer AS x FROM record WHERE pieces": "WHERE",
    "SELECT customer AS x FROM record WHERE rlike(customer, customer)": "pattern",
    "SELECT named_struct('a', 1) AS s FROM record": "named_struct",
    "SELECT NULL AS n FROM record": "void",
    "SELECT ${env:HOME} AS n FROM record": "${",
    "SELECT repeat(customer, 1000) AS n FROM record": "repeat",
    "SELECT customer || pieces + AS n FROM record": "",
    "DROP TABLE record": "",
    f"SELECT {LARGE} FROM record": "size",  # noqa: S608 - no query
    "SELECT customer FROM record LATERAL VIEW explode(tags) t AS tag": "explode",
    "SELECT customer FROM record TABLESAMPLE (1 ROWS)": "TABLESAMPLE",
    "WITH x AS (SELECT 1) SELECT customer FROM record": "",
    "SELECT CAST(customer AS DECIMAL(38, 2)) AS d FROM record": "decimal(38,2)",
    "SELECT customer::variant AS d FROM record": "variant",
    "SELECT stack(2, 1, 2) AS (a, b) FROM record": "stack",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_a_select_may_not_say(local_engine: LocalEngine, sql: str) -> None:
    """Everything that is not allowed is a finding with its name, before a record is read."""
    plan = plan_of(sql)
    # What can be told without Spark is; once Spark was asked, its answer is known without it.
    early = plan_findings(plan)
    (finding,) = early or local_engine.check(plan)
    assert plan_findings(plan) == [finding]
    assert (finding.key, finding.value) == ("transforms.picked.sql", sql)
    told = finding.expected
    assert REFUSED[sql].lower() in told.lower()
    assert "not allowed" in told


def test_nothing_gets_past_spark_alone(local_engine: LocalEngine) -> None:
    """The look without Spark is no wall: what it lets through meets Spark's parser and the judge."""
    for sql in REFUSED:
        assert local_engine.check(plan_of(sql)), sql


def test_where_there_are_no_types(local_engine: LocalEngine) -> None:
    """JSON without a contract, lines without fields, keys of text: findings that say what is needed."""
    steps = (Step("picked", Sql(Side.VALUE, "SELECT a FROM record")),)
    loose = ConversionPlan(PayloadFormat.JSON, value_converter=JSON, transformations=steps, topic="t")
    lines = ConversionPlan(PayloadFormat.TEXT, value_converter=JSON, transformations=steps, topic="t")
    of_key = ConversionPlan(
        PayloadFormat.TEXT, value_converter=JSON, topic="t",
        transformations=(Step("h", HoistField(Side.KEY, "k")), Step("p", Sql(Side.KEY, "SELECT k FROM record"))),
    )  # fmt: skip
    for plan, key, word in (
        (loose, "transforms.picked.type", "contract.schema"),
        (lines, "transforms.picked.type", "record"),
        (of_key, "transforms.p.type", "key.fields"),
    ):
        (finding,) = [*plan_findings(plan), *local_engine.check(plan)][:1]
        assert finding.key == key
        assert word in finding.expected


def test_spark_connect_is_refused(connect_engine: Engine) -> None:
    """Its server's expressions are out of reach; the finding says what is needed."""
    (finding,) = connect_engine.check(plan_of("SELECT id FROM record"))
    assert "spark.master" in finding.expected


def test_many_failing_records_need_no_job_of_their_own(local_engine: LocalEngine) -> None:
    """Where rules are tried by halves, and a task fails on too many, here each record says it by itself."""
    plan = plan_of("SELECT CAST(customer AS INT) AS n FROM record")
    outcome = converted(local_engine, plan, *(order(customer="x" if at % 2 else "1") for at in range(3_000)))
    assert outcome.column("reason").null_count == 1_500
    assert rows(outcome)[0]["value"] == b'{"n":1}'


def test_rows_and_their_keys(local_engine: LocalEngine) -> None:
    """Rows of a database: what is taken as it is keeps its type; tombstones pass, with keys that are transformed."""
    steps = (
        Step("v", Sql(Side.VALUE, "SELECT id + 1 AS next, wide, small FROM record WHERE id <> 3")),
        Step("k", Sql(Side.KEY, "SELECT id * 10 AS tens FROM record")),
    )
    base = replace(BASE, transformations=steps, value_converter=JSON, key_converter=JSON)
    plan = rows_plan(base, has_key=True)
    assert local_engine.check(plan) == []
    full = dict.fromkeys(field.name for field in KINDS)
    wide, most = Decimal(10) ** 54, (1 << 63) - 1
    found = local_engine.convert(
        plan,
        batch(
            [
                {**full, "id": 1, "wide": wide, "small": 5},
                {**full, "id": 3},
                None,
                {**full, "id": most},
            ],
            keys=[{"id": at, "name": "a"} for at in (1, 3, 4, 5)],
        ),
    )
    assert found.column("message").to_pylist()[0] is None
    assert found.column("is_dropped").to_pylist()[:3] == [False, True, False]
    value = json.loads(found.column("value").to_pylist()[0] or b"")
    assert (value["next"], value["small"]) == (2, 5)
    assert found.column("key").to_pylist()[2] == b'{"tens":40}'
    assert found.column("reason").to_pylist() == [None, None, None, Reason.EXPRESSION_FAILED]


def test_records_that_a_predicate_keeps_from_it(local_engine: LocalEngine) -> None:
    """They have the exact path, as in a chain without it."""
    steps = (
        Step("picked", Sql(Side.VALUE, "SELECT id, customer FROM record"), HasHeaderKey("h")),
        Step("typed", Cast(Side.VALUE, casts=(("customer", To(Primitive.DOUBLE)),))),
    )
    plan = ConversionPlan(
        PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), value_converter=JSON, transformations=steps, topic="t"
    )
    payload = order(customer="0x1p3")
    assert values(converted(local_engine, plan, payload))[0]["customer"] == 8.0
    with_header = replace(plan, headers=frozenset({"h"}))
    assert converted(local_engine, with_header, payload).column("reason").to_pylist() == [Reason.EXPRESSION_FAILED]
    assert values(converted(local_engine, with_header, order(customer="2.5"))) == [{"id": 1, "customer": 2.5}]


def test_rows_whose_schema_is_still_to_come(local_engine: LocalEngine) -> None:
    """Their texts are judged all the same, before the first row; what depends on the schema is left to it."""
    for sql, word in {
        "SELECT *, id + 1 AS next, inner.a FROM record WHERE name = 'x'": "",
        "SELECT `reflect`('java.lang.System', 'getenv', name) AS n FROM record": "reflect",
        "SELECT IDENTIFIER('java_' || 'method')('x', 'y') AS n FROM record": "not allowed",
        "SELECT repeat(name, 1000) AS n FROM record": "repeat",
    }.items():
        plan = replace(BASE, transformations=(Step("picked", Sql(Side.VALUE, sql)),))
        found = plan_findings(plan) or local_engine.check(plan)
        assert [word in finding.expected for finding in found] == ([True] if word else []), sql
