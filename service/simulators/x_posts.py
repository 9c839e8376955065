"""Posts of a simulated X: what it knows of each, and what of it one request asked for.

Facts: X's ``openapi.json`` (schemas ``Tweet``, ``User``, ``Media``, ``Place``) and ``x-api/fundamentals/fields``,
``expansions``: without ``tweet.fields`` a post has its id, its text and its edit history, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from service.simulators.x_rules import PostText, words

EPOCH_MS = 1_288_834_974_657
"""Where the milliseconds in an id begin (``x-api/fundamentals/x-ids``)."""
_ENTITY = re.compile(r"(?P<tags>#\w+)|(?P<mentions>@\w+)|(?P<cashtags>\$[A-Za-z]+)|(?P<urls>https?://\S+)")
_FIELDS: Mapping[str, frozenset[str]] = {
    "tweet.fields": words(
        "article attachments author_id card_uri community_id context_annotations conversation_id created_at "
        "display_text_range edit_controls edit_history_tweet_ids entities geo id in_reply_to_user_id lang "
        "media_metadata note_tweet possibly_sensitive public_metrics referenced_tweets reply_settings scopes source "
        "suggested_source_links text withheld"
    ),
    "user.fields": words(
        "affiliation connection_status created_at description entities id is_identity_verified location "
        "most_recent_tweet_id name parody pinned_tweet_id profile_banner_url profile_image_url protected "
        "public_metrics receives_your_dm subscription subscription_type url username verified verified_followers_count "
        "verified_type withheld"
    ),
    "media.fields": words(
        "alt_text duration_ms height media_key preview_image_url public_metrics type url variants width"
    ),
    "place.fields": words("contained_within country country_code full_name geo id name place_type"),
    "poll.fields": words("duration_minutes end_datetime id options voting_status"),
    "expansions": words(
        "article.cover_media article.media_entities attachments.media_keys attachments.media_source_tweet "
        "attachments.poll_ids author_id edit_history_tweet_ids entities.mentions.username geo.place_id "
        "in_reply_to_user_id entities.note.mentions.username referenced_tweets.id "
        "referenced_tweets.id.attachments.media_keys referenced_tweets.id.author_id"
    ),
}
_DEFAULTS = {
    "tweet.fields": ("id", "text", "edit_history_tweet_ids"),
    "user.fields": ("id", "name", "username"),
    "media.fields": ("media_key", "type"),
    "place.fields": ("id", "full_name"),
}


class FieldsRefused(ValueError):
    """A parameter that X does not know the value of."""

    def __init__(self, parameter: str, value: str) -> None:
        """``parameter`` as it was sent; ``value``: the one of its values that is none."""
        known = ",".join(sorted(_FIELDS[parameter]))
        super().__init__(f"The `{parameter}` query parameter value [{value}] is not one of [{known}]")
        self.parameter, self.value = parameter, value


@dataclass(frozen=True, slots=True)
class Fields:
    """What a request asked for."""

    chosen: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Fields:
        """Read the parameters; raises FieldsRefused."""
        chosen: dict[str, frozenset[str]] = {}
        for parameter, known in _FIELDS.items():
            values = [value for value in query.get(parameter, "").split(",") if value]
            for value in values:
                if value not in known:
                    raise FieldsRefused(parameter, value)
            chosen[parameter] = frozenset(values) | frozenset(_DEFAULTS.get(parameter, ()))
        return cls(chosen)

    def of_kind(self, kind: str, thing: Mapping[str, Any]) -> dict[str, Any]:
        """Those fields of an object that were asked for."""
        wanted = self.chosen[f"{kind}.fields"]
        return {name: value for name, value in thing.items() if name in wanted}


@dataclass(frozen=True, slots=True)
class Post:
    """A post with all that X knows of it."""

    data: Mapping[str, Any]
    author: Mapping[str, Any]
    media: tuple[Mapping[str, Any], ...] = ()
    place: Mapping[str, Any] | None = None
    referenced: tuple[Post, ...] = ()
    mentioned: tuple[Mapping[str, Any], ...] = ()
    errors: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)
    """Partial errors: expansions that failed."""

    @property
    def id(self) -> str:
        """Its id, in decimal digits."""
        return str(self.data["id"])

    @property
    def created_at(self) -> datetime:
        """When it was posted (aware)."""
        return datetime.fromisoformat(self.data["created_at"])

    def seen(self, *, with_quoted: bool) -> PostText:
        """The post as rules see it."""
        quoted = [str(post.data["text"]) for post in self.referenced if with_quoted]
        return PostText(self.data, self.author, " ".join(quoted))

    def rendered(self, fields: Fields) -> dict[str, Any]:
        """``data``, ``includes`` and ``errors`` of one post."""
        message: dict[str, Any] = {"data": fields.of_kind("tweet", self.data)}
        includes = {kind: things for kind, things in includes_of([self], fields).items() if things}
        if includes:
            message["includes"] = includes
        if self.errors:
            message["errors"] = list(self.errors)
        return message


def includes_of(posts: Iterable[Post], fields: Fields) -> dict[str, list[dict[str, Any]]]:
    """What expansions bring for some posts, each object once."""
    expansions = fields.chosen["expansions"]
    found: dict[str, dict[str, dict[str, Any]]] = {"users": {}, "tweets": {}, "media": {}, "places": {}}
    for post in posts:
        if "author_id" in expansions:
            found["users"][post.author["id"]] = fields.of_kind("user", post.author)
        if "entities.mentions.username" in expansions or "in_reply_to_user_id" in expansions:
            found["users"] |= {user["id"]: fields.of_kind("user", user) for user in post.mentioned}
        if "attachments.media_keys" in expansions:
            found["media"] |= {media["media_key"]: fields.of_kind("media", media) for media in post.media}
        if "geo.place_id" in expansions and post.place is not None:
            found["places"][post.place["id"]] = fields.of_kind("place", post.place)
        for other in post.referenced:
            if "referenced_tweets.id" in expansions:
                found["tweets"][other.id] = fields.of_kind("tweet", other.data)
            if "referenced_tweets.id.author_id" in expansions:
                found["users"][other.author["id"]] = fields.of_kind("user", other.author)
    return {kind: list(things.values()) for kind, things in found.items()}


@dataclass(slots=True)
class PostMaker:
    """Makes posts with rising ids; the same calls give the same posts."""

    _serial: int = 0
    _last_ms: int = 0

    def author(self, number: int = 0) -> dict[str, Any]:
        """A user; every number is another."""
        return {
            "id": str(9_876_543_210 + number),
            "name": f"Zoë {number}",
            "username": f"person_{number}",
            "created_at": "2013-12-14T04:35:55.000Z",
            "description": "Posts about the games \u2028 and more",
            "location": "San José, CA",
            "verified": number % 5 == 0,
            "protected": False,
            "url": "https://t.co/example",
            "entities": {
                "url": {
                    "urls": [
                        {
                            "start": 0,
                            "end": 20,
                            "url": "https://t.co/example",
                            "expanded_url": "https://example.com/",
                            "display_url": "example.com",
                        }
                    ]
                }
            },
            "profile_image_url": f"https://pbs.example.com/profile_images/{number}/picture_normal.jpg",
            "profile_banner_url": f"https://pbs.example.com/profile_banners/{number}/1",
            "public_metrics": {
                "followers_count": 100 + number,
                "following_count": 50,
                "tweet_count": 7_000,
                "listed_count": 3,
                "like_count": 900,
                "media_count": 12,
            },
        }

    def post(self, text: str, at: datetime, *, author: int = 0, earlier: Post | None = None, **more: Any) -> Post:
        """A post by a user, posted at a time (aware). ``earlier``: the version that it edits.

        ``more``: ``reply_to``, ``quotes`` or ``retweets`` (a Post), ``media`` (count of pictures), ``place``,
        ``errors``, and further fields of the post by their names in X.
        """
        writer = self.author(author)
        post_id = self._next_id(at)
        references = [
            (kind, more.pop(name))
            for name, kind in (("reply_to", "replied_to"), ("quotes", "quoted"), ("retweets", "retweeted"))
            if name in more
        ]
        history = list(earlier.data["edit_history_tweet_ids"]) if earlier is not None else []
        data: dict[str, Any] = {
            "id": post_id,
            "text": text,
            "author_id": writer["id"],
            "created_at": at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "edit_history_tweet_ids": [*history, post_id],
            "conversation_id": post_id,
            "lang": "en",
            "possibly_sensitive": False,
            "public_metrics": {
                "retweet_count": 1,
                "reply_count": 0,
                "like_count": 2,
                "quote_count": 0,
                "bookmark_count": 0,
                "impression_count": 10,
            },
            "reply_settings": "everyone",
        }
        entities = _entities(text)
        if entities:
            data["entities"] = entities
        if references:
            data["referenced_tweets"] = [{"type": kind, "id": other.id} for kind, other in references]
        for kind, other in references:
            if kind == "replied_to":
                data["in_reply_to_user_id"] = other.author["id"]
                data["conversation_id"] = other.data["conversation_id"]
        media = tuple(_picture(post_id, number) for number in range(more.pop("media", 0)))
        if media:
            data["attachments"] = {"media_keys": [picture["media_key"] for picture in media]}
        place = more.pop("place", None)
        if place is not None:
            data["geo"] = {"place_id": place["id"], **more.pop("geo", {})}
        errors = tuple(more.pop("errors", ()))
        others = tuple(other for _, other in references)
        mentioned = tuple(other.author for other in others)
        return Post(data | more, writer, media, place, others, mentioned, errors)

    def _next_id(self, at: datetime) -> str:
        """Milliseconds since X's epoch, and a serial number in the lowest 22 bits; never smaller than one before."""
        self._last_ms = max(self._last_ms, int(at.timestamp() * 1000) - EPOCH_MS)
        self._serial += 1
        return str((self._last_ms << 22) + self._serial % (1 << 22))


def message_of(message: Mapping[str, Any]) -> bytes:
    """One message of the stream: JSON without line ends in it; other characters as they are."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def search_answer(posts: Sequence[Post], fields: Fields, next_token: str | None) -> str:
    """The body of a page of search results, newest first."""
    body: dict[str, Any] = {"meta": {"result_count": len(posts)}}
    if posts:
        body["data"] = [fields.of_kind("tweet", post.data) for post in posts]
        body["meta"] |= {"newest_id": posts[0].id, "oldest_id": posts[-1].id}
        includes = {kind: things for kind, things in includes_of(posts, fields).items() if things}
        if includes:
            body["includes"] = includes
        errors = [error for post in posts for error in post.errors]
        if errors:
            body["errors"] = errors
    if next_token is not None:
        body["meta"]["next_token"] = next_token
    return json.dumps(body, ensure_ascii=False)


def _picture(post_id: str, number: int) -> dict[str, Any]:
    return {
        "media_key": f"3_{post_id}{number}",
        "type": "photo",
        "url": f"https://pbs.example.com/media/{post_id}{number}.jpg",
        "width": 1200,
        "height": 800,
        "alt_text": "A picture",
    }


def _entities(text: str) -> dict[str, list[dict[str, Any]]]:
    """Tags, names and links, with their positions in code points."""
    found: dict[str, list[dict[str, Any]]] = {}
    for match in _ENTITY.finditer(text):
        place: dict[str, Any] = {"start": match.start(), "end": match.end()}
        if match["tags"] or match["cashtags"]:
            found.setdefault("hashtags" if match["tags"] else "cashtags", []).append(place | {"tag": match[0][1:]})
        elif match["mentions"]:
            found.setdefault("mentions", []).append(place | {"username": match[0][1:], "id": "2244994945"})
        else:
            shown = match[0].partition("://")[2]
            link = {"url": match[0], "expanded_url": match[0], "display_url": shown}
            found.setdefault("urls", []).append(place | link)
    return found
