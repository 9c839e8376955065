"""Binary columns as Debezium's ``binary.handling.mode`` has them: bytes, or text that stands for them.

https://debezium.io/documentation/reference/3.5/connectors/mysql.html#mysql-property-binary-handling-mode: ``hex`` has
small letters, both forms of base64 have their padding (RFC 4648, sections 4 and 5). All values of a column are written
at once: their bytes lie one behind the other.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from binascii import hexlify
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
BinaryMode: TypeAlias = Literal["bytes", "base64", "base64-url-safe", "hex"]
_GROUP, _LETTERS = 3, 4
"""Bytes of base64 that are written together, and the letters that they become."""
_FILLING: Final = pa.array([b"", b"\0", b"\0\0"], pa.binary())


def encoded(values: Any, mode: BinaryMode) -> Any:
    """A binary column as it is with ``bytes``, else as a column of texts.

    Raises ``pa.ArrowInvalid`` where the texts are more than 2 GiB together.
    """
    if mode == "bytes":
        return values
    if mode == "hex":
        begins, octets = _bytes_of(values)
        return _texts(values, 2 * begins, hexlify(octets))
    missing = -np.asarray(pc.fill_null(pc.binary_length(values), 0)) % _GROUP
    begins, octets = _bytes_of(pc.binary_join_element_wise(values, _FILLING.take(pa.array(missing)), b""))
    written = (b64encode if mode == "base64" else urlsafe_b64encode)(octets)
    begins = begins // _GROUP * _LETTERS
    letters = np.frombuffer(written, np.uint8).copy()
    for at in (1, 2):
        letters[begins[1:][missing >= at] - at] = ord("=")
    return _texts(values, begins, letters.data)


def _bytes_of(values: Any) -> tuple[np.ndarray, Any]:
    """Where in the bytes of all of them each value begins and the last ends; the bytes."""
    _, offsets, data = values.buffers()
    begins = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return begins - begins[0], memoryview(data or b"")[begins[0] : begins[-1]]


def _texts(values: Any, begins: np.ndarray, letters: Any) -> Any:
    """A column with the nulls of ``values``."""
    mask = pa.array(np.asarray(values.is_valid())).buffers()[1] if values.null_count else None
    offsets = pa.array(begins, pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(values), [mask, offsets, pa.py_buffer(letters)])
