"""Which payloads Arrow's reader would fail at, found before it is asked to read them.

Arrow gives nothing of a chunk in which one payload is bad: each such payload costs a read in vain, and the chunk is
read once more. So what Arrow has complained of is looked for in the rest of the micro-batch, by means that cost a small
part of its reading and go on after a bad payload: msgspec passes over whole payloads and looks only into the fields
that were complained of, and keys that stand twice are counted. As long as nothing but whole numbers were too large,
msgspec is given only the payloads that have so many digits in a row.

Nothing is decided here. A payload that is suspected in vain takes a slower path; one that is not suspected fails in
Arrow, as it would have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from spark_batch.avro_types import Array, AvroType, Enum, Primitive, Record, Slot, Temporal, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_batch.outcome import ArrowColumn

REPEATED_KEYS_MAX = 4
"""Names that are counted; where each bad payload repeats another key, counting would cost more than it saves."""
_ALIKE_SHARE = 16
"""A key that one payload in so many has twice, in objects of their own, says nothing."""

_Path = tuple[str, ...]


class Suspects:
    """What Arrow has complained of in one micro-batch."""

    def __init__(self, record: Record, payload_name: str) -> None:
        self._record = record
        self._payload_name = payload_name
        self._paths: set[_Path] = set()
        self._numbers: frozenset[str] = frozenset()
        # Whether nothing but whole numbers with too many digits was complained of.
        self._is_of_digits = False
        self._keys: list[str] = []
        self._decode_lines: Callable[[Any], Any] | None = None

    def learn(self, complaint: str) -> bool:
        """Take note of what Arrow says; False where nothing new can be looked for."""
        told = _COLUMN.search(complaint)
        path = None if told is None else tuple(told[1].split("/"))
        if told is not None and path is not None and told[2] == _TWICE:
            return self._learn_key(path[-1])
        known = self._paths, self._numbers, self._is_of_digits
        is_of_digits = _LARGE.search(complaint) is not None and (self._is_of_digits or self._decode_lines is None)
        found = self._paths | ({path[1:]} if path else set()), self._numbers | _numbers_of(complaint), is_of_digits
        if self._decode_lines is not None and found == known:
            return False
        self._paths, self._numbers, self._is_of_digits = found
        self._decode_lines = _decoder(self._record, self._payload_name, self._paths, self._numbers)
        return True

    def found(self, lines: ArrowColumn) -> np.ndarray:
        """Where among the lines (each an object with a payload and a line feed at its end) suspects stand."""
        is_suspect = np.zeros(len(lines), dtype=bool)
        if self._decode_lines is None and not self._keys:
            return is_suspect
        if self._decode_lines is not None and self._is_of_digits:
            asked = _with_many_digits(lines)
            is_suspect[asked] = _unreadable(self._decode_lines, lines.filter(pa.array(asked)))
        elif self._decode_lines is not None:
            is_suspect = _unreadable(self._decode_lines, lines)
        for key in self._keys:
            is_alike = occurrences(lines, key) > 1
            if _ALIKE_SHARE * np.count_nonzero(is_alike) <= len(lines):
                is_suspect |= is_alike
        return is_suspect

    def _learn_key(self, key: str) -> bool:
        if key in self._keys or len(self._keys) == REPEATED_KEYS_MAX:
            return False
        self._keys.append(key)
        return True


def _decoder(record: Record, payload_name: str, paths: set[_Path], numbers: frozenset[str]) -> Callable[[Any], Any]:
    """Reads lines with a payload each, and of them no more than the fields at these paths and of these numbers."""
    fields = [(payload_name, _struct(record, paths, numbers) | None)] if paths or numbers else []
    return msgspec.json.Decoder(msgspec.defstruct("Line", fields, gc=False)).decode_lines


def _unreadable(decode_lines: Callable[[Any], Any], lines: ArrowColumn) -> np.ndarray:
    """Where among the lines msgspec cannot read one; after each it goes on with the next."""
    is_suspect = np.zeros(len(lines), dtype=bool)
    starts, text = _parts(lines)
    line = 0
    while line < len(is_suspect):
        try:
            decode_lines(text[starts[line] : starts[-1]])
        except msgspec.DecodeError as error:
            at = _line_of(str(error), line, starts)
        except RecursionError:
            break
        else:
            break
        is_suspect[at] = True
        line = at + 1
    return is_suspect


def _line_of(told: str, first: int, starts: np.ndarray) -> int:
    """The line in which msgspec failed, of those from `first` on."""
    last = len(starts) - 2
    if (item := _ITEM.search(told)) is not None:
        return min(first + int(item[1]), last)
    if (byte := _BYTE.search(told)) is None:
        return last
    # Where a line is not closed it fails at the first byte of the next.
    before = int(starts[first]) + int(byte[1]) - 1
    return min(max(int(np.searchsorted(starts, before, "right")) - 1, first), last)


def occurrences(text: ArrowColumn, name: str) -> np.ndarray:
    """How often the name, in quotes, stands in each of the texts; many times as fast as a regular expression.

    Never too few: those that share a quote are two, and what begins in one text and ends in another counts for both.
    """
    starts, data = _parts(text)
    quoted = f'"{name}"'.encode()
    places = starts[0] + _places(_bytes(starts, data), quoted)
    rows = np.searchsorted(starts, places, "right") - 1
    ends = np.searchsorted(starts, places + len(quoted) - 1, "right") - 1
    return np.bincount(np.concatenate([rows, ends[ends > rows]]), minlength=len(text))


def _places(data: np.ndarray, sought: bytes) -> np.ndarray:
    """Where the bytes (two at least) stand, in no order: by comparing whole words, for each way of cutting them."""
    width = 4 if len(sought) >= 4 else 2  # noqa: PLR2004 - bytes of an integer
    word = int.from_bytes(sought[:width], "little")
    found = []
    for shift in range(width):
        words = data[shift : shift + (len(data) - shift) // width * width].view(f"<u{width}")
        found.append(shift + width * np.flatnonzero(words == word))
    places = np.concatenate(found)
    places = places[places <= len(data) - len(sought)]
    for at in range(width, len(sought)):
        places = places[data[places + at] == sought[at]]
    return places


def _with_many_digits(lines: ArrowColumn) -> np.ndarray:
    """Where so many digits may stand in a row as the least 64-bit integer that is too large has, which are nineteen.

    Of every three bytes one is looked at: among the nineteen are six of those, and all from the first to the last.
    """
    starts, data = _parts(lines)
    text = _bytes(starts, data)
    is_digit = text[::3] - _ZERO < _TEN
    is_digit = is_digit[:-1] & is_digit[1:]
    places = 3 * np.flatnonzero(is_digit[:-4] & is_digit[2:-2] & is_digit[4:])
    for between in (1, 2, 4, 5, 7, 8, 10, 11, 13, 14):
        places = places[text[places + between] - _ZERO < _TEN]
    is_asked = np.zeros(len(lines), dtype=bool)
    is_asked[np.searchsorted(starts, starts[0] + places, "right") - 1] = True
    return is_asked


def _bytes(starts: np.ndarray, data: memoryview) -> np.ndarray:
    return np.frombuffer(data[starts[0] : starts[-1]], np.uint8)


def _parts(text: ArrowColumn) -> tuple[np.ndarray, memoryview]:
    """Where each text starts and the last ends, and the bytes of all."""
    _, starts, data = text.buffers()
    return np.frombuffer(starts, np.int32, len(text) + 1, 4 * text.offset), memoryview(b"" if data is None else data)


def _struct(record: Record, paths: set[_Path], numbers: frozenset[str]) -> Any:
    """A type of msgspec's that looks into the fields at these paths, and into those of these numbers, only."""
    fields = []
    for number, field in enumerate(record.fields):
        below = {path[1:] for path in paths if path[:1] == (field.json_name,)}
        kind = _looked_into(field.slot, below, numbers)
        if kind is not None and not _UNFIT_NAME.search(field.json_name):
            fields.append((f"f{number}", kind | None, msgspec.field(name=field.json_name, default=None)))
    return msgspec.defstruct(f"Read{len(fields)}", fields, gc=False)


def _looked_into(slot: Slot, paths: set[_Path], numbers: frozenset[str]) -> Any:
    """None where msgspec is to pass over the field."""
    kind, is_named = slot.type, () in paths
    if slot.coercion is not None:
        return None
    if isinstance(kind, Record):
        inside = _struct(kind, paths, numbers)
        return inside if paths or inside.__struct_fields__ else None
    if isinstance(kind, Array):
        items = {path[1:] for path in paths if path[:1] == (_LISTED,)}
        item = _looked_into(kind.items, items, numbers)
        return list[msgspec.Raw if item is None else item | None] if is_named or item is not None else None  # type: ignore[misc]
    number = _NUMBERS.get(kind.base if isinstance(kind, Temporal) else kind)
    if number is not None:
        return number[1] if is_named or number[0] in numbers else None
    return _read_as(kind) if is_named else None


def _read_as(kind: AvroType) -> Any:
    if kind is Primitive.STRING or isinstance(kind, (Enum, Uuid)):
        return str
    return bool if kind is Primitive.BOOLEAN else None


def _numbers_of(complaint: str) -> frozenset[str]:
    """Of what type, by Arrow's names, the number is that Arrow complains of; of any, where it does not say."""
    if "Number too big" not in complaint and "couldn't parse" not in complaint:
        return frozenset()
    told = _TYPE.search(complaint)
    return frozenset({told[1]} if told is not None else {name for name, _ in _NUMBERS.values()})


_NUMBERS: dict[AvroType, tuple[str, Any]] = {
    Primitive.INT: ("int32", Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]),
    Primitive.LONG: ("int64", Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]),
    Primitive.FLOAT: ("float", float),
    Primitive.DOUBLE: ("double", float),
}
"""Arrow's name of the type, and what msgspec is to read."""
_ZERO, _TEN = np.uint8(ord("0")), np.uint8(10)
"""What is no digit is more than nine above the digit 0, as an unsigned byte."""
_LARGE = re.compile(r" JSON to int64, couldn't parse:-?\d{19,}$")
_TYPE = re.compile(r"JSON to (int32|int64|float|double), couldn't parse")
_TWICE = "was specified twice"
_LISTED = "[]"
_COLUMN = re.compile(rf"Column\(/(.+)\) (changed from|{_TWICE})", re.DOTALL)
"""Arrow's words for a value of another type and for a key that stands twice; others tell of what is no JSON."""
_ITEM = re.compile(r" - at `\$\[(\d+)\]")
_BYTE = re.compile(r"\(byte (\d+)\)$")
"""Where msgspec says that it failed: in which of the lines, or at which byte of them."""
_UNFIT_NAME = re.compile(r'["\\\x00-\x1f]')
"""msgspec names no field so."""
