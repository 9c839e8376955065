"""The papers say what is so: links resolve, commands exist, dependencies are explained, examples are valid."""

from __future__ import annotations

import re
from pathlib import Path

import click
import javaproperties
import pytest

from fetchers.catalog import PLUGINS
from fetchers.sdk.config import ConfigModel, unknown_keys
from metrics.catalogue import CATALOGUE
from service.cli.main import main as command_line
from service.config.connector import SourceConnectorConfig
from service.config.definition import read_definition
from service.config.sink import SinkConnectorConfig
from service.config.worker import WorkerConfig
from service.docs.commands import LAUNCHER_COMMANDS
from service.sinks.catalog import SINKS, find_sink
from service.sinks.definition import read_sink_definition
from tests.architecture.tracked import ROOT, text_of, tracked_paths

PAPERS = tuple(path for path in tracked_paths() if path.endswith(".md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*\./headrace ([a-z-]+)", re.MULTILINE)
PROPERTIES = re.compile(r"^```properties[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
METRIC = re.compile(r"\bheadrace_[a-z0-9_]*[a-z0-9]\b(?!\*)")
INLINE_COMMAND = re.compile(r"`\./headrace ([a-z-]+)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CONFIG_CLASSES: tuple[type[ConfigModel], ...] = (
    WorkerConfig,
    SourceConnectorConfig,
    SinkConnectorConfig,
    *(plugin.load().config_class for plugin in (*PLUGINS, *SINKS)),
)
EVERY_KEY = [key for config_class in CONFIG_CLASSES for key in config_class.config_keys()]
FREE_PREFIXES = [prefix for config_class in CONFIG_CLASSES for prefix in config_class.free_prefixes]
ARCHITECTURE_WORDS_MAX = 1_300
"""About two printed pages."""


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as the usual renderers make them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def broken_links(path: str, text: str) -> list[str]:
    """Relative links of a page that lead nowhere."""
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (ROOT / path).parent / target if target else ROOT / path
        is_there = file.exists() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))
        if not is_there:
            broken.append(f"{path}: {link}")
    return broken


def test_a_broken_link_is_found() -> None:
    """The measure itself works for files and anchors."""
    text = "# A heading\n[a](LICENSE) [b](nowhere.md) [c](#a-heading) [d](#none) [e](https://example.org/x)"

    assert broken_links("page.md", text.replace("(#", "(README.md#")) == [
        "page.md: nowhere.md",
        "page.md: README.md#a-heading",
        "page.md: README.md#none",
    ]


@pytest.mark.parametrize("path", PAPERS)
def test_links_resolve(path: str) -> None:
    """Every relative link leads to a file, and its anchor to a heading there."""
    assert broken_links(path, text_of(path)) == []


@pytest.mark.parametrize("path", PAPERS)
def test_commands_exist(path: str) -> None:
    """A paper shows no command that the command line does not have."""
    text = text_of(path)
    shown = {*COMMAND.findall(text), *INLINE_COMMAND.findall(text)}

    assert shown - {*command_line.commands, *LAUNCHER_COMMANDS} == set()


@pytest.mark.parametrize("path", PAPERS)
def test_options_exist(path: str) -> None:
    """A paper shows no option that its command does not have."""
    for line in re.findall(r"\./headrace ([^`\n#]+)", text_of(path)):
        words = line.split()
        command = _command(words)
        if command is None:
            continue
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        shown = {word.strip("[],.").partition("=")[0] for word in words if word.strip("[").startswith("--")}
        assert shown <= known | {"--help"}, line


def _command(words: list[str]) -> click.Command | None:
    command: click.Command | None = command_line
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.commands.get(word)
    return None if isinstance(command, click.Group) else command


@pytest.mark.parametrize("path", PAPERS)
def test_metrics_are_declared(path: str) -> None:
    """A paper names no metric that does not exist."""
    declared = {name for metric in CATALOGUE for name in (metric.name, *metric.series)}

    assert set(METRIC.findall(text_of(path))) - declared == set()


@pytest.mark.parametrize("path", PAPERS)
def test_keys_in_examples_are_read(path: str) -> None:
    """A paper's properties hold no key that nothing reads; those of a class of one's own the paper has to declare."""
    declared = [name.replace("_", ".") for name in re.findall(r"^    (\w+): ", text_of(path), re.MULTILINE)]
    for block in PROPERTIES.findall(text_of(path)):
        properties = javaproperties.loads(block)
        own = declared if ":" in properties.get("connector.class", "") else []
        known = [*own, *(key.name for key in EVERY_KEY)]
        strangers = unknown_keys(properties, known, free_prefixes=FREE_PREFIXES)
        assert [finding.key for finding in strangers] == []


@pytest.mark.parametrize("path", PAPERS)
def test_connectors_in_examples_are_taken(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connector that a paper shows whole is one the worker takes; those of a reader's own class are run elsewhere."""
    monkeypatch.chdir(ROOT)
    worker = {"key.converter": "string", "value.converter": "string", "schema.registry.url": "http://localhost:8081"}
    for block in PROPERTIES.findall(text_of(path)):
        properties = javaproperties.loads(block)
        if ":" in properties.get("connector.class", ":"):
            continue
        name = properties["connector.class"]
        reading = (read_definition if find_sink(name) is None else read_sink_definition)(properties, worker=worker)
        assert [finding.message for finding in reading.findings] == []
        assert reading.definition is not None


def test_the_readme_names_the_commands_a_user_begins_with() -> None:
    """Demo, test and one's own job, all in the README."""
    assert {"demo", "test", "standalone"} <= set(COMMAND.findall(text_of("README.md")))


def test_the_readme_lists_every_connector() -> None:
    """One row each in the table of connectors."""
    rows = re.findall(r"^\| `(\w+)` \|", text_of("README.md"), re.MULTILINE)
    assert sorted(rows) == sorted(plugin.name for plugin in (*PLUGINS, *SINKS))


def test_the_index_lists_every_page() -> None:
    """docs/index.md leads to every page under docs, or to the page of its folder."""
    linked = {Path(link.partition("#")[0]) for link in LINK.findall(text_of("docs/index.md"))}
    linked |= {page.parent for page in linked if page.name == "README.md"}
    pages = [Path(path).relative_to("docs") for path in PAPERS if path.startswith("docs/") and path != "docs/index.md"]

    assert [str(page) for page in pages if not linked & {page, *page.parents[:-1]}] == []


def test_decisions_have_numbers_of_their_own() -> None:
    """Every number is given once, maybe long before its decision is written down; the index has them in order."""
    records = sorted(path for path in PAPERS if path.startswith("docs/adr/"))
    numbers = [int(Path(path).name[:4]) for path in records]

    assert len(set(numbers)) == len(numbers)
    assert [path for path, number in zip(records, numbers, strict=True) if not _is_titled(path, number)] == []
    assert re.findall(r"\(adr/(\d{4})-", text_of("docs/index.md")) == [Path(path).name[:4] for path in records]


def _is_titled(path: str, number: int) -> bool:
    return text_of(path).startswith(f"# {number}. ")


@pytest.mark.parametrize("name", ["run", "dev"])
def test_every_dependency_has_its_reason(name: str) -> None:
    """Each requirement has its line in the decision on dependencies, and no line is left of one that is gone."""
    decision = text_of("docs/adr/0002-dependencies.md")
    lines = text_of(f"requirements/{name}.in").splitlines()
    required = {re.split(r"[<>=!\[ ]", line)[0] for line in lines if line and not line.startswith(("#", "-"))}
    section = decision.partition(f"requirements/{name}.in")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `([\w-]+)`", section, re.MULTILINE)) == required


def test_the_architecture_fits_on_two_pages() -> None:
    """Longer is not read."""
    assert len(text_of("ARCHITECTURE.md").split()) <= ARCHITECTURE_WORDS_MAX


def test_the_architecture_names_every_room() -> None:
    """Every folder of the service and of the fetchers is on the map."""
    text = text_of("ARCHITECTURE.md")
    folders = [
        (room, path.parent.name) for room in ("service", "fetchers") for path in (ROOT / room).glob("*/__init__.py")
    ]

    assert [(room, name) for room, name in folders if f"`{room}/{name}`" not in text and f"`{name}`" not in text] == []
