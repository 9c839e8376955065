"""Secrets are hidden wherever they appear."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.redaction import HIDDEN, Redactor


class SecretText:
    """Shows itself, as a careless secret type would."""

    def __str__(self) -> str:
        """Give the secret away."""
        return "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "https://user:hunter2@example.org/x",
        "Authorization: Basic aHVudGVyMg==",
        "authorization: bearer hunter2",
        "GET /export?api_key=hunter2&from=2024",
        "sasl.jaas.config password='hunter2';",
        '{"client_secret": "hunter2"}',
        "api_secret = hunter2",
    ],
)
def test_what_nobody_taught_is_hidden_by_its_place(text: str) -> None:
    """A secret in a usual place is hidden though it was never learnt."""
    shown = Redactor().redact(text)

    assert "hunter2" not in shown
    assert "aHVudGVyMg" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    [
        "mixpanel.api_secret: expected text",
        "unknown key tokens.max, did you mean tasks.max?",
        "https://example.org:8080/a@b",
        "the token is 3 hours old",
        "",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    """A message about a secret's key is no secret."""
    assert Redactor().redact(text) == text


@given(st.text(min_size=4, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_a_learnt_secret_never_gets_through(secret: str, before: str, after: str) -> None:
    """In each usual form, wherever it stands, a learnt secret is replaced."""
    redactor = Redactor()
    redactor.learn(secret)
    forms = {
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        base64.b64encode(secret.encode()).decode(),
    }
    for form in forms:
        shown = redactor.redact(before + form + after)
        assert HIDDEN in shown
        assert not any(form in part for part in shown.split(HIDDEN))


def test_a_secret_that_begins_with_another_is_hidden_whole() -> None:
    """The longer one goes first."""
    redactor = Redactor()
    redactor.learn("abcd")
    redactor.learn("abcdefgh")

    assert redactor.redact("x abcdefgh y") == f"x {HIDDEN} y"


def test_a_very_short_text_is_not_learnt() -> None:
    """Hiding every letter would make the log unreadable."""
    redactor = Redactor()
    redactor.learn("a")

    assert redactor.redact("a banana") == "a banana"


def test_values_are_shown_without_secrets_and_without_payloads() -> None:
    """Secret types, named secrets and bytes are hidden at any depth; plain values stay what they are."""
    redactor = Redactor()
    value = {"n": 1, "ok": True, "none": None, "password": "x", "list": [SecretText(), b"payload"], "f": 1.5}

    assert redactor.redact_value(value) == {
        "n": 1,
        "ok": True,
        "none": None,
        "password": HIDDEN,
        "list": [HIDDEN, "[7 bytes]"],
        "f": 1.5,
    }
