"""The bulk interface: one request for many documents, and what its answer says of each.

https://docs.opensearch.org/latest/api-reference/document-apis/bulk/
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import HttpResponse, Retriable

_RETRIED_TYPES = frozenset({"es_rejected_execution_exception", "unavailable_shards_exception"})
_RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_MALFORMED_TYPES = frozenset(
    {
        "strict_dynamic_mapping_exception",
        "mapper_parsing_exception",
        "illegal_argument_exception",
        "action_request_validation_exception",
        "document_parsing_exception",
    }
)
_CLOSED_TYPES = frozenset(
    {"cluster_block_exception", "index_create_block_exception", "security_exception", "index_closed_exception"}
)
_CLOSED_STATUSES = frozenset({401, 403})
BLOCKED_TYPES = ("cluster_block_exception", "index_create_block_exception")
_BLOCKS = re.compile(r"\[[A-Z_]+/(\d+)/")
_DISK_BLOCKS = frozenset({"10", "12"})
"""Numbers of the blocks that a server sets by itself when a disk is too full, and takes away when it is not: no new
index (OpenSearch), an index that is read and deleted from only. The latter came with status 403 at first, and with 429
in newer servers (https://github.com/elastic/elasticsearch/issues/49393)."""
DISK_FULL = (
    "a disk of the server is too full: {reason} Make room on it (delete what is not needed, add a disk or a node). The "
    "server then lifts the block by itself, but for Elasticsearch before 7.4, where it is lifted by hand (the index's "
    "setting index.blocks.read_only_allow_delete: null). Until then records are put again every {seconds:.0f} seconds"
)
FULL_WAIT_SECONDS = 30.0
_CONFLICT = "version_conflict_engine_exception"
_HELD_VERSION = re.compile(r"current version \[(\d{1,19})\]")
_OK, _NOT_FOUND = range(200, 300), 404


class Verdict(Enum):
    """What becomes of one item."""

    DONE = auto()
    RETRIED = auto()
    """The server was too busy for it: sent again, with nothing else of its bulk."""
    INDEX_MISSING = auto()
    """Sent again when its index is made."""
    MALFORMED = auto()
    """Will never be taken."""
    FULL = auto()
    """A disk of the server is too full for it: sent again until there is room."""
    CLOSED = auto()
    """The index takes no documents, or none of this user: no record is at fault, and the task fails."""
    OUTRUN = auto()
    """Somebody else has changed the document meanwhile; counts as done, and is told."""
    UNKNOWN = auto()
    """Whatever else: told, and the task fails."""


class _Error(msgspec.Struct):
    type: str = ""
    reason: str | None = None


class Item(msgspec.Struct):
    """One action of a bulk, as it is answered."""

    status: int = 0
    error: _Error | str | None = None

    def verdict(self, *, is_versioned: bool) -> Verdict:
        """What to do; ``is_versioned``: a conflict of versions says that the record, or a later one, is there."""
        kind = self.error.type if isinstance(self.error, _Error) else ""
        if self.error is None and (self.status in _OK or self.status == _NOT_FOUND):
            return Verdict.DONE  # a document that is to be deleted may be missing
        if kind == _CONFLICT:
            return Verdict.DONE if is_versioned else Verdict.OUTRUN
        if kind == "index_not_found_exception":
            return Verdict.INDEX_MISSING
        if self.is_disk_full or kind in _RETRIED_TYPES or self.status in _RETRIED_STATUSES:
            return Verdict.FULL if self.is_disk_full else Verdict.RETRIED
        if kind in _CLOSED_TYPES or self.status in _CLOSED_STATUSES:
            return Verdict.CLOSED
        return Verdict.MALFORMED if kind in _MALFORMED_TYPES else Verdict.UNKNOWN

    @property
    def is_disk_full(self) -> bool:
        """Whether it was not taken for blocks alone that go when a full disk has room again."""
        if not isinstance(self.error, _Error) or self.error.type not in BLOCKED_TYPES:
            return False
        blocks = set(_BLOCKS.findall(self.error.reason or ""))
        return bool(blocks) and blocks <= _DISK_BLOCKS

    @property
    def held_version(self) -> int | None:
        """The document's version, where it is why the record was not written."""
        if not isinstance(self.error, _Error) or self.error.type != _CONFLICT:
            return None
        found = _HELD_VERSION.search(self.error.reason or "")
        return None if found is None else int(found.group(1))

    @property
    def reason(self) -> str:
        """Why, in the server's words without what it quotes of the document."""
        if not isinstance(self.error, _Error):
            return f"status {self.status}"
        return f"{self.error.type}: {(self.error.reason or '').partition('. Preview of')[0]}"


class _Brief(msgspec.Struct):
    errors: bool
    items: list[msgspec.Raw]


class _Whole(msgspec.Struct):
    items: list[Mapping[str, Item]]


def item_of(response: HttpResponse) -> Item:
    """The answer to a request about an index; an item without an error for what is no answer of the server."""
    try:
        return _ONE.decode(response.body)
    except msgspec.DecodeError:
        return Item(response.status)


_ONE = msgspec.json.Decoder(Item)
_BRIEF, _WHOLE = msgspec.json.Decoder(_Brief), msgspec.json.Decoder(_Whole)


def items_of(response: HttpResponse, *, count: int) -> list[Item]:
    """The answer to each of ``count`` actions; empty where all went well. Raises Retriable for what is no answer."""
    try:
        brief = _BRIEF.decode(response.body)
        if len(brief.items) != count:
            message = f"the bulk was answered with {len(brief.items)} items and not {count}"
            raise Retriable(message)
        if not brief.errors:
            return []
        return [next(iter(item.values())) for item in _WHOLE.decode(response.body).items]
    except (msgspec.DecodeError, StopIteration) as error:
        message = "the bulk was not answered with JSON of a bulk"
        raise Retriable(message) from error


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines that are sent together; ``rows`` count in the batch."""

    rows: npt.NDArray[np.int64]
    texts: pa.Array[Any]

    def body(self, *, is_compressed: bool) -> bytes:
        """All lines in one piece."""
        buffers: Any = self.texts.buffers()
        offsets = np.frombuffer(buffers[1], np.int32)
        begin, end = (int(offsets[self.texts.offset + place]) for place in (0, len(self.texts)))
        body = memoryview(buffers[2])[begin:end]
        return gzip.compress(body, compresslevel=1) if is_compressed else bytes(body)

    def halves(self) -> Iterator[Chunk]:
        """For a server to which all of them are too much."""
        middle = len(self.rows) // 2
        yield Chunk(self.rows[:middle], self.texts[:middle])
        yield Chunk(self.rows[middle:], self.texts[middle:])


def chunks(rows: npt.NDArray[np.int64], texts: pa.Array[Any], *, bytes_max: int) -> Iterator[Chunk]:
    """Lines cut by the bytes of a body; a longer one goes alone."""
    lengths: Any = pc.binary_length(cast("pa.BinaryArray", texts))
    ends = np.cumsum(lengths.to_numpy().astype(np.int64))
    begin = 0
    while begin < len(rows):
        before = int(ends[begin - 1]) if begin else 0
        end = (
            max(begin + 1, int(np.searchsorted(ends, before + bytes_max, side="right"))) if bytes_max > 0 else len(rows)
        )
        yield Chunk(rows[begin:end], texts[begin:end])
        begin = end
