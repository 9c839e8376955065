"""The npm package ``kafka-connect-client``, unmodified, takes headrace for Kafka Connect."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.setup.jars import cache_folder

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="needs node and npm"),
]

PROJECT = Path(__file__).parent / "npm"
OPERATIONS = PROJECT / "operations.js"
INSTALL_SECONDS_MAX = 300
RUN_SECONDS_MAX = 240


@pytest.fixture(scope="session")
def packages() -> Path:
    """The folder with what the lock names, installed once for every lock; only checked packages are taken."""
    lock = PROJECT / "package-lock.json"
    folder = cache_folder() / "npm" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if not (folder / "node_modules" / ".package-lock.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for file in (lock, PROJECT / "package.json"):
            shutil.copy(file, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_SECONDS_MAX, capture_output=True)
    return folder


@pytest.mark.timeout(INSTALL_SECONDS_MAX + RUN_SECONDS_MAX + 120)
def test_every_operation_of_the_npm_client(packages: Path, headrace_worker: str, tmp_path: Path) -> None:
    """But ``getTopics``, which fails with Connect too: it looks for the topics in the undecoded text."""
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    program = shutil.copy(OPERATIONS, packages)
    name = f"npm-{uuid.uuid4().hex[:8]}"

    ran = subprocess.run(
        ["node", str(program), str(urlsplit(headrace_worker).port), name, str(file)],
        cwd=packages,
        check=False,
        timeout=RUN_SECONDS_MAX,
        capture_output=True,
        text=True,
    )

    assert (ran.returncode, ran.stdout) == (0, "all operations done\n"), ran.stderr
