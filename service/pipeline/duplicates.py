"""Which records of a micro-batch are duplicates, by what a task remembers of those before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.kafka.records import Column
from service.stores.hashes import HASH_BYTES, numbered

Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint8]


class SeenHashes(Protocol):
    """The de-duplication index of a task: tentative until the commit of the micro-batch."""

    @property
    def remembers_rejected(self) -> bool:
        """Whether a rejected record that comes again is a duplicate; else none is, and none is noted."""

    def fresh_mask(self, hashes: Hashes, is_valid: Mask, window: str) -> Mask:
        """True where a hash is seen for the first time in any open window; rows without a hash are always fresh."""

    def known_mask(self, hashes: Hashes, window: str) -> Mask:
        """True where a hash is committed or noted in any open window; takes no note."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Hashes of records, (n, 16), and what conversion said of them."""

    hashes: Hashes
    is_valid: Mask
    """Rows that have a hash."""
    is_rejected: Mask

    @classmethod
    def of(cls, hashes: Column, is_rejected: Mask) -> Judged:
        """From a column of hashes, null where there is none."""
        is_valid = np.array(cast("Any", pc.is_valid(hashes)).to_numpy(zero_copy_only=False), dtype=bool)
        filled: Any = pc.fill_null(cast("Any", hashes), b"\0" * HASH_BYTES)
        fixed = filled.cast(pa.binary(HASH_BYTES))
        data = np.frombuffer(fixed.buffers()[1], dtype=np.uint8)
        return cls(data.reshape(-1, HASH_BYTES)[fixed.offset : fixed.offset + len(fixed)], is_valid, is_rejected)

    def rows(self, chosen: slice) -> Judged:
        """The hashes and verdicts of a run of rows."""
        return Judged(self.hashes[chosen], self.is_valid[chosen], self.is_rejected[chosen])


def fresh_among(judged: Judged, seen: SeenHashes, *, window: str) -> tuple[Mask, Hashes]:
    """Which records of some pages with one window are no duplicates, and the hashes to be noted there.

    One that stands in another open window is a duplicate too: the exports of two neighbouring days may both hold it.

    A rejected record is noted under the complement of its hash: of two with one key in a micro-batch, the rejected one
    must not make the good one pass for a duplicate. What comes after a good one is a duplicate, good or not.
    """
    hashes, is_valid, is_rejected = judged.hashes, judged.is_valid, judged.is_rejected
    if not is_rejected.any():
        fresh = seen.fresh_mask(hashes, is_valid, window)
        return fresh, hashes[fresh & is_valid]
    was_delivered = is_rejected & is_valid
    was_delivered[was_delivered] = seen.known_mask(hashes[was_delivered], window)
    if seen.remembers_rejected:
        was_delivered |= _after_good_ones(judged)
    is_noted = is_valid & ~was_delivered
    if not seen.remembers_rejected:
        is_noted &= ~is_rejected
    hashes = np.where(is_rejected[:, np.newaxis], ~hashes, hashes)
    fresh = seen.fresh_mask(hashes, is_noted, window) & ~was_delivered
    return fresh, hashes[fresh & is_noted]


def _after_good_ones(judged: Judged) -> Mask:
    """Rejected rows whose hash a good row before them has."""
    after = np.zeros(len(judged.hashes), dtype=bool)
    high = np.ascontiguousarray(judged.hashes).view("<u8")[:, 0]
    rejected = judged.is_rejected & judged.is_valid
    alike = np.flatnonzero(judged.is_valid & np.isin(high, high[rejected]))
    twins = numbered(judged.hashes[alike])
    is_good = ~rejected[alike]
    first_good = np.full(len(alike), len(after))
    np.minimum.at(first_good, twins[is_good], alike[is_good])
    after[alike] = ~is_good & (first_good[twins] < alike)
    return after
