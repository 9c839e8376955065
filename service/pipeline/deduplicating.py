"""De-duplication of one task: what has been delivered is remembered, and dropped when it comes again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fetchers.sdk import DedupeScope
from service.kafka.records import TopicRecords

Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint8]
FreshHashes = Sequence[tuple[DedupeScope | None, Hashes]]


class DedupeState(Protocol):
    """Tentative until ``commit``; what is encoded goes into the transaction of the records."""

    async def load(self) -> None:
        """Read what was committed; after the task's writer has started."""

    def fresh_mask(self, hashes: Hashes, is_valid: Mask, window: str) -> Mask:
        """True where a hash is seen for the first time; rows without a hash are always fresh."""

    def encode(self, fresh: FreshHashes) -> Sequence[TopicRecords]:
        """State records of one micro-batch."""

    def commit(self) -> None:
        """The transaction is through."""

    def rollback(self) -> None:
        """The transaction is not: forget what was tentative."""


class NoDedupe:
    """For tasks without de-duplication fields."""

    async def load(self) -> None:
        """Nothing to read."""

    def fresh_mask(self, hashes: Hashes, is_valid: Mask, window: str) -> Mask:  # noqa: ARG002 - the protocol's
        """Everything is fresh."""
        return np.ones(len(hashes), dtype=bool)

    def encode(self, fresh: FreshHashes) -> Sequence[TopicRecords]:  # noqa: ARG002 - the protocol's
        """No state."""
        return ()

    def commit(self) -> None:
        """Nothing to keep."""

    def rollback(self) -> None:
        """Nothing to forget."""
