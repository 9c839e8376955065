"""What single requests to the simulated X are answered with: tokens, limits, rules, searches. No sockets here."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote_plus

from service.simulators.x_posts import Fields, Post, search_answer
from service.simulators.x_rules import STREAM_ONLY, Rule, RuleRefused, parse_rule, words
from service.simulators.x_settings import PROBLEMS, RULES_PATH, SEARCH_PATH, STREAM_PATH, Limits, XSettings, problem

_BACKFILL_MINUTES_MAX = 5
_RECOVERY_HOURS_MAX = 24
_SEARCH_DAYS_MAX = 7
_SEARCH_DELAY_SECONDS = 30.0
_RULE_IDS_FROM = 1_165_037_377_523_306_498
_STREAM_PARAMETERS = words(
    "backfill_minutes start_time end_time tweet.fields expansions media.fields poll.fields user.fields place.fields"
)
_SEARCH_PARAMETERS = (_STREAM_PARAMETERS - {"backfill_minutes"}) | words(
    "query since_id until_id max_results next_token pagination_token sort_order"
)


class RequestRefused(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, body: str) -> None:
        """``body``: JSON."""
        super().__init__(body)
        self.status, self.body = status, body


class RateWindows:
    """Requests of each window of fixed length; a window begins with its first request."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._begun: dict[tuple[str, str], tuple[float, int]] = {}

    def count(self, method: str, path: str, now: float) -> tuple[dict[str, str], bool]:
        """Count a request; the headers that its answer has, and whether it is over the limit.

        ``now``: seconds since the epoch, as the header ``x-rate-limit-reset`` tells them.
        """
        limit = self._limit_of(method, path)
        start, used = self._begun.get((method, path), (now, 0))
        if now >= start + self._limits.window_seconds:
            start, used = now, 0
        self._begun[method, path] = (start, used + 1)
        headers = {
            "x-rate-limit-limit": str(limit),
            "x-rate-limit-remaining": str(max(0, limit - used - 1)),
            "x-rate-limit-reset": str(int(start + self._limits.window_seconds) + 1),
        }
        return headers, used >= limit

    def _limit_of(self, method: str, path: str) -> int:
        limits = self._limits
        if path == RULES_PATH:
            return limits.rules_get if method == "GET" else limits.rules_post
        return {STREAM_PATH: limits.stream, SEARCH_PATH: limits.search}.get(path, limits.token)


def bearer_refusal(header: str, settings: XSettings) -> None:
    """Raise RequestRefused unless the header has the app's token."""
    if header != f"Bearer {settings.bearer_token}":
        raise RequestRefused(401, problem(401))


def token_answer(header: str, grant: str, settings: XSettings) -> tuple[int, dict[str, Any]]:
    """Status and body for ``POST /oauth2/token`` (X: ``resources/fundamentals/authentication/oauth-2-0``).

    Key and secret are encoded as in a URL (RFC 1738), joined by a colon, then encoded in base64.
    """
    scheme, _, code = header.partition(" ")
    wanted = f"{quote_plus(settings.consumer_key)}:{quote_plus(settings.consumer_secret)}"
    try:
        sent = base64.b64decode(code, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        sent = ""
    if scheme != "Basic" or sent != wanted:
        error = {"code": 99, "message": "Unable to verify your credentials", "label": "authenticity_token_error"}
        return 403, {"errors": [error]}
    if grant != "client_credentials":
        return 403, {"errors": [{"code": 170, "message": "Missing required parameter: grant_type"}]}
    return 200, {"token_type": "bearer", "access_token": settings.bearer_token}


class RuleBook:
    """The app's rules."""

    def __init__(self, settings: XSettings) -> None:
        self._settings = settings
        self._rules: dict[str, tuple[dict[str, str], Rule]] = {}
        self._made = 0

    @property
    def is_empty(self) -> bool:
        """Whether the stream has nothing to go by."""
        return not self._rules

    @property
    def values(self) -> dict[str, str | None]:
        """Value and tag of each rule."""
        return {told["value"]: told.get("tag") for told, _ in self._rules.values()}

    def add(self, value: str, tag: str | None = None) -> str:
        """Add a rule as somebody else with the same app would; its id. Raises RuleRefused."""
        rule = parse_rule(value, characters_max=self._settings.rule_characters_max)
        self._made += 1
        rule_id = str(_RULE_IDS_FROM + self._made)
        self._rules[rule_id] = ({"id": rule_id, "value": value} | ({} if tag is None else {"tag": tag}), rule)
        return rule_id

    def matching(self, post: Post) -> list[dict[str, str]]:
        """``matching_rules`` of a post."""
        seen = post.seen(with_quoted=True)
        return [
            {name: told[name] for name in ("id", "tag") if name in told}
            for told, rule in self._rules.values()
            if rule.meets(seen)
        ]

    def listed(self, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
        """Body of ``GET …/rules``."""
        count = _number(query, "max_results", range(1, 1001), 1000)
        ids = [value for value in query.get("ids", "").split(",") if value]
        rules = [told for rule_id, (told, _) in self._rules.items() if not ids or rule_id in ids]
        start = _page_start(query.get("pagination_token"))
        page = rules[start : start + count]
        meta: dict[str, Any] = {"sent": _instant(now), "result_count": len(page)}
        if start + count < len(rules):
            meta["next_token"] = f"{start + count:016d}"
        return {"data": page, "meta": meta} if page else {"meta": meta}

    def changed(self, body: bytes, query: Mapping[str, str], now: datetime) -> tuple[int, dict[str, Any]]:
        """Status and body of ``POST …/rules``; raises RequestRefused."""
        try:
            asked = json.loads(body)
        except ValueError:
            raise RequestRefused(400, problem(400, detail="Invalid JSON in the body of the request.")) from None
        is_dry = query.get("dry_run") == "true"
        if query.get("delete_all") == "true":
            deleted = len(self._rules)
            if not is_dry:
                self._rules.clear()
            return 200, _deleted(deleted, 0, now)
        if (
            not isinstance(asked, dict)
            or len(asked.keys() & {"add", "delete"}) != 1
            or asked.keys() - {"add", "delete"}
        ):
            raise RequestRefused(400, problem(400, detail="The body must have exactly one of `add` and `delete`."))
        if "add" in asked:
            return self._added(asked["add"], now, is_dry=is_dry)
        return self._removed(asked["delete"], now, is_dry=is_dry)

    def _added(self, rules: object, now: datetime, *, is_dry: bool) -> tuple[int, dict[str, Any]]:
        if not isinstance(rules, list) or not rules or not all(_is_rule(rule) for rule in rules):
            raise RequestRefused(400, problem(400, detail="`add` must be a list of rules with a `value` each."))
        before = dict(self._rules)
        made: list[dict[str, str]] = []
        errors: list[dict[str, Any]] = []
        invalid = 0
        for rule in rules:
            value, tag = rule["value"], rule.get("tag")
            same = next((told["id"] for told, _ in self._rules.values() if told["value"] == value), None)
            if same is not None:
                errors.append(
                    {"value": value, "id": same, "title": "DuplicateRule", "type": PROBLEMS + "duplicate-rules"}
                )
            elif len(self._rules) >= self._settings.rules_max:
                errors.append({"value": value, "title": "RulesCapExceeded", "type": PROBLEMS + "rule-cap"})
            else:
                try:
                    made.append(self._rules[self.add(value, tag)][0])
                except RuleRefused as refused:
                    invalid += 1
                    told = {"value": value, "details": [str(refused)], "title": "UnprocessableEntity"}
                    errors.append(told | {"type": PROBLEMS + "invalid-rules"})
        if is_dry:
            self._rules = before
        summary = {"created": len(made), "not_created": len(errors), "valid": len(rules) - invalid, "invalid": invalid}
        answer: dict[str, Any] = {"meta": {"sent": _instant(now), "summary": summary}}
        if made:
            answer["data"] = made
        if errors:
            answer["errors"] = errors
        return (201 if made else 200), answer

    def _removed(self, asked: object, now: datetime, *, is_dry: bool) -> tuple[int, dict[str, Any]]:
        if not isinstance(asked, dict) or len(asked) != 1 or asked.keys() - {"ids", "values"}:
            raise RequestRefused(400, problem(400, detail="`delete` must have `ids` or `values`."))
        [(by, wanted)] = asked.items()
        name = "id" if by == "ids" else "value"
        found = [rule_id for rule_id, (told, _) in self._rules.items() if told[name] in wanted]
        if not is_dry:
            for rule_id in found:
                del self._rules[rule_id]
        missing = len(wanted) - len(found)
        answer = _deleted(len(found), missing, now)
        if missing:
            answer["errors"] = [{"title": "Invalid Request", "detail": "Rule does not exist", "type": "about:blank"}]
        return 200, answer


def backfill_from(
    query: Mapping[str, str], settings: XSettings, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """From when on a connection is told what was posted, and until when; raises RequestRefused."""
    _known(query, _STREAM_PARAMETERS)
    if not settings.is_enterprise:
        for name in ("backfill_minutes", "start_time", "end_time"):
            if query.get(name, "0") != "0":
                raise _invalid(name, query[name], f"The `{name}` query parameter is not available at your access level")
    minutes = _number(query, "backfill_minutes", range(_BACKFILL_MINUTES_MAX + 1), 0)
    start, end = _time(query, "start_time"), _time(query, "end_time")
    if start is not None and start < now - timedelta(hours=_RECOVERY_HOURS_MAX):
        raise _invalid("start_time", query["start_time"], "start_time must be within the last 24 hours")
    if start is None and minutes:
        start = now - timedelta(minutes=minutes)
    return start, end


def search(
    query: Mapping[str, str], posts: Sequence[Post], settings: XSettings, now: datetime
) -> tuple[str, list[Post]]:
    """Body of ``GET …/search/recent``, and the posts in it; raises RequestRefused, FieldsRefused."""
    fields = Fields.of(query)
    _known(query, _SEARCH_PARAMETERS)
    rule = _query_of(query.get("query", ""), settings)
    start, end = _time(query, "start_time"), _time(query, "end_time")
    if start is not None and start < now - timedelta(days=_SEARCH_DAYS_MAX):
        raise _invalid("start_time", query["start_time"], "start_time must be within the last 7 days")
    if end is not None and end > now - timedelta(seconds=settings.search_age_seconds_min):
        least = (
            f"'end_time' must be a minimum of {settings.search_age_seconds_min:g} seconds prior to the request time."
        )
        raise _invalid("end_time", query["end_time"], least)
    if end is None and "since_id" not in query:
        end = now - timedelta(seconds=_SEARCH_DELAY_SECONDS if settings.search_age_seconds_min else 0)
    oldest = now - timedelta(days=_SEARCH_DAYS_MAX) if start is None else start
    since, until = _id(query, "since_id"), _id(query, "until_id")
    found = sorted(
        {
            int(post.id): post
            for post in posts
            if rule.meets(post.seen(with_quoted=False))
            and post.created_at >= oldest
            and (end is None or post.created_at < end)
            and (since is None or int(post.id) > since)
            and (until is None or int(post.id) < until)
        }.items(),
        reverse=True,
    )
    count = _number(query, "max_results", range(10, 101), 10)
    token = query.get("next_token") or query.get("pagination_token")
    if token is not None:
        found = [(post_id, post) for post_id, post in found if post_id < _page_start(token.removeprefix("b26v"))]
    page = [post for _, post in found[:count]]
    return search_answer(page, fields, f"b26v{page[-1].id}" if len(found) > count else None), page


def _query_of(text: str, settings: XSettings) -> Rule:
    try:
        rule = parse_rule(text, characters_max=settings.rule_characters_max // 2)
    except RuleRefused as refused:
        raise _invalid("query", text, str(refused)) from None
    for operator in sorted(rule.operators & STREAM_ONLY):
        message = f"Reference to invalid operator '{operator}'. Operator is not available"
        raise _invalid("query", text, message)
    return rule


# --- parameters -----------------------------------------------------------------------------------


def _invalid(name: str, value: str, message: str) -> RequestRefused:
    return RequestRefused(400, problem(400, errors=[{"parameters": {name: [value]}, "message": message}]))


def _known(query: Mapping[str, str], names: frozenset[str]) -> None:
    for name in query:
        if name not in names:
            message = f"The query parameter [{name}] is not one of [{','.join(sorted(names))}]"
            raise _invalid(name, query[name], message)


def _number(query: Mapping[str, str], name: str, allowed: range, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or int(text) not in allowed:
        message = f"The `{name}` query parameter value [{text}] is not between {allowed[0]} and {allowed[-1]}"
        raise _invalid(name, text, message)
    return int(text)


def _time(query: Mapping[str, str], name: str) -> datetime | None:
    text = query.get(name)
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        message = f"The `{name}` query parameter value [{text}] is not of the form YYYY-MM-DDTHH:mm:ssZ"
        raise _invalid(name, text, message)
    return time


def _id(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is not None and not text.isdecimal():
        raise _invalid(name, text, f"The `{name}` query parameter value [{text}] is not valid")
    return None if text is None else int(text)


def _page_start(token: str | None) -> int:
    if token is None:
        return 0
    if not token.isdecimal():
        raise _invalid("pagination_token", token, "The token is not valid")
    return int(token)


def _is_rule(rule: object) -> bool:
    return (
        isinstance(rule, dict)
        and isinstance(rule.get("value"), str)
        and isinstance(rule.get("tag", ""), str)
        and not rule.keys() - {"value", "tag"}
    )


def _instant(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _deleted(deleted: int, not_deleted: int, now: datetime) -> dict[str, Any]:
    return {"meta": {"sent": _instant(now), "summary": {"deleted": deleted, "not_deleted": not_deleted}}}
