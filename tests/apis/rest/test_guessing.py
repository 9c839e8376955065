"""Passwords, tokens and their hashes; and what becomes of those who guess them."""

from __future__ import annotations

import asyncio

import pytest

from service.rest.authentication import (
    CHECKS_PER_ADDRESS_MAX,
    FAILURES_FREE,
    FORGOTTEN_AFTER_SECONDS,
    WAIT_SECONDS_MAX,
    Attempts,
    Credentials,
    TooManyAttemptsError,
    parse_password,
    parse_token,
)
from service.rest.passwords import hash_password, verify_password
from tests.apis.rest.test_proof import TOKENS, USERS, basic, bearer


def test_a_hash_is_made_with_a_salt_of_its_own() -> None:
    """And is right for its password alone."""
    first, second = hash_password("pass"), hash_password("pass")

    assert first != second
    assert verify_password("pass", first)
    assert verify_password("pass", second)
    assert not verify_password("Pass", first)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "admin",
        "admin:",
        "root:hunter2",
        ":hunter2",
        "admin:scrypt$",
        f"admin:scrypt$3$8$1$c2FsdHNhbHQ${'a' * 43}",
        f"admin:scrypt$67108864$8$1$c2FsdHNhbHQ${'a' * 43}",
    ],
)
def test_a_credential_that_is_none_is_refused(text: str) -> None:
    """Without showing it: no role, no secret, a hash that cannot be checked."""
    with pytest.raises(ValueError, match="Expected") as refused:
        parse_password(text)
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(parse_password("read:hunter2"))


def test_a_digest_that_is_none_is_refused() -> None:
    """A token's."""
    with pytest.raises(ValueError, match="64 hexadecimal"):
        parse_token("read:sha256$abc")


async def test_a_right_password_is_forgotten_when_another_is_tried() -> None:
    """What was proven once is proven for that password alone."""
    credentials = Credentials(users=USERS, tokens={})
    try:
        found = [
            await credentials.find(basic("anne", password)["Authorization"], address="a")
            for password in ("a-pass", "wrong", "a-pass")
        ]
    finally:
        credentials.close()
    assert [principal is not None for principal in found] == [True, False, True]


async def test_wrong_passwords_of_one_address_keep_nobody_else_waiting() -> None:
    """Only so many of them wait for their check; sixteen once locked all others out."""
    credentials = Credentials(users=USERS, tokens={})
    right, wrong = (basic("anne", password)["Authorization"] for password in ("a-pass", "wrong"))
    try:
        async with asyncio.TaskGroup() as group:
            guesses = [
                group.create_task(credentials.find(wrong, address="guesser")) for _ in range(CHECKS_PER_ADDRESS_MAX)
            ]
            await asyncio.sleep(0)
            with pytest.raises(TooManyAttemptsError):
                await credentials.find(wrong, address="guesser")
            assert await credentials.find(right, address="other") is not None
        assert [guess.result() for guess in guesses] == [None] * CHECKS_PER_ADDRESS_MAX
        with pytest.raises(TooManyAttemptsError):
            await credentials.find(right, address="guesser")
        assert await credentials.find(right, address="third") is not None
    finally:
        credentials.close()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (basic("rita", "r-pass"), basic("rita", "guess")),
        (bearer("t-admin"), bearer("guess")),
        (bearer("t-admin"), basic("é", "guess")),
    ],
)
async def test_guesses_wait_longer_and_longer(right: dict[str, str], wrong: dict[str, str]) -> None:
    """Of any kind of proof, right ones between them included; what was shown from there before still counts."""
    now = [1000.0]
    credentials = Credentials(users=USERS, tokens=TOKENS, attempts=Attempts(lambda: now[0]))
    try:
        known = await credentials.find(bearer("t-read")["Authorization"], address="a")
        waits = []
        for _ in range(FAILURES_FREE + 9):
            try:
                found = await credentials.find(wrong["Authorization"], address="a")
            except TooManyAttemptsError as refused:
                waits.append(refused.wait_seconds)
                now[0] += refused.wait_seconds
                found = await credentials.find(wrong["Authorization"], address="a")
            assert found is None
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]

        with pytest.raises(TooManyAttemptsError):
            await credentials.find(right["Authorization"], address="a")
        assert await credentials.find(bearer("t-read")["Authorization"], address="a") == known
        assert await credentials.find(right["Authorization"], address="b") is not None
        now[0] += FORGOTTEN_AFTER_SECONDS + WAIT_SECONDS_MAX
        assert await credentials.find(wrong["Authorization"], address="a") is None
        assert await credentials.find(right["Authorization"], address="a") is not None
    finally:
        credentials.close()
