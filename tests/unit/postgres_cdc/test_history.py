"""Whether a server has the log of a stored place: by the timelines of the servers that took over from each other."""

from __future__ import annotations

from typing import Any, cast

import pytest
from psycopg import OperationalError, errors

from fetchers.postgres_cdc.history import History, demand_history, history, read_timelines
from fetchers.postgres_cdc.place import Origin, Place, SnapshotPlace, read_origin, read_place
from fetchers.sdk import Fatal, Retriable

FILE = "1\t0/64\tno recovery target specified\n\n# a comment\n2\t1/C8\tbefore 2026-07-01 00:00:00+00\n"
SECOND = 0x64
"""Where the second timeline begins."""
THIRD = (1 << 32) + 0xC8
HERE = History("7", 3, dict(read_timelines(FILE)))
UNTOLD = History("7", 3, None)
NO_CHOICE_IS_MADE = r"snapshot\.mode=initial.* snapshot\.mode=no_data"


def test_a_history_file_tells_where_each_timeline_was_left() -> None:
    """In its own words."""
    assert dict(read_timelines(FILE)) == {(1, 0): SECOND, (2, SECOND): THIRD}
    assert HERE.origin == Origin("7", 3, THIRD)
    assert History("7", 1).origin == Origin("7", 1, 0)
    assert History("7", 3, HERE.ends, is_replica=True).origin == Origin("7")
    assert UNTOLD.origin == Origin("7")


@pytest.mark.parametrize(
    ("origin", "place"),
    [
        (Origin(), Place(1 << 60)),
        (Origin("7"), Place(1 << 60)),
        (Origin("7", 3, THIRD), Place(1 << 60, events=3)),
        (Origin("7", 2, SECOND), Place(THIRD)),
        (Origin("7", 2, SECOND), Place(SECOND, done=frozenset({1}), until=THIRD)),
        (Origin("7", 1), Place(SECOND)),
        (Origin("7", 1), SnapshotPlace(SECOND, "public.t", ("1",))),
    ],
)
def test_what_the_server_has_is_gone_on_from(origin: Origin, place: Place | SnapshotPlace) -> None:
    """Up to the very end of a timeline, and where nothing is known of the place's."""
    demand_history(HERE, origin, place, "shop")


@pytest.mark.parametrize(
    ("origin", "place", "words"),
    [
        (Origin("8", 3, THIRD), Place(1), "identifier 8, and this one has 7"),
        (Origin("7", 2, SECOND), Place(THIRD + 1), r"timeline 2 up to 1/C9.* up to 1/C8 alone"),
        (Origin("7", 2, SECOND), Place(SECOND, done=frozenset({1}), until=THIRD + 1), "up to 1/C9"),
        (Origin("7", 1), Place(SECOND + 1), "up to 0/65.* up to 0/64 alone"),
        (Origin("7", 1), SnapshotPlace(SECOND + 1), "up to 0/65"),
        (Origin("7", 1), Place(SECOND, events=1), "part of a transaction"),
        (Origin("7", 1), Place(1, done=frozenset({1}), until=2, until_events=1), "part of a transaction"),
        (Origin("7", 2, SECOND + 1), Place(1), "did not come from there"),
        (Origin("7", 3, THIRD + 1), Place(1), "did not come from there"),
        (Origin("7", 4, THIRD), Place(1), "timeline 4 .* is on timeline 3"),
    ],
)
def test_what_the_server_may_lack_is_fatal(origin: Origin, place: Place | SnapshotPlace, words: str) -> None:
    """With the choices in words."""
    with pytest.raises(Fatal, match=rf"{words}.* {NO_CHOICE_IS_MADE}"):
        demand_history(HERE, origin, place, "shop")


def test_a_server_that_does_not_tell_its_history_is_gone_on_from_on_its_timeline_alone() -> None:
    """Whatever was known of where that began."""
    demand_history(UNTOLD, Origin("7", 3, THIRD), Place(1 << 60, events=1), "shop")
    with pytest.raises(Fatal, match=rf"is on timeline 3 and does not tell .*{NO_CHOICE_IS_MADE}"):
        demand_history(UNTOLD, Origin("7", 2, SECOND), Place(1), "shop")


def test_a_replica_that_is_not_there_yet_is_waited_for() -> None:
    """It is still to follow its primary to the timeline of the place."""
    with pytest.raises(Retriable, match="still on timeline 1"):
        demand_history(History("7", 1, is_replica=True), Origin("7", 2, SECOND), Place(SECOND), "shop")


class Session:
    """A session that speaks the replication protocol; it answers by the statement, and keeps their order."""

    def __init__(self, answers: dict[bytes, Any]) -> None:
        self.answers, self.asked = answers, list[bytes]()

    def execute(self, statement: bytes) -> Session:
        """Raises what it is to raise."""
        self.asked.append(statement)
        if isinstance(answer := self.answers[statement], Exception):
            raise answer
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Of the last statement."""
        return [self.answers[self.asked[-1]]]


def session(*, is_replica: bool = False, refusal: Exception | None = None) -> Session:
    """On the third timeline."""
    system: tuple[Any, ...] = ("7", 3, "1/C9", None)
    return Session(
        {b"select pg_is_in_recovery()": (is_replica,), b"IDENTIFY_SYSTEM": system, b"TIMELINE_HISTORY 3": refusal}
    )


@pytest.mark.parametrize(
    "refusal",
    [errors.UndefinedFile(), errors.FeatureNotSupported(), errors.InsufficientPrivilege(), errors.SyntaxError()],
)
def test_a_history_that_is_not_given_out_is_not_known(refusal: Exception) -> None:
    """As where somebody has removed its file, or by a server that is run for others."""
    assert history(cast("Any", session(refusal=refusal))) == UNTOLD


@pytest.mark.parametrize("refusal", [errors.AdminShutdown(), OperationalError("the connection is lost")])
def test_a_session_that_ends_says_nothing_of_the_history(refusal: Exception) -> None:
    """It is asked again in another one."""
    with pytest.raises(type(refusal)):
        history(cast("Any", session(refusal=refusal)))


def test_a_replica_that_takes_over_while_it_is_asked_has_no_timeline() -> None:
    """Were it asked for its timeline first, that would be its former primary's."""
    asked = session(is_replica=True, refusal=errors.UndefinedFile())
    assert history(cast("Any", asked)).origin == Origin("7")
    assert asked.asked[:2] == [b"select pg_is_in_recovery()", b"IDENTIFY_SYSTEM"]


@pytest.mark.parametrize("place", [Place(9, 2), SnapshotPlace(9), SnapshotPlace(9, "public.t", ("1",))])
@pytest.mark.parametrize("origin", [Origin(), Origin("7"), Origin("7", 3, THIRD)])
def test_an_origin_is_stored_beside_the_place(place: Place | SnapshotPlace, origin: Origin) -> None:
    """Each is read as it was written."""
    offset = origin.of(place.offset())
    assert (read_place(offset), read_origin(offset)) == (place, origin)
