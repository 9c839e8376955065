"""The reference page of what a contract's rules may say, from the lists by which they are judged."""

from __future__ import annotations

from collections.abc import Iterable

from service.docs.markdown import NOTICE, table
from spark_batch.rules import allowed

_INTRODUCTION = f"""# Rules of contracts

{NOTICE}
A rule (`contract.rules.<name>`) is a boolean expression of Spark {{version}} SQL over the contract's fields. It is read
by Spark's own parser, and each part of it has to be in these lists before Spark analyses or runs anything: when a
config is validated, and again by each task. Everything else is a finding that names it.

- **Names**: the contract's fields, nested ones by dots or brackets (`counts['x']`, `items[0].id`).
- **Operators**: `= == <> != <=> < <= > >=`, `AND OR NOT`, `+ - * / % DIV`, `& | ^ ~ << >>`, `||`, `IN`, `BETWEEN`,
  `IS [NOT] NULL`, `IS [NOT] TRUE`, `IS [NOT] DISTINCT FROM`, `CASE`, `CAST` and `::`, `LIKE`, `ILIKE`, `RLIKE`,
  literals of every kind (`date'2024-01-01'`, `interval 1 day`).
- **Not**: subqueries, `IDENTIFIER`, `${{{{…}}}}`, aggregates, windows, functions with a schema before their name,
  arguments by name, `COLLATE`.
- **RLIKE** is carried out by RE2 in linear time: [its syntax](https://github.com/google/re2/wiki/Syntax) has no
  look-around and no back references; `$` means the end of the text, not the place before a last line feed; `.` is
  anything but a line feed. Its pattern is written out, and takes at most {allowed.PATTERN_STEPS_MAX} of RE2's steps.
  With `spark.remote` it is refused, because servers bring no such engine that could be relied on.
- **LIKE** takes a pattern that is written out, with one `%` before its end at most: `'%a%'`, `'a%b'`, not `'%a%b'`.
- **Lambdas** (`exists(items, item -> item.price > 0)`) may read the item, and of the record what has a fixed size:
  numbers, booleans, instants, enums; texts only in an equality of texts. In a lambda another one may go over a field of
  the item.
- **Casts**: {{casts}}; to `decimal(p,s)` from numbers only.
- **Arguments to be written out**, all but one: {{written}}.
- **Sizes**: {allowed.TEXT_CHARACTERS_MAX:,} characters, {allowed.NODES_MAX:,} parts, {allowed.DEPTH_MAX} in each other,
  {allowed.BRACKETS_MAX} opening brackets, {allowed.CASES_MAX} `CASE`s a rule; {allowed.RULES_MAX} rules a contract; and
  no value of more than {allowed.GROWTH_MAX} times the size of the record (`concat`, `replace`).

## Functions

"""


def page() -> str:
    """Text of the generated reference page, in Markdown."""
    told = {"casts": _codes(allowed.CAST_TYPES), "written": _codes(allowed.ONE_COLUMN), "version": "4.1.1"}
    rows = [(kind, _codes(names)) for kind, names in allowed.FUNCTIONS_BY_KIND.items()]
    return _INTRODUCTION.format(**told) + table(("about", "functions"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
