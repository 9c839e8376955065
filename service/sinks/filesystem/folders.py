"""The folder and the time of each record, by columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import Form, RefusalReason, SinkBatch
from service.sinks.filesystem.config import FilesConfig
from service.sinks.filesystem.path_format import folders_of
from service.sinks.json_columns import field_of_json, text_of_json
from service.sinks.shapes import ShapeError, field_of

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark have in place of null, and of an empty text."""
_NAME_BYTES_MAX = 200
_TO_ESCAPE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""What Hive and Spark escape in names of folders, and read back."""
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")
_YEAR_9999_MS = 253_402_300_799_999
_FOLDER_TYPES = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_date32)


@dataclass(slots=True)
class Placed:
    """Where the records of a batch go; what is not fit has been refused."""

    codes: npt.NDArray[np.int64]
    """For each row the number of its folder."""
    names: list[str]
    """Of the folders, below ``topics.dir``."""
    times_ms: npt.NDArray[np.int64] | None
    """None where nobody asks for them."""
    is_fit: npt.NDArray[np.bool_]

    def refuse(self, batch: SinkBatch, unfit: npt.NDArray[np.bool_], reason: RefusalReason, message: str) -> None:
        """Refuse rows, once each."""
        for row in np.flatnonzero(unfit & self.is_fit).tolist():
            batch.refuse(row, reason, message)
        self.is_fit &= ~unfit


def placed(batch: SinkBatch, values: Any, config: FilesConfig, *, now_ms: int, is_fit: npt.NDArray[np.bool_]) -> Placed:
    """Where the rows go. ``values``: as they are written, null in rows that are not fit.

    Raises ShapeError where no row has what the config asks for.
    """
    found = Placed(np.zeros(len(batch), np.int64), [], None, is_fit)
    if config.is_by_time or config.rotate_interval_ms > 0:
        found.times_ms = _times(batch, values, config, found, now_ms=now_ms)
    if config.partitioner == "Field":
        codes, names = _by_fields(batch, values, config.partition_field_name, found)
    elif config.is_by_time and found.times_ms is not None:
        pattern, duration_ms = config.folder_format
        codes, names = folders_of(np.where(found.is_fit, found.times_ms, 0), pattern, duration_ms, config.zone)
    else:
        numbers, codes = np.unique(_whole(batch, "partition").to_numpy(), return_inverse=True)
        names = [f"partition={number}" for number in numbers.tolist()]
    _below_topics(batch, codes, names, found)
    return found


def _below_topics(batch: SinkBatch, codes: npt.NDArray[np.int64], names: Sequence[str], found: Placed) -> None:
    encoded = _whole(batch, "topic").dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    unfit = np.array([_TOPIC.fullmatch(topic) is None for topic in topics])[numbers]
    found.refuse(batch, unfit, RefusalReason.OUT_OF_RANGE, "the topic that a transformation gave it names no folder")
    pairs, found.codes = np.unique(numbers * len(names) + codes, return_inverse=True)
    found.names = [f"{topics[pair // len(names)]}/{names[pair % len(names)]}" for pair in pairs.tolist()]


def _whole(batch: SinkBatch, name: str) -> Any:
    column: Any = batch.records.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _istext_of_json(batch: SinkBatch, values: Any) -> bool:
    return batch.value.form is Form.JSON and pa.types.is_string(values.type)


def _by_fields(
    batch: SinkBatch, values: Any, paths: Sequence[str], found: Placed
) -> tuple[npt.NDArray[np.int64], list[str]]:
    codes, names = np.zeros(len(batch), np.int64), [""]
    for path in paths:
        encoded = _texts(batch, values, path, found).dictionary_encode(null_encoding="encode")
        texts = [_escaped(each) for each in encoded.dictionary.to_pylist()]
        numbers = encoded.indices.to_numpy().astype(np.int64)
        is_long = np.array([len(each.encode()) > _NAME_BYTES_MAX for each in texts])[numbers]
        message = f"field '{path}' is longer than the {_NAME_BYTES_MAX} bytes that the name of a folder may have"
        found.refuse(batch, is_long, RefusalReason.TOO_LARGE, message)
        pairs, codes = np.unique(codes * len(texts) + numbers, return_inverse=True)
        pieces = [(names[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.tolist()]
        names = [f"{before}/{path}={text}".lstrip("/") for before, text in pieces]
    return codes, names


def _texts(batch: SinkBatch, values: Any, path: str, found: Placed) -> Any:
    """Texts of a field, null where it is null; others than whole numbers, texts, booleans and dates are refused."""
    message = f"field '{path}' names no folder: only whole numbers, texts, booleans and dates do"
    if not _istext_of_json(batch, values):
        column = field_of(values, path)
        if not any(is_of(column.type) for is_of in _FOLDER_TYPES):
            raise ShapeError(RefusalReason.WRONG_TYPE, message)
        return column.cast(pa.string())
    texts: list[str | None] = []
    unfit = np.zeros(len(batch), dtype=bool)
    for row, value in enumerate(field_of_json(values, path)):
        is_odd = not (value is None or isinstance(value, (str, int)))
        unfit[row] = is_odd
        texts.append(None if is_odd else text_of_json(value))
    found.refuse(batch, unfit, RefusalReason.WRONG_TYPE, message)
    return pa.array(texts, pa.string())


def _escaped(value: str | None) -> str:
    if not value:
        return NO_VALUE
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match.group()):02X}", value)


def _times(batch: SinkBatch, values: Any, config: FilesConfig, found: Placed, *, now_ms: int) -> npt.NDArray[np.int64]:
    if config.extractor == "Wallclock":
        return np.full(len(batch), now_ms, np.int64)
    if config.extractor == "Record":
        times = _whole(batch, "timestamp").to_numpy().astype(np.int64)
        unfit = times < 0
    else:
        column = _field_times(batch, values, config.timestamp_field)
        unfit = column.is_null().to_numpy(zero_copy_only=False)
        times = pc.fill_null(column, 0).to_numpy()
    message = "it has no time that timestamp.extractor could take"
    found.refuse(batch, unfit, RefusalReason.MISSING_TIMESTAMP, message)
    message = "its time is not within the years 1970 to 9999"
    found.refuse(batch, (times < 0) | (times > _YEAR_9999_MS), RefusalReason.OUT_OF_RANGE, message)
    within: npt.NDArray[np.int64] = np.clip(times, 0, _YEAR_9999_MS)
    return within


def _field_times(batch: SinkBatch, values: Any, path: str) -> Any:
    if not _istext_of_json(batch, values):
        return _milliseconds(field_of(values, path))
    found = [_instant(each) if isinstance(each, str) else each for each in field_of_json(values, path)]
    is_number = (type(each) is int and abs(each) <= _YEAR_9999_MS for each in found)
    return pa.array([each if is_int else None for each, is_int in zip(found, is_number, strict=True)], pa.int64())


def _milliseconds(column: Any) -> Any:
    """Numbers, timestamps, dates or texts as milliseconds since 1970; null for what is none."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return column.cast(pa.timestamp("ms", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return column.cast(pa.int64())
    if not pa.types.is_string(kind):
        message = "the field of timestamp.field is no number, timestamp or text"
        raise ShapeError(RefusalReason.WRONG_TYPE, message)
    encoded = column.dictionary_encode()
    times = pa.array([_instant(text) for text in encoded.dictionary.to_pylist()], pa.int64())
    return times.take(encoded.indices)


def _instant(text: str) -> int | None:
    """Of ISO 8601; a time without a zone is of UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
