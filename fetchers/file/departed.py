"""The file that was last at a path where nothing is now, to be known again when it comes back."""

from __future__ import annotations

from dataclasses import dataclass

from fetchers.file.disk import ByteSource, FileLook
from fetchers.file.mark import Mark


@dataclass(frozen=True, slots=True)
class Departed:
    """What was read of it, and how it looked.

    Nobody holds it open, so a file made later may have its inode. Then only what is certain counts: untouched, or
    moved away under another name and grown since. Any other file is read from its beginning: rather twice than never.
    """

    identity: tuple[int, int]
    mark: Mark
    look: FileLook | None
    had_a_name: bool
    """Whether it was moved when it was last open; else it was deleted, or nobody knows."""

    def is_back(self, source: ByteSource, look: FileLook | None) -> bool:
        """Whether ``source``, whose path looks like ``look``, is this very file."""
        if source.identity != self.identity:
            return False
        is_untouched = look is not None and look == self.look
        return (is_untouched or self.had_a_name) and self.mark.is_in(source.read_at)
