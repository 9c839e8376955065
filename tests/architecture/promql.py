"""Takes a PromQL expression apart as far as it takes to know which series and labels it names."""

from __future__ import annotations

import re
from dataclasses import dataclass

TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
COMMENT = re.compile(r"#[^\n]*")
DURATION = re.compile(r"\[[^\]]*\]")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
MATCHERS = re.compile(r"([a-zA-Z_:][\w:]*)?\s*\{([^}]*)\}")
LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
NAME = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])")
KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"})


@dataclass(frozen=True)
class Query:
    """``series`` named, ``labels`` asked of each, and the labels the result is ``grouped`` by."""

    series: frozenset[str]
    labels: frozenset[tuple[str, str]]
    grouped: frozenset[str]


def parse(expression: str) -> Query:
    """Return what an expression names; Grafana's variables (``$x``) are taken for texts."""
    bare = DURATION.sub(" ", COMMENT.sub(" ", TEXT.sub('""', expression)))
    grouped = {label.strip() for group in GROUPING.findall(bare) for label in group.split(",")} - {""}
    bare = GROUPING.sub(" ", bare)
    labels = {(series, label) for series, inside in MATCHERS.findall(bare) for label in LABEL.findall(inside)}
    bare = re.sub(r"\{[^}]*\}", " ", bare)
    names = {name for name in NAME.findall(bare) if name.lower() not in KEYWORDS}
    return Query(frozenset(names), frozenset(labels), frozenset(grouped))
