"""The guard: a small process between a worker and its JVM, so that no JVM outlives its worker.

The worker holds the writing end of the guard's standard input. However the worker ends, SIGKILL included, the
kernel closes that pipe; the guard reads end-of-file and stops the JVM: politely first, by force when `grace`
is over. Where the guard itself is killed, the kernel kills the JVM (Linux: PR_SET_PDEATHSIG, reliable here
because the guard has one thread, see prctl(2)).

Run as a script by its path with `-I -S`: standard library only, up in a few hundredths of a second.
It says `started PID` once on standard output, and ends with the JVM's exit code (128 + signal if killed).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _die_with_guard() -> None:
    """Runs in the child before the JVM's program is loaded."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def guard(command: list[str], *, grace_seconds: float) -> int:
    """Run `command` until it ends or standard input does; return its exit code."""
    # A signal's arrival makes the pipe readable: `select` then sees the child's end and stop requests alike.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for stop_signal in _STOP_SIGNALS:
        signal.signal(stop_signal, lambda *_: None)

    # Standard output is for the one line; what the JVM says goes where errors go, into its console file.
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=_die_with_guard,  # noqa: PLW1509 -- no other thread
    )
    print(f"started {child.pid}", flush=True)
    while child.poll() is None:
        readable, _, _ = select.select([0, reader], [], [])
        is_stop = 0 in readable and os.read(0, 1) == b""
        if reader in readable:
            arrived = os.read(reader, 64)
            is_stop = is_stop or any(number in arrived for number in _STOP_SIGNALS)
        if is_stop:
            _stop(child, grace_seconds=grace_seconds)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _stop(child: subprocess.Popen[bytes], *, grace_seconds: float) -> None:
    child.terminate()
    try:
        child.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


if __name__ == "__main__":
    # The parent may be gone before the first signal handler stands; end-of-file says so just as well.
    sys.exit(guard(sys.argv[2:], grace_seconds=float(sys.argv[1])))
