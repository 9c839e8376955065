"""Whether any broker can be reached, for health: clients wait out an outage and say nothing of it."""

from __future__ import annotations

import asyncio

CONNECT_SECONDS_MAX = 10.0
DEFAULT_PORT = 9092


async def trouble_reaching(bootstrap: str) -> str | None:
    """None when one of the bootstrap servers takes a connection, else why none of them does."""
    failures = []
    for server in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, _, port = server.rpartition(":") if ":" in server else (server, "", str(DEFAULT_PORT))
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                # At once: the end of the time limit may cancel.
                writer.close()
                return None
        except TimeoutError:
            failures.append(f"{server} does not answer within {CONNECT_SECONDS_MAX:.0f} s")
        except (OSError, ValueError, OverflowError) as error:
            failures.append(f"{server} cannot be reached: {error}")
    return "; ".join(failures)
