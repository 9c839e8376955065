"""Proving payloads many at a time: Arrow's JSON reader parses chunks of a micro-batch into typed columns.

A chunk is proven when every payload in it is one strict JSON value of the contract's types; then its columns *are* the
records, and Spark need not parse again. A proof may be too careful, never too trusting: what is not proven, or only
doubtful, takes the other paths. Arrow refuses what JSON forbids, keys that stand twice and lone surrogates, in fields
that no one reads too; only words like NaN pass it, and are found in the columns.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.json

from spark_batch.avro_types import Record
from spark_batch.outcome import ArrowColumn
from spark_batch.payload_fields import dedupe_fields
from spark_batch.plan import ConversionPlan, UnknownFields
from spark_batch.prepass import pc
from spark_batch.proof_shape import (
    ArrowType,
    RecordCheck,
    Unproven,
    decimal_names,
    fields_with_default,
    has_strange_number,
    read_type,
)
from spark_batch.proof_suspects import Suspects, occurrences

_json: ArrowColumn = pyarrow.json
FIRST_ROWS = 1_024
CHUNK_ROWS = 8_192
CHUNK_BYTES = 4 << 20
"""A chunk is about so large: for the processor's caches, and because of the next limit."""
COLUMNS_MAX = 500
"""Arrow makes a column of every key it meets; where keys are data (a map from users, say) that would be millions."""
MENDS_MAX = 4
"""Payloads, or values, that are taken out of a chunk one after the other because Arrow names them."""
ALIKE_MAX = 16
"""Payloads of a chunk that may hold the value which Arrow names."""
UNKNOWN_MAX = 4
"""Fields of a chunk that no one knows: where they are refused, each payload's text is searched for their names."""
SPLITS_MAX = 40
"""Reads spent on finding the payloads that spoil their chunks; each takes a millisecond or more."""
BAD_ROWS_MAX = 4 * CHUNK_ROWS
"""Where of so many payloads more than half are bad, no more are looked at."""
SKIPS_MAX = 64
"""Micro-batches that are not tried at all after one failed, at most."""


@dataclass(frozen=True)
class ProofShape:
    """What a proof is about."""

    record: Record
    type: ArrowType
    is_unknown_refused: bool
    told_apart: tuple[tuple[tuple[str, ...], str], ...]
    """Path of Avro names, payload name: fields for which missing and null are different things, alike in Arrow."""
    hashed: tuple[tuple[str, ...], ...]
    """Paths of the fields of the de-duplication hash; where all are missing it is the payload that is hashed."""
    decimals: tuple[str, ...] = ()
    """Payload names of fields that are decimals."""


@dataclass(frozen=True)
class Proof:
    """`records`: the proven ones, in order, by their Avro names; `is_proven`: which of the payloads they are."""

    records: ArrowColumn
    is_proven: np.ndarray
    coerced: np.ndarray
    """For each of the records the bits of its coerced fields."""


class ProofHabit:
    """Whether trying is worth while: after a micro-batch that was not proven some are not tried, ever more of them."""

    def __init__(self) -> None:
        self._left = 0
        self._next = 1

    def is_tried(self) -> bool:
        """Whether to try the next micro-batch."""
        if self._left:
            self._left -= 1
            return False
        return True

    def tell(self, *, was_worth_while: bool) -> None:
        """Take note of whether the last attempt proved enough records to be worth its time."""
        self._left = 0 if was_worth_while else self._next
        self._next = 1 if was_worth_while else min(2 * self._next, SKIPS_MAX)


def proof_shape(plan: ConversionPlan) -> ProofShape | None:
    """None where the plan asks for something that Arrow cannot vouch for."""
    if plan.contract is None or plan.record is None:
        return None
    hashed = dedupe_fields(plan.dedupe_fields, plan.record)
    kind, decimals = read_type(plan.record), tuple(sorted(set(decimal_names(plan.record))))
    if kind is None or not all(field.is_typed for field in hashed) or not all(map(_PLAIN_NAME.fullmatch, decimals)):
        return None
    is_unknown_refused = plan.contract.unknown_fields is UnknownFields.REJECT
    paths = tuple(field.avro_names for field in hashed)
    told_apart = [*fields_with_default(plan.record), *zip(paths, (field.names[-1] for field in hashed), strict=True)]
    return ProofShape(plan.record, kind, is_unknown_refused, tuple(told_apart), paths, decimals)


def prove(text: ArrowColumn, shape: ProofShape) -> Proof | None:
    """Typed records of the payloads (UTF-8, null: not asked about), or None where less than half is proven."""
    found: dict[int, _Chunk] = {}
    if shape.decimals:
        text = _with_plain_decimals(text, shape.decimals)
    reader = _Reader(shape, Suspects(shape.record, _PAYLOAD))
    try:
        failed = _read_chunks(text, reader, found)
    except _NotWorthWhile:
        return None
    if len(failed) <= max(1, len(found)):
        _read_halves(text, reader, failed, found)
    is_proven = np.zeros(len(text), dtype=bool)
    records, coerced = [], []
    for start, chunk in sorted(found.items(), key=lambda item: item[0]):
        is_sure = ~chunk.is_doubtful
        is_proven[start + (np.arange(len(is_sure)) if chunk.rows is None else chunk.rows)] = is_sure
        records.append(chunk.records.filter(pa.array(is_sure)) if chunk.is_doubtful.any() else chunk.records)
        coerced.append(chunk.coerced[is_sure])
    if 2 * np.count_nonzero(is_proven) < len(text):
        return None
    joined = records[0] if len(records) == 1 else pa.concat_arrays(records)
    return Proof(joined, is_proven, np.concatenate(coerced))


def _with_plain_decimals(text: ArrowColumn, names: tuple[str, ...]) -> ArrowColumn:
    """The payloads, null where one may have a text for a decimal, an exponent, or more digits than any decimal."""
    key = rf'"(?:{"|".join(map(re.escape, names))})"[ \t\r\n]*:[ \t\r\n]*'
    is_odd = pc.match_substring_regex(text, rf"{key}{_ODD_DECIMAL}|{_ESCAPED_ASCII}")
    return pc.if_else(is_odd, pa.scalar(None, pa.string()), text)


def _read_chunks(text: ArrowColumn, reader: _Reader, found: dict[int, _Chunk]) -> list[tuple[int, int]]:
    """Read chunk by chunk; gives the chunks (start, length) that failed; raises _NotWorthWhile.

    The first is small: it tells of the rest.
    """
    average = max(1, text.nbytes // max(1, len(text)))
    rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // average))
    failed: list[tuple[int, int]] = []
    mends_left = MENDS_MAX + len(text) // (FIRST_ROWS // 2)
    left_out = start = 0
    length = min(rows, FIRST_ROWS)
    while start < len(text):
        length = min(length, len(text) - start)
        chunk = text.slice(start, length)
        try:
            read = reader.read(chunk)
            left_out += length if read is None else read.left_out
        except _Unread as failure:
            if reader.suspects.learn(failure.complaint):
                continue
            rows = min(rows, FIRST_ROWS)
            if length > rows:
                # From here on in small chunks: less is read in vain before a bad payload.
                length = rows
                continue
            read, mends = _read_mended(chunk, reader, failure, mends_max=min(MENDS_MAX, mends_left))
            mends_left -= mends
            if read is None:
                failed.append((start, length))
        if read is not None:
            found[start] = read
        if 2 * left_out > min(len(text), max(start + length, BAD_ROWS_MAX)):
            raise _NotWorthWhile
        start, length = start + length, rows
    return failed


def _read_mended(chunk: ArrowColumn, reader: _Reader, failure: _Unread, *, mends_max: int) -> tuple[_Chunk | None, int]:
    """Read without the payloads that Arrow says it failed at, which are left to others; and how often that was tried.

    Where it names the wrong ones nothing is lost: only what it reads in the end counts.
    """
    for mends in range(mends_max):
        rows = np.flatnonzero(~failure.is_left_out)
        is_bad = _named_by(failure.complaint, chunk.take(pa.array(rows)))
        if is_bad is None:
            return None, mends
        failure.is_left_out[rows[is_bad]] = True
        try:
            return reader.read(chunk, failure.is_left_out), mends + 1
        except _Unread as another:
            failure = another
    return None, mends_max


def _named_by(told: str, chunk: ArrowColumn) -> np.ndarray | None:
    """The payload at whose row Arrow says that it failed, or those few with the number that it could not convert."""
    if (row := _ROW.search(told)) is not None and int(row[1]) < len(chunk):
        return np.asarray(np.arange(len(chunk)) == int(row[1]))
    if (value := _VALUE.search(told)) is None:
        return None
    found = pc.match_substring_regex(chunk, rf"[:,\[]\s*{re.escape(value[1])}\s*[,}}\]]")
    is_alike = np.asarray(pc.fill_null(found, fill_value=False))
    return is_alike if 0 < np.count_nonzero(is_alike) <= ALIKE_MAX else None


def _read_halves(
    text: ArrowColumn,
    reader: _Reader,
    failed: list[tuple[int, int]],
    found: dict[int, _Chunk],
) -> None:
    waiting = [half for chunk in failed for half in _halves(*chunk)]
    for _ in range(SPLITS_MAX):
        if not waiting:
            return
        start, length = waiting.pop()
        try:
            read = reader.read(text.slice(start, length))
        except (_Unread, _NotWorthWhile):
            waiting += _halves(start, length)
        else:
            if read is not None:
                found[start] = read


def _halves(start: int, length: int) -> list[tuple[int, int]]:
    middle = length // 2
    return [(start, middle), (start + middle, length - middle)] if middle else []


class _NotWorthWhile(Exception):
    """Keys are data, or more payloads are bad than good."""


class _Unread(Exception):
    """Arrow failed at a chunk, of which these payloads had been left out, and complained so."""

    def __init__(self, complaint: str, is_left_out: np.ndarray) -> None:
        super().__init__(complaint)
        self.complaint = complaint
        self.is_left_out = is_left_out


@dataclass(frozen=True)
class _Chunk:
    """The payloads of one chunk as records, which of them are doubtful, and the bits of their coerced fields."""

    records: ArrowColumn
    is_doubtful: np.ndarray
    coerced: np.ndarray
    rows: np.ndarray | None = None
    """Where in the chunk they stand; None: all of it, one after the other."""
    left_out: int = 0
    """Payloads of the chunk that were not read."""


@dataclass(frozen=True)
class _Reader:
    """Reads chunks of one micro-batch, without the payloads that are suspected of spoiling them."""

    shape: ProofShape
    suspects: Suspects

    def read(self, text: ArrowColumn, is_left_out: np.ndarray | None = None) -> _Chunk | None:
        """The chunk without the suspects, or without those that are given; None where nothing is left of it.

        Raises _Unread and _NotWorthWhile.

        Every payload stands in an object of its own, before a mark that cannot be guessed. As many rows as payloads, a
        mark in each and nothing beside it: then each payload is one value, and none reaches into the next.
        """
        lines = _lines(text)
        if is_left_out is None:
            is_left_out = self.suspects.found(lines)
        left_out = int(np.count_nonzero(is_left_out))
        if left_out == len(text):
            return None
        try:
            read = self._checked(lines if not left_out else lines.filter(pa.array(~is_left_out)))
        except Unproven as failure:
            raise _Unread(str(failure.__cause__), is_left_out) from failure
        return replace(read, rows=np.flatnonzero(~is_left_out), left_out=left_out) if left_out else read

    def _checked(self, lines: ArrowColumn) -> _Chunk:
        table = self._table(lines)
        if table.column_names != [_PAYLOAD, _MARK] or table.num_rows != len(lines) or table.column(_MARK).null_count:
            raise Unproven
        return _checked(table, lines, self.shape)

    def _table(self, lines: ArrowColumn) -> pa.Table:
        data = lines.buffers()[2]
        try:
            table: pa.Table = _json.read_json(
                pa.BufferReader(data),
                read_options=_json.ReadOptions(use_threads=False, block_size=data.size + 1),
                parse_options=_json.ParseOptions(
                    explicit_schema=pa.schema([(_PAYLOAD, self.shape.type), (_MARK, pa.int64())]),
                    newlines_in_values=False,
                    unexpected_field_behavior="infer",
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError) as error:
            # What Arrow says of bad text may hold half a character, and then cannot be told as text.
            raise Unproven from error
        return table


def _lines(text: ArrowColumn) -> ArrowColumn:
    return pc.binary_join_element_wise(_HEAD, text, _TAIL, "", null_handling="replace", null_replacement="null")


def _checked(table: pa.Table, lines: ArrowColumn, shape: ProofShape) -> _Chunk:
    column: ArrowColumn = table.column(_PAYLOAD)
    column = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    if _leaves(column.type) > COLUMNS_MAX:
        raise _NotWorthWhile
    if has_strange_number(column):
        raise Unproven
    coerced = np.zeros(len(column), dtype=np.int64)
    check = RecordCheck(shape.is_unknown_refused)
    records, is_doubtful = check.record(shape.record, column, coerced)
    is_doubtful |= np.asarray(column.is_null())
    if len(check.unknown) > UNKNOWN_MAX:
        raise Unproven
    for name in check.unknown:
        is_doubtful |= ~_is_surely_missing(lines, name)
    for path, name in shape.told_apart:
        is_null = np.asarray(pc.struct_field(records, list(path)).is_null())
        is_asked = is_null & ~is_doubtful
        if 2 * np.count_nonzero(is_asked) > len(lines):
            is_doubtful |= is_asked & ~_is_surely_missing(lines, name)
        elif is_asked.any():
            is_doubtful[is_asked] = ~_is_surely_missing(lines.filter(pa.array(is_asked)), name)
    if shape.hashed:
        nulls = [np.asarray(pc.struct_field(records, list(path)).is_null()) for path in shape.hashed]
        is_doubtful |= np.logical_and.reduce(nulls)
    return _Chunk(records, is_doubtful, coerced)


def _is_surely_missing(lines: ArrowColumn, name: str) -> np.ndarray:
    """Where no object of the payload can have the key: it stands in the line neither plainly nor with escapes."""
    if not _PLAIN_NAME.fullmatch(name):
        return np.zeros(len(lines), dtype=bool)
    may_stand = np.array(pc.fill_null(pc.match_substring_regex(lines, _ESCAPED_ASCII), fill_value=True))
    rows = np.flatnonzero(~may_stand & (occurrences(lines, name) > 0))
    if len(rows):
        key = f'"{re.escape(name)}"[ \\t\\r\\n]*:'
        may_stand[rows] = np.asarray(pc.match_substring_regex(lines.take(pa.array(rows)), key))
    return np.asarray(~may_stand)


def _leaves(kind: ArrowType) -> int:
    if pa.types.is_struct(kind):
        return 1 + sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1 + _leaves(kind.value_type) if pa.types.is_list(kind) else 1


_ROW = re.compile(r" in row (\d+)$")
_VALUE = re.compile(r"couldn't parse:\s*([-+.\w]+)$")
"""How Arrow ends what it says of a text that it cannot read, and of a number that is not of its field's type."""
_PLAIN_NAME = re.compile(r"[ !#-.0-\[\]-~]+")
"""Printable ASCII but quote, slash and backslash: such a character has one escape, which begins as the next says."""
_ESCAPED_ASCII = r"\\u00[2-7]"
_ODD_DECIMAL = r'(?:"|[-0-9.]*[eE]|-?[0-9]*\.?[0-9]{39})'
_PAYLOAD, _MARK = f"p{secrets.token_hex(8)}", f"m{secrets.token_hex(8)}"
_HEAD = f'{{"{_PAYLOAD}":'
_TAIL = f',"{_MARK}":0}}\n'
