"""A post of API v2 as X tells it, as far as the rows of ``twitter_schema`` take something from it.

Fields that are missing or unknown are no error; one of another type than X documents is (``openapi.json``: ``Tweet``,
``User``, ``Media``, ``Place``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

QUERY: Final[Mapping[str, str]] = {
    "tweet.fields": (
        "attachments,author_id,created_at,entities,geo,id,in_reply_to_user_id,lang,note_tweet,possibly_sensitive,"
        "public_metrics,referenced_tweets,source,text,withheld"
    ),
    "expansions": "attachments.media_keys,author_id,entities.mentions.username,geo.place_id,in_reply_to_user_id",
    "user.fields": (
        "created_at,description,id,location,name,profile_banner_url,profile_image_url,protected,public_metrics,url,"
        "username,verified,withheld"
    ),
    "media.fields": "alt_text,duration_ms,media_key,preview_image_url,type,url,variants",
    "place.fields": "country,country_code,full_name,id,name,place_type",
}
"""What X must be asked for, so that the rows can be filled."""

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Id: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}\Z")]


class Withheld(msgspec.Struct, frozen=True):
    """Where a post or a user is not shown."""

    country_codes: tuple[str, ...] = ()


class Tag(msgspec.Struct, frozen=True):
    """A hashtag or a cashtag in a text."""

    tag: str
    start: Int | None = None
    end: Int | None = None


class Mention(msgspec.Struct, frozen=True):
    """A user named in a text."""

    username: str
    id: Id | None = None
    start: Int | None = None
    end: Int | None = None


class Url(msgspec.Struct, frozen=True):
    """A link in a text; with a ``media_key`` the one of a picture."""

    url: str
    expanded_url: str | None = None
    display_url: str | None = None
    media_key: str | None = None
    start: Int | None = None
    end: Int | None = None


class Entities(msgspec.Struct, frozen=True):
    """What was found in a text."""

    hashtags: tuple[Tag, ...] = ()
    cashtags: tuple[Tag, ...] = ()
    mentions: tuple[Mention, ...] = ()
    urls: tuple[Url, ...] = ()


class Reference(msgspec.Struct, frozen=True):
    """Another post: replied_to, quoted, retweeted."""

    type: str
    id: Id


class PostMetrics(msgspec.Struct, frozen=True):
    """Counts of a post."""

    retweet_count: Int | None = None
    like_count: Int | None = None


class Point(msgspec.Struct, frozen=True):
    """Longitude, then latitude (GeoJSON)."""

    coordinates: tuple[float, ...] = ()


class Geo(msgspec.Struct, frozen=True):
    """Where a post was written."""

    place_id: str | None = None
    coordinates: Point | None = None


class Attachments(msgspec.Struct, frozen=True):
    """Keys of what is in ``includes``."""

    media_keys: tuple[str, ...] = ()


class Note(msgspec.Struct, frozen=True):
    """The whole text of a long post, of which ``text`` has the beginning."""

    text: str
    entities: Entities | None = None


class Post(msgspec.Struct, frozen=True):
    """``data``."""

    id: Id
    text: str
    author_id: Id | None = None
    created_at: str | None = None
    source: str | None = None
    lang: str | None = None
    possibly_sensitive: bool | None = None
    in_reply_to_user_id: Id | None = None
    referenced_tweets: tuple[Reference, ...] = ()
    public_metrics: PostMetrics | None = None
    withheld: Withheld | None = None
    entities: Entities | None = None
    attachments: Attachments | None = None
    geo: Geo | None = None
    note_tweet: Note | None = None


class UserMetrics(msgspec.Struct, frozen=True):
    """Counts of a user."""

    followers_count: Int | None = None
    following_count: Int | None = None
    tweet_count: Int | None = None
    listed_count: Int | None = None
    like_count: Int | None = None


class User(msgspec.Struct, frozen=True):
    """One of ``includes.users``."""

    id: Id
    name: str | None = None
    username: str | None = None
    location: str | None = None
    description: str | None = None
    created_at: str | None = None
    profile_image_url: str | None = None
    profile_banner_url: str | None = None
    url: str | None = None
    protected: bool | None = None
    verified: bool | None = None
    public_metrics: UserMetrics | None = None
    withheld: Withheld | None = None


class Variant(msgspec.Struct, frozen=True):
    """One form of a video."""

    url: str | None = None
    bit_rate: Int | None = None
    content_type: str | None = None


class Media(msgspec.Struct, frozen=True):
    """One of ``includes.media``."""

    media_key: str
    type: str | None = None
    url: str | None = None
    preview_image_url: str | None = None
    alt_text: str | None = None
    duration_ms: Int | None = None
    variants: tuple[Variant, ...] = ()


class Place(msgspec.Struct, frozen=True):
    """One of ``includes.places``."""

    id: str
    name: str | None = None
    full_name: str | None = None
    country: str | None = None
    country_code: str | None = None
    place_type: str | None = None


class Includes(msgspec.Struct, frozen=True):
    """What the expansions brought."""

    users: tuple[User, ...] = ()
    media: tuple[Media, ...] = ()
    places: tuple[Place, ...] = ()


class Message(msgspec.Struct, frozen=True):
    """One message of the stream, or one post of a search in the same form."""

    data: Post
    includes: Includes | None = None


decode_message = msgspec.json.Decoder(Message).decode
"""Raises ``msgspec.MsgspecError`` or ``UnicodeDecodeError`` for what is no post of v2."""
