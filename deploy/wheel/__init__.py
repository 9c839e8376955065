"""headrace as `pip install` brings it: all its packages in one folder, under the names they have in the repository.

This file is the wheel's `headrace/__init__.py`. Importing it puts that folder first on the path, so that `fetchers.sdk`
means the same in a connector's file whether it runs in a clone or with the wheel (decision 47).
"""

import runpy
import sys
from pathlib import Path

_PACKAGES = str(Path(__file__).resolve().parent)
if _PACKAGES not in sys.path:
    sys.path.insert(0, _PACKAGES)


def main() -> None:
    """The console command `headrace`: fetch the JVM parts if this command needs them and they lack, then run it."""
    from service.setup.__main__ import main as set_up  # noqa: PLC0415 - found by the path set above

    failed = set_up(["--installed", "--for", *sys.argv[1:]])
    if failed:
        sys.exit(failed)
    runpy.run_module("service.cli", run_name="__main__", alter_sys=True)
