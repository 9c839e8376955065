"""Runs the contract suite on every sink of the catalogue; a sink without a case fails."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fetchers.catalog import Plugin
from service.sinks.catalog import SINKS
from service.sinks.contract import Fatal
from service.sinks.testing import BAD_ROW, HERE, ROWS, SinkCase, SinkContract
from tests.architecture.tracked import text_of


def case_of(plugin: Plugin) -> SinkCase:
    """The ``CASE`` of a sink: ``service.sinks.<name>.…`` has ``<name>_sink_case.py`` here."""
    case: SinkCase = import_module(f"tests.contracts.{plugin.target.split('.')[2]}_sink_case").CASE
    return case


@pytest.mark.parametrize("plugin", SINKS, ids=lambda plugin: plugin.name)
def test_has_a_case_and_is_told_of(plugin: Plugin) -> None:
    """Every sink of the catalogue brings its own case, docstrings, and a word in the changelog."""
    loaded = plugin.load()

    assert case_of(plugin).connector is loaded
    assert loaded.__name__ == plugin.name
    assert loaded.__doc__
    assert loaded.config_class.__doc__
    assert f"`{plugin.name}`" in text_of("CHANGELOG.md")


async def _taken_later(self: SinkContract, tmp_path: Path) -> None:
    """A record fails the task by ``errors.tolerance=none``, and is fit by the config that a person mends.

    It comes again, as the group's offset, and is written, whatever of its batch the target has by then.
    """
    texts = [str(number) for number in range(ROWS)]
    payloads: list[str | bytes | None] = [*texts]
    payloads[BAD_ROW] = self.case.bad_payload or texts[BAD_ROW]
    async with self.case.target(tmp_path) as target:
        async with self._running(target) as failed:
            await failed.open({HERE: None})
            with suppress(Fatal):
                await failed.put(await self._batch(payloads, refused=[]))
        async with self._running(target) as sink:
            begin = (await sink.open({HERE: BAD_ROW})).get(HERE, BAD_ROW)
            await sink.put(await self._batch(texts[begin:], begin=begin))
            await sink.flush({HERE: ROWS})
        written = [text for text in await target.written() if text in texts[BAD_ROW:]]
    assert set(written) == set(texts[BAD_ROW:])
    assert not self.case.is_exactly_once or len(written) == len(set(written))


def _suite(plugin: Plugin) -> type[SinkContract]:
    case = case_of(plugin)
    members: dict[str, Any] = {"case": case, "__doc__": plugin.name, "test_what_failed_the_task_is_taken": _taken_later}
    suite = type(f"Test{plugin.name}", (SinkContract,), members)
    servers: Sequence[str] = getattr(case, "servers", ())
    return pytest.mark.usefixtures(*servers)(suite) if servers else suite


for _plugin in SINKS:
    globals()[f"Test{_plugin.name}"] = _suite(_plugin)
