"""Posts of API v2 as rows of Status: every field has a source or is null."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from fastavro import parse_schema

from fetchers.x.twitter_post import decode_message
from fetchers.x.twitter_rows import status_row
from fetchers.x.twitter_schema import ARTICLE_NAMESPACE, RELEASED_NAMESPACE, TwitterSchemas

SCHEMAS = TwitterSchemas.under(ARTICLE_NAMESPACE)
MESSAGE: dict[str, Any] = {
    "data": {
        "id": "1746837465839267841",
        "text": "Kafka \u2028 in #Boston for $IBM with @jack https://t.co/a https://t.co/p",
        "author_id": "99",
        "created_at": "2024-01-15T10:35:00.250Z",
        "source": "X Web",
        "lang": "en",
        "possibly_sensitive": False,
        "in_reply_to_user_id": "12",
        "referenced_tweets": [{"type": "quoted", "id": "4"}, {"type": "replied_to", "id": "5"}],
        "public_metrics": {"retweet_count": 3, "like_count": 4, "impression_count": 9},
        "withheld": {"country_codes": ["DE", "AR"], "copyright": False},
        "geo": {"place_id": "p1", "coordinates": {"type": "Point", "coordinates": [-71.06, 42.36]}},
        "attachments": {"media_keys": ["7_1234567890123456789", "3_gone"]},
        "entities": {
            "hashtags": [{"start": 11, "end": 18, "tag": "Boston"}],
            "cashtags": [{"start": 23, "end": 27, "tag": "IBM"}],
            "mentions": [{"start": 33, "end": 38, "username": "jack", "id": "12"}],
            "urls": [
                {"start": 39, "end": 52, "url": "https://t.co/a", "expanded_url": "https://a", "display_url": "a"},
                {"start": 53, "end": 66, "url": "https://t.co/p", "media_key": "7_1234567890123456789"},
            ],
        },
        "something_new": {"a": 1},
    },
    "includes": {
        "users": [
            {
                "id": "99",
                "name": "Zoë",
                "username": "zoe",
                "created_at": "2013-12-14T04:35:55.000Z",
                "location": "Boston",
                "description": "d",
                "url": "https://t.co/u",
                "protected": False,
                "verified": True,
                "profile_image_url": "https://pbs.example.com/1/x_normal.jpg",
                "profile_banner_url": "https://pbs.example.com/b",
                "public_metrics": {
                    "followers_count": 1,
                    "following_count": 2,
                    "tweet_count": 3,
                    "listed_count": 4,
                    "like_count": 5,
                },
                "withheld": {"country_codes": ["FR"]},
            },
            {"id": "12", "name": "Jack", "username": "jack"},
        ],
        "media": [
            {
                "media_key": "7_1234567890123456789",
                "type": "video",
                "preview_image_url": "https://pbs.example.com/v.jpg",
                "duration_ms": 1500,
                "alt_text": "alt",
                "variants": [{"bit_rate": 256, "content_type": "video/mp4", "url": "https://v/1.mp4"}],
            }
        ],
        "places": [
            {
                "id": "p1",
                "name": "Boston",
                "full_name": "Boston, MA",
                "country": "United States",
                "country_code": "US",
                "place_type": "city",
            }
        ],
    },
    "matching_rules": [{"id": "1", "tag": "t"}],
}


def row_of(message: object) -> dict[str, Any]:
    """The row of a message as Arrow holds it: every field of the schema is there."""
    column = pa.array([status_row(decode_message(json.dumps(message).encode()))], SCHEMAS.status_type)
    row: dict[str, Any] = column[0].as_py()
    return row


def filled(row: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not null."""
    return {name: value for name, value in row.items() if value is not None}


def test_every_field_that_v2_tells_is_in_the_row() -> None:
    """And no other: what v2 does not tell is null, or an empty list where the schema allows no null."""
    row = row_of(MESSAGE)
    assert row.pop("CreatedAt") == datetime(2024, 1, 15, 10, 35, 0, 250_000, tzinfo=UTC)
    del row["User"], row["MediaEntities"]
    assert filled(row) == {
        "Id": 1746837465839267841,
        "Text": MESSAGE["data"]["text"],
        "Source": "X Web",
        "InReplyToStatusId": 5,
        "InReplyToUserId": 12,
        "InReplyToScreenName": "jack",
        "GeoLocation": {"Latitude": 42.36, "Longitude": -71.06},
        "Place": {
            "Name": "Boston",
            "StreetAddress": None,
            "CountryCode": "US",
            "Id": "p1",
            "Country": "United States",
            "PlaceType": "city",
            "URL": None,
            "FullName": "Boston, MA",
        },
        "FavoriteCount": 4,
        "Retweet": False,
        "Contributors": [],
        "RetweetCount": 3,
        "PossiblySensitive": False,
        "Lang": "en",
        "WithheldInCountries": ["DE", "AR"],
        "HashtagEntities": [{"Text": "Boston", "Start": 11, "End": 18}],
        "SymbolEntities": [{"Start": 23, "End": 27, "Text": "IBM"}],
        "UserMentionEntities": [
            {"Name": "Jack", "Id": 12, "Text": "jack", "ScreenName": "jack", "Start": 33, "End": 38}
        ],
        "URLEntities": [
            {
                "URL": "https://t.co/a",
                "Text": "https://t.co/a",
                "ExpandedURL": "https://a",
                "Start": 39,
                "End": 52,
                "DisplayURL": "a",
            }
        ],
    }


def test_a_picture_or_video_has_the_link_that_leads_to_it() -> None:
    """One that X could not tell of is left out."""
    [picture] = row_of(MESSAGE)["MediaEntities"]
    assert filled(picture) == {
        "Id": 1234567890123456789,
        "Type": "video",
        "MediaURL": "https://pbs.example.com/v.jpg",
        "MediaURLHttps": "https://pbs.example.com/v.jpg",
        "Sizes": [],
        "VideoDurationMillis": 1500,
        "VideoVariants": [{"Url": "https://v/1.mp4", "Bitrate": 256, "ContentType": "video/mp4"}],
        "ExtAltText": "alt",
        "URL": "https://t.co/p",
        "Text": "https://t.co/p",
        "Start": 53,
        "End": 66,
    }


def test_the_author_is_the_user_of_the_row() -> None:
    """With what v2 tells of users, the profile image in its four sizes among it."""
    user = filled(row_of(MESSAGE)["User"])
    images = {
        f"{size}ProfileImageURL{kind}": f"https://pbs.example.com/1/x{word}.jpg"
        for size, word in (("", "_normal"), ("Bigger", "_bigger"), ("Mini", "_mini"), ("Original", ""))
        for kind in ("", "Https")
    }
    assert user == images | {
        "Id": 99,
        "Name": "Zoë",
        "ScreenName": "zoe",
        "Location": "Boston",
        "Description": "d",
        "URL": "https://t.co/u",
        "Protected": False,
        "Verified": True,
        "WithheldInCountries": ["FR"],
        "FollowersCount": 1,
        "FriendsCount": 2,
        "StatusesCount": 3,
        "ListedCount": 4,
        "FavouritesCount": 5,
        "ProfileBannerURL": "https://pbs.example.com/b",
        "CreatedAt": datetime(2013, 12, 14, 4, 35, 55, tzinfo=UTC),
    }


def test_a_bare_post_is_a_row_of_nulls() -> None:
    """Only what the schema asks for is there; no author, where X could not tell of it."""
    bare = {"data": {"id": "20", "text": "just setting up my twttr"}, "errors": [{"title": "Not Found Error"}]}
    row = filled(row_of(bare))
    lists = {name for name, value in row.items() if value == []}
    assert {name: row[name] for name in row.keys() - lists} == {
        "Id": 20,
        "Text": "just setting up my twttr",
        "Retweet": False,
    }
    assert lists >= {"Contributors", "WithheldInCountries"}


def test_a_long_post_has_its_whole_text() -> None:
    """And the entities of that, whose places are in it."""
    note = {"text": "long " * 100, "entities": {"hashtags": [{"start": 400, "end": 404, "tag": "end"}]}}
    row = row_of({"data": {"id": "1", "text": "long", "note_tweet": note}})
    assert (row["Text"], row["HashtagEntities"][0]["Start"]) == ("long " * 100, 400)


def test_a_retweet_is_one() -> None:
    """By what it refers to."""
    retweet = {"id": "1", "text": "RT", "referenced_tweets": [{"type": "retweeted", "id": "2"}]}
    assert row_of({"data": retweet})["Retweet"] is True


@pytest.mark.parametrize(
    "data",
    [
        {"id": "1"},
        {"id": 1, "text": "a number"},
        {"id": "1\n", "text": "a line end"},
        {"id": "99999999999999999999", "text": "20 digits"},
        {"id": "9999999999999999999", "text": "beyond 64 bits"},
        {"id": "1", "text": "a", "public_metrics": {"like_count": "many"}},
        {"id": "1", "text": "a", "public_metrics": {"like_count": 1 << 63}},
        {"id": "1", "text": "a", "withheld": {"country_codes": [1]}},
    ],
)
def test_what_is_not_as_x_documents_it_is_refused_whole(data: dict[str, Any]) -> None:
    """Never cut, and never a null in the place of a value of another type."""
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        row_of({"data": data})


@pytest.mark.parametrize("namespace", [ARTICLE_NAMESPACE, RELEASED_NAMESPACE])
def test_the_schemas_are_those_of_the_seed(namespace: str) -> None:
    """The key to the letter as printed; 27 fields of Status, 48 of User, full unique names, logical timestamps."""
    schemas = TwitterSchemas.under(namespace)
    assert schemas.key.document == {
        "type": "record",
        "name": "StatusKey",
        "namespace": namespace,
        "fields": [{"name": "Id", "type": ["null", "long"]}],
        "connect.doc": "Key for a twitter status.",
        "connect.name": f"{namespace}.StatusKey",
    }
    parse_schema(json.loads(schemas.status.avro))
    fields = {field["name"]: field["type"] for field in schemas.status.document["fields"]}
    assert len(fields) == 27
    assert fields["CreatedAt"][1]["connect.name"] == "org.apache.kafka.connect.data.Timestamp"
    user = fields["User"][1]
    assert user["connect.name"] == f"{namespace}.User"
    assert len(user["fields"]) == 48
    assert [name for name, form in fields.items() if not isinstance(form, list)] == [
        "Contributors",
        "WithheldInCountries",
    ]
    entities = [name for name in fields if name.endswith("Entities")]
    assert [fields[name][1]["items"]["connect.name"].rpartition(".")[2] for name in entities] == [
        f"{name.removesuffix('Entities')}Entity" for name in entities
    ]
