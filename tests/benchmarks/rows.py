"""A figure beside its aim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure."""

    what: str
    figure: str
    aim: str
    is_reached: bool | None
    """None where there is nothing to reach: the figure is there to be known."""

    @property
    def verdict(self) -> str:
        """Whether the aim is reached, in a word."""
        return "—" if self.is_reached is None else "yes" if self.is_reached else "**no**"


def quantile(values: Sequence[float], share: float) -> float:
    """Of values in any order."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
