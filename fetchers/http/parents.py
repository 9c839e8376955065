"""The list of parents: records that each have a list of their own, which is asked for with their id."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fetchers.http.asking import Endpoint
from fetchers.http.bookmark import Bookmark
from fetchers.http.config import HttpSourceConfig
from fetchers.sdk import Fatal, FetchContext
from fetchers.toolkit.fields import field_reader
from fetchers.toolkit.pagination import PageGuard
from fetchers.toolkit.watermark import Watermark


@dataclass(frozen=True, slots=True)
class Parent:
    """A record of the list of parents."""

    id: str
    changed: Watermark = None
    """What it says of changes in its list; None where nothing is configured that would."""

    def is_read(self, bookmark: Bookmark) -> bool:
        """Whether its list was read since it last changed.

        It was so twice: what came in after the first time may have left the parent's value as it was, where that is
        a time in whole seconds.
        """
        return self.changed is not None and bookmark.changed == self.changed and bookmark.is_settled

    def read_to(self, bookmark: Bookmark, before: Bookmark) -> Bookmark:
        """The bookmark after its list was read to the end; ``before``: the one with which that was begun."""
        if self.changed is None:
            return bookmark
        return replace(bookmark, changed=self.changed, is_settled=before.changed == self.changed)


async def parents(context: FetchContext, endpoint: Endpoint, config: HttpSourceConfig) -> list[Parent]:
    """All parents, in the order of their list; of one that comes twice the first.

    One that is passed over because the list moves is there in the next round. Raises Fatal where there are more than
    ``http.parent.count.max``, or one has no id.
    """
    guard = PageGuard(is_counted=endpoint.pagination.is_counted, pages_max=config.http_pagination_pages_max)
    names = [name for name in (config.http_parent_field, config.http_parent_changed_field) if name is not None]
    found: dict[str, Parent] = {}
    place = endpoint.pagination.first()
    while True:
        guard.pass_by(place)
        answered = await endpoint.ask(context, place, None)
        records = answered.answer.records
        for row in field_reader(*names).of_each(records):
            if row is None or None in row:
                message = f"a record at http.parent.url has no text or number in {' or '.join(map(repr, names))}"
                raise Fatal(message)
            one = str(row[0])
            found.setdefault(one, Parent(one, row[1] if len(names) > 1 else None))
        if len(found) > config.http_parent_count_max:
            message = f"more than http.parent.count.max={config.http_parent_count_max} records at http.parent.url"
            raise Fatal(message)
        if answered.is_end or answered.following in {None, place}:
            return list(found.values())
        guard.go_on_from(place, records)
        place = answered.following
