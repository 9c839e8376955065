"""Pages between their fetch and Spark's commit, in files: what makes a batch of a stream readable again, exactly.

Spark logs the end of a batch before it reads it, and after a crash reads the same batch again, whatever the source has
come to say meanwhile. So pages are kept before their end is told, one file a micro-batch, and deleted after the commit.
Names hold the run that wrote them: a driver that was thought dead cannot overwrite what another has logged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs
from pyarrow import ipc

from fetchers.sdk import DedupeScope, Page, Rejection

_KINDS: dict[str, Any] = {"payload": pa.binary(), "key": pa.binary(), "timestamp": pa.int64(), "position": pa.int64()}
_COLUMNS = pa.schema(_KINDS)
_PAGES = b"pages"


@dataclass(frozen=True)
class KeptPages:
    """One file; a part of a batch that Spark reads."""

    place: str
    """URL or path."""

    def write(self, pages: Sequence[Page]) -> None:
        """Keep whole pages; on return the file is complete."""
        filesystem, path = _opened(self.place)
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        schema = _COLUMNS.with_metadata({_PAGES: json.dumps([_described(page) for page in pages]).encode()})
        with filesystem.open_output_stream(path) as file, ipc.new_stream(file, schema) as stream:
            for page in pages:
                columns = (page.payloads, page.keys, page.timestamps_ms, page.positions)
                arrays: list[Any] = [
                    pa.nulls(len(page), field.type) if column is None else column
                    for column, field in zip(columns, _COLUMNS, strict=True)
                ]
                stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def read(self) -> tuple[Page, ...]:
        """The pages as they were; raises OSError where somebody has deleted them."""
        filesystem, path = _opened(self.place)
        with filesystem.open_input_stream(path) as file, ipc.open_stream(file) as stream:
            described = json.loads((stream.schema.metadata or {})[_PAGES])
            return tuple(_page(each, batch) for each, batch in zip(described, stream, strict=True))


def _opened(place: str) -> tuple[Any, str]:
    if "://" in place:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(place)
        return filesystem, path
    return pyarrow.fs.LocalFileSystem(), place


def _described(page: Page) -> dict[str, Any]:
    """What a page has besides its columns; headers are not among a row's columns."""
    return {
        "offset": page.offset,
        "partition": page.partition,
        "topic": page.topic,
        "told_offset": page.told_offset,
        "position_name": page.position_name,
        "rejections": [asdict(rejection) for rejection in page.rejections],
        "dedupe": None if page.dedupe is None else asdict(page.dedupe),
    }


def _page(described: dict[str, Any], batch: pa.RecordBatch) -> Page:
    rejections = tuple(Rejection(**each) for each in described.pop("rejections"))
    dedupe = described.pop("dedupe")
    return Page(
        batch.column("payload"),
        keys=batch.column("key"),
        timestamps_ms=batch.column("timestamp"),
        positions=batch.column("position"),
        rejections=rejections,
        dedupe=None if dedupe is None else DedupeScope(**dedupe),
        **described,
    )


def places(folder: str, stream: str, run: str, numbers: range) -> Iterator[KeptPages]:
    """The files of one stream that a run has written."""
    for number in numbers:
        yield KeptPages(f"{folder.rstrip('/')}/{stream}/{number:012d}-{run}.arrow")


def delete_up_to(folder: str, stream: str, number: int) -> None:
    """Forget a stream's files up to a number, whoever wrote them: also those of a run that died before it told of them.

    They are committed, or nobody has logged them and nobody will.
    """
    filesystem, path = _opened(f"{folder.rstrip('/')}/{stream}")
    for file in filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True)):
        if int(file.base_name.partition("-")[0]) <= number:
            filesystem.delete_file(file.path)
