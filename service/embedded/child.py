"""One guarded JVM: started, waited for until it answers, stopped, and started again on the same data."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.embedded.errors import StartFailed

_GUARD = Path(__file__).with_name("guard.py")
_POLL_SECONDS = 0.05
_GUARD_ANSWER_SECONDS_MAX = 30.0
_GUARD_END_SECONDS_MAX = 10.0
_LOG_TAIL_LINES = 25
_LOG_TAIL_BYTES = 16_384


@dataclass(frozen=True)
class JvmCommand:
    """How one JVM is run: the command line, where, what it writes to, and how long it may take to stop.

    The user's path is the working folder, and no setting names it: each Java program has signs of its own that part
    or quote paths.
    """

    arguments: Sequence[str]
    working_folder: Path
    console: Path
    grace_seconds: float
    inherited_lock: int | None = None


class GuardedJvm:
    """A running JVM and its guard. `pid` is the JVM's, for whoever wants to measure or to kill it."""

    def __init__(self, name: str, command: JvmCommand, guard: asyncio.subprocess.Process, pid: int) -> None:
        """Take what `start` made."""
        self.name = name
        self.pid = pid
        self._command = command
        self._guard = guard

    @classmethod
    async def start(cls, name: str, command: JvmCommand) -> GuardedJvm:
        """Start the JVM; it is running then, but not yet ready."""
        locks = () if command.inherited_lock is None else (command.inherited_lock,)
        with command.console.open("ab") as console:
            guard = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_GUARD), str(command.grace_seconds), *command.arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=console,
                cwd=command.working_folder,
                # Java takes the names of files by the locale, and finds nothing where that cannot spell its folder.
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                # A terminal's Ctrl-C is for the worker, which stops step by step and the servers last.
                start_new_session=True,
                pass_fds=locks,
            )
        async with contextlib.AsyncExitStack() as unless_started:
            unless_started.push_async_callback(_end, guard, seconds_max=command.grace_seconds)
            answer = await _first_line(guard)
            if not answer.startswith(b"started "):
                raise StartFailed(f"{name} could not be started:\n{log_tail(command.console)}")
            unless_started.pop_all()
        return cls(name, command, guard, int(answer.split()[1]))

    def is_alive(self) -> bool:
        """Whether the JVM runs, as far as the event loop has heard."""
        return self._guard.returncode is None

    async def wait_exited(self) -> int:
        """Wait until the JVM has ended, for whatever reason; its exit code, 128 + signal if it was killed."""
        return await self._guard.wait()

    async def wait_ready(self, is_ready: Callable[[], Awaitable[bool]], *, seconds_max: float) -> None:
        """Ask until the server says that it is ready; StartFailed with the end of its log where it does not."""
        try:
            async with asyncio.timeout(seconds_max):
                while not await is_ready():
                    if not self.is_alive():
                        code = self._guard.returncode
                        raise StartFailed(f"{self.name} ended with code {code} while starting:\n{self.log_tail()}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            message = f"{self.name} was not ready within {seconds_max:g} s:\n{self.log_tail()}"
            raise StartFailed(message) from None

    async def stop(self) -> None:
        """Stop the JVM: politely, by force after the grace; return when it is gone."""
        await _end(self._guard, seconds_max=self._command.grace_seconds)

    def log_tail(self) -> str:
        """The last lines that the JVM wrote."""
        return log_tail(self._command.console)


def shown_folder(folder: Path) -> str:
    """An option that sets nothing, and shows in a list of processes whose JVM it is."""
    return f"-Dheadrace.folder={folder}"


def log_tail(path: Path) -> str:
    """The last lines of a log file, whatever is in it."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except OSError as error:
        return f"({path} cannot be read: {error.strerror})"
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:]) or f"({path} is empty)"


async def _first_line(guard: asyncio.subprocess.Process) -> bytes:
    """What the guard says of its child; nothing where it ended or does not answer."""
    try:
        async with asyncio.timeout(_GUARD_ANSWER_SECONDS_MAX):
            return await guard.stdout.readline() if guard.stdout else b""
    except TimeoutError:
        return b""


async def _end(guard: asyncio.subprocess.Process, *, seconds_max: float) -> None:
    if guard.stdin:
        guard.stdin.close()
    try:
        # The guard itself stops waiting after the grace; what is added is for its own two signals.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max + _GUARD_END_SECONDS_MAX):
                await guard.wait()
    finally:
        # Also where this very wait is cancelled: the JVM then ends by the kernel's hand.
        with contextlib.suppress(ProcessLookupError):
            guard.kill()
    await guard.wait()
