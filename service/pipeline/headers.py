"""Headers of a micro-batch: which names predicates ask for each record has, and what transformations make of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import Page
from service.kafka.records import Header
from service.pipeline.queue import QueuedPage
from spark_batch.plan import ConversionPlan
from spark_batch.plan_transforms import plain_value_shape
from spark_batch.row_columns import fitted_rows
from spark_batch.transforms.applied import AppliedStep, AppliedSteps
from spark_batch.transforms.catalog import HeaderEdit
from spark_batch.transforms.records import HEADERS, with_header

Headers = Sequence[Header]


def runs_of_headers(page: Page, asked: frozenset[str]) -> Iterator[tuple[int, int, frozenset[str]]]:
    """First record, number of records and names, of each run of records that have the same of the names asked for."""
    if page.headers is None or not asked:
        yield 0, len(page), frozenset()
        return
    at = 0
    for names, run in groupby(page.headers, key=lambda own: asked.intersection(name for name, _ in own)):
        count = sum(1 for _ in run)
        yield at, count, names
        at += count


def headers_of(pages: Sequence[QueuedPage]) -> list[Headers] | None:
    """The headers of each record; None where no page has any."""
    if all(item.page.headers is None for item in pages):
        return None
    every: list[Headers] = []
    for item in pages:
        every.extend(item.page.headers if item.page.headers is not None else [()] * len(item.page))
    return every


def headers_of_events(plan: ConversionPlan, events: pa.ChunkedArray[Any]) -> list[Headers]:
    """What a transformation adds of change events to their headers, of rows as their pages have them."""
    form, record = plan.applied_steps().events, plan.record
    shape = plain_value_shape(plan)
    assert form is not None  # noqa: S101 - told to the type checker: it is what asks for these headers
    assert record is not None  # noqa: S101 - the same
    assert shape is not None  # noqa: S101 - the same
    whole: Any = events.combine_chunks()
    rows = fitted_rows(record, whole, is_finite=False).records
    return list(form.event_headers(rows, shape))


def edited(
    headers: Sequence[Headers] | None, plan: ConversionPlan, texts: pa.ChunkedArray[Any], *, is_tombstone: bool
) -> list[Headers]:
    """The headers of records after their transformations; ``texts`` as in their outcome.

    Worked out once for each set of them, unless some are made of the records themselves.
    """
    applied = plan.applied_steps(is_tombstone=is_tombstone)
    count = len(texts)
    if any(isinstance(edit, AppliedStep) for edit in applied.edits):
        own = [()] * count if headers is None else list(map(_hashable, headers))
        return _made(pa.array(own, HEADERS), plan, applied, texts)
    distinct = [()] if headers is None else list(dict.fromkeys(map(_hashable, headers)))
    column: Any = pa.array(distinct, HEADERS)
    for edit in applied.edits:
        column = cast("HeaderEdit", edit).edited(column)
    after = _as_tuples(column)
    if headers is None:
        return [after[0]] * count
    known = dict(zip(distinct, after, strict=True))
    return [known[_hashable(own)] for own in headers]


def _made(column: Any, plan: ConversionPlan, applied: AppliedSteps, texts: pa.ChunkedArray[Any]) -> list[Headers]:
    """With headers made of the records, in whole columns."""
    lists: Any = texts.combine_chunks()
    columns: dict[str, list[tuple[str, Any]]] = {}
    at = 0
    for step, form in plan.applied_steps().header_steps:
        columns[step.name] = [(name, pc.list_element(lists, at + own)) for own, name in enumerate(form.headers)]
        at += len(form.headers)
    for edit in applied.edits:
        if not isinstance(edit, AppliedStep):
            column = edit.edited(column)
            continue
        for name, values in columns[edit.name]:
            column = with_header(column, name, values)
    return _as_tuples(column)


def _as_tuples(column: Any) -> list[Headers]:
    return [tuple((item["name"], item["value"]) for item in own or ()) for own in column.to_pylist()]


def _hashable(headers: Headers) -> tuple[Header, ...]:
    return tuple((name, value) for name, value in headers)
