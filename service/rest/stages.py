"""What a worker is busy with, in Connect's words."""

from __future__ import annotations

from service.herder.api import Activity


def summary(stage: Activity) -> str:
    """A sentence on the stage of now, or the last one."""
    if stage.ended is None:
        return f"The worker is currently {stage.text}, which began at {stage.began}"
    return (
        f"The last operation the worker completed was {stage.text}, "
        f"which began at {stage.began} and completed at {stage.ended}"
    )


def with_stage(text: str, stage: Activity | None) -> str:
    """A text, and what the worker is busy with where that is known."""
    return text if stage is None else f"{text} {summary(stage)}"
