"""``MixpanelSource``: rounds over the days of a project, each day read to a clean end before it counts as read.

A round reads the days that are still open for late events again, then every day that has ended since. What comes a
second time carries the window it came with first, so that the worker can drop it; a window is closed when no later
round will read it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import pyarrow as pa

from fetchers.mixpanel.bookmark import Bookmark
from fetchers.mixpanel.config import MixpanelConfig
from fetchers.mixpanel.export import DayNotOverError, Export
from fetchers.mixpanel.lines import LineCutter, Lines
from fetchers.mixpanel.windows import ONE_DAY, Window, end_of, last_finished, windows_between
from fetchers.sdk import FetchContext, FetchError, Finding, Offset, Page, Partition, PayloadKind, SourceConnector
from metrics.events import ConfigWarning

DAY_GRACE = timedelta(seconds=60)
"""A day counts as over only so long after its end: Mixpanel's clock is not ours."""
NOT_OVER_WAIT_SECONDS = 900.0
"""Until the next round when Mixpanel says that a day has not come yet."""
NAP_SECONDS_MAX = 60.0
"""The wall clock is looked at this often while waiting for the end of a day; it may be set."""
NAP_SECONDS_MIN = 0.001
"""Less might not move the clock at all."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The days of one round."""

    begin: date
    last: date
    """The newest day to read; before ``begin`` when there is none."""
    finished: date
    """The newest day that is over."""


class MixpanelSource(SourceConnector[MixpanelConfig]):
    """Raw events of a Mixpanel project, backfilled from a day on and followed day by day."""

    payload_kind = PayloadKind.TEXT
    default_dedupe_fields = ("event", "properties.distinct_id", "properties.time", "properties.$insert_id")

    def __init__(self, config: MixpanelConfig) -> None:
        super().__init__(config)
        self._export = Export(config)
        self._has_started = False

    def partition(self) -> Partition:
        """By project; that of the 2016 connector where no project is named."""
        project = self.config.mixpanel_project_id
        return {"service": "mixpanel"} if project is None else {"service": "mixpanel", "project": str(project)}

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Ask for the first day's export, and leave before its events come: one query of the sixty an hour."""
        day = self.config.from_date
        try:
            async with self._export.stream(Window(day, day, day.isoformat()), context):
                return ()
        except DayNotOverError:
            return ()
        except FetchError as error:
            text = f"{error}; Expected an export that these credentials may read"
            return (Finding("mixpanel.base.url", self.config.base_url, text),)

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Rounds without end, or until ``mixpanel.to.date`` is read."""
        bookmark = self._bookmark(context)
        # A retry goes on with the window that failed; a start begins with the days open for late events.
        begin = bookmark.day if self._has_started and bookmark.day is not None else bookmark.open
        self._has_started = True
        while True:
            plan = self._plan(context, begin)
            has_new_days = bookmark.position <= plan.last
            wait_seconds = self.config.poll_interval
            try:
                async with aclosing(self._round(context, bookmark, plan)) as pages:
                    async for page, reached in pages:
                        bookmark = reached
                        yield page
            except DayNotOverError as error:
                _warn(context, error)
                wait_seconds = NOT_OVER_WAIT_SECONDS
            context.report_lag(self._lag_seconds(bookmark, plan.last))
            context.finish_round()
            if self._is_all_read(plan, has_new_days=has_new_days):
                return
            await self._rest(context, bookmark, plan, wait_seconds)
            begin = bookmark.open

    async def _round(
        self, context: FetchContext, bookmark: Bookmark, plan: _Plan
    ) -> AsyncGenerator[tuple[Page, Bookmark]]:
        """Every window of a round, with the bookmark after each page."""
        for window in windows_between(plan.begin, plan.last, bookmark.width_days):
            async with aclosing(self._lines(context, window)) as blocks:
                async for lines in blocks:
                    inside = bookmark.inside(window, line=lines.last_number)
                    yield _page(lines, inside, window), inside
            bookmark = bookmark.after(
                window,
                finished=plan.finished,
                look_back_days=self.config.mixpanel_attribution_window_days,
                is_round_over=window.last == plan.last,
            )
            context.report_lag(self._lag_seconds(bookmark, plan.last))
            yield Page([], bookmark.offset(), dedupe=bookmark.scope(window)), bookmark

    async def _lines(self, context: FetchContext, window: Window) -> AsyncGenerator[Lines]:
        """The records of a window, as its body comes in. It ends only when the body is whole."""
        cutter = LineCutter(self.config.mixpanel_line_bytes_max)
        async with self._export.stream(window, context) as stream:
            async for chunk in stream.chunks():
                for lines in cutter.feed(chunk):
                    yield lines
            for lines in cutter.finish():
                yield lines

    # --- time -------------------------------------------------------------------------------------

    def _plan(self, context: FetchContext, begin: date) -> _Plan:
        """What to read now."""
        now = context.clock.now()
        finished = last_finished(now - DAY_GRACE, self.config.zone)
        due = now.astimezone(self.config.zone).date() if self.config.mixpanel_unfinished_day else finished
        return _Plan(begin, min(due, self.config.mixpanel_to_date or due), finished)

    def _is_all_read(self, plan: _Plan, *, has_new_days: bool) -> bool:
        """Whether ``mixpanel.to.date`` is read, and once more for late events where some may still have come."""
        to_date = self.config.mixpanel_to_date
        if to_date is None or plan.finished < to_date:
            return False
        is_settled = (plan.finished - to_date).days > self.config.mixpanel_attribution_window_days
        return is_settled or not has_new_days

    async def _rest(self, context: FetchContext, bookmark: Bookmark, plan: _Plan, wait_seconds: float) -> None:
        """Wait for the next round: for so long, or until another day is over."""
        clock = context.clock
        until = clock.monotonic() + wait_seconds
        day_ends = self._next_day_ends(bookmark, plan)
        while True:
            left = until - clock.monotonic()
            if day_ends is not None:
                left = min(left, (day_ends - clock.now()).total_seconds())
            if left <= 0:
                return
            await clock.sleep(max(NAP_SECONDS_MIN, min(left, NAP_SECONDS_MAX)))

    def _next_day_ends(self, bookmark: Bookmark, plan: _Plan) -> datetime | None:
        """When the first day is over that was not in this round; None when it will not be read."""
        day = plan.finished + ONE_DAY
        to_date = self.config.mixpanel_to_date
        is_wanted = bookmark.open <= day and (to_date is None or day <= to_date)
        return end_of(day, self.config.zone) + DAY_GRACE if is_wanted else None

    def _lag_seconds(self, bookmark: Bookmark, last: date) -> float:
        """From the end of the last day read to the end of the last one due; 0 when all is read."""
        read = bookmark.position - ONE_DAY
        zone = self.config.zone
        return max(0.0, (end_of(last, zone) - end_of(min(read, last), zone)).total_seconds())

    # --- the stored offset ------------------------------------------------------------------------

    def _bookmark(self, context: FetchContext) -> Bookmark:
        """Where we are: by our own offset, else by the 2016 connector's, else at ``from_date``."""
        width_days = self.config.mixpanel_window_days
        offset: Offset = context.offset or context.offset_of({"service": "mixpanel"})
        if not offset:
            return Bookmark.first(self.config.from_date, width_days=width_days)
        return Bookmark.of(offset, width_days=width_days)


def _page(lines: Lines, bookmark: Bookmark, window: Window) -> Page:
    return Page(
        lines.payloads,
        bookmark.offset(),
        positions=pa.array(lines.numbers),
        position_name="line",
        rejections=lines.rejections,
        dedupe=bookmark.scope(window),
    )


def _warn(context: FetchContext, error: DayNotOverError) -> None:
    message = f"Mixpanel says that a day has not come yet, which is over in this zone: {error}"
    context.emit(ConfigWarning(key="mixpanel.timezone", message=message, connector=context.connector))
