"""What can be told of a `SELECT … FROM record` without Spark's parser, so that a validation tells it at once."""

from __future__ import annotations

import re

from spark_batch.rules.tree import RuleRefused, bare_text, text_refusal

EXPECTED = "SELECT expressions FROM record, with WHERE or without"
_BEFORE_BRACKET = re.compile(r"\b(select|where|except)\s*\(", re.IGNORECASE)
"""Words of a SELECT that may stand before a bracket without being functions."""
_SELECT = re.compile(r"\s*select\b.*\bfrom\s+`?record`?\s*(?:where\b.*)?", re.IGNORECASE | re.DOTALL)
_BEHIND = re.compile(r"\bfrom\s+`?record`?\s*(?P<word>,|(?!where\b)\w+(?:\s+(?:by|view|join)\b)?)", re.IGNORECASE)
_DISTINCT = re.compile(r"\s*select\s+distinct\b(?!\s*[,.]|\s+from\b)", re.IGNORECASE)


def select_refusal(sql: str) -> RuleRefused | None:
    """What can be told of a text without Spark's parser; None where nothing can. No wall, see `text_refusal`."""
    refusal = text_refusal(_BEFORE_BRACKET.sub(r"\1 , (", sql))
    if refusal is not None:
        return refusal
    bare = bare_text(sql)
    if _DISTINCT.match(bare):
        return RuleRefused("DISTINCT", EXPECTED)
    behind = _BEHIND.search(bare)
    if behind is not None:
        return RuleRefused(" ".join(behind["word"].upper().split()), EXPECTED)
    return None if _SELECT.fullmatch(bare) else RuleRefused("what is no SELECT … FROM record", EXPECTED)
