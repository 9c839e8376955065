"""The reference page of the SDK and the toolkit, from their code: signatures, docstrings, examples that tests run."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

from service.docs.markdown import NOTICE, cell, code, table

ROOT = Path(__file__).parents[2]
EXAMPLES = (ROOT / "tests/contracts/sdk_examples.py", ROOT / "tests/contracts/toolkit_examples.py")
"""``tests/contracts/test_sdk_examples.py`` runs them."""
INTRODUCTION = """\
# SDK and toolkit

What an author of a source imports. [The guide](../guides/add-a-fetcher.md) goes through it; this page has every name,
from the code. Times are seconds unless a name ends otherwise (`_ms`), sizes are bytes or records, as the name says.
What a call raises is in its text: `Retriable` is waited for and tried again, `Fatal` is for a person. Examples are run
by the tests of the project; those with `await` or `async for` stand inside of a coroutine.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """Some modules that belong together."""

    slug: str
    title: str
    modules: tuple[str, ...]
    """Without ``fetchers.``; their names are exported by ``package``, or are imported from them where it is None."""
    package: str | None = None


SECTIONS = (
    Section("connector", "The connector", ("sdk.connector",), "sdk"),
    Section("context", "The context", ("sdk.context",), "sdk"),
    Section("page", "Pages", ("sdk.page",), "sdk"),
    Section("config", "Configs", ("sdk.config",), "sdk"),
    Section("errors", "Errors", ("sdk.errors",), "sdk"),
    Section("http", "HTTP", ("sdk.http",), "sdk"),
    Section("listening", "Listeners", ("sdk.listening", "sdk.inbox"), "sdk"),
    Section("retry", "Waiting before another try", ("sdk.retry",), "sdk"),
    Section("clock", "Time", ("sdk.clock",), "sdk"),
    Section(
        "testing",
        "Testing",
        tuple(
            f"sdk.testing.{name}"
            for name in ("case", "http_case", "contract", "listening", "collect", "context", "clock")
        ),
        "sdk.testing",
    ),
    Section("ordered_list", "Toolkit: lists in the order of a field", ("toolkit.ordered_list",)),
    Section("auth", "Toolkit: credentials", ("toolkit.auth",)),
    Section("rate_limits", "Toolkit: rate limits", ("toolkit.rate_limits", "toolkit.limit_headers")),
    Section("pagination", "Toolkit: pages of an answer", ("toolkit.pagination", "toolkit.next_urls")),
    Section("marks", "Toolkit: how far a list was read", ("toolkit.marks",)),
    Section("watermark", "Toolkit: which value is later", ("toolkit.watermark",)),
    Section("framing", "Toolkit: messages in an endless body", ("toolkit.framing",)),
    Section(
        "records",
        "Toolkit: records in an answer",
        ("toolkit.records", "toolkit.fields", "toolkit.slicing", "toolkit.csv_rows"),
    ),
)


def page() -> str:
    """Return the whole page, Markdown."""
    return "\n".join([NOTICE, INTRODUCTION, *map(_section, SECTIONS)])


@cache
def public_names() -> tuple[str, ...]:
    """Names of all classes and functions that the page tells of."""
    found = (each for section in SECTIONS for each in _members(section))
    return tuple(each.name for each in found if isinstance(each, griffe.Class | griffe.Function))


def examples_of(slug: str) -> list[tuple[str, str, str]]:
    """Name, docstring and body of the examples of a section, in their order."""
    return [(name, about, body) for name, about, body in _examples() if name.partition("__")[0] == slug]


@cache
def _examples() -> tuple[tuple[str, str, str], ...]:
    found = []
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = textwrap.dedent("\n".join(lines[node.body[1].lineno - 1 : node.end_lineno]))
                found.append((node.name, ast.get_docstring(node) or "", body))
    return tuple(found)


@cache
def _fetchers() -> griffe.Module:
    loaded = griffe.load("fetchers", search_paths=[ROOT])
    assert isinstance(loaded, griffe.Module)  # noqa: S101 - told to the type checker
    return loaded


def _members(section: Section) -> Iterator[griffe.Object]:
    """What the page tells of the modules of a section, in the order of the code."""
    exports = None if section.package is None else {str(name) for name in _fetchers()[section.package].exports or ()}
    for path in section.modules:
        for name, member in _fetchers()[path].members.items():
            is_public = not name.startswith("_") and not member.is_alias
            if is_public and (not member.is_attribute if exports is None else name in exports):
                yield member


def _section(section: Section) -> str:
    modules = [_fetchers()[path] for path in section.modules]
    source = f"fetchers.{section.package}" if section.package else None
    parts = [f"## {section.title}\n", f"From `{source}`.\n" if source else _import_from(section)]
    parts += [_prose(module.docstring) for module in modules[:1]]
    parts += [_member(each, source or each.module.path) for each in _members(section)]
    for number, (_, about, body) in enumerate(examples_of(section.slug)):
        parts.append(f"{'**Example.** ' if number == 0 else ''}{_marked(about)}\n\n```python\n{body}\n```\n")
    return "\n".join(parts)


def _import_from(section: Section) -> str:
    return "From " + ", ".join(f"`fetchers.{path}`" for path in section.modules) + ".\n"


def _member(member: griffe.Object, source: str) -> str:
    """``source``: the module that it is imported from."""
    heading = f"### {member.name}\n\n`from {source} import {member.name}`\n"
    if isinstance(member, griffe.Function):
        return f"{heading}\n```python\n{_signature(member)}\n```\n\n{_prose(member.docstring)}"
    if isinstance(member, griffe.Class):
        return f"{heading}\n{_class(member)}"
    assert isinstance(member, griffe.Attribute)  # noqa: S101 - told to the type checker
    return f"{heading}\n`{member.name} = {member.value}`\n\n{_prose(member.docstring)}"


def _class(member: griffe.Class) -> str:
    bases = ", ".join(str(base) for base in member.bases)
    made = member.members.get("__init__")
    # What a base has that the page does not tell of is told here.
    holders = [member, *(base for base in member.mro() if base.name not in public_names())]
    own = [
        each
        for holder in holders
        for name, each in holder.members.items()
        if not name.startswith("_") and not each.is_alias
    ]
    fields = [each for each in own if isinstance(each, griffe.Attribute) and (each.annotation or each.docstring)]
    methods = [each for each in own if isinstance(each, griffe.Function)]
    parts = [f"```python\nclass {member.name}{f'({bases})' if bases else ''}\n```\n"]
    parts.append(_prose(member.docstring))
    if isinstance(made, griffe.Function) and made.docstring and "dataclass" not in member.labels:
        parts.append(f"`{_signature(made, name=member.name)}`: {_prose(made.docstring)}")
    if fields:
        rows = [(code(each.name), _code(each.annotation), _code(each.value), _told(each)) for each in fields]
        parts.append(table(("attribute", "type", "value or default", "meaning"), rows))
    if methods:
        parts.append(table(("method", "meaning"), [(code(_signature(each)), _told(each)) for each in methods]))
    return "\n".join(parts)


def _signature(function: griffe.Function, *, name: str | None = None) -> str:
    """As it is called: without ``self``."""
    text = function.signature(name=name or function.name)
    for receiver in ("self, ", "cls, ", "self", "cls"):
        if text.partition("(")[2].startswith((f"{receiver})", receiver)) and receiver.rstrip(", ") in {"self", "cls"}:
            text = text.replace(f"({receiver}", "(", 1)
            break
    return f"{'async ' if 'async' in function.labels else ''}{text}"


def _code(expression: griffe.Expr | str | None) -> str:
    return code(" ".join(str(expression).split())) if expression is not None else ""


def _told(member: griffe.Object) -> str:
    return member.docstring.value if member.docstring else ""


def _prose(docstring: griffe.Docstring | None) -> str:
    """A docstring as Markdown: back-ticks, and a block for what stands after ``::``."""
    if docstring is None:
        return ""
    parts: list[str] = []
    is_code = False
    for paragraph in docstring.value.split("\n\n"):
        indented = paragraph.startswith("    ")
        if is_code and indented:
            parts[-1] = f"{parts[-1].removesuffix('```')}\n{textwrap.dedent(paragraph)}\n```"
        elif indented:
            parts.append(f"```{_language(paragraph)}\n{textwrap.dedent(paragraph)}\n```")
        else:
            text = paragraph.removesuffix("::")
            parts.append(_marked(text) + (":" if text != paragraph and text else ""))
        is_code = indented
    return "\n\n".join(part for part in parts if part.strip()) + "\n"


def _marked(text: str) -> str:
    """Double back-ticks of docstrings as Markdown's single ones, < as itself outside of them."""
    return cell(text).replace(r"\|", "|")


def _language(block: str) -> str:
    """Drawings are no Python."""
    try:
        ast.parse(textwrap.dedent(block))
    except SyntaxError:
        return "text"
    return "python"
