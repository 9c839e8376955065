"""Mends what set-up cannot see at a glance: an installed file that is damaged shows when it is imported.

To compare all files with pip's records takes too long for every start, so it is done when a command cannot be imported.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from traceback import walk_tb

from service.setup.environment import Environment

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ROOT / "service" / "cli"
MENDED = "HEADRACE_MENDED"
"""Set for the start after a mend: what fails then is no damage that set-up can mend."""


def start_again_if_damaged(error: Exception) -> None:
    """Have the launcher mend the environment and start the same command again, where that is what the error is about.

    Does not return then. A command that had begun is never started again: it may have done something.
    """
    environment = Environment(ROOT)
    launcher = ROOT / "headrace"
    is_ours = Path(sys.prefix).resolve() == environment.folder.resolve() and os.access(launcher, os.X_OK)
    if not is_ours or MENDED in os.environ or has_begun(error):
        return
    damaged = environment.distrust_damaged()
    if damaged:
        print(f"headrace: damaged: {', '.join(damaged)}; mending", file=sys.stderr, flush=True)
        os.execve(launcher, [str(launcher), *sys.argv[1:]], {**os.environ, MENDED: "1"})  # noqa: S606 - ourselves


def has_begun(error: Exception) -> bool:
    """Whether the error rose from a command's work; not: while the modules were imported that it begins with."""
    frames = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    of_commands = [
        number
        for number, code in enumerate(frames)
        if code.co_name != "<module>" and Path(code.co_filename).is_relative_to(COMMANDS)
    ]
    # Importing it is the first thing that a command does; frames of the import system itself Python leaves out.
    begun = frames[of_commands[-1] + 1 :] if of_commands else frames
    return bool(begun) and begun[0].co_name != "<module>"
