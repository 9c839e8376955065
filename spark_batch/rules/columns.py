"""Rules as columns: parsed by Spark's own parser, judged, and only then given to Spark.

Where this process has Spark's JVM, the tree that was judged is the tree that runs: its text is not read a second time,
and RLIKE is carried out by RE2/J, which Spark brings along with Hadoop's client. With Spark Connect there is no JVM
here. Then one is started for as long as the parser is needed, and the text is sent to a server of the same version;
there is no RE2/J to be had on a server, so rules with RLIKE are refused.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.types import BooleanType

from spark_batch.decode import canonical_value
from spark_batch.jvm import gateway_of_a_jvm
from spark_batch.plan import Contract, ConversionPlan, PlanFinding, Rule
from spark_batch.rules.allowed import REGEX_FUNCTIONS, RULES_MAX
from spark_batch.rules.judge import judge
from spark_batch.rules.tree import Node, RuleRefused, check_text, tree_of
from spark_batch.session import is_remote
from spark_batch.shapes import canonical_shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_batch.avro_types import Record

_EXPECTED = "a Spark SQL boolean expression over the contract's fields"
_RE2J = "org.apache.hadoop.shaded.com.google.re2j."
_RE2J_PERL = 212
"""The flags with which RE2/J compiles by itself."""
_PARSER_ENDS_SECONDS_MAX = 10.0
_JUDGED_MAX = 64


def rule_columns(session: SparkSession, plan: ConversionPlan) -> tuple[Column, ...]:
    """The plan's rules in their order, for a frame that has the contract's fields as columns.

    Blocks; where the server is remote, for as long as a JVM takes to start. Raises RuleRefused for the first rule that
    says what it may not, naming it, and what Spark raises.
    """
    contract, record = plan.contract, plan.record
    if contract is None or record is None or not contract.rules:
        return ()
    refusals, columns = _judged(session, contract, record)
    if refusals:
        rule, refusal = refusals[0]
        raise RuleRefused(f"contract.rules.{rule.name}: {refusal.found}", refusal.expected)
    return tuple(column for _, column in columns)


def rule_findings(session: SparkSession, plan: ConversionPlan) -> list[PlanFinding]:
    """One finding for each rule that is not allowed, or that Spark cannot take. Blocks as `rule_columns` does."""
    contract, record = plan.contract, plan.record
    if contract is None or record is None or not contract.rules:
        return []
    refusals, columns = _judged(session, contract, record)
    refused = [_finding(rule, f"{refusal.expected}; {refusal.found} is not allowed") for rule, refusal in refusals]
    return refused + [finding for rule, column in columns for finding in _findings(session, record, rule, column)]


def _findings(session: SparkSession, record: Record, rule: Rule, column: Column) -> Iterator[PlanFinding]:
    empty = session.range(0).select(F.from_json(F.lit("{}"), canonical_shape(record)).alias("r"))
    value = canonical_value(record, F.col("r"))
    fields = empty.select(value.alias("r")).select(*[F.col("r").getField(f.name).alias(f.name) for f in record.fields])
    try:
        kind = fields.select(F.col("*"), column).schema.fields[-1].dataType
    except PySparkException as error:
        yield _finding(rule, f"{_EXPECTED} ({first_words(str(error))})")
        return
    if not isinstance(kind, BooleanType):
        yield _finding(rule, f"{_EXPECTED}, not {kind.simpleString()}")


def _finding(rule: Rule, expected: str) -> PlanFinding:
    return PlanFinding(f"contract.rules.{rule.name}", rule.expression, expected)


def first_words(text: str) -> str:
    """First line with text: that of a syntax error is empty."""
    return next(filter(None, (line.strip() for line in text.splitlines())), "")[:200]


_Refusals = list[tuple[Rule, RuleRefused]]
_Judged = tuple[_Refusals, list[tuple[Rule, Column]]]


def _judged(session: SparkSession, contract: Contract, record: Record) -> _Judged:
    """The rules that are refused, and the others with their columns."""
    if len(contract.rules) > RULES_MAX:
        refusal = RuleRefused(f"a contract of {len(contract.rules)} rules", f"at most {RULES_MAX} rules")
        return [(contract.rules[-1], refusal)], []
    if is_remote(session):
        refusals = list(_refused_of_remote(session.version, contract.rules, record))
        refused = {rule for rule, _ in refusals}
        return refusals, [(rule, F.expr(rule.expression)) for rule in contract.rules if rule not in refused]
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark offers no public way to its parser
    trees, refusals = _trees(jvm, contract.rules, record)
    columns = []
    for rule, tree in trees:
        try:
            columns.append((rule, column_of(jvm, tree)))
        except RuleRefused as refusal:
            refusals.append((rule, refusal))
    return refusals, columns


@lru_cache(maxsize=_JUDGED_MAX)
def _refused_of_remote(version: str, rules: tuple[Rule, ...], record: Record) -> tuple[tuple[Rule, RuleRefused], ...]:
    """What is refused of rules that a server of that version will parse."""
    if version != pyspark.__version__:
        expected = f"a server of Spark {pyspark.__version__}, whose parser is known, for a contract with rules"
        return tuple((rule, RuleRefused(f"Spark {version}", expected)) for rule in rules)
    with _parser_alone() as jvm:
        trees, refused = _trees(jvm, rules, record)
    for rule, tree in trees:
        if any(node.kind == "RLike" or node.function in REGEX_FUNCTIONS for node in _all(tree)):
            expected = "LIKE and functions of texts where spark.remote is set: its servers have no linear engine"
            refused.append((rule, RuleRefused("RLIKE", expected)))
    return tuple(refused)


def _trees(jvm: Any, rules: Sequence[Rule], record: Record) -> tuple[list[tuple[Rule, Node]], _Refusals]:
    """The rules that are allowed, with their trees, and those that are not."""
    trees, refused = [], []
    for rule in rules:
        try:
            check_text(rule.expression)
            tree = tree_of(_parsed(jvm, rule.expression))
            judge(tree, record)
        except RuleRefused as refusal:
            refused.append((rule, refusal))
        else:
            trees.append((rule, tree))
    return trees, refused


def _parsed(jvm: Any, text: str) -> Any:
    """By the parser that knows SQL alone: the session's would put values in the place of variables first."""
    parser = getattr(jvm.org.apache.spark.sql.catalyst.parser, "CatalystSqlParser$")
    try:
        return getattr(parser, "MODULE$").parseExpression(text)
    except Py4JNetworkError:
        raise
    except (Py4JJavaError, PySparkException) as error:
        java: Any = getattr(error, "java_exception", None)
        words = str(error) if java is None else str(java.getMessage() or java.toString())
        raise RuleRefused(first_words(words), _EXPECTED) from error


def column_of(jvm: Any, tree: Node) -> Column:
    """The judged tree as a column, patterns in the hands of RE2/J."""
    from pyspark.sql.classic.column import Column as ClassicColumn  # noqa: PLC0415 - not for Spark Connect

    expression = _Linear(jvm).rewritten(tree)
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


class _Linear:
    """Puts RE2/J in the place of Java's regular expressions."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._types = jvm.org.apache.spark.sql.types

    def rewritten(self, node: Node) -> Any:
        """The node of the JVM, with other nodes for patterns below it."""
        if not any(each.kind == "RLike" or each.function in REGEX_FUNCTIONS for each in _all(node)):
            return node.java
        if node.kind == "RLike" or node.function in REGEX_FUNCTIONS:
            return self._found(self.rewritten(node.children[0]), str(node.children[1].value))
        children = [self.rewritten(child) for child in node.children]
        if node.kind == "LambdaFunction":
            arguments = node.java.arguments().iterator()
            while arguments.hasNext():
                children.append(arguments.next())
        return node.java.withNewChildren(self._sequence(children))

    def _found(self, text: Any, pattern: str) -> Any:
        """Whether the pattern is found in a text; null for null."""
        try:
            compiled = self._class("Pattern").compile(pattern)
        except Py4JJavaError as error:
            raise RuleRefused(f"the pattern '{pattern}'", f"patterns of RE2's syntax ({error})") from error
        # This version of RE2/J reads its own flags for those of its compiler when it is sent to an executor: with none
        # of them, ``\\d`` and ``(?i)`` would be refused there.
        flags = compiled.getClass().getDeclaredField("flags")
        flags.setAccessible(True)
        flags.setInt(compiled, _RE2J_PERL)
        typed = self._types.ObjectType(compiled.getClass())
        literal = self._expressions.Literal(compiled, typed)
        cast = getattr(getattr(self._expressions, "Cast$"), "MODULE$")
        string, boolean = (getattr(getattr(self._types, f"{name}Type$"), "MODULE$") for name in ("String", "Boolean"))
        loader = compiled.getClass().getClassLoader()
        java_text = self._types.ObjectType(self._jvm.java.lang.Class.forName("java.lang.String"))
        matcher = self._types.ObjectType(self._jvm.java.lang.Class.forName(f"{_RE2J}Matcher", True, loader))  # noqa: FBT003
        written = self._invoked(cast.apply(text, string, True), "toString", java_text)  # noqa: FBT003 - ANSI mode
        return self._invoked(self._invoked(literal, "matcher", matcher, [written]), "find", boolean)

    def _invoked(self, target: Any, method: str, kind: Any, arguments: Sequence[Any] = ()) -> Any:
        nothing = self._sequence([])
        is_null_passed_on, may_be_null, is_deterministic = True, True, True
        return self._expressions.objects.Invoke(
            target, method, kind, self._sequence(arguments), nothing, is_null_passed_on, may_be_null, is_deterministic
        )

    def _class(self, name: str) -> Any:
        return getattr(self._jvm.org.apache.hadoop.shaded.com.google.re2j, name)

    def _sequence(self, items: Sequence[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(list(items))


def _all(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _all(child)


@contextmanager
def _parser_alone() -> Iterator[Any]:
    """A JVM with Spark's classes and no session, ended with the block; blocks for seconds while it starts."""
    conf = pyspark.SparkConf()
    conf.set("spark.driver.memory", "256m")
    with Path(os.devnull).open("wb") as nowhere:
        gateway = gateway_of_a_jvm(conf, nowhere.fileno())
    try:
        yield gateway.jvm
    finally:
        process: Any = gateway.proc
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PARSER_ENDS_SECONDS_MAX)
        process.kill()
        process.wait()
