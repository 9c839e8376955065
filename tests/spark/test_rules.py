"""Rules of contracts: what a config may have Spark do, and what it may not, whatever its spelling."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.rules.allowed import BRACKETS_MAX, FUNCTIONS, TEXT_CHARACTERS_MAX
from spark_batch.rules.columns import rule_columns, rule_findings
from spark_batch.rules.tree import RuleRefused
from tests.spark.engines import Engine, table

JSON = ConverterSpec(ConverterKind.JSON)
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "currency", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "text", "type": "string", "default": "a-1"},
        {"name": "other", "type": "string", "default": "b"},
        {"name": "number", "type": "long", "default": 7},
        {"name": "real", "type": "double", "default": 1.5},
        {"name": "flag", "type": "boolean", "default": True},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 19_000},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1_600_000_000_000},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x", "y"]},
        {"name": "counts", "type": {"type": "map", "values": "long"}, "default": {"x": 1}},
        {"name": "items", "type": {"type": "array", "items": ITEM}, "default": []},
    ],
}
ITEMS = [{"id": 1, "currency": "EUR", "tags": ["x"]}, {"id": 2, "currency": "EUR", "tags": []}]
GET_USER = "'java.lang.System', 'getProperty', 'user.name'"
ATTACKS = {
    f"java_method({GET_USER}) is not null": "java_method",
    f"reflect({GET_USER}) is not null": "reflect",
    f"try_reflect({GET_USER}) is not null": "try_reflect",
    f"upper(coalesce(text, Java_Method({GET_USER}))) = 'X'": "Java_Method",
    f"`java_method`({GET_USER}) is not null": "java_method",
    f"system.builtin.java_method({GET_USER}) is not null": "system.builtin.java_method",
    f"`system`.`builtin`.`upper`({GET_USER}) = 'X'": "system.builtin.upper",
    f"IDENTIFIER('java_' || 'method')({GET_USER}) is not null": "IDENTIFIER",
    "IDENTIFIER('text') = 'a'": "IDENTIFIER",
    "exists(tags, t -> reflect('java.lang.System', 'getenv', t) is not null)": "reflect",
    "(select count(*) from text.`/etc/passwd`) > 0": "a subquery",
    "exists (select 1 from csv.`/etc/passwd`)": "a subquery",
    "text in (select value from text.`/etc/passwd`)": "a subquery",
    "(select transform(text) using 'touch /tmp/headrace-rule' as (x) from values (1) as t(text)) = 'x'": "a subquery",
    "from_avro(cast(text as binary), '{}', map('avroSchemaUrl', 'http://127.0.0.1:1/x')) is null": "from_avro",
    "from_xml(text, 'a int', map('rowValidationXSDPath', '/etc/passwd')) is null": "from_xml",
    "from_json(text, 'a int', map('mode', 'x')) is null": "from_json",
    "from_csv(text, 'a int') is null": "from_csv",
    "text = '${env:HOME}'": "${…}",
    "text = '${system:user.name}'": "${…}",
    "text = '${hiveconf:x}'": "${…}",
    "current_user() = 'x'": "current_user",
    "current_user = 'x'": "the name current_user",
    "current_catalog = 'x'": "the name current_catalog",
    "version() = 'x'": "version",
    "input_file_name() = 'x'": "input_file_name",
    "length(repeat('a', 2000000000)) > 1": "repeat",
    "size(sequence(1, 1000000000000)) > 1": "sequence",
    "length(rpad('a', 2000000000, 'b')) > 1": "rpad",
    "length(lpad('a', 2000000000, 'b')) > 1": "lpad",
    "length(space(2000000000)) > 1": "space",
    "size(array_repeat(1, 2000000000)) > 1": "array_repeat",
    "length(format_number(number, 2000000000)) > 1": "format_number",
    "length(format_string('%2000000000d', number)) > 1": "format_string",
    "round(real, 2000000000) > 1": "round to so many digits",
    "round(real, number) > 1": "round of two values",
    "cast(text as decimal(10,2)) > 1": "a cast to decimal(10,2)",
    "aggregate(array(1,2), text, (a, x) -> concat(a, a)) = 'x'": "aggregate",
    "length(concat({})) > 1".format(", ".join(["text"] * 17)): "concat that may make so much",
    "length({}) > 1".format(" || ".join(["text"] * 17)): "|| that may make so much",
    "length(replace(replace(text, 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa')) > 1": "replace that may make so much",
    "exists(array(concat(text, text)), x -> exists(array(concat(x, x)), y -> y = 'b'))": "exists in a lambda",
    "exists(tags, x -> length(concat(x, x)) > 1)": "concat in a lambda",
    "exists(tags, x -> exists(tags, y -> x < y))": "exists in a lambda",
    "exists(tags, x -> length(text) > 1)": "text in a lambda",
    "exists(items, i -> exists(i.tags, t -> length(i.currency) > 1))": "i.currency in a lambda",
    "levenshtein(text, other) > 1": "levenshtein",
    "contains(text, other)": "contains of two values",
    "size(array_distinct(items)) = size(items)": "array_distinct of these arrays",
    "text like '%a%b%c'": "LIKE '%a%b%c'",
    "text like other": "LIKE with a pattern that is not a literal",
    "text ilike any ('%a%b%c')": "LIKE ANY",
    "text rlike other": "RLike with a pattern that is not a literal",
    "regexp_like(text, other)": "RLike with a pattern that is not a literal",
    r"text rlike '(a)\\1'": "the pattern",
    "text rlike '(?=a)'": "the pattern",
    "text rlike '((a{900}){900}){900}'": "the pattern",
    "regexp_replace(text, '(a+)+$', 'b') = 'x'": "regexp_replace",
    "regexp_extract(text, '(a+)+$', 1) = 'x'": "regexp_extract",
    "size(split(text, '(a+)+$')) > 1": "split by a pattern",
    "array_sort(tags, (a, b) -> 1)[0] = 'x'": "a lambda",
    "text collate UNICODE = 'x'": "COLLATE",
    "rand() > 0.5": "rand",
    "sum(number) > 1": "sum",
    "first(number) > 1": "an aggregate",
    "row_number() over (order by number) > 1": "a window",
    "* = 1": "a star",
    "`te.*` = 1": "the name te.*",
    "text = :name": "a parameter",
    "__headrace_payload = 'x'": "the name __headrace_payload",
    "mask(text, upperChar => 'X') = 'x'": "an argument by name",
    "true as flag": "a name for the result",
    "upper(text) filter (where flag) = 'A'": "upper with",
    "not " * 150 + "flag": "an expression of that size",
    "(" * (BRACKETS_MAX + 1) + "flag" + ")" * (BRACKETS_MAX + 1): "brackets",
    "case when flag then " * 60 + "true" + " end" * 60: "so many CASEs",
    f"flag or '{'a' * TEXT_CHARACTERS_MAX}' = text": "characters",
}
HONEST = (
    "number > 1 and number <= 7 or not flag",
    "number between 1 and 10 and number in (1, 7, 9) and number not in (2)",
    "real * 2 + number % 3 - 1 > number / 4 and number div 2 = 3 and -number < 0 and abs(-real) = 1.5",
    "round(real, 1) = 1.5 and ceil(real) = 2 and pow(number, 2) = 49 and greatest(number, 1) = 7",
    "cast(number as decimal(10, 2)) = 7.00 and cast('7' as int) = number and number::string = '7'",
    "text = 'a-1' and text <> 'b' and text is not null and text <=> 'a-1' and flag is true",
    "length(text) = 3 and upper(text) = 'A-1' and text || other = 'a-1b' and concat(text, 'x') = 'a-1x'",
    "trim(both 'a' from text) = '-1' and substring(text, 1, 1) = 'a' and substring(text from 3) = '1'",
    "contains(text, '-') and startswith(text, 'a') and position('-' in text) = 2 and instr(text, '-') = 2",
    "text like 'a%' and text like '%1' and text like '%-%' and text like 'a%1' and text ilike 'A-_'",
    "split(text, '-')[0] = 'a' and split_part(text, '-', 2) = '1' and size(split('a.b', '\\\\.')) = 2",
    "replace(text, '-', '') = 'a1' and length(md5(text)) = 32",
    r"text rlike '^[a-z]+-\\d+$' and not text rlike '^(a+)+$' and regexp_like(text, '(?i)A-.')",
    "number rlike '^7$' and (cast(null as string) rlike 'a') is null",
    "exists(tags, t -> t rlike '^(x|z)$') and forall(tags, t -> t like '_')",
    "day = date'2022-01-08' and day < current_date and year(day) = 2022 and day + interval 1 day > day",
    "at >= timestamp'2020-01-01' and at < current_timestamp() and date_format(at, 'yyyy') = '2020'",
    "extract(month from day) = 1 and date_add(day, 1) > day and timestampdiff(DAY, at, at) = 0",
    "to_date('2020-01-02', 'yyyy-MM-dd') < day and datediff(day, day) = 0 and date_trunc('year', at) <= at",
    "tags[0] = 'x' and size(tags) = 2 and array_contains(tags, 'y') and element_at(tags, -1) = 'y'",
    "size(array_distinct(tags)) = size(tags) and array_max(transform(tags, t -> upper(t))) = 'Y'",
    "counts['x'] = 1 and counts.x = 1 and map_contains_key(counts, 'x') and size(map_keys(counts)) = 1",
    "size(filter(items, i -> i.id > 1)) = 1 and forall(items, i -> i.id <= number and i.currency = 'EUR')",
    "not exists(items, i -> i.currency = text) and exists(items, i -> exists(i.tags, t -> t = 'x'))",
    "size(array_distinct(transform(items, i -> i.id))) = size(items) and items[0].tags[0] = 'x'",
    "case when number > 5 then text = 'a-1' else false end and if(flag, true, false) and coalesce(null, flag)",
    "case number when 7 then true end and nullif(number, 8) = 7 and nvl(text, 'x') = 'a-1'",
    "get_json_object('{\"a\": 1}', '$.a') = '1' and luhn_check('79927398713') and hash(text) is not null",
)
NOT_WITH_CONNECT = tuple(rule for rule in HONEST if "rlike" in rule or "regexp" in rule)


def ruled(rules: Sequence[str]) -> ConversionPlan:
    """A plan with these rules, named by their place."""
    named = tuple(Rule(f"r{number}", text) for number, text in enumerate(rules))
    return ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(SCHEMA), named), value_converter=JSON)


@pytest.fixture(name="session")
def session_fixture(local_engine: Engine) -> SparkSession:
    """Of the launched JVM."""
    return local_engine._ready()  # type: ignore[attr-defined,no-any-return]


def test_each_attack_is_a_finding_that_names_it(engine: Engine) -> None:
    """All in one check, each by the name of what it reaches for, and with what would be allowed."""
    findings = engine.check(ruled(tuple(ATTACKS)))
    told = {finding.value: finding for finding in findings}
    for rule, name in ATTACKS.items():
        assert name in told[rule].expected, rule
        assert told[rule].expected.endswith("is not allowed"), rule
    assert len(findings) == len(ATTACKS)


@pytest.mark.parametrize("rule", [f"reflect({GET_USER}) is not null", "text = '${env:HOME}'"])
def test_a_conversion_refuses_what_a_check_would_have_found(engine: Engine, rule: str) -> None:
    """A config that comes from the config topic was checked by whoever wrote it there: each task judges for itself."""
    with pytest.raises(RuleRefused, match=r"contract\.rules\.r1"):
        engine.convert(ruled(("flag", rule)), table([b"{}"]))


def test_honest_rules_are_taken_and_true(local_engine: Engine) -> None:
    """What people write: each passes the check, and the record passes all of them, on every path."""
    demand_true(local_engine, HONEST)


def test_honest_rules_are_taken_and_true_on_a_server(connect_engine: Engine) -> None:
    """All but those with a pattern."""
    demand_true(connect_engine, tuple(rule for rule in HONEST if rule not in NOT_WITH_CONNECT))


def demand_true(engine: Engine, rules: Sequence[str]) -> None:
    """For a record that Arrow proves and for one that it does not."""
    plan = ruled(rules)
    assert engine.check(plan) == []
    record = json.dumps({"items": ITEMS}).encode()
    outcome = engine.convert(plan, table([record, record[:-1] + b',"unknown":1}']))
    assert outcome.column("message").to_pylist() == [None, None]


def test_rules_with_a_pattern_are_refused_by_a_server(connect_engine: Engine) -> None:
    """There is no linear engine on it, and Java's own may take years for thirty characters."""
    findings = connect_engine.check(ruled(NOT_WITH_CONNECT))
    assert [finding.value for finding in findings] == list(NOT_WITH_CONNECT)
    assert all("spark.remote" in finding.expected for finding in findings)


def test_a_pattern_on_which_java_would_never_end_ends(local_engine: Engine) -> None:
    """``(a+)+$`` over 100,000 letters, in a field and in a lambda."""
    rules = ("not text rlike '^(a+)+$'", "not exists(tags, t -> t rlike '^(a|aa)+$')")
    record = json.dumps({"text": "a" * 100_000 + "!", "tags": ["a" * 100_000 + "!"]}).encode()
    outcome = local_engine.convert(ruled(rules), table([record] * 3))
    assert outcome.column("message").to_pylist() == [None] * 3


def _spark_functions(session: SparkSession) -> Iterator[str]:
    for row in session.sql("show system functions").collect():
        yield str(row[0])


def test_every_function_of_spark_is_allowed_by_name_or_refused(session: SparkSession) -> None:
    """None gets through that is not in the list, and none in the list is unknown to Spark or to its parser."""
    known = {name for name in _spark_functions(session) if name.isidentifier()}
    written_as_operators = {"between", "case", "like", "ilike", "rlike", "regexp", "extract", "position", "if"}
    assert known | written_as_operators >= FUNCTIONS
    others = sorted(known - FUNCTIONS - {"cast", "not", "and", "or", "in", "isnull", *CASTS, *AS_NODES})
    rules = [f"`{name}`(text) is null" for name in others]
    refused: set[str] = set()
    for start in range(0, len(rules), 200):
        refused |= {finding.value for finding in rule_findings(session, ruled(rules[start : start + 200]))}
    assert refused == set(rules)


CASTS = {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp"}
AS_NODES: set[str] = set()


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """A call of a function that is not allowed, spelled and hidden in some way."""
    name = draw(st.sampled_from(["java_method", "reflect", "try_reflect", "from_avro", "sequence", "repeat", "uuid"]))
    name = "".join(letter.upper() if draw(st.booleans()) else letter for letter in name)
    quoted = draw(st.sampled_from([name, f"`{name}`", f"system.builtin.{name}", f"builtin.{name}", f"`system`.{name}"]))
    blank = draw(st.sampled_from(["", " ", "/* x */", "\n"]))
    call = f"{quoted}{blank}({GET_USER})"
    hidden = st.sampled_from(
        [
            "{}",
            "upper({})",
            "coalesce(text, {})",
            "case when {} is null then text end",
            "cast({} as string)",
            "array({})[0]",
            "tags[{}]",
            "transform(tags, t -> {})[0]",
            "text || {}",
            "({})",
            "if(flag, {}, text)",
            "exists(tags, t -> t = {})",
            "counts[{}]",
            "substring({} from 1)",
            "trim(both {} from text)",
            "{} in ('a')",
            "'a' in ({})",
            "{} like 'a'",
            "-{}",
            "{} between 1 and 2",
        ]
    )
    for _ in range(draw(st.integers(1, 4))):
        call = draw(hidden).format(call)
    return f"({call}) is null"


@given(rule=spellings())
@example(rule=f"system . builtin . java_method ({GET_USER}) is null")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_spelling_gets_a_function_through(session: SparkSession, rule: str) -> None:
    """Case, back-ticks, qualified names, comments, depth: refused before Spark analyses anything."""
    with pytest.raises(RuleRefused):
        rule_columns(session, ruled((rule,)))
