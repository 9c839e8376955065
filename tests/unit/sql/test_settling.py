"""When a bound is settled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fetchers.sql.settling import Bound, Holder


def _session(name: str) -> Holder:
    return Holder(name, "transactions")


def _prepared(name: str) -> Holder:
    return Holder(name, heir_of="transactions")


def test_a_bound_without_holders_is_settled_at_once() -> None:
    """Nobody was writing when it was taken."""
    assert Bound("7", frozenset()).is_settled


def test_a_bound_waits_for_those_who_were_there_and_for_nobody_else() -> None:
    """Who comes later gets higher numbers, and does not hold it up."""
    bound = Bound("7", frozenset({_session("1"), _session("2")}))
    bound.look(frozenset({_session("2"), _session("3")}))
    assert not bound.is_settled
    bound.look(frozenset({_session("3")}))
    assert bound.is_settled


def test_a_transaction_that_was_prepared_meanwhile_still_holds() -> None:
    """It has another name then, and no session; one that was prepared before, by another, is no heir."""
    bound = Bound("7", frozenset({_session("1")}))
    bound.look(frozenset({_prepared("-1/5")}))
    assert not bound.is_settled
    bound.look(frozenset({_prepared("-1/6")}))
    assert bound.is_settled


def test_a_statement_that_became_a_transaction_still_holds() -> None:
    """MySQL shows it among the statements first, and then as a transaction of its thread."""
    bound = Bound("7", frozenset({Holder("statement 9", "thread 9")}))
    transaction = Holder("transaction 9", "transactions", "thread 9")
    bound.look(frozenset({transaction, Holder("transaction 8", "transactions", "thread 8")}))
    assert bound.holders == {transaction}
    bound.look(frozenset())
    assert bound.is_settled


@given(st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=30))
def test_a_bound_is_settled_when_and_only_when_all_have_been_away(looks: list[set[int]]) -> None:
    """Whatever order they come and go in: a name is never given to another one later."""
    first, *later = looks
    bound = Bound("7", frozenset(_session(str(number)) for number in first))
    left = set(first)
    for now in later:
        bound.look(frozenset(_session(str(number)) for number in now))
        left &= now
        assert {holder.name for holder in bound.holders} == {str(number) for number in left}
