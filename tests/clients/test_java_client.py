"""The Java client ``org.sourcelab:kafka-connect-client``, unmodified, takes headrace for Kafka Connect."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from service.embedded.jars import class_path, java_program

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("javac"), reason="needs javac, the compiler of a JDK"),
]

PROGRAM = Path(__file__).parent / "java" / "Operations.java"
SECONDS_MAX = 240


@pytest.mark.timeout(3 * SECONDS_MAX)
def test_every_operation_of_the_java_client(headrace_worker: str, tmp_path: Path) -> None:
    """Compiled against the client's own jar, run in a JVM of its own."""
    file, classes = tmp_path / "in.txt", tmp_path / "classes"
    file.write_text("one\ntwo\n", encoding="utf-8")
    jars = class_path("clients")
    compilation = ["javac", "-cp", jars, "-d", str(classes), str(PROGRAM)]
    subprocess.run(compilation, check=True, timeout=SECONDS_MAX, capture_output=True)
    arguments = [headrace_worker, f"java-{uuid.uuid4().hex[:8]}", str(file)]

    ran = subprocess.run(
        [str(java_program()), "-Xmx96m", "-cp", os.pathsep.join((jars, str(classes))), PROGRAM.stem, *arguments],
        check=False,
        timeout=SECONDS_MAX,
        capture_output=True,
        text=True,
    )

    assert (ran.returncode, ran.stdout) == (0, "all operations done\n"), ran.stderr
