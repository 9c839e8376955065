"""Avro object container files, encoded by columns: no value is touched in Python.

Each column becomes a column of the bytes that Avro has for its values; those of a record are joined row by row, and
the joined buffer is a block as it stands (Avro 1.12 specification, "Binary Encoding" and "Object Container Files").
"""

from __future__ import annotations

import bz2
import json
import os
import zlib
from binascii import crc32
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import IO, Any

import cramjam
import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SYNC_BYTES = 16
_BLOCK_ROWS = 4000
_VARINT_BITS, _VARINT_BYTES_MAX = 7, 10
_EMPTY = pa.scalar(b"", pa.binary())
_DECIMAL_BYTES = 16


def _raw_deflate(block: bytes) -> bytes:
    return zlib.compress(block, wbits=-15)


def _snappy(block: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(block)) + crc32(block).to_bytes(4, "big")


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": _raw_deflate,
    "snappy": _snappy,
    "bzip2": bz2.compress,
}


class AvroFile:
    """One container file."""

    def __init__(self, file: IO[bytes], schema: str, codec: str) -> None:
        """Write the header. ``schema``: of the values."""
        self._file = file
        self._compress = _CODECS[codec]
        self._sync = os.urandom(_SYNC_BYTES)
        self._encoder = _Encoder(json.loads(schema))
        header = BytesIO()
        # fastavro writes the header of a file of no records; its marker is then ours.
        fastavro.writer(header, json.loads(schema), [], codec="null", sync_marker=self._sync)
        text = header.getvalue()
        if codec != "null":
            text = text.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + _text(codec), 1)
        file.write(text)

    def write(self, values: Any) -> None:
        """Append a column of values, none of them null unless the schema takes nulls."""
        for begin in range(0, len(values), _BLOCK_ROWS):
            piece = values.slice(begin, _BLOCK_ROWS)
            encoded = self._encoder.column(piece)
            offsets = np.frombuffer(encoded.buffers()[1], np.int32, len(encoded) + 1, encoded.offset * 4)
            block = self._compress(encoded.buffers()[2].to_pybytes()[offsets[0] : offsets[-1]])
            counts = zigzag(np.array([len(piece), len(block)], np.int64)).to_pylist()
            self._file.write(b"".join([*counts, block, self._sync]))

    def close(self) -> None:
        """Nothing is left to be written."""


def _text(value: str) -> bytes:
    raw = value.encode()
    return zigzag(np.array([len(raw)], np.int64)).to_pylist()[0] + raw  # type: ignore[no-any-return]


def zigzag(values: npt.NDArray[np.int64]) -> Any:
    """Whole numbers as Avro's variable-length zig-zag bytes."""
    bits = ((values << 1) ^ (values >> 63)).view(np.uint64)
    lengths = np.ones(len(bits), np.int64)
    for index in range(1, _VARINT_BYTES_MAX):
        longer = bits >= np.uint64(1 << (_VARINT_BITS * index))
        if not longer.any():
            break
        lengths += longer
    ends = np.cumsum(lengths)
    starts = ends - lengths
    made = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for index in range(int(lengths.max(initial=0))):
        here = lengths > index
        piece = (bits[here] >> np.uint64(_VARINT_BITS * index)) & np.uint64(0x7F)
        goes_on = lengths[here] > index + 1
        made[starts[here] + index] = (piece | np.where(goes_on, np.uint64(0x80), np.uint64(0))).astype(np.uint8)
    return _binary(np.concatenate(([0], ends)), made.tobytes())


def _binary(offsets: npt.NDArray[np.int64], data: bytes) -> Any:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _joined(*pieces: Any) -> Any:
    return pc.binary_join_element_wise(*pieces, _EMPTY)


def _constant(value: bytes) -> Any:
    return pa.scalar(value, pa.binary())


class _Encoder:
    """Encodes columns of one schema. Null slots of a column get any bytes: who takes nulls puts theirs in place."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._named: dict[str, Any] = {}
        self._gather(document, "")

    def column(self, values: Any) -> Any:
        """A binary column, null nowhere."""
        return self._encoded(values, self._document, "")

    def _gather(self, document: Any, namespace: str) -> None:
        """Note named types, to which others may refer."""
        if isinstance(document, list):
            for branch in document:
                self._gather(branch, namespace)
        elif isinstance(document, dict):
            namespace = _namespace(document, namespace)
            if document["type"] in {"record", "enum", "fixed"}:
                name = document["name"].rpartition(".")[2]
                self._named[f"{namespace}.{name}" if namespace else name] = document
            if isinstance(document["type"], (dict, list)):
                self._gather(document["type"], namespace)
            for child in (document.get("items"), document.get("values")):
                self._gather(child, namespace)
            for field in document.get("fields") or ():
                self._gather(field["type"], namespace)

    def _encoded(self, values: Any, document: Any, namespace: str) -> Any:  # noqa: C901, PLR0911, PLR0912 - one line a type
        if isinstance(document, list):
            return self._union(values, document, namespace)
        if isinstance(document, str):
            known = self._named.get(document) or self._named.get(f"{namespace}.{document}" if namespace else document)
            document = known or {"type": document}
        kind = document["type"]
        if not isinstance(kind, str) or kind in self._named:
            return self._encoded(values, kind, namespace)
        namespace = _namespace(document, namespace)
        if kind == "record":
            return self._record(values, document, namespace)
        if kind == "null":
            return _binary(np.zeros(len(values) + 1, np.int64), b"")
        if kind == "boolean":
            return pc.if_else(pc.fill_null(values, False), _constant(b"\x01"), _constant(b"\x00"))  # noqa: FBT003 - a scalar
        if document.get("logicalType") == "decimal" and pa.types.is_decimal(values.type):
            return _decimal(values, document.get("size"))
        if kind in {"int", "long"}:
            return zigzag(_integers(values))
        if kind in {"float", "double"}:
            width = 4 if kind == "float" else 8
            plain = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(f"<f{width}")
            return _binary(np.arange(len(plain) + 1) * width, plain.tobytes())
        if kind == "fixed":
            return pc.fill_null(values, b"\0" * document["size"]).cast(pa.binary())
        if kind == "enum":
            found = pc.index_in(values, value_set=pa.array(document["symbols"], pa.string()))
            if found.null_count > values.null_count:
                raise pa.ArrowInvalid(f"a text is none of the symbols of enum {document['name']}")
            return zigzag(pc.fill_null(found, 0).to_numpy().astype(np.int64))
        if kind == "array":
            return _blocks(values, self._encoded(values.values, document["items"], namespace))
        if kind == "map":
            keys = self._encoded(values.keys, "string", namespace)
            return _blocks(values, _joined(keys, self._encoded(values.items, document["values"], namespace)))
        raw = pc.fill_null(values.cast(pa.binary()), b"")
        return _joined(zigzag(pc.binary_length(raw).to_numpy().astype(np.int64)), raw)

    def _union(self, values: Any, branches: list[Any], namespace: str) -> Any:
        others = [branch for branch in branches if branch != "null"]
        prefixes = [_constant(bytes([2 * branches.index(each)])) for each in ("null", *others) if each in branches]
        if not others:
            return _joined(prefixes[0], self._encoded(values, "null", namespace))
        made = _joined(prefixes[-1], self._encoded(values, others[0], namespace))
        return pc.if_else(values.is_null(), prefixes[0], made) if values.null_count else made

    def _record(self, values: Any, document: Mapping[str, Any], namespace: str) -> Any:
        fields = document["fields"]
        pieces = [
            self._encoded(child, field["type"], namespace)
            for child, field in zip(values.flatten(), fields, strict=True)
        ]
        return _joined(*pieces) if pieces else _binary(np.zeros(len(values) + 1, np.int64), b"")


def _namespace(document: Mapping[str, Any], namespace: str) -> str:
    if "namespace" in document:
        return str(document["namespace"])
    name = str(document.get("name", ""))
    return name.rpartition(".")[0] if "." in name else namespace


def _integers(values: Any) -> npt.NDArray[np.int64]:
    kind = values.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.cast(pa.int32())
    whole: npt.NDArray[np.int64] = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    return whole


def _decimal(values: Any, size: int | None) -> Any:
    """Arrow's 16 bytes, the lowest first, as Avro's, the highest first."""
    filled = pc.fill_null(values, pa.scalar(0, values.type))
    raw = np.frombuffer(filled.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
    big = raw[filled.offset : filled.offset + len(filled), ::-1]
    if size is None:
        return _joined(_constant(bytes([2 * _DECIMAL_BYTES])), _rows(big, _DECIMAL_BYTES))
    if size > _DECIMAL_BYTES:
        sign = np.where(big[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))  # noqa: PLR2004 - the sign's bit
        big = np.concatenate([np.repeat(sign, size - _DECIMAL_BYTES, axis=1), big], axis=1)
    return _rows(big[:, -size:], size)


def _rows(matrix: npt.NDArray[np.uint8], width: int) -> Any:
    return _binary(np.arange(len(matrix) + 1) * width, np.ascontiguousarray(matrix).tobytes())


def _blocks(lists: Any, items: Any) -> Any:
    """Items of each row as one block, its count before it, and the empty block that ends an array or a map."""
    offsets = lists.offsets
    counts = pc.fill_null(pc.list_value_length(lists), 0) if pa.types.is_list(lists.type) else _lengths(lists)
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), _EMPTY)
    whole = _joined(zigzag(np.asarray(counts, np.int64)), joined, _constant(b"\x00"))
    return pc.if_else(pa.array(np.asarray(counts) > 0), whole, _constant(b"\x00"))


def _lengths(maps: Any) -> npt.NDArray[np.int64]:
    lengths = np.diff(maps.offsets.to_numpy().astype(np.int64))
    return np.where(maps.is_null().to_numpy(zero_copy_only=False), 0, lengths)
