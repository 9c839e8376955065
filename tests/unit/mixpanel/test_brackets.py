"""Whether an object that is never held whole is closed."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fetchers.mixpanel.brackets import Brackets

TEXT = st.text('ab{}[]"\\\n é', max_size=6)
VALUE = st.recursive(TEXT | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
OBJECT = st.dictionaries(TEXT, VALUE, max_size=5)


def is_whole(text: bytes) -> bool:
    """What a parser says."""
    try:
        json.loads(text.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True


@settings(deadline=None)  # a busy machine is no failure
@given(value=OBJECT, size=st.integers(1, 9))
@example(value={"a": "\\"}, size=1)
@example(value={"a": '"}'}, size=2)
def test_an_object_is_closed_where_a_parser_finds_it_whole(value: dict[str, object], size: int) -> None:
    """However it is cut, and at no place before: not after the brace of an inner object, not within a text."""
    text = json.dumps({"event": "e", "properties": value}, ensure_ascii=False).encode() + b" "
    for end in range(1, len(text) + 1):
        brackets = Brackets()
        for start in range(0, end, size):
            brackets.feed(text[start : min(start + size, end)])
        assert brackets.are_closed == is_whole(text[:end])
