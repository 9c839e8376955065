"""The command line itself: it answers soon, and asks for no more than a command needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEAVY = ("aiohttp", "aiokafka", "asyncio", "pyarrow", "pydantic", "pyspark", "rich", "structlog", "tenacity")
"""What takes longer to import than a command that asks a worker may take altogether."""


def test_help_and_questions_import_nothing_heavy() -> None:
    """`status` is asked by scripts every few seconds: 0.4 s are for the launcher, Python and the answer together."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, service.cli.main; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert [name for name in HEAVY if name in loaded] == []
