"""Arrays of the server: from texts such as ``{1,NULL,"a,b"}`` to lists of one dimension."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.postgres_cdc.columns import Kind, Texts, UnreadableError
from fetchers.sdk import rows as forms

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes


def array_of(item: Kind, delimiter: str = ",") -> Kind:
    """One dimension; without quotes in any of its texts by Arrow, else by its distinct texts."""
    form = forms.array(forms.optional(item.form))
    stand_in = _listed if item.arrow == pa.string() else None
    return Kind(
        form, pa.list_(item.arrow), partial(_items, item, delimiter), partial(_lists, item, delimiter), stand_in
    )


def _listed(word: str) -> str:
    quoted = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{"{quoted}"}}'


def _lists(item: Kind, delimiter: str, texts: Texts) -> Any:
    if pc.any(pc.match_substring_regex(texts, r'["\\]|^[^{]|.\{|^\{\}$')).as_py():
        raise pa.ArrowInvalid("quotes, dimensions, or no items")
    inner = pc.split_pattern(pc.utf8_slice_codeunits(texts, 1, -1), delimiter)
    words = inner.flatten()
    column, wrong = item.read(pc.if_else(pc.equal(words, "NULL"), pa.scalar(None, pa.string()), words))
    if wrong:
        raise pa.ArrowInvalid("an item is wrong")
    lengths = np.asarray(pc.fill_null(pc.list_value_length(inner), 0))
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, column, mask=inner.is_null() if inner.null_count else None)


def _item_of(delimiter: str) -> re.Pattern[str]:
    mark = re.escape(delimiter)
    return re.compile(rf'\s*(?:"((?:[^"\\]|\\.)*)"|([^"{mark}{{}}]*))\s*([{mark}}}])', re.DOTALL)


def _items(item: Kind, delimiter: str, text: str) -> list[Any]:
    if not text.startswith("{"):
        raise UnreadableError("its bounds are not usual")
    if text == "{}":
        return []
    found: list[Any] = []
    form = _item_of(delimiter)
    at = 1
    while at < len(text):
        part = form.match(text, at)
        if part is None:
            raise UnreadableError("it has more than one dimension")
        quoted, plain, _ = part.groups()
        if quoted is not None:
            found.append(item.one(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)))
        else:
            found.append(None if plain == "NULL" else item.one(plain))
        at = part.end()
    return found
