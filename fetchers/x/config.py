"""What can be configured of ``XStreamSource``; ``XKeys`` is what every source on X has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fetchers.sdk import FetcherConfig, Finding, HttpUrl, Importance, Key, NameList, Secret, TextMap
from fetchers.toolkit.access import odd_value, plain
from fetchers.toolkit.listener import address_finding
from fetchers.x.api import Account

_AUTH = Key(group="Authentication")
_LISTENER = Key(group="Listener", importance=Importance.LOW)
_RULES = Key(group="Rules", importance=Importance.HIGH)
RULE_CHARACTERS_MAX = 2048
"""Of the largest account; X itself says what a smaller one may have."""
_RESERVED = frozenset(
    {"backfill_minutes", "start_time", "end_time", "since_id", "until_id", "query", "max_results", "next_token"}
)

Recovery = Literal["search", "backfill", "none"]


class XKeys(FetcherConfig):
    """How X is asked, whatever becomes of its posts."""

    x_base_url: Annotated[HttpUrl, Key(group="Request", importance=Importance.LOW)] = "https://api.x.com"
    """Address of the API."""
    x_bearer_token: Annotated[Secret | None, _AUTH] = None
    """Bearer token of the app. Without it one is asked for with the app's key and secret."""
    x_recovery: Annotated[Recovery, Key(group="Offset")] = "search"
    """How posts are had that came while nobody listened: search asks /2/tweets/search/recent, which goes back seven
    days; backfill has X send up to five minutes again (Enterprise) and asks the search for what is older; with none
    the time is told as a gap."""
    x_silence_ms: Annotated[int, Field(ge=1), _LISTENER] = 21_000
    """Milliseconds after which a connection on which nothing comes is made anew; X sends a keep-alive every 20 s."""
    x_message_bytes_max: Annotated[int, Field(ge=1), _LISTENER] = 1_048_576
    """Size of one message; the first bytes of a larger one become a dead letter."""

    def account(self, consumer_key: Secret | None, consumer_secret: Secret | None) -> Account:
        """Who asks X, and how."""
        return Account(
            base_url=self.x_base_url,
            bearer_token=plain(self.x_bearer_token),
            consumer_key=plain(consumer_key),
            consumer_secret=plain(consumer_secret),
            silence_seconds=self.x_silence_ms / 1000,
        )


class XStreamConfig(XKeys):
    """Posts of X that meet rules."""

    x_consumer_key: Annotated[Secret | None, _AUTH] = None
    """API key of the app, to ask for a bearer token at /oauth2/token."""
    x_consumer_secret: Annotated[Secret | None, _AUTH] = None
    """API key secret of the app."""
    x_query: Annotated[TextMap, Field(default_factory=dict), Key(group="Request")]
    """Parameters of the stream and of the search, as X names them: x.query.tweet.fields, x.query.expansions,
    x.query.user.fields and so on. The time of each post (created_at) is asked for in any case."""
    x_keywords: Annotated[NameList, _RULES] = ()
    """Posts with these words: one rule for each, its words in any order; a phrase stands in quotation marks."""
    x_user_ids: Annotated[NameList, Key(group="Rules")] = ()
    """Posts by these users, named by their numbers."""
    x_rule: Annotated[TextMap, Field(default_factory=dict), Key(group="Rules")]
    """Rules in X's own language, x.rule.<name>, such as x.rule.cats=cat has:images -is:retweet."""

    def findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        yield from self._access_findings()
        if not (self.x_keywords or self.x_user_ids or self.x_rule):
            message = "Missing: without x.keywords, x.user.ids or x.rule.<name> X sends nothing."
            yield Finding("x.keywords", None, message)
        for user_id in self.x_user_ids:
            if not (user_id.isascii() and user_id.isdigit()):
                yield odd_value("x.user.ids", user_id, "Expected the number of a user, not a name.")
        for name, text in self.x_rule.items():
            if not text:
                yield Finding(f"x.rule.{name}", None, f"Missing: x.rule.{name} is empty.")
            elif len(text) > RULE_CHARACTERS_MAX:
                yield odd_value(f"x.rule.{name}", f"{text[:40]}…", f"X takes {RULE_CHARACTERS_MAX} characters at most.")

    def _access_findings(self) -> Iterator[Finding]:
        yield from address_finding("x.base.url", self.x_base_url)
        if not plain(self.x_bearer_token):
            for key, value in (("x.consumer.key", self.x_consumer_key), ("x.consumer.secret", self.x_consumer_secret)):
                if not plain(value):
                    yield Finding(key, None, "Missing: without x.bearer.token it is needed to ask for one.")
        for name in self.x_query:
            if name in _RESERVED:
                yield odd_value(f"x.query.{name}", self.x_query[name], "The connector itself says this to X.")
