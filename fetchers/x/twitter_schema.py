"""The schemas of the Twitter connector of 2016: StatusKey and Status, with User and all entities.

Names, order and types are those of ``jcustenborder/kafka-connect-twitter`` (``StatusConverter``). Its ``User`` could
not be null; here it can, because X may tell of a post and not of its author (a partial error).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fetchers.sdk import RowSchema
from fetchers.sdk.rows import BOOLEAN, FLOAT64, INT32, INT64, STRING, TIMESTAMP, Form, array, optional, struct

ARTICLE_NAMESPACE: Final = "io.confluent.examples.kafka.connect.twitter"
"""Of the schemas that the article prints."""
RELEASED_NAMESPACE: Final = "com.github.jcustenborder.kafka.connect.twitter"
_FORMS = {"s": STRING, "b": BOOLEAN, "i": INT32, "l": INT64, "f": FLOAT64, "ts": TIMESTAMP}
_FORMS |= {"[s]": array(STRING), "[l]": array(INT64)}
_GEO_LOCATION = "Latitude f!, Longitude f!"
_PLACE = "Name s, StreetAddress s, CountryCode s, Id s, Country s, PlaceType s, URL s, FullName s"
_USER = """
    Id l, Name s, ScreenName s, Location s, Description s, ContributorsEnabled b,
    ProfileImageURL s, BiggerProfileImageURL s, MiniProfileImageURL s, OriginalProfileImageURL s,
    ProfileImageURLHttps s, BiggerProfileImageURLHttps s, MiniProfileImageURLHttps s, OriginalProfileImageURLHttps s,
    DefaultProfileImage b, URL s, Protected b, FollowersCount i, ProfileBackgroundColor s, ProfileTextColor s,
    ProfileLinkColor s, ProfileSidebarFillColor s, ProfileSidebarBorderColor s, ProfileUseBackgroundImage b,
    DefaultProfile b, ShowAllInlineMedia b, FriendsCount i, CreatedAt ts, FavouritesCount i, UtcOffset i, TimeZone s,
    ProfileBackgroundImageURL s, ProfileBackgroundImageUrlHttps s, ProfileBannerURL s, ProfileBannerRetinaURL s,
    ProfileBannerIPadURL s, ProfileBannerIPadRetinaURL s, ProfileBannerMobileURL s, ProfileBannerMobileRetinaURL s,
    ProfileBackgroundTiled b, Lang s, StatusesCount i, GeoEnabled b, Verified b, Translator b, ListedCount i,
    FollowRequestSent b, WithheldInCountries [s]!"""
_HASHTAG = "Text s, Start i, End i"
_SYMBOL = "Start i, End i, Text s"
_URL = "URL s, Text s, ExpandedURL s, Start i, End i, DisplayURL s"
_MENTION = "Name s, Id l, Text s, ScreenName s, Start i, End i"
_MEDIA = """
    Id l, Type s, MediaURL s, MediaURLHttps s, Sizes *!, VideoAspectRatioWidth i, VideoAspectRatioHeight i,
    VideoDurationMillis l, VideoVariants *, ExtAltText s, URL s, Text s, ExpandedURL s, Start i, End i, DisplayURL s"""
_STATUS = """
    CreatedAt ts, Id l, Text s, Source s, Truncated b, InReplyToStatusId l, InReplyToUserId l, InReplyToScreenName s,
    GeoLocation *, Place *, Favorited b, Retweeted b, FavoriteCount i, User *, Retweet b, Contributors [l]!,
    RetweetCount i, RetweetedByMe b, CurrentUserRetweetId l, PossiblySensitive b, Lang s, WithheldInCountries [s]!,
    HashtagEntities *, UserMentionEntities *, MediaEntities *, SymbolEntities *, URLEntities *"""


@dataclass(frozen=True, slots=True)
class TwitterSchemas:
    """The schemas under one namespace, and the Arrow types of their rows."""

    key: RowSchema
    status: RowSchema
    key_type: pa.DataType
    status_type: pa.DataType

    @classmethod
    def under(cls, namespace: str) -> TwitterSchemas:
        """Of ``namespace``, without a dot at its end."""
        key, status = _key(namespace), _status(namespace)
        return cls(key, status, _arrow_type(key.document), _arrow_type(status.document))


def _key(namespace: str) -> RowSchema:
    """To the letter as the article prints it: without a default."""
    document = {
        "type": "record",
        "name": "StatusKey",
        "namespace": namespace,
        "fields": [{"name": "Id", "type": ["null", "long"]}],
        "connect.doc": "Key for a twitter status.",
        "connect.name": f"{namespace}.StatusKey",
    }
    return RowSchema(json.dumps(document, separators=(",", ":")))


def _status(namespace: str) -> RowSchema:
    def record(name: str, fields: str, **nested: Form) -> Form:
        return struct(f"{namespace}.{name}", dict(_fields(fields, nested)))

    # Connect's Avro converter writes a map whose keys are no texts as a list of entries (AvroData: MapEntry).
    size = {
        "type": "record",
        "name": "MapEntry",
        "namespace": "io.confluent.connect.avro",
        "fields": [
            {"name": "key", "type": INT32},
            {"name": "value", "type": record("MediaEntity.Size", "Resize i, Width i, Height i")},
        ],
    }
    variant = record("ExtendedMediaEntity.Variant", "Url s, Bitrate i, ContentType s")
    nested = {
        "GeoLocation": record("GeoLocation", _GEO_LOCATION),
        "Place": record("Place", _PLACE),
        "User": record("User", _USER),
        "HashtagEntities": array(record("HashtagEntity", _HASHTAG)),
        "UserMentionEntities": array(record("UserMentionEntity", _MENTION)),
        "MediaEntities": array(record("MediaEntity", _MEDIA, Sizes=array(size), VideoVariants=array(variant))),
        "SymbolEntities": array(record("SymbolEntity", _SYMBOL)),
        "URLEntities": array(record("URLEntity", _URL)),
    }
    return RowSchema.of(f"{namespace}.Status", dict(_fields(_STATUS, nested)), doc="Twitter status message.")


def _fields(text: str, nested: dict[str, Form]) -> Iterable[tuple[str, Form]]:
    """Names with the letters of their types; an exclamation mark: never null; an asterisk: one of ``nested``."""
    for entry in text.split(","):
        name, letters = entry.split()
        plain = letters.removesuffix("!")
        form = nested[name] if plain == "*" else _FORMS[plain]
        yield name, form if letters.endswith("!") else optional(form)


def _arrow_type(form: Form) -> Any:
    """The Arrow type of rows. Integers are 64 bits wide: what does not fit its field is rejected, and never cut."""
    if isinstance(form, list):
        return _arrow_type(form[-1])
    if isinstance(form, str):
        return {STRING: pa.string(), BOOLEAN: pa.bool_(), FLOAT64: pa.float64()}.get(form, pa.int64())
    if form["type"] == "array":
        return pa.list_(_arrow_type(form["items"]))
    if form["type"] == "record":
        return pa.struct([(entry["name"], _arrow_type(entry["type"])) for entry in form["fields"]])
    return pa.timestamp("ms", "UTC")
