"""The keys of ``MixpanelSource``: those of the 2016 connector, and those of today's API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field

from fetchers.sdk import (
    Boolean,
    FetcherConfig,
    Finding,
    HttpUrl,
    Importance,
    IsoDate,
    Key,
    ParsedConfig,
    Secret,
    Severity,
)

HOSTS = {"us": "data.mixpanel.com", "eu": "data-eu.mixpanel.com", "in": "data-in.mixpanel.com"}
"""Hosts of the export by data residency (``openapi/export.openapi.yaml``)."""
ONE_DAY_MS = 24 * 3600 * 1000

TOPIC_MISSING = "MixPanelConnector configuration must include 'topic' setting"
TOPIC_NOT_SINGLE = "MixPanelConnector should only have a single topic when used as a source."
API_KEY_MISSING = "MixPanelConnector configuration must include 'api key' setting"
API_SECRET_MISSING = "MixPanelConnector configuration must include 'api secret' setting"  # noqa: S105 - a message
FROM_DATE_UNREADABLE = "MixPanelConnector requires dates of format yyyy-mm-dd for the from_date field"

_USERNAME = "mixpanel.service.account.username"
_SECRET = "mixpanel.service.account.secret"  # noqa: S105 - the name of a key
_PROJECT_ID = "mixpanel.project.id"
_PROJECT_SECRET = "mixpanel.project.secret"  # noqa: S105 - the name of a key
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def _zone_name(value: object) -> object:
    """A time zone of the IANA database."""
    if isinstance(value, str):
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            message = "Expected an IANA time zone such as US/Pacific"
            raise ValueError(message) from None
    return value


def _event_names(value: object) -> object:
    """Names separated by commas, or a JSON array of them, for names that have commas themselves."""
    if not isinstance(value, str):
        return value
    if not value.startswith("["):
        return tuple(name.strip() for name in value.split(",")) if value else ()
    message = 'Expected names separated by commas, or a JSON array such as ["Signed up"]'
    try:
        names = json.loads(value)
    except json.JSONDecodeError:
        raise ValueError(message) from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(message)
    return tuple(names)


ZoneName = Annotated[str, BeforeValidator(_zone_name)]
EventNames = Annotated[tuple[str, ...], BeforeValidator(_event_names)]


class MixpanelConfig(FetcherConfig):
    """Raw events of one Mixpanel project."""

    from_date: Annotated[IsoDate, Field(alias="from_date"), Key(importance=Importance.HIGH, example="2016-02-01")]
    """First day to read, yyyy-mm-dd. Used when there is no stored offset."""
    api_key: Annotated[Secret | None, Field(alias="api_key"), Key(importance=Importance.HIGH)] = None
    """API key of the 2016 connector. Mixpanel no longer reads it; it has to be given together with api_secret."""
    api_secret: Annotated[Secret | None, Field(alias="api_secret"), Key(importance=Importance.HIGH)] = None
    """API secret of the 2016 connector, used as the project's secret."""
    mixpanel_project_id: Annotated[int | None, Field(ge=1), Key(importance=Importance.HIGH)] = None
    """Number of the project; required with a service account."""
    mixpanel_service_account_username: Annotated[str | None, Key(importance=Importance.HIGH)] = None
    """Name of a service account with the right to export; what Mixpanel recommends."""
    mixpanel_service_account_secret: Annotated[Secret | None, Key(importance=Importance.HIGH)] = None
    """Secret of the service account."""
    mixpanel_project_secret: Annotated[Secret | None, Key(importance=Importance.MEDIUM)] = None
    """Secret of the project, where there is no service account. Mixpanel retires these on 3 March 2027."""
    mixpanel_region: Annotated[Literal["us", "eu", "in"], Key(importance=Importance.MEDIUM)] = "us"
    """Where the project's data resides."""
    mixpanel_base_url: Annotated[HttpUrl | None, Key(importance=Importance.LOW)] = None
    """Scheme and host of the export instead of the region's, such as a proxy's."""
    mixpanel_to_date: Annotated[IsoDate | None, Key(importance=Importance.MEDIUM)] = None
    """Last day to read, yyyy-mm-dd. Every start reads the days that are open for late events once more, then the rest
    up to this day, and the source ends when a round has brought no new day."""
    mixpanel_timezone: Annotated[ZoneName, Key(importance=Importance.HIGH, example="US/Pacific")] = "UTC"
    """The project's time zone, in which its days begin and end. UTC for projects made since January 2023."""
    mixpanel_attribution_window_days: Annotated[int, Field(ge=0, le=365), Key(importance=Importance.MEDIUM)] = 5
    """How many days are read again in every round, so that events that arrive late are not missed."""
    mixpanel_window_days: Annotated[int, Field(ge=1, le=100), Key(importance=Importance.LOW)] = 1
    """Days of one request. More than one saves requests in a long, thin history; it cannot be changed afterwards
    without deleting the connector's offsets."""
    mixpanel_unfinished_day: Annotated[Boolean, Key(importance=Importance.LOW)] = False
    """Whether the day that is not over yet is read too, in every round."""
    mixpanel_events: Annotated[EventNames, Key(importance=Importance.MEDIUM, kind="LIST")] = ()
    """Only events of these names: separated by commas, or a JSON array. All events when empty."""
    mixpanel_where: Annotated[str | None, Key(importance=Importance.LOW)] = None
    """Only events that meet this segmentation expression."""
    mixpanel_time_in_ms: Annotated[Boolean, Key(importance=Importance.LOW)] = False
    """Whether properties.time is in milliseconds instead of seconds. The time is part of the key by which repeated
    events are known: after a change the days open for late events are delivered once more."""
    mixpanel_line_bytes_max: Annotated[int, Field(ge=1024, le=256 * 1024 * 1024), Key(importance=Importance.LOW)] = (
        8 * 1024 * 1024
    )
    """Longest line that is held. Of a longer one the first mebibyte goes to the dead letters."""
    poll_interval_ms: Annotated[int, Field(ge=1), Key(importance=Importance.LOW)] = ONE_DAY_MS
    """Milliseconds from the end of a round to the next one. A round begins earlier when a day ends."""

    @classmethod
    def parse(cls, properties: Mapping[str, str | None]) -> ParsedConfig[Self]:
        """Read a flat map; missing keys are told in the 2016 connector's words, which its users look for."""
        parsed = super().parse(properties)
        texts = {key: value.strip() for key, value in properties.items() if value is not None and value.strip()}
        findings = (*map(_in_known_words, parsed.findings), *_findings_between_keys(texts))
        is_refused = any(finding.is_error for finding in findings)
        return ParsedConfig(None if is_refused else parsed.config, findings)

    @property
    def base_url(self) -> str:
        """Scheme and host of the export, without a slash at its end."""
        return (self.mixpanel_base_url or f"https://{HOSTS[self.mixpanel_region]}").rstrip("/")

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of the project, in which its days begin and end."""
        return ZoneInfo(self.mixpanel_timezone)

    @property
    def user_and_password(self) -> tuple[str, str]:
        """What HTTP Basic authentication sends: the service account, or the project's secret as user."""
        if self.mixpanel_service_account_username and self.mixpanel_service_account_secret:
            return self.mixpanel_service_account_username, self.mixpanel_service_account_secret.get_secret_value()
        secret = self.mixpanel_project_secret or self.api_secret
        return (secret.get_secret_value() if secret else ""), ""


def _in_known_words(finding: Finding) -> Finding:
    if finding.key == "from_date":
        return Finding(finding.key, finding.value, FROM_DATE_UNREADABLE)
    if finding.key == "topic":
        return Finding(finding.key, finding.value, TOPIC_MISSING)
    return finding


def _findings_between_keys(texts: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong with values that may each be right by themselves."""
    if "," in texts.get("topic", ""):
        yield Finding("topic", texts["topic"], TOPIC_NOT_SINGLE)
    yield from _credential_findings(texts)
    from_date, to_date = _day(texts.get("from_date")), _day(texts.get("mixpanel.to.date"))
    if from_date and to_date and to_date < from_date:
        yield Finding("mixpanel.to.date", str(to_date), f"Expected a day not before from_date {from_date}")
    url = urlsplit(texts.get("mixpanel.base.url", ""))
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        message = "Credentials are sent without encryption; use https://"
        yield Finding("mixpanel.base.url", texts["mixpanel.base.url"], message, Severity.WARNING)


def _credential_findings(texts: Mapping[str, str]) -> Iterator[Finding]:
    """Exactly one way to authenticate, with all its parts."""
    if _USERNAME in texts or _SECRET in texts:
        for key in (_USERNAME, _SECRET, _PROJECT_ID):
            if key not in texts:
                yield Finding(key, None, f'Missing configuration "{key}", which a service account requires')
        for key in {_PROJECT_SECRET, "api_secret"} & texts.keys():
            message = "Not used: the service account is"
            yield Finding(key, None, message, Severity.WARNING)
        return
    if _PROJECT_SECRET in texts:
        return
    for key, message in (("api_key", API_KEY_MISSING), ("api_secret", API_SECRET_MISSING)):
        if key not in texts:
            yield Finding(key, None, message)
    if "api_key" not in texts or "api_secret" not in texts:
        message = f"Better than a project's key and secret: a service account ({_USERNAME}, {_SECRET}, {_PROJECT_ID})"
        yield Finding(_USERNAME, None, message, Severity.WARNING)


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None  # said by the key's own finding
