"""Keeps secrets out of what is shown: known ones wherever they appear, unknown ones by their place.

Whoever resolves a secret teaches it to the worker's ``Redactor``; from then on its text is hidden
in every log line, also as it looks inside a URL, a JSON text or a Basic header. What nobody taught is
hidden where it can be told by its place: after ``password=``, in ``//user:password@``, behind
``Authorization:``, in a value of a secret's type.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from urllib.parse import quote, quote_plus

HIDDEN = "[hidden]"

SECRET_LENGTH_MIN = 4
"""Shorter texts are not learnt: hiding every "a" would make the log unreadable."""

SENSITIVE = r"pass(?:word|wd|phrase)?|secret|token|api[_.\-]?key|credentials?|authorization|cookie"
SENSITIVE_NAME = re.compile(rf"(?:^|[_.\-])(?:{SENSITIVE})$", re.IGNORECASE)
PLACES = (
    (re.compile(r"(//[^/\s:@]*:)[^/\s@]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(Basic|Bearer)\s+[A-Za-z0-9+/_.~=\-]{4,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (
        # After "=", or as a quoted value; a bare "password: must be set" is a message, not a secret.
        re.compile(
            rf"((?:{SENSITIVE})(?:\s*=\s*[\"']?|[\"']\s*:\s*[\"']))(?!\[hidden)[^\s\"'&,;}})]+",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
)


class Redactor:
    """Hides secrets in texts and in values; learning is cheap, redacting is one pass."""

    def __init__(self) -> None:
        self._forms: set[str] = set()
        self._known: re.Pattern[str] | None = None

    def learn(self, secret: str) -> None:
        """Hide ``secret`` from now on, in each form it is usually written in."""
        if len(secret) < SECRET_LENGTH_MIN:
            return
        encoded = base64.b64encode(secret.encode()).decode()
        self._forms |= {
            secret,
            quote(secret, safe=""),
            quote_plus(secret),
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
            encoded,
        }
        # The longest first: else a secret that begins with another one would be hidden in part.
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._known = re.compile("|".join(re.escape(form) for form in longest_first))

    def redact(self, text: str) -> str:
        """Return ``text`` without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for place, shown in PLACES:
            text = place.sub(shown, text)
        return text

    def redact_value(self, value: object) -> object:
        """Return what may be shown of a field: plain values, texts redacted, all else as text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if "secret" in type(value).__name__.lower():
            return HIDDEN
        if isinstance(value, bytes | bytearray | memoryview):
            return f"[{len(value)} bytes]"
        if isinstance(value, Mapping):
            return {str(name): self.redact_field(str(name), item) for name, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.redact_value(item) for item in value]
        return self.redact(str(value))

    def redact_field(self, name: str, value: object) -> object:
        """Return what may be shown of a named field: nothing where the name says it is a secret."""
        return HIDDEN if SENSITIVE_NAME.search(name) else self.redact_value(value)
