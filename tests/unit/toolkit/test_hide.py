"""Secrets are found in messages however a server writes them."""

from __future__ import annotations

import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from fetchers.toolkit.http.failures import excerpt, hide

SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=12)


@given(SECRETS)
def test_hides_every_way_to_write_a_secret(secret: str) -> None:
    """Plain, percent-encoded, form-encoded, as JSON escapes, as the client's own library writes URLs."""
    for written in (
        secret,
        quote(secret, safe=""),
        quote(secret, safe="/"),
        quote_plus(secret),
        re.sub("%[0-9A-F]{2}", lambda match: match.group().lower(), quote(secret, safe="")),
        json.dumps(secret)[1:-1],
        URL("http://h/").with_query({"k": secret}).raw_query_string[2:],
    ):
        assert hide(f"<{written}>", [secret]) == "<[hidden]>"


@pytest.mark.parametrize("size", [290, 295, 300, 305])
def test_a_cut_shows_no_half_of_a_secret(size: int) -> None:
    """The excerpt is cut after hiding: a secret across its end is not shown in part."""
    assert "topsec" not in excerpt(b"x" * size + b"topsecret-12345", ["topsecret-12345"])


def test_a_longer_secret_goes_first() -> None:
    """Of two secrets, one of which is part of the other, nothing is left over."""
    assert hide("abcd-efgh", ["abcd", "abcd-efgh"]) == "[hidden]"
