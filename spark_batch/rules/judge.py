"""The verdict on a rule's tree: known names only, and bounded time and memory whatever stands in a record.

Pure: it sees `Node`s and the contract's types. Three bounds beside the lists of `allowed`: a value is at most
GROWTH_MAX times the size of its record; a lambda is evaluated once for each item, so what it reads anew each time must
be the item or of fixed size (else items times text would be quadratic); and patterns have to be such as a linear engine
can run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import re2

from spark_batch.avro_types import Array, AvroType, Decimal, Enum, Map, Primitive, Record, Temporal, Uuid
from spark_batch.rules.allowed import (
    CAST_TYPES,
    FUNCTIONS,
    GROWTH_MAX,
    HASHED_ITEMS,
    LIKE_FUNCTIONS,
    OF_THE_CLOCK,
    ONE_COLUMN,
    OVER_ITEMS,
    PATTERN_STEPS_MAX,
    REGEX_FUNCTIONS,
    SCALE_MAX,
    SCALED,
)
from spark_batch.rules.tree import FUNCTIONS_EXPECTED, Node, RuleRefused

_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
_PLAIN_SEPARATOR = re.compile(r"(?:[^\\^$.|?*+()\[\]{}]|\\[\\^$.|?*+()\[\]{}]|\[[^\\^\[\]&]\])+")
"""A pattern of ``split`` that is text: escapes and classes of one character are."""
_NUMBERS = frozenset({Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE})
_EQUALITIES = frozenset({"EqualTo", "EqualNullSafe"})
_TRIMS = frozenset({"StringTrim", "StringTrimLeft", "StringTrimRight", "StringLocate"})
_CLOSEST_MAX = 5


@dataclass(frozen=True)
class _Scope:
    """Names that can be read at a place: the contract's fields, and the variables of the lambdas around it."""

    fields: Mapping[str, AvroType]
    outer: Mapping[str, AvroType | None] = field(default_factory=dict)
    items: Mapping[str, AvroType | None] = field(default_factory=dict)
    """Variables of the innermost lambda."""
    is_open: bool = False
    """Whether the record is not known yet: what depends on its names and types is left to a later judgement."""

    @property
    def is_lambda(self) -> bool:
        """Whether it is the body of a lambda."""
        return bool(self.items)

    def inside(self, items: Mapping[str, AvroType | None]) -> _Scope:
        """The scope of a lambda's body."""
        return _Scope(self.fields, {**self.outer, **self.items}, items, self.is_open)


def judge(tree: Node, record: Record | None) -> float:
    """How many times the size of the record its value may have.

    Raises RuleRefused where the tree says what it may not; Spark still decides whether it is typed well. Without a
    record what is refused is what no record allows, so that a text can be refused before records come; nothing may be
    carried out that was not judged with its record as well.
    """
    if record is None:
        return _Judge().growth(tree, _Scope({}, is_open=True))
    return _Judge().growth(tree, _Scope({each.name: each.slot.type for each in record.fields}))


class _Judge:
    """Walks a tree; each step gives how many times the size of the record its value may have."""

    def growth(self, node: Node, scope: _Scope) -> float:
        """Judges the node and all below it."""
        if node.kind == "UnresolvedFunction":
            return self._function(node, scope)
        if node.kind == "LambdaFunction":
            raise RuleRefused("a lambda", f"lambdas as the second argument of {_listed(OVER_ITEMS)}")
        if node.kind in {"UnresolvedAttribute", "UnresolvedNamedLambdaVariable"}:
            _judge_reference(node, scope)
            return 1.0
        if node.kind == "Cast":
            _judge_cast(node, scope)
        if node.kind in {"Like", "ILike", "RLike"}:
            _judge_pattern(node, "RLike" if node.kind == "RLike" else "LIKE")
        if node.kind in _TRIMS:
            _demand_one_column(node, node.kind)
        if node.kind in _EQUALITIES and _is_equality_of_texts(node, scope):
            return 1.0
        grown = self._children(node, scope)
        return _grown(sum(grown), scope, "||") if node.kind == "Concat" else max(grown, default=1.0)

    def _children(self, node: Node, scope: _Scope) -> list[float]:
        return [self.growth(child, scope) for child in node.children]

    def _function(self, node: Node, scope: _Scope) -> float:
        name = node.function
        if name not in FUNCTIONS:
            raise RuleRefused(f"the function {node.names[0]}", _like(name))
        if name in OVER_ITEMS:
            return self._over_items(node, scope)
        if name in ONE_COLUMN:
            _demand_one_column(node, name)
        if name in REGEX_FUNCTIONS | LIKE_FUNCTIONS:
            _judge_pattern(node, "RLike" if name in REGEX_FUNCTIONS else "LIKE")
        if name in SCALED:
            _judge_scale(node)
        if name == "split" and not (_is_text_literal(node, 1) and _PLAIN_SEPARATOR.fullmatch(str(_literal(node, 1)))):
            raise RuleRefused("split by a pattern", "split by a text that is written out, such as ',' or '\\\\.'")
        is_hashed = scope.is_open or all(_has_hashed_items(child, scope) for child in node.children)
        if name in HASHED_ITEMS and not is_hashed:
            raise RuleRefused(f"the function {name} of these arrays", f"{name} of arrays of numbers, texts or instants")
        grown = self._children(node, scope)
        if name in {"concat", "array", "struct"}:
            return _grown(sum(grown), scope, name)
        if name == "replace":
            return _grown(max(grown, default=1.0) * _replacement_growth(node), scope, name)
        return max(grown, default=1.0)

    def _over_items(self, node: Node, scope: _Scope) -> float:
        name = node.function
        if [child.kind for child in node.children[1:]] != ["LambdaFunction"]:
            raise RuleRefused(f"the function {name} without a lambda", f"{name}(array, item -> …)")
        array, body = node.children
        if scope.is_lambda and not _is_path_of_item(array, scope):
            raise RuleRefused(f"the function {name} in a lambda", f"{name} over a field of the item in a lambda")
        grown = self.growth(array, scope)
        kind = _type_of(array, scope)
        item = kind.items.type if isinstance(kind, Array) else None
        variables: dict[str, AvroType | None] = dict.fromkeys(body.names, Primitive.INT)
        variables[body.names[0]] = item
        return grown * self.growth(body.children[0], scope.inside(variables))


def _judge_reference(node: Node, scope: _Scope) -> None:
    root = node.names[0]
    if root in scope.items or scope.is_open:
        return
    if root in scope.outer or root in scope.fields:
        if scope.is_lambda and not _is_fixed_size(_type_of(node, scope)):
            expected = (
                "the item, and numbers, booleans, instants and enums of the record; texts in an equality of texts"
            )
            raise RuleRefused(f"{'.'.join(node.names)} in a lambda", expected)
        return
    if len(node.names) == 1 and root.lower() in OF_THE_CLOCK:
        return
    raise RuleRefused(f"the name {'.'.join(node.names)}", f"the contract's fields: {_listed(scope.fields)}")


def _judge_cast(node: Node, scope: _Scope) -> None:
    name = node.names[0]
    if name in CAST_TYPES:
        return
    if _DECIMAL.fullmatch(name) and node.children:
        kind = _type_of(node.children[0], scope)
        if scope.is_open or node.children[0].is_literal or kind in _NUMBERS or isinstance(kind, Decimal):
            return
        raise RuleRefused(f"a cast to {name} of what may be a text", "double, or a decimal field of the contract")
    raise RuleRefused(f"a cast to {name}", _listed(CAST_TYPES))


def _judge_pattern(node: Node, what: str) -> None:
    """A pattern is written out and can be run in linear time."""
    if not _is_text_literal(node, 1):
        raise RuleRefused(f"{what} with a pattern that is not a literal", f"{what} with a pattern that is written out")
    pattern = str(_literal(node, 1))
    if what == "LIKE":
        if pattern.rstrip("%").count("%") > 1:
            raise RuleRefused(f"LIKE '{pattern}'", "LIKE with one % before its end, or RLIKE")
        return
    options = re2.Options()
    options.log_errors = False
    try:
        steps = re2.compile(pattern, options).programsize
    except (re2.error, UnicodeEncodeError) as error:
        words = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise RuleRefused(f"the pattern '{pattern}'", f"patterns of RE2's syntax ({words})") from error
    if steps > PATTERN_STEPS_MAX:
        raise RuleRefused(
            f"the pattern '{pattern}' of {steps} steps", f"patterns of {PATTERN_STEPS_MAX} of RE2's steps"
        )


def _judge_scale(node: Node) -> None:
    scale = node.children[1].value if len(node.children) > 1 and node.children[1].is_literal else 0
    is_second_read = len(node.children) > 1 and not node.children[1].is_literal
    if is_second_read or not isinstance(scale, int) or abs(scale) > SCALE_MAX:
        raise RuleRefused(f"{node.function} to so many digits", f"a number of digits up to {SCALE_MAX}, written out")


def _demand_one_column(node: Node, name: str) -> None:
    if sum(not child.is_literal for child in node.children) > 1:
        raise RuleRefused(f"{name} of two values of a record", f"{name} with all arguments but one written out")


def _replacement_growth(node: Node) -> float:
    if not all(_is_text_literal(node, at) for at in range(1, max(2, len(node.children)))):
        raise RuleRefused("replace with what is not written out", "replace(text, 'literal', 'literal')")
    searched = len(str(_literal(node, 1)).encode())
    put = sum(len(str(child.value).encode()) for child in node.children[2:])
    return max(1.0, put / max(1, searched))


def _grown(growth: float, scope: _Scope, name: str) -> float:
    if growth > GROWTH_MAX:
        raise RuleRefused(f"{name} that may make so much of a record", f"values of at most {GROWTH_MAX} times its size")
    if scope.is_lambda and growth > 1:
        raise RuleRefused(f"{name} in a lambda", "lambdas that make nothing larger than the item")
    return growth


def _is_equality_of_texts(node: Node, scope: _Scope) -> bool:
    """Whether both sides are texts, of which an equality reads no more than the shorter one is long."""
    for side in node.children:
        kind = _type_of(side, scope)
        is_text = isinstance(kind, (Enum, Uuid)) or kind is Primitive.STRING
        if not is_text and not (side.is_literal and isinstance(side.value, str)):
            return False
    return True


def _is_path_of_item(node: Node, scope: _Scope) -> bool:
    while node.kind == "UnresolvedExtractValue" and node.children[1].is_literal:
        node = node.children[0]
    return node.kind == "UnresolvedNamedLambdaVariable" and node.names[0] in scope.items


def _has_hashed_items(node: Node, scope: _Scope) -> bool:
    kind = _type_of(node, scope)
    if node.function == "transform" and [child.kind for child in node.children[1:]] == ["LambdaFunction"]:
        array = _type_of(node.children[0], scope)
        item = array.items.type if isinstance(array, Array) else None
        body = node.children[1]
        found = _type_of(body.children[0], scope.inside({body.names[0]: item}))
    elif node.function == "array":
        return all(child.is_literal for child in node.children)
    else:
        found = kind.items.type if isinstance(kind, Array) else None
    return found is Primitive.STRING or _is_fixed_size(found)


def _is_fixed_size(kind: AvroType | None) -> bool:
    if isinstance(kind, Primitive):
        return kind not in {Primitive.STRING, Primitive.BYTES}
    return isinstance(kind, (Temporal, Decimal, Enum, Uuid))


def _type_of(node: Node, scope: _Scope) -> AvroType | None:
    """The contract's type of what a path leads to; None for what is no path, or where the contract does not say."""
    if node.kind == "UnresolvedExtractValue":
        kind = _type_of(node.children[0], scope)
        key = node.children[1].value if node.children[1].is_literal else None
        if isinstance(kind, Array):
            return kind.items.type if isinstance(key, int) else None
        if isinstance(kind, Map):
            return kind.values.type
        return _field_type(kind, key) if isinstance(key, str) else None
    if node.kind not in {"UnresolvedAttribute", "UnresolvedNamedLambdaVariable"}:
        return None
    root, *path = node.names
    found = scope.items[root] if root in scope.items else scope.outer.get(root, scope.fields.get(root))
    for name in path:
        found = _field_type(found, name)
    return found


def _field_type(kind: AvroType | None, name: str) -> AvroType | None:
    if isinstance(kind, Map):
        return kind.values.type
    each = kind.field(name) if isinstance(kind, Record) else None
    return None if each is None else each.slot.type


def _is_text_literal(node: Node, at: int) -> bool:
    return len(node.children) > at and isinstance(_literal(node, at), str)


def _literal(node: Node, at: int) -> str | int | None:
    child = node.children[at]
    return child.value if child.is_literal else None


def _listed(names: object) -> str:
    return ", ".join(sorted(names)) if isinstance(names, (frozenset, Mapping)) else str(names)


def _like(name: str) -> str:
    """The allowed functions, those of the nearest names where there are some."""
    near = difflib.get_close_matches(name, sorted(FUNCTIONS), n=_CLOSEST_MAX)
    return ", ".join(near) if near else FUNCTIONS_EXPECTED
