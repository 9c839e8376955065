"""Rules of X's filtered stream: which are refused, and which posts meet one.

Facts: X's documentation, ``x-api/posts/filtered-stream/integrate/build-a-rule`` and ``operators``. Operators that need
what this simulator's posts do not have (places, annotations) are known and meet nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


def words(text: str) -> frozenset[str]:
    """A set of words, written as a sentence."""
    return frozenset(text.split())


_TOKEN = re.compile(
    r'\s*(?:(?P<open>\()|(?P<close>\))|(?P<minus>-)(?=\S)|(?P<word>[^\s()"]*"(?:\\.|[^"\\])*"(?:~[1-6])?|[^\s()"]+))'
)
_OPERATOR = re.compile(r'(?P<name>[a-z_]+):(?P<argument>"(?:\\.|[^"\\])*"|[^"]+)\Z')
_WORD = re.compile(r"\w+")
_PLAIN = re.compile(r"[\w\u200d\u2600-\u27bf\U0001f300-\U0001faff]+\Z")
"""A keyword that needs no quotes: words and emoji; punctuation is for quoted texts."""
_STANDALONE_UNMATCHED = words("place place_country point_radius bounding_box context entity bio bio_name bio_location")
_STANDALONE = words("from to retweets_of url conversation_id") | _STANDALONE_UNMATCHED
_COMPANY = {
    "is": words("retweet reply quote verified nullcast"),
    "has": words("hashtags cashtags links mentions media images video_link geo"),
}
STREAM_ONLY = words("sample bio bio_name bio_location")
"""Operators that ``search/recent`` refuses."""
_SAMPLE_MAX = 100


class RuleRefused(ValueError):
    """A rule that X does not take, with X's detail."""


@dataclass(frozen=True, slots=True)
class PostText:
    """What rules look at."""

    data: Mapping[str, Any]
    author: Mapping[str, Any]
    quoted: str = ""
    """Text of the quoted post, which the stream matches too."""

    @property
    def words(self) -> tuple[list[str], ...]:
        """Words of the post's own text and of the quoted one."""
        return tuple(_WORD.findall(text.casefold()) for text in (self.data["text"], self.quoted))

    def entities(self, kind: str, name: str) -> set[str]:
        """One property of all entities of a kind."""
        return {entity[name].casefold() for entity in self.data.get("entities", {}).get(kind, ())}

    def refers(self, kind: str) -> bool:
        """Whether the post replies, quotes or retweets."""
        return any(reference["type"] == kind for reference in self.data.get("referenced_tweets", ()))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that was taken."""

    meets: Callable[[PostText], bool]
    is_standalone: bool
    """Whether it may stand without company."""
    operators: frozenset[str] = frozenset()


def parse_rule(text: str, *, characters_max: int) -> Rule:
    """Read a rule; raises RuleRefused as X does."""
    if not text.strip():
        raise RuleRefused("Rule must not be empty")
    if len(text) > characters_max:
        raise RuleRefused(f"Rule is {len(text)} characters long, the maximum is {characters_max}")
    parser = _Parser(text)
    rule = parser.alternatives()
    if parser.token is not None:
        raise RuleRefused(f"extraneous input '{parser.token[1]}' (at position {parser.position})")
    if not rule.is_standalone:
        raise RuleRefused(f"Rules must contain at least one positive, non-stopword clause (at position {len(text)})")
    return rule


class _Parser:
    """Recursive descent: alternatives of conjunctions of clauses; AND binds before OR."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self.position = 0
        self.token: tuple[str, str] | None = None
        self._advance()

    def _advance(self) -> None:
        rest = self._text[self._next :]
        if not rest.strip():
            self.token, self.position = None, len(self._text)
            return
        match = _TOKEN.match(self._text, self._next)
        if match is None or match.lastgroup is None:
            at = self._next + len(rest) - len(rest.lstrip())
            raise RuleRefused(f"no viable alternative at character '{self._text[at]}' (at position {at + 1})")
        self.token = (match.lastgroup, match[match.lastgroup])
        self.position = match.start(match.lastgroup) + 1
        self._next = match.end()

    def alternatives(self) -> Rule:
        parts = [self._conjunction()]
        while self.token == ("word", "OR"):
            self._advance()
            parts.append(self._conjunction())
        if len(parts) == 1:
            return parts[0]
        tests = [part.meets for part in parts]
        operators = frozenset[str]().union(*(part.operators for part in parts))
        return Rule(lambda post: any(test(post) for test in tests), all(p.is_standalone for p in parts), operators)

    def _conjunction(self) -> Rule:
        parts: list[Rule] = []
        while self.token is not None and self.token[0] != "close" and self.token != ("word", "OR"):
            parts.append(self._clause())
        if not parts:
            raise RuleRefused(f"missing clause (at position {self.position})")
        tests = [part.meets for part in parts]
        operators = frozenset[str]().union(*(part.operators for part in parts))
        return Rule(lambda post: all(test(post) for test in tests), any(p.is_standalone for p in parts), operators)

    def _clause(self) -> Rule:
        kind, text = self.token or ("", "")
        at = self.position
        self._advance()
        if kind == "open":
            rule = self.alternatives()
            if self.token is None or self.token[0] != "close":
                raise RuleRefused(f"missing ')' (at position {self.position})")
            self._advance()
            return rule
        if kind == "minus":
            if self.token is None or self.token[0] != "word":
                raise RuleRefused(f"Negating a group is not supported (at position {at})")
            word, word_at = self.token[1], self.position
            self._advance()
            rule = _clause_of(word, word_at, is_negated=True)
            return Rule(lambda post: not rule.meets(post), is_standalone=False, operators=rule.operators)
        return _clause_of(text, at, is_negated=False)


def _clause_of(word: str, at: int, *, is_negated: bool) -> Rule:
    if word.casefold() in {"and", "or"}:
        raise RuleRefused(
            f"Ambiguous use of {word.casefold()} as a keyword. Use a space to logically join two clauses, or "
            f'"{word.casefold()}" to find occurrences of {word.casefold()} in text (at position {at})'
        )
    if word.startswith('"'):
        quoted, near, room = word.rpartition("~") if word[-2:-1] == "~" else (word, "", "")
        phrase = _WORD.findall(_unquoted(quoted).casefold())
        if near:
            most = len(phrase) + int(room)
            return Rule(lambda post: any(_near(words, phrase, most) for words in post.words), is_standalone=True)
        return Rule(lambda post: any(_holds(words, phrase) for words in post.words), is_standalone=True)
    match = _OPERATOR.match(word)
    if match is not None:
        return _operator(match["name"], _unquoted(match["argument"]), at, is_negated=is_negated)
    if word[0] in "#@$" and _PLAIN.match(word[1:]):
        kind, name = {"#": ("hashtags", "tag"), "@": ("mentions", "username"), "$": ("cashtags", "tag")}[word[0]]
        wanted = word[1:].casefold()
        return Rule(lambda post: wanted in post.entities(kind, name), is_standalone=True)
    for index, character in enumerate(word):
        if not _PLAIN.match(character):
            raise RuleRefused(f"no viable alternative at character '{character}' (at position {at + index})")
    keyword = _WORD.findall(word.casefold())
    if not keyword:  # an emoji
        return Rule(lambda post: word in post.data["text"] or word in post.quoted, is_standalone=True)
    return Rule(lambda post: any(_holds(words, keyword) for words in post.words), is_standalone=True)


def _operator(name: str, argument: str, at: int, *, is_negated: bool) -> Rule:
    operators = frozenset({name})
    if name in _COMPANY:
        if argument not in _COMPANY[name]:
            raise RuleRefused(f"Invalid value '{argument}' for operator '{name}:' (at position {at})")
        if argument == "nullcast" and not is_negated:
            raise RuleRefused(f"'is:nullcast' must be negated (at position {at})")
        return Rule(lambda post: _has(post, argument), is_standalone=False, operators=operators)
    if name == "lang":
        return Rule(lambda post: post.data.get("lang") == argument.casefold(), is_standalone=False, operators=operators)
    if name == "sample":
        if is_negated or not argument.isdigit() or not 1 <= int(argument) <= _SAMPLE_MAX:
            raise RuleRefused(f"'sample:' takes 1 to 100 and cannot be negated (at position {at})")
        return Rule(
            lambda post: int(post.data["id"]) % _SAMPLE_MAX < int(argument), is_standalone=False, operators=operators
        )
    if name not in _STANDALONE:
        raise RuleRefused(f"Reference to invalid operator '{name}'. Operator is not available (at position {at})")
    wanted = argument.casefold().removeprefix("@")
    return Rule(lambda post: wanted in _subjects(post, name), is_standalone=True, operators=operators)


def _subjects(post: PostText, name: str) -> set[str]:
    """What an operator compares its argument with."""
    data = post.data
    if name == "from":
        return {data["author_id"], post.author["username"].casefold()}
    if name == "to":
        return {data.get("in_reply_to_user_id", "")}
    if name == "url":
        return post.entities("urls", "expanded_url")
    return {data.get("conversation_id", "")} if name == "conversation_id" else set()


def _has(post: PostText, what: str) -> bool:
    kinds = {"retweet": "retweeted", "reply": "replied_to", "quote": "quoted"}
    if what in kinds:
        return post.refers(kinds[what])
    if what in {"hashtags", "cashtags", "mentions"}:
        return bool(post.data.get("entities", {}).get(what))
    if what == "links":
        return bool(post.data.get("entities", {}).get("urls"))
    if what in {"media", "images"}:
        return bool(post.data.get("attachments", {}).get("media_keys"))
    return bool(post.author.get("verified")) if what == "verified" else what == "geo" and "geo" in post.data


def _holds(words: list[str], phrase: list[str]) -> bool:
    """Whether the phrase stands in the words, one after the other."""
    size = len(phrase)
    return size > 0 and any(words[at : at + size] == phrase for at in range(len(words) - size + 1))


def _near(words: list[str], wanted: list[str], most: int) -> bool:
    """Whether all wanted words stand within so many words, in any order."""
    return any(set(wanted) <= set(words[at : at + most]) for at in range(len(words)))


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text
