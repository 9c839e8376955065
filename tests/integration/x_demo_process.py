"""The demo of X in small, on servers that are there: Spark in a process of its own, as in every worker.

Two arguments: what ``open_x_demo`` is called with, as JSON, and the file that the figures are written to.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from service.demo.accounts import Accounts
from service.demo.x import open_x_demo


async def _run(options: dict[str, Any], figures: Path) -> None:
    folder = Path(options.pop("folder"))
    async with open_x_demo(folder, Accounts(), listener="http://127.0.0.1:0", **options) as demo:
        report = await demo.run()
    figures.write_text(json.dumps(report.figures() | {"differences": report.differences()}), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.argv[1]), Path(sys.argv[2])))
