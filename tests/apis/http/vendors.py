"""Stand-ins for the APIs of docs/examples/apis, written from what their vendors publish; each names its pages."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from fetchers.sdk.testing import FakeClock

BEGIN = datetime(2023, 6, 1, tzinfo=UTC)
Record = dict[str, Any]


def iso(second: int) -> str:
    """An instant so many seconds after the beginning."""
    return (BEGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Vendor(ABC):
    """Records that change between two requests, and an API in front of them that now and then refuses."""

    recipe: str
    token = "tok-5d3c1f77aa0e"
    is_changing = True
    """Whether records of the past can change; else there are only new ones."""
    is_refusing = True
    """Whether some requests are refused however carefully one asks."""

    def __init__(self, clock: FakeClock, count: int) -> None:
        self.clock = clock
        self.second = 0
        self.records: list[Record] = []
        self.asked = 0
        self.refused = 0
        self.change: Callable[[int], None] = lambda _asked: None
        """Called with the count of requests after each of them."""
        for number in range(1, count + 1):
            self.add(number)

    @abstractmethod
    def made(self, number: int) -> Record:
        """A new record."""

    @abstractmethod
    def stamp(self, record: Record) -> Any:
        """What changes with every version of a record."""

    def touch(self, record: Record) -> None:
        """Change a record as its vendor would; not called where none changes."""
        del record

    def add(self, number: int) -> None:
        """One more record; three have the same second."""
        self.second += number % 3 == 0
        self.records.append(self.made(number))

    def happen(self, asked: int) -> None:
        """Two records that were read change, one is new."""
        self.second += 1
        if self.is_changing:
            for place in (asked % 7, asked % 11 + 20):
                self.touch(self.records[place % len(self.records)])
        self.add(10_000 + asked)

    @property
    def versions(self) -> set[tuple[Any, Any]]:
        """All that is there now."""
        return {self.version(record) for record in self.records}

    def version(self, record: Record) -> tuple[Any, Any]:
        """By what a record as it is now is known."""
        return record["id"], self.stamp(record)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """An answer; then what is planned happens."""
        self.asked += 1
        if self.token not in request.headers.get("Authorization", "") + request.headers.get(
            "X-Shopify-Access-Token", ""
        ):
            return web.json_response({"message": "Bad credentials"}, status=401)
        refusal = self.refusal()
        if refusal is not None:
            self.refused += 1
            return refusal
        response = await self.page(request)
        self.change(self.asked)
        return response

    def refusal(self) -> web.Response | None:
        """Too many requests, in the vendor's way; None lets the request pass."""
        return web.json_response({}, status=429, headers={"Retry-After": "7"}) if self.asked in {2, 5} else None

    @abstractmethod
    async def page(self, request: web.Request) -> web.Response:
        """What the vendor answers."""


class GitHubIssues(Vendor):
    """Issues of a repository, and comments of each.

    https://docs.github.com/en/rest/issues/issues#list-repository-issues: ``since`` gives issues updated after a time,
    ``sort``, ``direction``, ``per_page`` up to 100. https://docs.github.com/en/rest/using-the-rest-api/
    rate-limits-for-the-rest-api: 403 or 429; with ``x-ratelimit-remaining: 0`` one waits until ``x-ratelimit-reset``
    (seconds since 1970), else as ``retry-after`` says.
    """

    recipe = "github-issues"
    allowance = 9
    """Requests in an hour."""

    def __init__(self, clock: FakeClock, count: int, *, is_included: bool = False) -> None:
        super().__init__(clock, count)
        self.is_included = is_included
        self.comments: dict[int, list[Record]] = {}
        self.hour: list[float] = []
        self.listed: list[str] = []

    def made(self, number: int) -> Record:
        """An issue."""
        return {
            "id": 70_000 + number,
            "number": number,
            "title": f"Issue {number}",
            "state": "open",
            "user": {"login": "octocat", "id": 1},
            "comments": 0,
            "created_at": iso(self.second),
            "updated_at": iso(self.second),
            "closed_at": None,
        }

    def stamp(self, record: Record) -> Any:
        """When it was updated, in whole seconds, and in what state it is."""
        return record["updated_at"], record["state"]

    def touch(self, record: Record) -> None:
        """Close or open it."""
        record.update(updated_at=iso(self.second), state="closed" if record["state"] == "open" else "open")

    def comment(self, issue: Record, number: int) -> None:
        """Add a comment."""
        here = self.comments.setdefault(issue["number"], [])
        url = f"https://api.github.com/repos/o/r/issues/{issue['number']}"
        at = iso(self.second)
        here.append({"id": number, "issue_url": url, "body": "+1", "created_at": at, "updated_at": at})
        issue.update(updated_at=at, comments=len(here))

    def refusal(self) -> web.Response | None:
        """Once the secondary limit, and the primary one by the hour."""
        now = self.clock.now().timestamp()
        self.hour = [moment for moment in self.hour if moment > now - 3600]
        if self.asked == 3:
            message = "You have exceeded a secondary rate limit"
            return web.json_response({"message": message}, status=403, headers={"Retry-After": "60", **self.left(now)})
        if len(self.hour) >= self.allowance:
            return web.json_response({"message": "API rate limit exceeded"}, status=403, headers=self.left(now))
        self.hour.append(now)
        return None

    def left(self, now: float) -> dict[str, str]:
        """The header fields that tell the limit."""
        reset = int(min(self.hour, default=now)) + 3601
        date = datetime.fromtimestamp(now, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        return {
            "X-RateLimit-Remaining": str(self.allowance - len(self.hour)),
            "X-RateLimit-Reset": str(reset),
            "Date": date,
        }

    async def page(self, request: web.Request) -> web.Response:
        """Issues, or the comments of one, with a link to the next page."""
        query, limit = request.query, min(100, int(request.query.get("per_page", "30")))
        parts = request.path.strip("/").split("/")
        since = query.get("since", "")
        self.listed.append("/".join(parts[3:]))
        if parts[-1] == "comments":
            found = [item for item in self.comments.get(int(parts[-2]), []) if item["updated_at"] >= since]
        else:
            found = sorted(self.records, key=lambda item: (item["updated_at"], item["id"]))
            found = [
                item
                for item in found
                if item["updated_at"] > since or (self.is_included and item["updated_at"] == since)
            ]
        page = int(query.get("page", "1"))
        headers = self.left(self.clock.now().timestamp())
        if page * limit < len(found):
            following = request.url.update_query(page=page + 1)
            headers["Link"] = f'<{following}>; rel="next"'
        return web.json_response(found[(page - 1) * limit : page * limit], headers=headers)


class StripeEvents(Vendor):
    """Events of an account, newest first.

    https://docs.stripe.com/api/pagination and /api/events/list: newest first, ``limit`` up to 100, ``has_more``,
    ``starting_after`` an id; https://docs.stripe.com/rate-limits: 429.
    """

    recipe = "stripe-events"
    is_changing = False

    def made(self, number: int) -> Record:
        """An event."""
        return {
            "id": f"evt_{number}",
            "object": "event",
            "type": "charge.succeeded",
            "created": int(BEGIN.timestamp()) + self.second,
            "livemode": False,
            "api_version": "2024-06-20",
            "data": {"object": {"id": f"ch_{number}", "object": "charge"}},
        }

    def stamp(self, record: Record) -> Any:
        """An event has one version."""
        return record["created"]

    async def page(self, request: web.Request) -> web.Response:
        """Events after one, newest first."""
        found = self.records[::-1]
        if "starting_after" in request.query:
            places = [item["id"] for item in found]
            if request.query["starting_after"] not in places:
                return web.json_response({"error": {"code": "resource_missing"}}, status=400)
            found = found[places.index(request.query["starting_after"]) + 1 :]
        limit = min(100, int(request.query.get("limit", "10")))
        return web.json_response({"object": "list", "data": found[:limit], "has_more": len(found) > limit})


class SlackMessages(Vendor):
    """Messages of a channel, newest first.

    https://docs.slack.dev/reference/methods/conversations.history: newest first between ``oldest`` and ``latest``,
    ``inclusive``, ``limit`` up to 999 (15 for some apps, whatever is asked for), ``response_metadata.next_cursor``,
    empty on the last page; errors as ``ok: false`` in a 200, ``ratelimited`` there or as 429 with ``Retry-After``.
    """

    recipe = "slack-messages"
    is_changing = False

    def made(self, number: int) -> Record:
        """A message."""
        stamp = f"{int(BEGIN.timestamp()) + self.second}.{len(self.records) % 1_000_000:06}"
        return {"type": "message", "user": "U012AB3CDE", "text": f"Message {number}", "ts": stamp}

    def stamp(self, record: Record) -> Any:
        """What it says."""
        return record["text"]

    def version(self, record: Record) -> tuple[Any, Any]:
        """A message is known by its time."""
        return record["ts"], record["text"]

    def refusal(self) -> web.Response | None:
        """Both forms."""
        if self.asked == 2:
            return web.json_response({"ok": False, "error": "ratelimited"})
        return super().refusal()

    async def page(self, request: web.Request) -> web.Response:
        """Messages from the cursor back to the oldest."""
        if request.query.get("channel") != "CHANNEL":
            return web.json_response({"ok": False, "error": "channel_not_found"})
        oldest, cursor = float(request.query["oldest"]), request.query.get("cursor")
        found = [item for item in self.records[::-1] if float(item["ts"]) >= oldest]
        if cursor is not None:
            latest = base64.b64decode(cursor).decode().removeprefix("next_ts:")
            found = [item for item in found if float(item["ts"]) <= float(latest)]
        page, rest = found[:15], found[15:]
        following = base64.b64encode(f"next_ts:{rest[0]['ts']}".encode()).decode() if rest else ""
        metadata = {"next_cursor": following}
        body = {"ok": True, "messages": page, "has_more": bool(rest), "response_metadata": metadata}
        return web.json_response(body)


class ShopifyOrders(Vendor):
    """Orders of a shop.

    https://shopify.dev/docs/api/admin-rest/usage/pagination: ``Link`` with ``page_info``, beside which only ``limit``
    (up to 250) and ``fields`` may stand; https://shopify.dev/docs/api/usage/limits: a bucket of 40 that leaks 2 a
    second, told by ``X-Shopify-Shop-Api-Call-Limit``; beyond it 429 with ``Retry-After``.
    """

    recipe = "shopify-orders"
    is_refusing = False
    filled = 33.0
    filled_at = 0.0

    def made(self, number: int) -> Record:
        """An order."""
        return {
            "id": 450_000_000 + number,
            "name": f"#{number}",
            "currency": "EUR",
            "total_price": "12.50",
            "financial_status": "pending",
            "created_at": iso(self.second),
            "updated_at": iso(self.second),
        }

    def stamp(self, record: Record) -> Any:
        """When it was updated, and how it stands."""
        return record["updated_at"], record["financial_status"]

    def touch(self, record: Record) -> None:
        """Pay it or pay it back."""
        status = "paid" if record["financial_status"] == "pending" else "pending"
        record.update(updated_at=iso(self.second), financial_status=status)

    def refusal(self) -> web.Response | None:
        """The bucket is full."""
        now = self.clock.monotonic()
        self.filled = max(0.0, self.filled - 2 * (now - self.filled_at))
        self.filled_at = now
        if self.filled + 1 > 40:
            return web.json_response(
                {"errors": "Exceeded 2 calls per second"}, status=429, headers={"Retry-After": "2.0"}
            )
        self.filled += 3  # others ask too
        return None

    async def page(self, request: web.Request) -> web.Response:
        """Orders from a place on, in order of their updates."""
        query = request.query
        if "page_info" in query:
            if set(query) - {"page_info", "limit", "fields"}:
                return web.json_response({"errors": "page_info with other parameters"}, status=400)
            after = tuple(json.loads(base64.urlsafe_b64decode(query["page_info"])))
        else:
            if query.get("order") != "updated_at asc" or query.get("status") != "any":
                return web.json_response({"errors": query.get("order", "")}, status=400)
            after = (query["updated_at_min"], 0)
        found = sorted((item["updated_at"], item["id"], place) for place, item in enumerate(self.records))
        rest = [row for row in found if row[:2] > after]
        limit = min(40, int(query["limit"]))  # a smaller page than is asked for is no end
        headers = {"X-Shopify-Shop-Api-Call-Limit": f"{int(self.filled)}/40"}
        if len(rest) > limit:
            place = base64.urlsafe_b64encode(json.dumps(rest[limit - 1][:2]).encode()).decode()
            headers["Link"] = f'<{request.url.with_query(limit=limit, page_info=place)}>; rel="next"'
        return web.json_response({"orders": [self.records[row[2]] for row in rest[:limit]]}, headers=headers)


class HubSpotContacts(Vendor):
    """Contacts, by search.

    https://developers.hubspot.com/docs/api/crm/search: filters, sorts and ``limit`` (up to 200) in a JSON body; no more
    than 10,000 results of one search; 429 beyond some requests a second.
    """

    recipe = "hubspot-contacts"

    def made(self, number: int) -> Record:
        """A contact."""
        at = iso(self.second).replace("Z", ".250Z")
        properties = {"email": f"{number}@example.com", "firstname": "Ada", "lastname": None, "lastmodifieddate": at}
        return {"id": str(number), "properties": properties, "createdAt": at, "updatedAt": at, "archived": False}

    def stamp(self, record: Record) -> Any:
        """When it was modified, and to what."""
        return record["properties"]["lastmodifieddate"], record["properties"]["lastname"]

    def touch(self, record: Record) -> None:
        """Marry."""
        at = iso(self.second).replace("Z", ".250Z")
        named = (record["properties"]["lastname"] or "") + "x"
        properties = {**record["properties"], "lastmodifieddate": at, "lastname": named}
        record.update(properties=properties, updatedAt=at)

    async def page(self, request: web.Request) -> web.Response:
        """The contacts that were modified since."""
        body = await request.json()
        (given,) = body["filterGroups"][0]["filters"]
        limit = body["limit"]
        if request.content_type != "application/json" or limit > 200 or given["operator"] != "GTE":
            return web.json_response({"status": "error"}, status=400)
        since = datetime.fromtimestamp(int(given["value"]) / 1000, UTC)
        (order,) = body["sorts"]
        name = order["propertyName"]
        found = sorted(self.records, key=lambda item: (item["properties"][name], int(item["id"])))
        found = [item for item in found if datetime.fromisoformat(item["properties"][name]) >= since]
        answer: dict[str, Any] = {"total": len(found), "results": found[:limit]}
        if len(found) > limit:
            answer["paging"] = {"next": {"after": str(limit)}}
        return web.json_response(answer)


class ZendeskTickets(Vendor):
    """Tickets, by the incremental export.

    https://developer.zendesk.com/documentation/ticketing/managing-tickets/using-the-incremental-export-api: the first
    request by ``start_time``, all others by ``cursor``; ``after_cursor`` and ``end_of_stream`` on each page, the cursor
    of the last for the next export; 10 requests a minute, beyond them 429 with ``Retry-After``.
    """

    recipe = "zendesk-tickets"

    def made(self, number: int) -> Record:
        """A ticket."""
        at = iso(self.second)
        return {"id": number, "subject": "Help", "status": "new", "requester_id": 7, "created_at": at, "updated_at": at}

    def stamp(self, record: Record) -> Any:
        """When it was updated, and how it stands."""
        return record["updated_at"], record["status"]

    def touch(self, record: Record) -> None:
        """Work on it; a ticket goes to the end of the export."""
        status = "open" if record["status"] != "open" else "solved"
        self.records.remove(record)
        self.records.append({**record, "updated_at": iso(self.second), "status": status})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Basic, with the token for a password."""
        login = base64.b64decode(request.headers.get("Authorization", "Basic ").split()[1]).decode()
        if login != f"EMAIL/token:{self.token}":
            return web.json_response({"error": "Couldn't authenticate you"}, status=401)
        self.asked += 1
        refusal = self.refusal()
        if refusal is not None:
            self.refused += 1
            return refusal
        response = await self.page(request)
        self.change(self.asked)
        return response

    async def page(self, request: web.Request) -> web.Response:
        """Tickets behind the cursor."""
        query = request.query
        if ("cursor" in query) == ("start_time" in query):
            return web.json_response({"error": "InvalidValue"}, status=422)
        found = sorted((item["updated_at"], item["id"], place) for place, item in enumerate(self.records))
        if "cursor" in query:
            after = tuple(json.loads(base64.b64decode(query["cursor"])))
            found = [row for row in found if row[:2] > after]
        limit = min(60, int(query["per_page"]))
        page = found[:limit]
        place = base64.b64encode(json.dumps(page[-1][:2]).encode()).decode() if page else query.get("cursor")
        tickets = [self.records[row[2]] for row in page]
        return web.json_response({"tickets": tickets, "after_cursor": place, "end_of_stream": len(found) <= limit})


VENDORS: Sequence[Callable[[FakeClock, int], Vendor]] = (
    GitHubIssues,
    StripeEvents,
    SlackMessages,
    ShopifyOrders,
    HubSpotContacts,
    ZendeskTickets,
)


def without_hosts(properties: Mapping[str, str], url: str, token: str) -> dict[str, str]:
    """A recipe's properties, with a local server in place of the vendor's and a token in place of the variable."""
    found = {}
    for name, text in properties.items():
        if name in {"http.url", "http.parent.url"}:
            found[name] = url + "/" + text.split("/", 3)[3]
        else:
            found[name] = token if text.startswith("${env:") else text
    return found
