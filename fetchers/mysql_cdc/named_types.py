"""MariaDB's ``UUID``, ``INET4`` and ``INET6``: as texts, in the server's own spelling.

A snapshot selects the texts. The log has the bytes of a ``BINARY(16)`` or ``BINARY(4)`` and says no more of the type;
only the server's catalogue does (``MySqlStretches.describe``). The spelling of an ``INET6`` is that of
``Inet6::to_string`` in MariaDB's ``sql_type_inet.cc``, which shortens a single word of zeros too; it is compared with
the server's in ``tests/integration/mysql_cdc/test_types.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.mysql_cdc.rows import Numbers
from fetchers.mysql_cdc.table_map import NAMED_BYTES, TableMap

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_HYPHENS: Final = (8, 13, 18, 23)
_WORDS = 8
_DOTTED_AT = 6
"""The word from which on an IPv4 address in an IPv6 address is written as one."""


def with_names(table: TableMap, names: Mapping[str, str]) -> TableMap:
    """A table of the log with its columns' types; ``names``: types by column, as the catalogue has them."""
    columns = tuple(
        replace(column, named=names[column.name])
        if column.may_be_named and NAMED_BYTES.get(names.get(column.name, "")) == column.scale
        else column
        for column in table.columns
    )
    return table if columns == table.columns else replace(table, columns=columns)


def texts_of(values: Any, named: str) -> Any:
    """A column of texts; ``values``: a binary column, of which each value has the type's bytes or is null."""
    width, is_valid = NAMED_BYTES[named], np.asarray(values.is_valid())
    filled = values.fill_null(bytes(width)).cast(pa.binary(width))
    octets = np.frombuffer(filled.buffers()[1], np.uint8)[: len(filled) * width].reshape(-1, width)
    made = {"uuid": _uuids, "inet4": _dotted, "inet6": _addresses}[named](octets)
    return made if is_valid.all() else pc.if_else(pa.array(is_valid), made, None)


def _uuids(octets: Numbers) -> Any:
    """``a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11``."""
    digits = np.stack([_HEX[octets >> 4], _HEX[octets & 15]], axis=2).reshape(len(octets), 32)
    letters = np.insert(digits, [at - number for number, at in enumerate(_HYPHENS)], ord("-"), axis=1)
    width = letters.shape[1]
    offsets = np.arange(0, len(octets) * width + 1, width, dtype=np.int32)
    made: Any = pa.Array.from_buffers(
        pa.string(), len(octets), [None, pa.py_buffer(offsets.data), pa.py_buffer(letters.tobytes())]
    )
    return made


@cache
def _spellings(form: str, count: int) -> Any:
    """All numbers below ``count`` as texts."""
    return pa.array([format(number, form) for number in range(count)], pa.string())


def _dotted(octets: Numbers) -> Any:
    """``192.168.0.1``."""
    parts = [_spellings("d", 256).take(pa.array(octets[:, at])) for at in range(4)]
    return pc.binary_join_element_wise(*parts, ".")


def _addresses(octets: Numbers) -> Any:
    """``2001:db8::1``, ``::ffff:1.2.3.4``."""
    words = octets.view(">u2").astype(np.int64)
    begins, lengths = _gaps(words == 0)
    is_dotted = (begins == 0) & ((lengths == _DOTTED_AT) | ((lengths == _DOTTED_AT - 1) & (words[:, 5] == 0xFFFF)))  # noqa: PLR2004
    parts = []
    for at in range(_WORDS):
        text = _spellings("x", 1 << 16).take(pa.array(words[:, at]))
        if at < _WORDS - 1:
            text = pc.binary_join_element_wise(text, ":", "")
        is_first = pa.array(begins == at)
        is_behind = pa.array((begins < at) & (at < begins + lengths))
        text = pc.if_else(is_first, "::" if at == 0 else ":", pc.if_else(is_behind, "", text))
        if at >= _DOTTED_AT:
            last = _dotted(octets[:, 12:]) if at == _DOTTED_AT else ""
            text = pc.if_else(pa.array(is_dotted), last, text)
        parts.append(text)
    return pc.binary_join_element_wise(*parts, "")


def _gaps(is_zero: Numbers) -> tuple[Numbers, Numbers]:
    """Where the first of the longest runs of zero words begins, and how long it is; 8 and 0 where there is none."""
    begins, lengths = np.full(len(is_zero), _WORDS), np.zeros(len(is_zero), np.int64)
    running = np.zeros(len(is_zero), np.int64)
    for at in range(_WORDS):
        running = np.where(is_zero[:, at], running + 1, 0)
        is_longer = running > lengths
        lengths = np.where(is_longer, running, lengths)
        begins = np.where(is_longer, at + 1 - running, begins)
    return begins, lengths
