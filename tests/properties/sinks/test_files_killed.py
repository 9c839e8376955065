"""Whatever dies at whatever moment, and whoever believes that a partition is its own: each record is in one file."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.sinks.contract import StartAnew
from tests.unit.sinks.filesystem.files_runs import (
    HERE,
    DiedError,
    DyingStore,
    batch_of,
    config_of,
    every_name,
    feed,
    found,
    running,
)

ROWS = [{"n": number, "kind": "ab"[number % 2]} for number in range(10)]
BY_KIND = {"partitioner__class": "FieldPartitioner", "partition__field__name": "kind"}
MOMENTS_MAX = 200
BY_COUNT, BY_BYTES = {"flush__size": "3"}, {"flush__size__bytes": "40"}
"""Rotations; a line has 20 bytes, so two of one kind fill a file."""


ROTATIONS = st.integers(1, 4).map(lambda size: {"flush__size": str(size)}) | st.integers(1, 90).map(
    lambda size: {"flush__size__bytes": str(size)}
)


async def _whole(folder: Path, **changes: str) -> dict[str, list[Any]]:
    """The files of a run in which nothing dies; all rows are held in memory until they are committed."""
    async with running(config_of(folder, **changes)) as sink:
        await feed(sink, ROWS)
    return found(folder)


async def _dies(
    folder: Path, moments: int, *, is_passing: bool = False, is_small: bool = False, rotation: Mapping[str, str]
) -> bool:
    """Run until the store dies, or fails once; whether it did.

    ``is_small``: what it may hold. Then rows are in one open file, or wait outside of memory.
    """
    store = DyingStore(folder, moments, is_passing=is_passing)
    config = config_of(folder, **BY_KIND, **rotation, max__open__files__per__partition="1")
    try:
        async with running(config.model_copy(update={"buffer_bytes": 1}) if is_small else config, store=store) as sink:
            await feed(sink, ROWS)
    except (DiedError, StartAnew):
        return True
    finally:
        store.close()
    return False


@pytest.mark.parametrize(
    ("is_passing", "is_small", "rotation"),
    [(False, False, BY_COUNT), (False, False, BY_BYTES), (True, False, BY_COUNT), (True, True, BY_COUNT)],
    ids=["killed", "killed, files end by bytes", "failed once", "failed once, with rows outside of memory"],
)
async def test_at_every_moment(
    *, is_passing: bool, is_small: bool, rotation: Mapping[str, str], tmp_path: Path
) -> None:
    """Killed, or failed with an error that passes, so that it still cleans up after itself.

    The next one makes the same files, leaves nothing else behind, and what was visible before was right.
    """
    expected = await _whole(tmp_path / "whole", **BY_KIND, **rotation)
    assert len(expected) > 4
    for moments in range(MOMENTS_MAX):
        folder = tmp_path / str(moments)
        is_dead = await _dies(folder, moments, is_passing=is_passing, is_small=is_small, rotation=rotation)
        assert found(folder).items() <= expected.items()
        assert await _whole(folder, **BY_KIND, **rotation) == expected
        assert every_name(folder) == set(expected)
        if not is_dead:
            return
    pytest.fail("there is no end")


@settings(max_examples=12, deadline=None)
@given(
    deaths=st.lists(st.tuples(st.integers(0, 80), st.booleans()), max_size=6),
    rotation=st.sampled_from([BY_COUNT, BY_BYTES]),
)
async def test_killed_again_and_again(deaths: list[tuple[int, bool]], rotation: Mapping[str, str]) -> None:
    """Also while the next one mends what the last has left."""
    with tempfile.TemporaryDirectory() as name:
        expected = await _whole(Path(name) / "whole", **BY_KIND, **rotation)
        for moments, is_small in deaths:
            await _dies(Path(name), moments, is_small=is_small, rotation=rotation)
        assert await _whole(Path(name), **BY_KIND, **rotation) == expected


@settings(max_examples=20, deadline=None)
@given(
    rotations=st.tuples(ROTATIONS, ROTATIONS),
    steps=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=14),
)
async def test_two_that_own_a_partition(
    rotations: tuple[Mapping[str, str], ...], steps: list[tuple[bool, bool]]
) -> None:
    """Each step one of them opens or puts; their files have other bounds. Who is outrun writes nothing more."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        configs = [config_of(folder, **rotation, **BY_KIND) for rotation in rotations]
        async with running(configs[0]) as first, running(configs[1]) as second:
            sinks, begins = [first, second], [0, 0]
            for number, is_open in ((int(which), is_open) for which, is_open in steps):
                with suppress(StartAnew):
                    if is_open or HERE not in sinks[number]._partitions:
                        begins[number] = (await sinks[number].open({HERE: None})).get(HERE, 0)
                    rows = ROWS[begins[number] : begins[number] + 2]
                    if rows:
                        await sinks[number].put(batch_of(rows, begin=begins[number]))
                        begins[number] += len(rows)
        await _whole(folder, flush__size="1", **BY_KIND)
        numbers = Counter(row["n"] for rows in found(folder).values() for row in rows)
    assert numbers == Counter(range(len(ROWS)))
