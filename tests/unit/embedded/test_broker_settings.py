"""The broker's settings keep promises that Kafka's defaults do not."""

from __future__ import annotations

from pathlib import Path

import javaproperties
from hypothesis import given
from hypothesis import strategies as st

from service.embedded.broker_settings import broker_properties, properties_text


def test_settings_bind_the_loopback_and_delete_nothing() -> None:
    """Nobody outside reaches it, old timestamps are no reason to delete, two copies of a large record fit."""
    settings = broker_properties(port=1, controller_port=2, log_folder=Path("logs"))
    listeners = settings["listeners"].split(",") + settings["advertised.listeners"].split(",")
    assert all("://127.0.0.1:" in listener for listener in listeners)
    assert settings["log.retention.ms"] == "-1"
    assert int(settings["message.max.bytes"]) >= 4 * 1024 * 1024


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
def test_any_folder_name_survives_the_properties_file(folder: str) -> None:
    """A folder's name means the same after Java's rules have been applied to the file."""
    name = str(Path("/", folder))
    text = properties_text({"log.dirs": name})
    assert javaproperties.loads(text) == {"log.dirs": name}
