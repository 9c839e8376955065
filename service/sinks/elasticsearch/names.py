"""Names of indices, data streams and aliases: which of them servers take.

https://www.elastic.co/guide/en/elasticsearch/reference/8.19/indices-create-index.html (OpenSearch has the same rules).
"""

from __future__ import annotations

NAME_BYTES_MAX = 255
PART_CHARACTERS_MAX = 100
"""Of the dataset and of the namespace in a data stream's name."""
_SIGNS = frozenset('\\/*?"<>| ,#:')


def fault_of(name: str, *, is_alias: bool = False) -> str | None:
    """Why servers take no such name, in words that go on after it; None for one that they take.

    No server is asked: it says of some such names that they are there, of ``_all`` and of patterns, and then refuses
    each document by itself. ``is_alias``: which may be in upper case.
    """
    if not name:
        return "is empty"
    if name in {".", ".."}:
        return f"is '{name}'"
    if name[0] in "-_+":
        return f"begins with {name[0]}"
    if _SIGNS & set(name):
        return signs_of(name)
    if not is_alias and name != name.lower():
        return "is not in lower case"
    size_bytes = len(name.encode())
    return f"has {size_bytes} bytes, and {NAME_BYTES_MAX} are the most" if size_bytes > NAME_BYTES_MAX else None


def signs_of(text: str, *, more: str = "") -> str | None:
    """What is wrong with the signs of a name or of a part of one; ``more``: others that it may not have."""
    found = (_SIGNS | set(more)) & set(text)
    return f"has one of {''.join(sorted(_SIGNS | set(more)))!r}" if found else None
