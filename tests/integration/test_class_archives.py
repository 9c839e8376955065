"""The broker is started with the classes that set-up has archived: really mapped, not only named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from service.embedded.jars import archive_options, java_program
from tests.stack import KafkaStack

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="what a process has mapped is read from Linux's /proc"),
]


def test_the_broker_maps_its_archive(kafka: KafkaStack) -> None:
    """One that was made for another Java, or for other jars, would not be."""
    assert "/kafka.jsa\n" in Path(f"/proc/{kafka.pid}/maps").read_text(encoding="utf-8")


def test_an_archive_that_does_not_fit_is_passed_over_in_silence(tmp_path: Path) -> None:
    """Another class path, for example: slower, and nothing else. A JVM that must map it refuses to start."""
    assert archive_options("kafka")
    command = [str(java_program()), *archive_options("kafka"), "-cp", str(tmp_path)]
    refused = subprocess.run([*command, "-Xshare:on", "-version"], capture_output=True, check=False, timeout=180)
    assert refused.returncode != 0
    ran = subprocess.run([*command, "-version"], capture_output=True, text=True, check=True, timeout=180)
    assert ran.stdout == ""
    assert "warning" not in ran.stderr.lower()
