"""The one error of set-up: something a person has to do, said in one line."""

from __future__ import annotations


class SetupFailure(Exception):
    """What is wrong and what to do about it; the launcher prints it and exits with code 2."""
