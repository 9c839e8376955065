"""A demo in small, on servers that are there: Spark in a process of its own, as in every worker.

Three arguments: which demo, what it is opened with, as JSON, and the file that the figures are written to.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from service.demo.accounts import Accounts
from service.demo.pipeline import PipelineAccounts, Places, open_pipeline_demo
from service.demo.x import open_x_demo

LISTENER = "http://127.0.0.1:0"


async def _run(which: str, options: dict[str, Any], figures: Path) -> None:
    folder = Path(options.pop("folder"))
    if which == "x":
        async with open_x_demo(folder, Accounts(), listener=LISTENER, **options) as x:
            x_report = await x.run()
        found = x_report.figures() | {"differences": x_report.differences()}
    else:
        places = Places(**options.pop("places"))
        opening = open_pipeline_demo(folder, PipelineAccounts(), listener=LISTENER, places=places, **options)
        async with opening as pipeline:
            report = await pipeline.run()
        found = report.figures() | {"differences": report.differences()}
    figures.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])))
