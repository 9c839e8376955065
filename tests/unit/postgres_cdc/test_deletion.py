"""Whether another connector reads the slot of one that is deleted, as far as their configs say."""

from __future__ import annotations

import pytest

from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.deletion import take_away
from fetchers.sdk import Fatal, Retriable
from fetchers.sdk.testing import FakeContext

OWN = {
    "database.hostname": "127.0.0.1",
    "database.port": "1",
    "database.user": "u",
    "database.dbname": "shop",
    "topic.prefix": "srv",
    "slot.name": "orders",
}


async def deleted(*others: dict[str, str]) -> bool:
    """Nobody listens on the port: whatever is not refused before fails there."""
    found = PostgresCdcConfig.parse(OWN)
    assert found.config is not None
    return await take_away(found.config, FakeContext(), others)


async def test_the_same_slot_stays() -> None:
    """Whichever of the others has it."""
    others = [{**OWN, "name": "far", "database.hostname": "elsewhere"}, {**OWN, "name": "twin"}]
    with pytest.raises(Fatal, match="connector twin reads it too"):
        await deleted(*others)


@pytest.mark.parametrize("key", ["slot.name", "database.hostname", "database.port", "database.dbname"])
async def test_a_variable_without_a_value_may_be_the_same(key: str) -> None:
    """So the slot stays for now, until its provider can be asked; where anything else differs it is another slot."""
    twin = {**OWN, "name": "twin", key: "${vault:shop:it}"}
    with pytest.raises(Retriable, match="connector twin may read it too"):
        await deleted(twin)
    other = "database.dbname" if key != "database.dbname" else "slot.name"
    with pytest.raises(Retriable, match=r"the slot orders is not dropped: 127\.0\.0\.1"):
        await deleted({**twin, other: "another"})


async def test_a_connector_of_another_kind_shares_nothing() -> None:
    """It has none of the keys."""
    with pytest.raises(Retriable, match=r"the slot orders is not dropped: 127\.0\.0\.1"):
        await deleted({"name": "sink", "connector.class": "FileSink", "topics": "${env:TOPIC}"})
