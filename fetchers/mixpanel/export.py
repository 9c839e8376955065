"""One request to the export: what is asked, and what its status means to the person who runs the connector.

Source: Mixpanel's ``openapi/export.openapi.yaml``, ``reference/rate-limits``, ``reference/raw-data-export-api``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fetchers.mixpanel.config import MixpanelConfig
from fetchers.mixpanel.lines import UnfinishedLineError
from fetchers.mixpanel.windows import Window
from fetchers.sdk import BackOff, Fatal, FetchContext, FetchError, RateLimited, Retriable
from fetchers.sdk.http import HttpLimits, HttpStream, StatusTable, StatusVerdict
from fetchers.toolkit.auth import BasicAuth
from fetchers.toolkit.http.failures import excerpt
from fetchers.toolkit.rate_limits import RateWindow, shared_budget

EXPORT_PATH = "/api/2.0/export"
RATE_WINDOWS = (RateWindow(60, 3600.0), RateWindow(3, 1.0))
"""60 queries an hour and 3 a second for each project, whoever asks."""
RATE_LIMIT_BACK_OFF = BackOff(first_seconds=60.0, cap_seconds=900.0, jitter_seconds=15.0)
"""For a 429 without ``Retry-After``."""
LIMITS = HttpLimits(connect_seconds=30.0, read_seconds=300.0)
"""A large day is silent for minutes before its first byte."""
BEGINNING_CHARACTERS_MAX = 80
"""Characters of a line that are quoted in a message."""
_BAD_PARAMETER = 400

_ADVICE = {
    _BAD_PARAMETER: "Mixpanel refuses a parameter; check from_date, mixpanel.events, mixpanel.where and "
    "mixpanel.project.id",
    401: "Mixpanel does not know these credentials; check mixpanel.service.account.username and "
    "mixpanel.service.account.secret (or the project's secret), and the region",
    402: "the project's plan has no raw export; ask for it at Mixpanel, or use another project",
    403: "the credentials have no right to export this project (classified data needs a right of its own); "
    "grant it in Mixpanel's project settings",
    404: "there is no export at this address; check mixpanel.region and mixpanel.base.url",
}
_STATUSES = StatusTable().with_verdict(StatusVerdict.RETRY, range(201, 300)).with_verdict(StatusVerdict.ACCEPT, _ADVICE)
"""An export comes with 200 and nothing else: a part of one, or none at all, would close its days."""


class DayNotOverError(Exception):
    """Mixpanel says that the last day asked for has not come yet: its clock or zone is behind ours."""


@dataclass(frozen=True, slots=True)
class Export:
    """The export of one project, asked within its limits."""

    config: MixpanelConfig

    @asynccontextmanager
    async def stream(self, window: Window, context: FetchContext) -> AsyncIterator[HttpStream]:
        """The body of a window. Raises ``DayNotOverError``, ``Retriable`` or ``Fatal``, naming the days."""
        user, password = self.config.user_and_password
        secrets = [secret for secret in (user if not password else "", password) if secret]
        try:
            async with context.http.stream(
                "GET",
                self.config.base_url + EXPORT_PATH,
                query=self._query(window),
                auth=BasicAuth(user, password),
                secrets=secrets,
                limits=LIMITS,
                statuses=_STATUSES,
                is_page_refused=True,
                budget=shared_budget(
                    self._budget_name(), RATE_WINDOWS, clock=context.clock, back_off=RATE_LIMIT_BACK_OFF
                ),
            ) as stream:
                await _refuse(stream)
                _demand_frame(stream)
                yield stream
        except RateLimited as error:
            raise RateLimited(_about(window, error), wait_seconds=error.wait_seconds) from error
        except UnfinishedLineError as error:
            beginning = excerpt(error.beginning, secrets, characters_max=BEGINNING_CHARACTERS_MAX)
            raise Retriable(f"{_about(window, error)}, which begins {beginning}") from error
        except Retriable as error:
            raise Retriable(_about(window, error), wait_seconds=error.wait_seconds) from error
        except Fatal as error:
            raise Fatal(_about(window, error)) from error

    def _query(self, window: Window) -> dict[str, str]:
        config = self.config
        query = {"from_date": window.first.isoformat(), "to_date": window.last.isoformat()}
        if config.mixpanel_project_id is not None:
            query["project_id"] = str(config.mixpanel_project_id)
        if config.mixpanel_events:
            query["event"] = json.dumps(config.mixpanel_events, ensure_ascii=False)
        if config.mixpanel_where:
            query["where"] = config.mixpanel_where
        if config.mixpanel_time_in_ms:
            query["time_in_ms"] = "true"
        return query

    def _budget_name(self) -> str:
        """The limits are the project's, whatever credentials ask; without its number the secret stands for it."""
        project = self.config.mixpanel_project_id
        return f"{self.config.base_url} {project if project is not None else self.config.user_and_password[0]}"


async def _refuse(stream: HttpStream) -> None:
    """Raise what a status means that waiting does not mend, quoting Mixpanel's own words."""
    if stream.status not in _ADVICE:
        return
    said = await stream.excerpt()
    if stream.status == _BAD_PARAMETER and "to_date" in said and "later than today" in said:
        raise DayNotOverError(said)
    raise Fatal(f"status {stream.status}: {_ADVICE[stream.status]}" + (f". Mixpanel says: {said}" if said else ""))


def _demand_frame(stream: HttpStream) -> None:
    """Raise where nothing would tell a whole body from one that was cut between two lines."""
    if not stream.is_framed:
        raise Retriable(
            "the answer does not tell where it ends (no length, no chunks, no gzip), and Mixpanel's own always do: "
            "look for a proxy on the way that speaks HTTP/1.0"
        )


def _about(window: Window, error: FetchError) -> str:
    days = window.first.isoformat() if window.first == window.last else f"{window.first} to {window.last}"
    return f"Mixpanel export of {days}: {error}"
