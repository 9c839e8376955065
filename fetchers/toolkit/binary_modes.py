"""Binary columns as Debezium's ``binary.handling.mode`` has them: bytes, or text that stands for them.

https://debezium.io/documentation/reference/3.5/connectors/mysql.html#mysql-property-binary-handling-mode: ``hex`` has
small letters, both forms of base64 have their padding (RFC 4648, sections 4 and 5).
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from binascii import hexlify
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

BinaryMode: TypeAlias = Literal["bytes", "base64", "base64-url-safe", "hex"]
_ENCODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "base64": b64encode,
    "base64-url-safe": urlsafe_b64encode,
    "hex": hexlify,
}


def encoded(values: Any, mode: BinaryMode) -> Any:
    """A binary column as it is with ``bytes``, else as a column of texts."""
    if mode == "bytes":
        return values
    encode = _ENCODINGS[mode]
    return pa.array([None if one is None else encode(one) for one in values.to_pylist()], pa.binary()).cast(pa.string())
