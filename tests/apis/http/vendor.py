"""What the stand-ins for the APIs of docs/examples/apis have in common, and the one for GitHub."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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


def without_hosts(properties: Mapping[str, str], url: str, token: str) -> dict[str, str]:
    """A recipe's properties, with a local server in place of the vendor's and a token in place of the variable."""
    found = {}
    for name, text in properties.items():
        if name in {"http.url", "http.parent.url"}:
            found[name] = url + "/" + text.split("/", 3)[3]
        else:
            found[name] = token if text.startswith("${env:") else text
    return found
