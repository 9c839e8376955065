"""Stand-ins for the APIs of docs/examples/apis, written from what their vendors publish; each names its pages."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from fetchers.sdk.testing import FakeClock
from tests.apis.http.vendor import BEGIN, GitHubIssues, Record, Vendor, iso


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
