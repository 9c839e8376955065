"""`headrace broker`: the embedded servers alone, in the foreground, for development, tests and notebooks."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from service.embedded.broker import embedded_kafka
from service.embedded.errors import EmbeddedError, PortBusy, StartFailed
from service.embedded.registry import embedded_registry
from service.embedded.server import EmbeddedServer

EXIT_CLEAN = 0
EXIT_FAILED = 1
EXIT_CONFIGURATION = 2

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run_broker(*, data_dir: Path, port: int = 0, has_registry: bool = False, registry_port: int = 0) -> int:
    """Run the servers until SIGTERM or SIGINT, a second one not waiting for their grace; return the exit code.

    Prints one line `ready bootstrap=HOST:PORT[ registry=URL]` once clients can use them. 0 after a signal,
    1 where a server does not start, its port is taken, or it ends by itself, 2 where the directory or the set-up is at
    fault.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("run_broker must be awaited in a task")
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        return await _run(data_dir, port=port, registry_port=registry_port if has_registry else None)
    except asyncio.CancelledError:
        while task.uncancel():
            pass
        return EXIT_CLEAN
    except EmbeddedError as error:
        print(f"headrace: {error}", file=sys.stderr, flush=True)
        return EXIT_FAILED if isinstance(error, (PortBusy, StartFailed)) else EXIT_CONFIGURATION
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def _run(data_dir: Path, *, port: int, registry_port: int | None) -> int:
    async with contextlib.AsyncExitStack() as servers:
        broker = await servers.enter_async_context(embedded_kafka(data_dir=data_dir, port=port))
        ready = f"ready bootstrap={broker.address}"
        running = [broker]
        if registry_port is not None:
            registry = await servers.enter_async_context(embedded_registry(data_dir=data_dir, port=registry_port))
            ready += f" registry={registry.address}"
            running.append(registry)
        print(ready, flush=True)
        ended = await _wait_any_exited(running)
    print(f"headrace: {ended} ended by itself, see the logs under {data_dir}", file=sys.stderr, flush=True)
    return EXIT_FAILED


async def _wait_any_exited(servers: list[EmbeddedServer]) -> str:
    """Wait for the first server to end; what it is called."""
    async with asyncio.TaskGroup() as group:
        watching = {
            group.create_task(server.wait_exited(), name=f"watch {server.name}"): server.name for server in servers
        }
        ended, _ = await asyncio.wait(watching, return_when=asyncio.FIRST_COMPLETED)
        for task in watching:
            task.cancel()
    return watching[ended.pop()]
