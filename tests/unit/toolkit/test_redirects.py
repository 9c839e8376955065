"""Where a redirect may lead."""

from __future__ import annotations

import pytest
from yarl import URL

from fetchers.sdk import Fatal
from fetchers.toolkit.http.redirects import redirected

ASKED = URL("https://api.test/items")


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (None, "nowhere"),
        ("", "nowhere"),
        ("https://[::1", "no URL"),
        ("https://api.test:99999/", "no URL"),
        ("https://api.test:http/", "no URL"),
        ("https://caf\u00e9.test/", "no URL"),
        ("mailto:ann@api.test", "a mailto address"),
        ("ftp://api.test/items", "a ftp address"),
        ("http://api.test/items", "https to http"),
    ],
)
def test_what_cannot_be_followed_is_fatal(location: str | None, words: str) -> None:
    """Whatever stands in ``Location``, it ends in an error that names the place, and never in a bug."""
    with pytest.raises(Fatal, match=f"the place: redirected .*{words}"):
        redirected(ASKED, location, place="the place", carries_credentials=False)


@pytest.mark.parametrize("location", ["/other", "https://api.test:443/other", "https://API.test/other", "other"])
def test_the_same_place_is_followed_with_credentials(location: str) -> None:
    """Relative or whole, with the usual port or without."""
    target = redirected(ASKED, location, place="", carries_credentials=True)
    assert (str(target.host).lower(), target.path) == ("api.test", "/other")
