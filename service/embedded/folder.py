"""The embedded servers of a data folder, for who only wants to read: those that run, or else a start of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from service.embedded.broker import embedded_kafka
from service.embedded.errors import DataDirectoryBusy, EmbeddedError
from service.embedded.registry import embedded_registry
from service.embedded.server import ADDRESS_FILE, EmbeddedServer


class NoDataError(EmbeddedError):
    """The folder is not one of an embedded Kafka."""


@dataclass(frozen=True, slots=True)
class FolderAddresses:
    """Where the servers of a folder answer."""

    kafka: str
    registry: str | None
    """None: the folder has none."""


@asynccontextmanager
async def reading_folder(data_dir: Path) -> AsyncIterator[FolderAddresses]:
    """The addresses of its servers while the block runs; raises ``EmbeddedError``. Makes no folder."""
    if not (data_dir / "kafka" / "logs").is_dir():
        raise NoDataError(
            f"there is no embedded Kafka in {data_dir}: expected the folder that a worker has as data.dir, or that "
            "'dev', 'demo' or 'broker' has as --data"
        )
    async with AsyncExitStack() as stack:
        kafka = await _address(data_dir / "kafka", lambda: embedded_kafka(data_dir=data_dir), stack)
        has_registry = (data_dir / "registry").is_dir()
        registry = data_dir / "registry"
        opening = (
            await _address(registry, lambda: embedded_registry(data_dir=data_dir), stack) if has_registry else None
        )
        yield FolderAddresses(kafka, opening)


async def _address(
    folder: Path, serve: Callable[[], AbstractAsyncContextManager[EmbeddedServer]], stack: AsyncExitStack
) -> str:
    """Of the server that runs there, or of one that runs until ``stack`` closes."""
    try:
        return (await stack.enter_async_context(serve())).address
    except DataDirectoryBusy:
        try:
            return (folder / ADDRESS_FILE).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise DataDirectoryBusy(f"{folder} is in use, and its server does not answer yet: try again") from None
