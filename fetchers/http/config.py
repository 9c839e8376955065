"""What can be configured of ``HttpSource``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fetchers.sdk import Boolean, HttpUrl, Importance, Key, NameList, TextMap
from fetchers.toolkit.access import HttpAccessConfig, HttpPaceKeys

_REQUEST = Key(group="Request")
_RECORDS = Key(group="Records")
_OFFSET = Key(group="Offset")
_PAGES = Key(group="Pagination")
_PARENTS = Key(group="Parents")
_RHYTHM = Key(group="Rhythm", importance=Importance.LOW)
_LIMITS = Key(group="Limits", importance=Importance.LOW)

PaginationType = Literal["none", "page_number", "offset", "cursor", "link", "next_url", "mark"]
ParentPaginationType = Literal["none", "page_number", "offset", "cursor", "link", "next_url"]


class HttpSourceConfig(HttpPaceKeys, HttpAccessConfig):
    """Records from any endpoint that answers with JSON, NDJSON or CSV."""

    http_url: Annotated[
        HttpUrl, Key(importance=Importance.HIGH, group="Request", example="https://api.example.com/orders")
    ]
    """URL to ask. May hold {offset} and {offset.<field>}, which stand for what was read last; {offset:s} and
    {offset:ms} stand for the same instant in seconds or milliseconds since 1970, and {parent} for an id (see
    http.parent.url)."""
    http_method: Annotated[Literal["GET", "POST"], _REQUEST] = "GET"
    """Method of the request. POST is for queries only: it is repeated after failures."""
    http_query: Annotated[TextMap, Field(default_factory=dict), _REQUEST]
    """Query fields: http.query.<name>; may hold {offset} and {parent}. For keys and tokens use http.auth."""
    http_body: Annotated[str | None, _REQUEST] = None
    """Body of the request; may hold {offset} and {parent}."""

    http_format: Annotated[Literal["json", "ndjson", "csv"], _RECORDS] = "json"
    """Format of answers. Rows of CSV become JSON objects of texts, named by the first row.

    A contract takes such texts for numbers, times, booleans and null unless ``contract.coerce`` says otherwise. A row
    that has not the fields of the first one, has stray quotation marks or is not UTF-8 is a dead letter. Where a stray
    mark may have swallowed the rows of several lines, the task fails and names them. With http.offset.field, which
    comes with a memory of bad rows, more than 10,000 of them in one round fail it as well.

    A web page (text/html) in place of ndjson or csv is tried again: a proxy or a login wall answers for the source."""
    http_records_path: Annotated[str, _RECORDS] = ""
    """Where the records are in a JSON answer, such as data.items; empty: the answer is the array, or one record."""
    http_records_missing: Annotated[Literal["fail", "empty"], _RECORDS] = "fail"
    """What an answer without that path means: a mistake, or no records."""

    http_offset_field: Annotated[NameList, _OFFSET] = ()
    """Field that tells new records from old ones, such as properties.updated: a number, a time, or text that sorts.
    Without it (and without http.pagination.continues) every round delivers everything again. A record without
    it is a dead letter.

    Several, such as updated,id, are compared one after the other, for requests that say after which record to go on:
    {offset.updated} and {offset.id}. What comes later must then be greater, not only of a greater first field."""
    http_offset_key: Annotated[str | None, _OFFSET] = None
    """Field that tells records with the same value apart; without it all bytes of a record do. With it, a record
    without that field is a dead letter."""
    http_offset_initial: Annotated[str | None, _OFFSET] = None
    """Value to begin with, itself included; of several fields the values of all, separated by commas."""

    http_pagination_type: Annotated[PaginationType, _PAGES] = "none"
    """How an answer of many pages is read; docs/guides/http-sources.md says which way suits which source.

    mark needs a source that can be asked for the records from a value on, in its order: each page is asked for anew
    with {offset}, which is then what the page before ended with, so that nothing is lost where pages shift. A full page
    (http.pagination.limit) of records that were all read before fails the task: more of them have one value than a page
    holds, or the source does not go by {offset}. So do records with the newest first; in no order they are tried again.

    A page of page_number and offset with the very records of the page before fails the task: the source does not
    read the count, and would give that page for ever."""
    http_pagination_checks_moves: Annotated[Boolean, _PAGES] = True
    """Whether pages by number, offset or URL are read again where records may have moved from one to the other.

    A record that is updated while its list is paged leaves its place, and one behind it moves on to a page that has
    been read. With http.offset.field that is noticed: the page before is asked for once more, where there are news, or
    where records are not in the order of the offset field. What has moved is then read again: once where they are in
    that order; else the round begins anew, and what it had delivered comes twice if the task has restarted in it, or
    if it was more than 20,000 records.

    It cannot be noticed without http.offset.field, nor where one record comes in before a page border and another one
    leaves in the time of two requests. In a list in another order some updates are passed over;
    docs/guides/http-sources.md says which: let the source sort by the offset field.

    With http.pagination.cursor.field it is the same: the record that is the cursor may leave its place. A cursor of the
    source's own is trusted to leave nothing out. Where a URL of the source holds one, or nothing ever leaves its place,
    false saves up to half of the requests."""
    http_pagination_page_parameter: Annotated[str, _PAGES] = "page"
    """Query field of the page number."""
    http_pagination_page_first: Annotated[int, Field(ge=0), _PAGES] = 1
    """Number of the first page."""
    http_pagination_offset_parameter: Annotated[str, _PAGES] = "offset"
    """Query field of the offset."""
    http_pagination_limit_parameter: Annotated[str, _PAGES] = "limit"
    """Query field of the limit, with offset and mark."""
    http_pagination_limit: Annotated[int, Field(ge=1), _PAGES] = 100
    """Records to ask for at once, with offset and mark. With mark it must not be more than the source gives at once,
    for it tells full pages; where a smaller page turns out to have been full, the task fails."""
    http_pagination_in: Annotated[Literal["query", "body"], _PAGES] = "query"
    """Where these fields stand in a request: in its query, or as members of a JSON object in its body."""
    http_pagination_first_query: Annotated[TextMap, Field(default_factory=dict), _PAGES]
    """Query fields of the first page only: http.pagination.first.query.<name>, for sources whose cursor or URL of a
    next page stands for them and allows no others beside it. May hold {offset}."""
    http_pagination_cursor_path: Annotated[str | None, _PAGES] = None
    """Where the cursor is in the answer."""
    http_pagination_cursor_field: Annotated[str | None, _PAGES] = None
    """Field of a page's last record that is the cursor, in place of http.pagination.cursor.path, such as id where the
    next page is asked for by starting_after=<id>."""
    http_pagination_more_path: Annotated[str | None, _PAGES] = None
    """Where an answer says by true that another page follows, and by false that none does, such as has_more."""
    http_pagination_end_path: Annotated[str | None, _PAGES] = None
    """Where an answer says by true that it is the last, such as end_of_stream. With http.pagination.continues the next
    round begins with the cursor that this answer names."""
    http_pagination_cursor_parameter: Annotated[str, _PAGES] = "cursor"
    """Query field of the cursor."""
    http_pagination_next_path: Annotated[str, _PAGES] = "next"
    """Where the URL of the next page is in the answer, for next_url."""
    http_pagination_hosts: Annotated[NameList, _PAGES] = ()
    """Further hosts that next_url and link may lead to; credentials are sent to them."""
    http_pagination_pages_max: Annotated[int, Field(ge=1), _PAGES] = 100_000
    """Pages of one round; more is taken for a mistake of the source."""
    http_pagination_continues: Annotated[Boolean, _PAGES] = False
    """For sources that only ever append: a round begins where the last one ended, not at the first page."""
    http_pagination_stops_at_known: Annotated[Boolean, _PAGES] = False
    """For sources that give the newest first: a page without new records ends the round, where the records of the round
    have come in falling order of http.offset.field; in any other order all pages are read."""

    http_parent_url: Annotated[HttpUrl | None, _PARENTS] = None
    """URL of a list whose records each have a list of their own, which is read with {parent} for the id.

    A round asks for this list, and then for that of each id. Each has an offset of its own, in the source partition
    {url, parent}. The records of this list itself are not delivered: that is another connector."""
    http_parent_query: Annotated[TextMap, Field(default_factory=dict), _PARENTS]
    """Query fields of that request: http.parent.query.<name>."""
    http_parent_records_path: Annotated[str, _PARENTS] = ""
    """Where the records are in its JSON answer, such as data.items."""
    http_parent_field: Annotated[str, _PARENTS] = "id"
    """Field of its records that stands for {parent}."""
    http_parent_changed_field: Annotated[str | None, _PARENTS] = None
    """Field that changes whenever something does in the list of that id, such as updated_at: only then is it read
    again, and once more in the round after, for what came in while its value stayed the same."""
    http_parent_pagination_type: Annotated[ParentPaginationType | None, _PARENTS] = None
    """How that list is paged, by the same parameters; http.pagination.type when not given (with mark: none)."""
    http_parent_count_max: Annotated[int, Field(ge=1), _PARENTS] = 10_000
    """Ids of one round; more fail the task."""

    http_catchup_interval_ms: Annotated[int | None, Field(ge=0), _RHYTHM] = None
    """Milliseconds between two rounds when the last one brought new records; poll.interval.ms when not given."""
    http_rate_remaining_header: Annotated[str | None, _RHYTHM] = None
    """Header field that tells how many requests are left, such as X-RateLimit-Remaining. At 0, all tasks of a worker
    with these credentials wait until the moment of http.rate.reset.header."""
    http_rate_reset_header: Annotated[str | None, _RHYTHM] = None
    """Header field that tells when there are more again, such as X-RateLimit-Reset: seconds from now, seconds or
    milliseconds since 1970, or a date. A moment is compared with the Date field of the same answer."""
    http_rate_quota_header: Annotated[str | None, _RHYTHM] = None
    """Header field of the IETF's draft, RateLimit: "default";r=0;t=30, or in its older form remaining=0, reset=30."""
    http_rate_bucket_header: Annotated[str | None, _RHYTHM] = None
    """Header field that tells how full a leaky bucket is, such as X-Shopify-Shop-Api-Call-Limit: 32/40."""
    http_rate_bucket_leak: Annotated[float, Field(gt=0), _RHYTHM] = 1.0
    """Requests by which that bucket becomes emptier in a second."""
    http_rate_spare: Annotated[int, Field(ge=0), _RHYTHM] = 0
    """Requests of what these fields say is left that are for others with the same credentials.

    Retry-After is kept to without any of these keys."""

    http_status_limited: Annotated[NameList, _LIMITS] = ()
    """Further answers that mean: too many requests. (By default 429.) All with these credentials wait as long as
    Retry-After or the fields of http.rate say, else longer from time to time.

    Here and in http.status.retry, skip and fatal stands a status, such as 403 or 5xx, or a status with something else
    that must be so: 403 header.X-RateLimit-Remaining=0, 403 header.Retry-After (with any value),
    200 body.error=ratelimited (a field of a JSON answer, dots between names; true, false and numbers as they are
    written). Those with something else come first, in the order limited, retry, skip, fatal."""
    http_status_retry: Annotated[NameList, _LIMITS] = ()
    """Further statuses to try again, such as 404,409 or 5xx. (By default 408, 425, 429 and 5xx.)"""
    http_status_skip: Annotated[NameList, _LIMITS] = ()
    """Further statuses that mean: no records. (By default 204.)"""
    http_status_fatal: Annotated[NameList, _LIMITS] = ()
    """Statuses that fail the task."""
