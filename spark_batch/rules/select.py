"""`SELECT … FROM record` of a config: parsed by Spark, judged like the rules of contracts, analysed, and made a column.

Parsed and analysed in ANSI mode, so that an overflow or a text that is no number raises where rules get null. What has
been analysed keeps that mode, wherever it runs. The column catches what is raised: it is null for such a record, and a
struct with one field otherwise, which is null where `WHERE` does not hold. So no record stops its micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark

from spark_batch.avro_types import Array, AvroType, Decimal, Map, Narrow, Primitive, Record, Slot, Temporal
from spark_batch.decode import canonical_value
from spark_batch.pinned_settings import PINNED_SETTINGS
from spark_batch.rules.allowed import GROWTH_MAX, OF_THE_CLOCK
from spark_batch.rules.columns import column_of, first_words
from spark_batch.rules.judge import judge
from spark_batch.rules.select_text import EXPECTED
from spark_batch.rules.tree import Node, RuleRefused, check_text, each_of, tree_of
from spark_batch.session import go_by_settings_of, is_remote
from spark_batch.shapes import canonical_shape
from spark_batch.transforms.selection import SelectedField, Selection, SelectRefused, remember

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FROM = "record"
"""What a text selects from."""
ROW = "row"
"""The one field of the column's struct."""
FIELDS_MAX = 1_000
"""Fields of one result."""
_PLANS = {
    "Aggregate": "GROUP BY or an aggregate",
    "Distinct": "DISTINCT",
    "Except": "EXCEPT",
    "Generate": "LATERAL VIEW",
    "GlobalLimit": "LIMIT",
    "Intersect": "INTERSECT",
    "Join": "JOIN",
    "Offset": "OFFSET",
    "OneRowRelation": "SELECT without FROM record",
    "RelationTimeTravel": "a version of a table",
    "Sample": "TABLESAMPLE",
    "Sort": "ORDER BY",
    "SubqueryAlias": "another name for the record, or a subquery,",
    "Union": "UNION",
    "UnresolvedHaving": "HAVING",
    "UnresolvedHint": "a hint",
    "UnresolvedInlineTable": "VALUES",
    "UnresolvedTableValuedFunction": "a function that makes tables",
    "UnresolvedWith": "WITH",
}
"""What SQL calls the plans of Spark that are refused; others are called by Spark's own names."""
_TYPES: Mapping[type[spark.DataType], AvroType] = {
    spark.BooleanType: Primitive.BOOLEAN,
    spark.ByteType: Narrow(8),
    spark.ShortType: Narrow(16),
    spark.IntegerType: Primitive.INT,
    spark.LongType: Primitive.LONG,
    spark.FloatType: Primitive.FLOAT,
    spark.DoubleType: Primitive.DOUBLE,
    spark.StringType: Primitive.STRING,
    spark.BinaryType: Primitive.BYTES,
    spark.DateType: Temporal.DATE,
    spark.TimestampType: Temporal.TIMESTAMP_MICROS,
}
_TYPES_EXPECTED = "booleans, numbers, texts, bytes, dates, timestamps, and arrays or maps of them"


@dataclass(frozen=True)
class _Item:
    """One field that is selected, judged."""

    name: str
    tree: Node
    growth: float
    """How many times the size of the record its value may have."""


@dataclass(frozen=True)
class _Analysed:
    """What Spark's analysis says."""

    selection: Selection
    expressions: tuple[Any, ...]
    """The resolved expressions of the fields, as Java has them."""
    where: Any = None


def analyse(session: SparkSession, sql: str, record: Record) -> None:
    """Have Spark say what the text makes of such records, for `selection`; blocks."""
    try:
        remember(sql, record, _analysed(session, sql, record).selection)
    except RuleRefused as refusal:
        remember(sql, record, SelectRefused(refusal.found, refusal.expected))


def text_refusal(session: SparkSession, sql: str) -> RuleRefused | None:
    """Why the text is refused whatever records come, None where that depends on them; blocks.

    Of records whose types only they tell, which `analyse` judges then.
    """
    try:
        _demand_own_jvm(session)
        _clauses(session._jvm, sql, None)  # noqa: SLF001 - PySpark offers no public way to its parser
    except RuleRefused as refusal:
        return refusal
    return None


def selected_column(sql: str, record: Record, source: str, is_there: Column) -> Column:
    """The column of the module's first words, over the struct in the column `source`; null where nothing is there.

    In the calling thread's active session. Raises RuleRefused.
    """
    session = SparkSession.active()
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark offers no public way to its expressions
    found = _analysed(session, sql, record)
    fields = []
    for field, java in zip(found.selection.fields, found.expressions, strict=True):
        column = _column(jvm, _unbound(jvm, java, source))
        fields.append((column.cast("int") if isinstance(field.type, Narrow) else column).alias(field.name))
    row = F.struct(*fields)
    if found.where is not None:
        row = F.when(_column(jvm, _unbound(jvm, found.where, source)), row)
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    whole: Any = F.struct(row.alias(ROW))
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(whole._jc))  # noqa: SLF001 - as above
    # A branch of CASE is evaluated where it stands: common parts of it are not taken out of what catches their errors.
    return F.when(is_there, _column(jvm, tried))


def _analysed(session: SparkSession, sql: str, record: Record) -> _Analysed:
    _demand_own_jvm(session)
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark offers no public way to its parser
    with _ansi(session) as ansi:
        items, where = _clauses(jvm, sql, record)
        columns = [column_of(jvm, item.tree).alias(str(at)) for at, item in enumerate(items)]
        columns += [] if where is None else [column_of(jvm, where).alias("where")]
        try:
            frame = _empty(ansi, record).select(*columns)
            kinds = list(frame.schema.fields)
        except Py4JNetworkError:
            raise
        except (Py4JJavaError, PySparkException) as error:
            raise RuleRefused(first_words(str(error)), EXPECTED) from error
        plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way
        resolved = [alias.child() for alias in each_of(plan.projectList())]
    if where is not None and not isinstance(kinds[-1].dataType, spark.BooleanType):
        raise RuleRefused(f"WHERE with {kinds[-1].dataType.simpleString()}", "a boolean expression after WHERE")
    fields = tuple(_selected(item, record, kind) for item, kind in zip(items, kinds, strict=False))
    _demand_size(items, fields)
    expressions = tuple(resolved[: len(items)])
    return _Analysed(Selection(fields, where is not None), expressions, None if where is None else resolved[-1])


def _demand_own_jvm(session: SparkSession) -> None:
    if is_remote(session):
        raise RuleRefused("Spark Connect (spark.remote)", "Spark in the worker's own JVM (spark.master)")


def _demand_size(items: list[_Item], fields: tuple[SelectedField, ...]) -> None:
    """All values together are bounded as the value of a rule is; numbers and the like count for nothing."""
    paths = [field.path for field in fields if field.path is not None]
    growth: float = max(map(paths.count, paths), default=0)
    growth += sum(item.growth for item, field in zip(items, fields, strict=True) if _has_size(field.type))
    if growth > GROWTH_MAX:
        raise RuleRefused(f"a result of {growth:g} times the record's size", f"at most {GROWTH_MAX} times its size")


def _has_size(kind: AvroType | None) -> bool:
    return isinstance(kind, (Array, Map)) or kind in {Primitive.STRING, Primitive.BYTES}


@contextmanager
def _ansi(session: SparkSession) -> Iterator[SparkSession]:
    """A session in ANSI mode, active in this thread."""
    ansi = session.newSession()
    for name, value in {**PINNED_SETTINGS, "spark.sql.ansi.enabled": "true"}.items():
        ansi.conf.set(name, value)
    go_by_settings_of(ansi)
    try:
        yield ansi
    finally:
        go_by_settings_of(session)


def _clauses(jvm: Any, sql: str, record: Record | None) -> tuple[list[_Item], Node | None]:
    """What is selected, by name (nothing by the star of an unknown record), and the condition; raises RuleRefused."""
    check_text(sql)
    plan = _parsed(jvm, sql)
    if _simple_name(plan) != "Project":
        raise RuleRefused(_word(plan), EXPECTED)
    (below,) = each_of(plan.children())
    where = None
    if _simple_name(below) == "Filter":
        where, _ = _judged(below.condition(), record)
        (below,) = each_of(below.children())
    if _simple_name(below) != "UnresolvedRelation":
        raise RuleRefused(_word(below), EXPECTED)
    table = ".".join(map(str, each_of(below.multipartIdentifier())))
    if table != FROM or below.isStreaming():
        raise RuleRefused(f"FROM {table}", f"FROM {FROM}, which is the record")
    items = [item for java in each_of(plan.projectList()) for item in _items(jvm, java, record)]
    names = [item.name for item in items]
    for name in names:
        if names.count(name) > 1:
            raise RuleRefused(f"the name {name} for two fields", "each name once (AS gives another)")
    if len(items) > FIELDS_MAX:
        raise RuleRefused(f"a result of {len(items)} fields", f"at most {FIELDS_MAX} fields")
    return items, where


def _parsed(jvm: Any, sql: str) -> Any:
    parser = getattr(jvm.org.apache.spark.sql.catalyst.parser, "CatalystSqlParser$")
    try:
        return getattr(parser, "MODULE$").parsePlan(sql)
    except Py4JNetworkError:
        raise
    except (Py4JJavaError, PySparkException) as error:
        java: Any = getattr(error, "java_exception", None)
        words = str(error) if java is None else str(java.getMessage() or java.toString())
        raise RuleRefused(first_words(words), EXPECTED) from error


def _items(jvm: Any, java: Any, record: Record | None) -> Iterator[_Item]:
    """What one part of the list between SELECT and FROM selects."""
    kind = _simple_name(java)
    if kind in {"UnresolvedStar", "UnresolvedStarExceptOrReplace"}:
        yield from _star(jvm, java, record)
        return
    if kind == "Alias":
        yield _Item(str(java.name()), *_judged(java.child(), record))
        return
    if kind != "UnresolvedAttribute":
        found = "several names for one expression" if kind == "MultiAlias" else "an expression without a name"
        raise RuleRefused(found, "a name behind each expression (AS)")
    tree, growth = _judged(java, record)
    yield _Item(tree.names[-1], tree, growth)


def _star(jvm: Any, java: Any, record: Record | None) -> Iterator[_Item]:
    target = java.target()
    if str(target) not in {"None", f"Some(List({FROM}))", f"Some(ArrayBuffer({FROM}))"}:
        raise RuleRefused("a star of a field", f"*, or {FROM}.*")
    left_out: set[str] = set()
    if _simple_name(java) == "UnresolvedStarExceptOrReplace":
        if str(java.replacements()) != "None":
            raise RuleRefused("* REPLACE", "* EXCEPT (…) and expressions")
        for path in each_of(java.excepts()):
            name = ".".join(map(str, each_of(path)))
            if record is not None and record.field(name) is None:
                raise RuleRefused(f"* EXCEPT ({name})", "fields of the record")
            left_out.add(name)
    for field in () if record is None else record.fields:
        if field.name not in left_out:
            names = (field.name,)
            yield _Item(field.name, Node("UnresolvedAttribute", names=names, java=_attribute(jvm, names)), 1.0)


def _judged(java: Any, record: Record | None) -> tuple[Node, float]:
    tree = _unqualified(tree_of(java), record)
    return tree, judge(tree, record)


def _unqualified(node: Node, record: Record | None) -> Node:
    """`record.name` is judged as `name`, unless the record has a field `record`; Spark reads it so as well."""
    if node.kind == "UnresolvedAttribute" and node.names[0] == FROM and len(node.names) > 1:
        is_field = record is not None and record.field(FROM) is not None
        return node if is_field else replace(node, names=node.names[1:])
    return replace(node, children=tuple(_unqualified(child, record) for child in node.children))


def _selected(item: _Item, record: Record, found: spark.StructField) -> SelectedField:
    tree = item.tree
    if tree.kind == "UnresolvedAttribute" and tree.names[0].lower() not in OF_THE_CLOCK:
        path = _path(record, tree.names)
        if path is not None:
            return SelectedField(item.name, path, None, found.nullable)
    kind = _avro_type(found.dataType)
    if kind is None:
        expected = f"{_TYPES_EXPECTED} (records as they are)"
        raise RuleRefused(f"{found.dataType.simpleString()} for {item.name}", expected)
    return SelectedField(item.name, None, kind, found.nullable)


def _path(record: Record, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The path, where it leads through records only."""
    kind: AvroType = record
    for name in names:
        field = kind.field(name) if isinstance(kind, Record) else None
        if field is None:
            return None
        kind = field.slot.type
    return names


def _avro_type(kind: spark.DataType) -> AvroType | None:
    if isinstance(kind, spark.DecimalType):
        return Decimal(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        item = _avro_type(kind.elementType)
        return None if item is None or isinstance(item, Narrow) else Array(Slot(item, kind.containsNull))
    if isinstance(kind, spark.MapType):
        item = _avro_type(kind.valueType) if isinstance(kind.keyType, spark.StringType) else None
        return None if item is None or isinstance(item, Narrow) else Map(Slot(item, kind.valueContainsNull))
    return _TYPES.get(type(kind))


def _empty(ansi: SparkSession, record: Record) -> DataFrame:
    """No rows of typed records, their fields as columns."""
    parsed = ansi.range(0).select(F.from_json(F.lit("{}"), canonical_shape(record)).alias("r"))
    typed = parsed.select(canonical_value(record, F.col("r")).alias("r")).schema.fields[0].dataType
    assert isinstance(typed, spark.StructType)  # noqa: S101 - told to the type checker
    frame = ansi.createDataFrame([], _with_nulls(record, typed))
    return frame if record.field(FROM) is not None else frame.alias(FROM)


def _with_nulls(record: Record, struct: spark.StructType) -> spark.StructType:
    """The struct with null where the record allows it."""
    fields = []
    for field, own in zip(record.fields, struct.fields, strict=True):
        kind = _with_nulls_of(field.slot.type, own.dataType)
        fields.append(spark.StructField(own.name, kind, field.slot.is_nullable or field.slot.type is Primitive.NULL))
    return spark.StructType(fields)


def _with_nulls_of(kind: AvroType, own: spark.DataType) -> spark.DataType:
    if isinstance(kind, Record) and isinstance(own, spark.StructType):
        return _with_nulls(kind, own)
    if isinstance(kind, Array) and isinstance(own, spark.ArrayType):
        return spark.ArrayType(_with_nulls_of(kind.items.type, own.elementType), kind.items.is_nullable)
    if isinstance(kind, Map) and isinstance(own, spark.MapType):
        return spark.MapType(own.keyType, _with_nulls_of(kind.values.type, own.valueType), kind.values.is_nullable)
    return own


def _unbound(jvm: Any, java: Any, source: str) -> Any:
    """A resolved expression, its fields those of the struct in the column `source`."""
    if _simple_name(java) == "AttributeReference":
        return _attribute(jvm, (source, str(java.name())))
    children = list(each_of(java.children()))
    if not children:
        return java
    return java.withNewChildren(jvm.PythonUtils.toSeq([_unbound(jvm, child, source) for child in children]))


def _attribute(jvm: Any, names: tuple[str, ...]) -> Any:
    return jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute(jvm.PythonUtils.toSeq(list(names)))


def _column(jvm: Any, java: Any) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn  # noqa: PLC0415 - not for Spark Connect

    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(java))


def _simple_name(java: Any) -> str:
    return str(java.getClass().getSimpleName()).rstrip("$")


def _word(java: Any) -> str:
    name = _simple_name(java)
    return _PLANS.get(name, name)
