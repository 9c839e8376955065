"""Records that their topics do not take, by their own settings: which ones, and what has no way out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from service.kafka.errors import DeliveryFatal, RecordsRefused, RefusedRecord
from service.kafka.producer import Writer
from service.pipeline.beside import run_beside
from service.pipeline.converting import ConvertedBatch
from service.pipeline.dead_letters import WrittenLetters
from service.pipeline.settlement import Rejected, SettlementRules, settle
from service.stores.dedupe_store import NoDedupe


async def refused_rows(converted: ConvertedBatch, rules: SettlementRules, writer: Writer) -> dict[int, RefusedRecord]:
    """Every row of the micro-batch that its topic would refuse, a duplicate or not."""
    tolerant = replace(rules, is_tolerant=True, has_dedupe=False)
    everything = await run_beside(partial(settle, converted, tolerant, NoDedupe()), rows=converted.records.num_rows)
    found: dict[int, RefusedRecord] = {}
    for write, mask in zip(everything.records, everything.rows, strict=True):
        rows = np.flatnonzero(mask)
        found |= {int(rows[record.row]): record for record in await writer.refused(write)}
    return found


def without_way_out(error: RecordsRefused, rejects: Rejected, letters: WrittenLetters) -> DeliveryFatal:
    """What a dead letter, an offset or the state is over its own topic's limits."""
    first = letters.first_of(error.write)
    if first is None:
        return DeliveryFatal(str(error))
    letter = rejects.letter(first + error.refused[0].row)
    return DeliveryFatal(f"{error}; source partition {letter.partition}, offset {letter.offset}")
