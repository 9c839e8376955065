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
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from threading import Lock
from urllib.parse import quote, quote_plus

HIDDEN = "[hidden]"

SECRET_LENGTH_MIN = 4
"""Shorter texts are not learnt: hiding every "a" would make the log unreadable."""
WORD_LENGTH_MIN = 8
"""Shorter secrets of letters and digits alone are hidden where they stand alone, not within a longer word."""
LINE_LENGTH_MIN = 16
"""Lines of a longer secret, such as a key in PEM, are secrets too from this length on."""
SECRETS_MAX = 10_000
_WORDS = frozenset({"true", "false", "null", "none", HIDDEN})
_UNRESERVED_IN_URLS = "!$'()*+,;:@/?-._~"
"""What URL libraries leave as it is in a query."""

SENSITIVE = (
    r"pass(?:word|wd|phrase)?|pwd|connection[_.\-]?string|secret|token|credentials?|authorization|cookie"
    r"|(?:api|private|signing|encryption|keystore|secret|secret[_.\-]access|account|shared[_.\-]access)[_.\-]?key"
)
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


Forms = dict[str, tuple[tuple[int, ...], set[str]]]
"""Texts to hide by their first characters, and how long they are, in falling order."""


class Redactor:
    """Hides secrets in texts and in values. One serves a whole worker: its log, and whatever tells of errors.

    Learning takes some microseconds, redacting some fifty nanoseconds a character, however many secrets are known: only
    where four characters are the beginning of one is the text compared. Secrets are learnt in any thread.
    """

    def __init__(self, *, secrets_max: int = SECRETS_MAX) -> None:
        """Begin with no secrets known; at most ``secrets_max`` are remembered."""
        self._secrets_max = secrets_max
        self._secrets: OrderedDict[str, None] = OrderedDict()
        """The one learnt longest ago first."""
        self._forms: Forms = {}
        self._lock = Lock()

    def learn(self, secret: str) -> None:
        """Hide ``secret`` from now on, in each form it is usually written in; what is known already counts as new."""
        parts = list(dict.fromkeys(filter(_is_telling, (secret, secret.strip(), *_lines(secret)))))
        with self._lock:
            for part in parts:
                if part not in self._secrets:
                    _add(self._forms, _forms(part))
                self._secrets[part] = None
                self._secrets.move_to_end(part)
            if len(self._secrets) > self._secrets_max:
                self._forget()

    def _forget(self) -> None:
        """Drop a tenth of the secrets, those that nobody has resolved for longest."""
        for secret in list(self._secrets)[: self._secrets_max // 10 + 1]:
            del self._secrets[secret]
        forms: Forms = {}
        for secret in self._secrets:
            _add(forms, _forms(secret))
        self._forms = forms

    def redact(self, text: str) -> str:
        """Return ``text`` without secrets, known ones and those that can be told by their place."""
        return redact_by_place(self.hide_known(text))

    def hide_known(self, text: str, *, length_max: int | None = None) -> str:
        """Return ``text`` without known secrets, and nothing else hidden.

        ``length_max``: only of its first characters; a secret that goes beyond them is hidden whole, not cut.
        """
        forms, pieces, end = self._forms, list[str](), 0
        shown = len(text) if length_max is None else min(len(text), length_max)
        if not forms:
            return text[:shown]
        size, starts = SECRET_LENGTH_MIN, range(min(shown, len(text) - SECRET_LENGTH_MIN + 1))
        for start in [start for start in starts if text[start : start + size] in forms]:
            lengths, known = forms[text[start : start + size]] if start >= end else ((), set())
            # The longest first: else one that begins with another would be hidden in part.
            for length in lengths:
                if text[start : start + length] in known and _is_whole(text, start, start + length):
                    pieces += (text[end:start], HIDDEN)
                    end = start + length
                    break
        return "".join((*pieces, text[end:shown]))

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


def redact_by_place(text: str) -> str:
    """Hide what can be told for a secret by where it stands, and nothing else."""
    for place, shown in PLACES:
        text = place.sub(shown, text)
    return text


def _is_telling(secret: str) -> bool:
    """Whether a text is none of those that stand everywhere."""
    return len(secret) >= SECRET_LENGTH_MIN and secret.lower() not in _WORDS


def _lines(secret: str) -> Iterator[str]:
    lines = secret.split("\n")
    if len(lines) > 1:
        # The frame of a PEM block stands in every one.
        stripped = (line.strip() for line in lines)
        yield from (line for line in stripped if len(line) >= LINE_LENGTH_MIN and not line.startswith("-----"))


def _forms(secret: str) -> set[str]:
    """How a secret is written in URLs, JSON, Python's and others' representations, hexadecimal digits and base64."""
    raw = secret.encode(errors="surrogatepass")
    forms = {
        secret,
        quote(raw, safe=""),
        quote(raw, safe="").lower(),
        quote(raw, safe=_UNRESERVED_IN_URLS),
        quote_plus(raw),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        repr(raw)[2:-1],
        raw.hex(),
        raw.hex().upper(),
        base64.b64encode(raw).decode(),
    }
    for shift in range(3):
        # Within a longer text that is encoded: the characters that the secret's own bytes alone make.
        encoded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        core = encoded[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]
        if len(core) >= WORD_LENGTH_MIN:
            forms |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in forms if len(form) >= SECRET_LENGTH_MIN}


def _add(forms: Forms, new: set[str]) -> None:
    """Somebody may be redacting meanwhile: a set grows, but lengths are replaced whole."""
    for form in new:
        key = form[:SECRET_LENGTH_MIN]
        lengths, known = forms.get(key, ((), set[str]()))
        known.add(form)
        if len(form) not in lengths:
            forms[key] = tuple(sorted((*lengths, len(form)), reverse=True)), known


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether what stands there is long enough to be hidden within a word too, or is a word of its own."""
    if end - start >= WORD_LENGTH_MIN or not text[start:end].isalnum():
        return True
    return not text[max(start - 1, 0) : start].isalnum() and not text[end : end + 1].isalnum()
