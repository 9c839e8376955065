"""Writes the reference pages under ``docs/reference`` from what the code declares: ``./headrace docs``.

Nothing there is written by hand, so a key, an error or a command cannot exist without its line; the words for what the
code declares only as a name (a rejection's reason, a converter's key) stand here, and a missing one is an error.
"""
