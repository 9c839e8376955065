"""From a post of API v2 to a row of Status. Pure; what v2 does not tell is null, or an empty list where null is none.

Which field comes from where is written down in ``docs/guides/x.md``. X sends an app at most 250 posts a second, so
that the work for each post is small against the network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from fetchers.x.twitter_post import Entities, Includes, Media, Message, Post, Url, User

_NORMAL = "_normal."
"""In the address of a profile image of 48 pixels; other sizes have another word there, the original has none
(https://docs.x.com/x-api/fundamentals/data-dictionary: ``profile_image_url``)."""


_IS_NUMBER = re.compile(r"[0-9]{1,18}|[0-8][0-9]{18}").fullmatch
ID_MAX = (1 << 63) - 1


def status_row(message: Message) -> dict[str, Any]:
    """The row of a post; fields that are not in it are null. Raises ValueError for an id beyond 64 bits."""
    post, includes = message.data, message.includes or Includes()
    users = {user.id: user for user in includes.users}
    entities = post.entities or Entities()
    if post.note_tweet is not None:
        entities = post.note_tweet.entities or entities
    metrics = post.public_metrics
    author = users.get(post.author_id or "")
    return {
        "CreatedAt": _instant_ms(post.created_at),
        "Id": _number(post.id),
        "Text": post.text if post.note_tweet is None else post.note_tweet.text,
        "Source": post.source,
        **_reply(post, users),
        "GeoLocation": _location(post),
        "Place": _place(post, includes),
        "FavoriteCount": metrics and metrics.like_count,
        "User": author and _user(author),
        "Retweet": any(reference.type == "retweeted" for reference in post.referenced_tweets),
        "Contributors": [],
        "RetweetCount": metrics and metrics.retweet_count,
        "PossiblySensitive": post.possibly_sensitive,
        "Lang": post.lang,
        "WithheldInCountries": list(post.withheld.country_codes) if post.withheld else [],
        "HashtagEntities": [{"Text": tag.tag, **_placed(tag)} for tag in entities.hashtags],
        "UserMentionEntities": [
            {
                "Name": users[mention.id].name if mention.id is not None and mention.id in users else None,
                "Id": _number(mention.id),
                "Text": mention.username,
                "ScreenName": mention.username,
                **_placed(mention),
            }
            for mention in entities.mentions
        ],
        "MediaEntities": _pictures(post, includes, entities.urls),
        "SymbolEntities": [{"Text": tag.tag, **_placed(tag)} for tag in entities.cashtags],
        "URLEntities": [_link(url) for url in entities.urls if url.media_key is None],
    }


def _reply(post: Post, users: Mapping[str, User]) -> dict[str, Any]:
    replied_to = next((other.id for other in post.referenced_tweets if other.type == "replied_to"), None)
    user_id = post.in_reply_to_user_id
    return {
        "InReplyToStatusId": _number(replied_to),
        "InReplyToUserId": _number(user_id),
        "InReplyToScreenName": users[user_id].username if user_id is not None and user_id in users else None,
    }


def _location(post: Post) -> dict[str, float] | None:
    point = post.geo.coordinates if post.geo is not None else None
    if point is None or len(point.coordinates) != len(("longitude", "latitude")):
        return None
    longitude, latitude = point.coordinates
    return {"Latitude": latitude, "Longitude": longitude}


def _place(post: Post, includes: Includes) -> dict[str, Any] | None:
    wanted = post.geo.place_id if post.geo is not None else None
    place = next((place for place in includes.places if place.id == wanted), None)
    if place is None:
        return None
    return {
        "Name": place.name,
        "CountryCode": place.country_code,
        "Id": place.id,
        "Country": place.country,
        "PlaceType": place.place_type,
        "FullName": place.full_name,
    }


def _user(user: User) -> dict[str, Any]:
    metrics = user.public_metrics
    return {
        "Id": _number(user.id),
        "Name": user.name,
        "ScreenName": user.username,
        "Location": user.location,
        "Description": user.description,
        **_images(user.profile_image_url),
        "URL": user.url,
        "Protected": user.protected,
        "FollowersCount": metrics and metrics.followers_count,
        "FriendsCount": metrics and metrics.following_count,
        "CreatedAt": _instant_ms(user.created_at),
        "FavouritesCount": metrics and metrics.like_count,
        "ProfileBannerURL": user.profile_banner_url,
        "StatusesCount": metrics and metrics.tweet_count,
        "Verified": user.verified,
        "ListedCount": metrics and metrics.listed_count,
        "WithheldInCountries": list(user.withheld.country_codes) if user.withheld else [],
    }


def _images(url: str | None) -> dict[str, str]:
    """The profile image in its sizes."""
    if url is None:
        return {}
    sizes = {"": url}
    if _NORMAL in url:
        words = {"Bigger": "_bigger.", "Mini": "_mini.", "Original": "."}
        sizes |= {size: word.join(url.rsplit(_NORMAL, 1)) for size, word in words.items()}
    kinds = ("", "Https") if url.startswith("https://") else ("",)
    return {f"{size}ProfileImageURL{kind}": text for size, text in sizes.items() for kind in kinds}


def _pictures(post: Post, includes: Includes, urls: Sequence[Url]) -> list[dict[str, Any]]:
    """Attached pictures and videos, each with the link in the text that leads to it."""
    keys = post.attachments.media_keys if post.attachments is not None else ()
    media = {item.media_key: item for item in includes.media}
    links = {url.media_key: _link(url) for url in urls if url.media_key is not None}
    return [_picture(media[key]) | links.get(key, {}) for key in keys if key in media]


def _picture(media: Media) -> dict[str, Any]:
    address = media.url or media.preview_image_url
    number = media.media_key.rpartition("_")[2]
    return {
        "Id": int(number) if _IS_NUMBER(number) else None,
        "Type": media.type,
        "MediaURL": address,
        "MediaURLHttps": address if address is not None and address.startswith("https://") else None,
        "Sizes": [],
        "VideoDurationMillis": media.duration_ms,
        "VideoVariants": [
            {"Url": variant.url, "Bitrate": variant.bit_rate, "ContentType": variant.content_type}
            for variant in media.variants
        ],
        "ExtAltText": media.alt_text,
    }


def _link(url: Url) -> dict[str, Any]:
    return {
        "URL": url.url,
        "Text": url.url,
        "ExpandedURL": url.expanded_url,
        "DisplayURL": url.display_url,
        **_placed(url),
    }


def _placed(entity: Any) -> dict[str, int | None]:
    return {"Start": entity.start, "End": entity.end}


def _number(digits: str | None) -> int | None:
    """An id; raises ValueError where it is beyond 64 bits."""
    if digits is None:
        return None
    number = int(digits)
    if number > ID_MAX:
        message = f"the id {number} is beyond 64 bits"
        raise ValueError(message)
    return number


def _instant_ms(text: str | None) -> int | None:
    """Milliseconds since the epoch; None for what is no instant."""
    if text is not None:
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1000)
    return None
