"""Programs that tests start end with the test run, however that ends.

Run as a script it asks the kernel to be killed with its parent (Linux: PR_SET_PDEATHSIG, see prctl(2), which is kept
over execve), and becomes the program. Elsewhere a run that is killed leaves its programs behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def bound(command: Sequence[str]) -> list[str]:
    """The command that starts this one, bound to the process that calls; the process id stays the same."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), *command]


def _become(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - on Linux only
        import signal  # noqa: PLC0415

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        os.execvp(command[0], command)  # noqa: S606 - the very purpose


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
