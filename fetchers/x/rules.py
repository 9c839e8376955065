"""Rules at X: which posts the stream brings. They belong to the app and outlast connections.

Only rules whose tag begins with ``headrace:<connector>:`` are ever deleted. A rule that is wanted and there is left
alone, so that X goes on matching by it while a connector is configured anew.

Facts: https://docs.x.com/x-api/posts/filtered-stream/integrate/build-a-rule and
https://docs.x.com/x-api/posts/filtered-stream/integrate/manage-rules.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from fetchers.sdk import Fatal, Finding, HttpAccess, Retriable, StatusTable, StatusVerdict
from fetchers.toolkit.fields import UNDECODABLE
from fetchers.x.api import RULES_PATH, XApi

T = TypeVar("T")
PAGE_RULES = 1000
CHANGES_MAX = 100
"""Rules in one request to add or delete."""
_PAGES_MAX = 100
_WORD = re.compile(r'"[^"]*"|\S+')
_PLAIN = re.compile(r"[#@$]?\w+\Z")
_OPERATOR_WORDS = frozenset({"and", "or"})
_TAKES_REFUSALS = StatusTable().with_verdict(StatusVerdict.ACCEPT, (400,))
_DUPLICATE, _CAP = "duplicate-rules", "rule-cap"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that a config wants."""

    value: str
    """In X's language."""
    name: str
    """What its tag ends with; told as the place of the config that it comes from."""
    key: str
    """Key of the config that it comes from."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """X does not take a rule."""

    value: str
    kind: str
    """The last part of the problem's type, such as ``invalid-rules``."""
    words: str
    """X's own title and details."""


def wanted_rules(
    *,
    keywords: tuple[str, Sequence[str]] = ("", ()),
    user_ids: tuple[str, Sequence[str]] = ("", ()),
    rules: tuple[str, Mapping[str, str]] = ("", {}),
) -> tuple[Rule, ...]:
    """The rules of a config: each part with the name of its key. One of two that are equal."""
    found = [Rule(keyword_rule(text), str(number), keywords[0]) for number, text in enumerate(keywords[1], 1)]
    found += (Rule(f"from:{user_id}", f"user-{user_id}", user_ids[0]) for user_id in user_ids[1])
    found += (Rule(text, name, f"{rules[0]}.{name}") for name, text in rules[1].items())
    first: dict[str, Rule] = {}
    for rule in found:
        first.setdefault(rule.value, rule)
    return tuple(first.values())


def keyword_rule(text: str) -> str:
    """Every word of a keyword, in any order; what would read as an operator is quoted."""
    return " ".join(_quoted(word) for word in _WORD.findall(text))


def _quoted(word: str) -> str:
    if word.startswith('"') and word.endswith('"') and len(word) > 1:
        return word
    if _PLAIN.match(word) and word.lower() not in _OPERATOR_WORDS:
        return word
    return f'"{word.replace(chr(34), "")}"'


class _Listed(msgspec.Struct):
    id: str
    value: str
    tag: str | None = None


class _Meta(msgspec.Struct):
    next_token: str | None = None


class _Problem(msgspec.Struct):
    value: str = ""
    title: str = ""
    detail: str = ""
    details: list[str] = []
    type: str = ""


class _Answer(msgspec.Struct):
    data: list[_Listed] = []
    meta: _Meta = msgspec.field(default_factory=_Meta)
    errors: list[_Problem] = []


@dataclass(slots=True)
class Rules:
    """Brings the rules at X in line with what a config wants."""

    api: XApi
    connector: str
    wanted: Sequence[Rule]
    _own_ids: frozenset[str] = field(default=frozenset(), init=False)
    """Ids of rules at X with a value that we want, as of the last ``sync``, whoever has added them."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """A connection that begins and a config that changes may ask for the same at one time."""

    def are_ours(self, met: Sequence[tuple[str, str]]) -> bool:
        """Whether a post that has met these rules (id and tag) was asked for here; also where it does not say."""
        return not met or any(tag.startswith(self._prefix) or rule_id in self._own_ids for rule_id, tag in met)

    @property
    def _prefix(self) -> str:
        return f"headrace:{self.connector}:"

    async def sync(self, http: HttpAccess) -> None:
        """Add what lacks, then delete what is ours and no longer wanted.

        Raises Fatal with X's own words where it refuses a rule, and as ``HttpAccess`` does.
        """
        async with self._turn:
            await self._sync(http)

    async def _sync(self, http: HttpAccess) -> None:
        there = await self._list(http)
        present = {rule.value for rule in there}
        missing = [rule for rule in self.wanted if rule.value not in present]
        values = {rule.value for rule in self.wanted}
        obsolete = [rule.id for rule in there if self._is_own(rule) and rule.value not in values]
        added, refusals = await self._add(http, missing)
        if obsolete and any(refusal.kind == _CAP for refusal in refusals):
            await self._delete(http, obsolete)
            obsolete = []
            refused = {refusal.value for refusal in refusals}
            more, refusals = await self._add(http, [rule for rule in missing if rule.value in refused])
            added += more
        # Of two with one value X keeps one: what somebody has added a moment ago serves us as well.
        for refusal in refusals:
            if refusal.kind != _DUPLICATE:
                raise Fatal(f"X refuses the rule {refusal.value!r}: {refusal.words}")
        await self._delete(http, obsolete)
        if refusals:
            there = await self._list(http)
        self._own_ids = frozenset(rule.id for rule in (*there, *added) if rule.value in values)

    async def refusals(self, http: HttpAccess) -> Sequence[tuple[Rule, Refusal]]:
        """What X would refuse, without a change to its rules. Raises as ``HttpAccess`` does."""
        there = {rule.value for rule in await self._list(http)}
        missing = [rule for rule in self.wanted if rule.value not in there]
        _, refusals = await self._add(http, missing, is_tried_only=True)
        by_value = {rule.value: rule for rule in missing}
        return [
            (by_value.get(refusal.value, missing[0]), refusal) for refusal in refusals if refusal.kind != _DUPLICATE
        ]

    async def findings(self, http: HttpAccess) -> Sequence[Finding]:
        """The same, by key of the config."""
        return [
            Finding(rule.key, rule.value, f"X refuses the rule {rule.value!r}: {why.words}")
            for rule, why in await self.refusals(http)
        ]

    def _is_own(self, rule: _Listed) -> bool:
        return (rule.tag or "").startswith(self._prefix)

    async def _list(self, http: HttpAccess) -> list[_Listed]:
        found: list[_Listed] = []
        query = {"max_results": str(PAGE_RULES)}
        for _ in range(_PAGES_MAX):
            answer = _read((await self.api.get(http, RULES_PATH, query)).body)
            found += answer.data
            if not answer.meta.next_token:
                return found
            query["pagination_token"] = answer.meta.next_token
        raise Retriable(f"the list of rules has more than {_PAGES_MAX} pages")

    async def _add(
        self, http: HttpAccess, rules: Sequence[Rule], *, is_tried_only: bool = False
    ) -> tuple[list[_Listed], list[Refusal]]:
        added: list[_Listed] = []
        refusals: list[Refusal] = []
        query = {"dry_run": "true"} if is_tried_only else {}
        for part in _parts(rules):
            body = {"add": [{"value": rule.value, "tag": self._prefix + rule.name} for rule in part]}
            answer = await self.api.post(http, RULES_PATH, body, query=query, statuses=_TAKES_REFUSALS)
            told = _read(answer.body)
            added += told.data
            refusals += (_refusal(problem, part) for problem in told.errors)
            if answer.status == 400 and not told.errors:  # noqa: PLR2004 - bad request
                raise Fatal(f"X refuses the rules: {answer.body[:300].decode('utf-8', 'replace')}")
        return added, refusals

    async def _delete(self, http: HttpAccess, ids: Sequence[str]) -> None:
        for part in _parts(ids):
            await self.api.post(http, RULES_PATH, {"delete": {"ids": part}}, query={})


def _refusal(problem: _Problem, part: Sequence[Rule]) -> Refusal:
    """A problem that names no rule is that of the only one."""
    value = problem.value or (part[0].value if len(part) == 1 else "")
    words = [problem.title, problem.detail, *problem.details]
    return Refusal(value, problem.type.rpartition("/")[2], ": ".join(dict.fromkeys(word for word in words if word)))


def _read(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except UNDECODABLE as error:
        raise Retriable("X's answer about rules cannot be read") from error


def _parts(values: Sequence[T]) -> Iterator[list[T]]:
    return (list(values[at : at + CHANGES_MAX]) for at in range(0, len(values), CHANGES_MAX))
