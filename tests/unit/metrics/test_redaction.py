"""Secrets are hidden wherever they appear."""

from __future__ import annotations

import base64
import json
import re
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


def forms_of(secret: str) -> set[str]:
    """How a secret is usually written."""
    return {
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        repr(secret.encode())[2:-1],
        secret.encode().hex(),
        base64.b64encode(secret.encode()).decode(),
    }


@given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_a_learnt_secret_never_gets_through(secret: str, before: str, after: str) -> None:
    """In each usual form, wherever it stands, a learnt secret is replaced."""
    redactor = Redactor()
    redactor.learn(secret)
    for form in forms_of(secret):
        shown = redactor.redact(before + form + after)
        assert HIDDEN in shown
        assert not any(form in part for part in shown.split(HIDDEN))


@given(
    st.text(st.characters(categories=("L", "N")), min_size=4, max_size=7).filter(
        lambda text: text.lower() not in {"true", "false", "null", "none"}
    )
)
def test_a_short_secret_is_hidden_where_it_stands_alone(secret: str) -> None:
    """Within a longer word it is that word's: a password ``task`` would blank every line else."""
    redactor = Redactor()
    redactor.learn(secret)

    assert redactor.redact(f"'{secret}', {secret}/_{secret}:") == f"'{HIDDEN}', {HIDDEN}/_{HIDDEN}:"
    assert redactor.redact(f"x{secret} {secret}1") == f"x{secret} {secret}1"


@given(st.binary(max_size=10), st.text(min_size=12, max_size=30), st.binary(max_size=10))
def test_a_secret_within_a_text_in_base64_is_hidden(before: bytes, secret: str, after: bytes) -> None:
    """As in a Basic header, in either alphabet; but for what it shares with its neighbours."""
    redactor = Redactor()
    redactor.learn(secret)
    text = before + secret.encode() + after
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert HIDDEN in redactor.redact(encode(text).decode())


def test_a_key_of_many_lines_is_hidden_line_by_line() -> None:
    """Traces show single lines of it; a file's last line end is none of the secret."""
    redactor = Redactor()
    redactor.learn(
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIBAQ\n-----END PRIVATE KEY-----\n"
    )
    redactor.learn("t0ken\n")

    assert redactor.redact("at MIIEvQIBADANBgkqhkiG9w0BAQ") == f"at {HIDDEN}"
    assert redactor.redact("-----BEGIN PRIVATE KEY----- t0ken") == f"-----BEGIN PRIVATE KEY----- {HIDDEN}"


@pytest.mark.parametrize("text", ["a", "1", "abc", "true", "False", "none", "[hidden]", ""])
def test_what_stands_everywhere_is_not_learnt(text: str) -> None:
    """Hiding it would make the log unreadable."""
    redactor = Redactor()
    redactor.learn(text)

    shown = f"a {text} 1 banana abc true [hidden]"
    assert redactor.redact(shown) == shown


def test_what_is_known_is_bounded() -> None:
    """What was resolved longest ago makes room; what is resolved again and again stays."""
    redactor = Redactor(secrets_max=100)
    redactor.learn("lasting-secret")
    for number in range(1000):
        redactor.learn(f"passing-secret-{number:04}")
        redactor.learn("lasting-secret")

    shown = [redactor.redact(f"passing-secret-{number:04}") != HIDDEN for number in range(1000)]
    assert 900 <= sum(shown) < 1000
    assert shown == sorted(shown, reverse=True)
    assert redactor.redact("lasting-secret") == HIDDEN


def test_learning_costs_the_same_however_many_are_known() -> None:
    """Each secret once made an expression of all of them anew: no compiling, and nothing is done twice."""
    redactor, compiled = Redactor(), list[object]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(re, "compile", compiled.append)
        for number in range(2000):
            redactor.learn(f"secret-number-{number}")
        text = redactor.redact("secret-number-17 and secret-number-1999")
    assert text == f"{HIDDEN} and {HIDDEN}"
    assert compiled == []


def test_a_secret_that_begins_with_another_is_hidden_whole() -> None:
    """The longer one goes first."""
    redactor = Redactor()
    redactor.learn("abcd")
    redactor.learn("abcdefgh")

    assert redactor.redact("x abcdefgh y") == f"x {HIDDEN} y"


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


@pytest.mark.parametrize(
    "name",
    [
        "aws.secret.access.key", "private.key", "ssl.keystore.key", "ssl.key.password", "db.pwd", "azure.account.key",
        "signing_key", "secretKey", "x.connection.string", "api.key", "client-secret", "sasl.token",
    ],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    """As they are usual among connectors, drivers and clouds."""
    assert Redactor().redact_field(name, "hunter2") == HIDDEN


@pytest.mark.parametrize(
    "name", ["key.fields", "primary.key", "message.key", "aws.access.key.id", "passes", "tokens.max", "key", "sort_key"]
)
def test_other_keys_are_no_secrets(name: str) -> None:
    """A config of hidden values would tell nobody anything."""
    assert Redactor().redact_field(name, "hunter2") == "hunter2"
