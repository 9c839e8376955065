"""Overrides of Kafka clients as entries: each that is given, with what is known of the client's key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fetchers.sdk import Finding
from fetchers.sdk.config import HIDDEN
from service.config.client_keys import client_key
from service.config.overrides import overrides_of
from service.config.secret_names import names_a_secret
from service.validation.entries import Entries, Entry, Place, key_info
from service.validation.types import typed


def add_overrides(entries: Entries, properties: Mapping[str, str], findings: Iterable[Finding]) -> None:
    """A key counts one error, however many texts it has."""
    errors: dict[str, list[str]] = {}
    for finding in findings:
        if finding.is_error:
            errors.setdefault(finding.key, []).append(finding.message)
    for key, name, value in overrides_of(properties):
        known = client_key(name)
        kind = "PASSWORD" if names_a_secret(key) else known.kind if known else "STRING"
        definition = None
        if known is not None:
            definition = key_info(replace(known, kind=kind), Place(key.removesuffix(name)))
        shown = HIDDEN if kind == "PASSWORD" else typed(kind, value).text
        entries.by_name[key] = Entry(definition, shown, errors.get(key, []), is_counted_once=True)
