"""The broker's settings keep promises that Kafka's defaults do not."""

from __future__ import annotations

import javaproperties

from service.embedded.broker_settings import broker_properties, properties_text


def test_settings_bind_the_loopback_and_delete_nothing() -> None:
    """Nobody outside reaches it, old timestamps are no reason to delete, two copies of a large record fit."""
    settings = broker_properties(port=1, controller_port=2, log_folder="logs")
    listeners = settings["listeners"].split(",") + settings["advertised.listeners"].split(",")
    assert all("://127.0.0.1:" in listener for listener in listeners)
    assert settings["log.retention.ms"] == "-1"
    assert int(settings["message.max.bytes"]) >= 4 * 1024 * 1024


def test_what_the_properties_file_says_is_what_java_reads() -> None:
    """In the encoding and by the rules of `java.util.Properties`, so nothing needs to be escaped."""
    settings = broker_properties(port=1, controller_port=2, log_folder="logs")
    assert javaproperties.loads(properties_text(settings).encode()) == settings
