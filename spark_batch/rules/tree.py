"""The parsed tree of a rule as Python values, read from Spark's own parser once; refused as soon as it is too large."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_batch.rules.allowed import (
    BRACKETS_MAX,
    CASES_MAX,
    DEPTH_MAX,
    FUNCTIONS,
    NODES,
    NODES_MAX,
    TEXT_CHARACTERS_MAX,
    WORDS_OF_NODES,
)

_CASE = re.compile(r"\bcase\b", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|/\*.*?\*/|--[^\n]*""", re.DOTALL)
_SUBQUERY = re.compile(r"\(\s*(?:select|with|values|from)\s", re.IGNORECASE)
_CALL = re.compile(r"(?<![\w`.])(?P<name>(?:\w+|`[^`]*`)(?:\s*\.\s*(?:\w+|`[^`]*`))*)\s*\(")
_WORDS_BEFORE_BRACKETS = frozenset(
    {
        "and",
        "between",
        "case",
        "cast",
        "decimal",
        "div",
        "else",
        "from",
        "ilike",
        "in",
        "is",
        "like",
        "not",
        "or",
        "overlay",
        "regexp",
        "rlike",
        "then",
        "timestampadd",
        "timestampdiff",
        "try_cast",
        "when",
    }
)
"""Words of SQL that may stand before a bracket without being functions of the list."""
FUNCTIONS_EXPECTED = "the functions listed in docs/reference/rules.md"
_NODE_EXPECTED = "fields, literals, comparisons, arithmetic, CASE, casts, lambdas and the functions of the list"


class RuleRefused(ValueError):
    """A rule says what rules may not say: what was found, and what would be allowed."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"{found} is not allowed in rules; allowed: {expected}")
        self.found, self.expected = found, expected


@dataclass(frozen=True)
class Node:
    """One node of the parsed tree.

    `kind` is the class's name without its package. `names` are the parts of an attribute, a lambda's variable or a
    function, the variables of a lambda, or the type of a cast. `value` is a literal's: text or whole number as such,
    None for null, and for others their text. `java` is the node itself.
    """

    kind: str
    children: tuple[Node, ...] = ()
    names: tuple[str, ...] = ()
    value: str | int | None = None
    java: Any = None

    @property
    def is_literal(self) -> bool:
        """Whether it is written out."""
        return self.kind == "Literal"

    @property
    def function(self) -> str:
        """The function's name in lower case, as Spark looks it up; empty for other nodes."""
        return self.names[0].lower() if self.kind == "UnresolvedFunction" else ""


def check_text(text: str) -> None:
    """Refuses a text that must not even be parsed; raises RuleRefused."""
    if "${" in text:
        raise RuleRefused("${…}, which stands for variables of the process,", "values written out")
    if len(text) > TEXT_CHARACTERS_MAX:
        raise RuleRefused(f"a text of {len(text)} characters", f"at most {TEXT_CHARACTERS_MAX} characters")
    brackets = text.count("(") + text.count("[")
    if brackets > BRACKETS_MAX:
        raise RuleRefused(f"{brackets} brackets", f"at most {BRACKETS_MAX} brackets")
    if len(_CASE.findall(text)) > CASES_MAX:
        raise RuleRefused("so many CASEs", f"at most {CASES_MAX} of them")


def text_refusal(text: str) -> RuleRefused | None:
    """What can be told of a rule without Spark's parser, so that a validation tells it at once; None where nothing can.

    No wall: quotes and comments are only roughly read here. What gets past it meets the parser and the judge.
    """
    try:
        check_text(text)
    except RuleRefused as refusal:
        return refusal
    bare = bare_text(text)
    if _SUBQUERY.search(bare):
        return RuleRefused("a subquery", _NODE_EXPECTED)
    for call in _CALL.finditer(bare):
        name = call["name"].replace("`", "")
        if name.lower() not in FUNCTIONS | _WORDS_BEFORE_BRACKETS:
            return RuleRefused(f"the function {name}", FUNCTIONS_EXPECTED)
    return None


def bare_text(text: str) -> str:
    """The text without what stands in quotes or comments, as far as that can be told without a parser."""
    return _QUOTED.sub("''", text)


def tree_of(java: Any) -> Node:
    """The tree below a node of Spark's parser; raises RuleRefused at the first class that is not allowed."""
    return _Reading().node(java, 1)


class _Reading:
    """Walks the tree of the JVM."""

    def __init__(self) -> None:
        self._nodes = 0

    def node(self, java: Any, depth: int) -> Node:
        """The node and all below it."""
        self._nodes += 1
        if self._nodes > NODES_MAX or depth > DEPTH_MAX:
            raise RuleRefused("an expression of that size", f"at most {NODES_MAX} parts, {DEPTH_MAX} in each other")
        name = str(java.getClass().getName())
        kind = NODES.get(name)
        if kind is None:
            simple = name.rpartition(".")[2].rstrip("$")
            raise RuleRefused(WORDS_OF_NODES.get(simple, simple), _NODE_EXPECTED)
        if kind == "UnresolvedFunction":
            return self._function(java, depth)
        if kind == "LambdaFunction":
            variables = tuple(".".join(map(str, each_of(each.nameParts()))) for each in each_of(java.arguments()))
            return Node(kind, (self.node(java.function(), depth + 1),), variables, java=java)
        if kind in {"UnresolvedAttribute", "UnresolvedNamedLambdaVariable"}:
            return Node(kind, names=tuple(map(str, each_of(java.nameParts()))), java=java)
        if kind == "Literal":
            return Node(kind, value=_value(java), java=java)
        children = tuple(self.node(child, depth + 1) for child in each_of(java.children()))
        names = (str(java.dataType().simpleString()),) if kind == "Cast" else ()
        return Node(kind, children, names, java=java)

    def _function(self, java: Any, depth: int) -> Node:
        names = tuple(map(str, each_of(java.nameParts())))
        if len(names) > 1:
            raise RuleRefused(f"the function {'.'.join(names)}", "functions without a catalog or schema before them")
        is_plain = (
            not java.isDistinct()
            and java.filter().isEmpty()
            and not _is_set(java.ignoreNulls())
            and java.orderingWithinGroup().isEmpty()
        )
        if not is_plain:
            raise RuleRefused(
                f"the function {names[0]} with DISTINCT, FILTER, IGNORE NULLS or an order", "none of them"
            )
        children = tuple(self.node(child, depth + 1) for child in each_of(java.arguments()))
        return Node("UnresolvedFunction", children, names, java=java)


def _value(literal: Any) -> str | int | None:
    value = literal.value()
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return str(value.toString()) if hasattr(value, "toString") else str(value)


def _is_set(option: Any) -> bool:
    """Whether an option of Scala's, which Python may get as its value, has one that is not false."""
    return str(option) not in {"None", "False", "Some(false)"}


def each_of(sequence: Any) -> Iterator[Any]:
    """The items of one of Scala's sequences."""
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()
